"""The record of a channel: the Redis hash that stores the channel, and the values that are read from it.

Each field costs Redis about 60 bytes besides its value, and takes time to read. Values that change together are
therefore packed in one field, ``snapshot``. Large values, and values that scripts read, have fields of their own.

The table uses these terms:

- The *delta* of a version contains the changes since the previous version.
- A *fan-out* queues a version for all subscribers. It can be divided into *units* that different workers carry out.
- A *content name* is the set of AV-pairs (attribute-value pairs) by which searches find the channel.

==================  ====================================================================================================
field               content
==================  ====================================================================================================
``url``             canonical URL; a hash without it does not represent a channel
``snapshot``        title, kind, validators and more: see StoredSnapshot (msgpack)
``private``         1 if the publisher's address is not public
``listed``          1 if an admin wants the channel to be polled even without subscribers
``dormant``         1 while the channel is not polled; the entries that the next poll finds are not delivered
``credential``      sealed credential of a protected channel: see service.net.credential_vault
``condition``       condition that was last announced to subscribers: dead, quarantined or refused
``moved_to``        id of the channel's successor
``epoch``           fencing token, increased whenever a node adopts the channel
``owner``           node that last adopted the channel
``version``         number of the latest version
``fanned``          last version whose fan-out is complete
``cursor``          progress of the fan-out of version fanned + 1; "*" if it is divided into units
``VERSION``         delta of the version with this number: see service.store.channels.version_log
``bN``              deltas of versions 64·N to 64·N + 63
``log``             sizes and ages of the fields bN
``memory``          change-detection state, a part of the content: see service.feeds.sandbox.parser_handlers (msgpack)
``latest``          latest entries, the other part of the content: see service.location.content_cache
``site``            registrable domain, by which its subscriptions are placed: service.store.subscriptions.channel_index
``joins``           counter of new subscribers, which shows whether a count of subscribers is outdated
``paces``           poll rate history: see service.store.channels.poll_rate_history
``name``            content name last stored: version from which it was made, space, AV-pairs (msgpack, brotli)
``entries``         entries that searches can find: see service.store.channels.public_entries.EntryTable (msgpack)
``failing_since``   first failed poll since the last successful one (Unix s)
``recovered``       end of the first successful poll after the last failed ones (Unix s)
``failed``          last failed poll that the back-off includes (Unix s)
``backoff``         shortest interval between polls while they fail (s): see service.feeds.channel_health
``tags``            admins' tags, separated by spaces
``note``            admins' note
``paused``          end of an admin's pause (Unix s)
``no_poll_before``  time before which the publisher wants no poll, or at which an admin's pause ended (Unix s)
``polled``          end of the last poll (Unix s)
``full_texts``      until when full texts are added to new entries (Unix s)
``evidence``        consecutive polls with the same symptom: service.feeds.channel_health.Evidence (JSON)
==================  ====================================================================================================
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from math import ceil
from typing import Final, Literal

import brotli  # type: ignore[import-untyped]  # it ships no types
import msgspec

from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.update_rates import UpdateHistory
from service.discovery.av_pairs import Pair
from service.feeds.canonical_urls import channel_id
from service.feeds.publisher_polling_hints import shortest_interval_s
from service.location.content_cache import Content, pack_entries
from service.model import (
    Channel,
    ChannelId,
    Entry,
    FeedMetadata,
    NodeId,
    Notice,
    PollingHints,
    PollResult,
    Validators,
)
from service.store.client import keys
from service.store.client.redis_client import RedisClient

CHANNEL_FIELDS: Final = ("url", "snapshot", "version", "private", "listed", "dormant", "condition", "moved_to")
_CHANNEL_FIELD_NAMES: Final = tuple(name.encode() for name in CHANNEL_FIELDS)
STATE_FIELDS: Final = (
    *CHANNEL_FIELDS,
    *("epoch", "owner", "fanned", "cursor", "failing_since", "backoff", "paused", "no_poll_before"),
)
_NO_HINTS: Final = PollingHints()
_NAME_QUALITY: Final = 5


class ChannelState(msgspec.Struct, frozen=True):
    """The state of a channel without its content, for the channel's owner and for the workers that poll the channel.

    - ``epoch``: fencing token, which increases whenever a node adopts the channel. Changes with a lower epoch are
      rejected.
    - ``owner``: node that last adopted the channel.
    - ``fanned_version``: last version that was queued for all subscribers.
    - ``cursor``: position in the list of subscribers at which to continue queueing the next version. It is
      ``fanout_units.DIVIDED`` if several workers queue the version, each from its own position.
    - ``failing_since_s``: time of the first failed poll since the last successful one (Unix s); None if polls succeed.
    - ``updates``: statistics of the channel's updates.
    - ``polling_hints``: when the publisher wants to be polled.
    - ``digest``: digest of the content.
    - ``backoff_s``: shortest interval between polls while they fail
      (:class:`service.feeds.channel_health.ChannelHealth`).
    - ``paused_until_s``: when the channel's last pause ends or ended (Unix s); 0 if there was none.
    """

    channel: Channel
    epoch: int
    owner: NodeId
    fanned_version: int
    cursor: str
    validators: Validators
    failing_since_s: float | None
    updates: UpdateHistory
    polling_hints: PollingHints = PollingHints()
    digest: bytes = b""
    backoff_s: float = 0.0
    paused_until_s: float = 0.0

    def polling_limits(self) -> PollingLimits:
        """Return the limits on polls that follow from the publisher's hints, failed polls, and the channel's pause.

        The hints are ignored for a private channel. A pause of the channel's whole site is not taken into account.
        """
        hint_s = 0.0 if self.channel.private else shortest_interval_s(self.polling_hints)
        if not hint_s and not self.backoff_s and not self.paused_until_s:
            return NO_LIMITS
        return PollingLimits(ceil(hint_s), ceil(self.backoff_s), ceil(self.paused_until_s))


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a channel after a poll has found changes.

    - ``validators``: validators of the polled document, such as its ETag.
    - ``memory``: the change-detection state, with which the parser finds the changes in the next poll.
    - ``title``, ``link``, ``language``: title, link and language of the document; "" if unchanged.
    - ``polling_hints``: when the publisher wants to be polled.
    - ``kind``: whether the channel is a feed or a page; None if unchanged.
    - ``updates``: statistics of the channel's updates; None if unchanged.
    - ``metadata``: tags and generator of the document; empty if unchanged.
    - ``latest``: the latest entries, newest first.
    """

    validators: Validators
    memory: bytes
    title: str
    link: str
    polling_hints: PollingHints = PollingHints()
    kind: Literal["feed", "page"] | None = None
    updates: UpdateHistory | None = None
    language: str = ""
    metadata: FeedMetadata = FeedMetadata()
    latest: tuple[Entry, ...] = ()

    @property
    def content(self) -> Content:
        """The content of the channel in this state: the change-detection state and the latest entries."""
        return Content(self.memory, pack_entries(self.latest))


class StoredSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The last known values from a channel's documents, such as the title.

    They are stored together in the field ``snapshot`` of the channel's Redis hash.

    - ``title``, ``link``, ``language``: title, link and language of the document; "" if unknown.
    - ``kind``: whether the channel is a feed or a page.
    - ``created_s``: when the channel was created (Unix s).
    - ``tags``, ``generator``: see :class:`FeedMetadata`.
    - ``etag``, ``last_modified``, ``body_sha256``: validators of the document from which the latest version was made.
      The SHA-256 is binary.
    - ``digest``: digest of the channel's content.
    - ``hints``: when the publisher wants to be polled; None if it gives no hints.
    - ``updates``: statistics of the channel's updates; None if there are none yet.
    """

    title: str = ""
    link: str = ""
    language: str = ""
    kind: Literal["feed", "page"] = "feed"
    created_s: float = 0.0
    tags: tuple[str, ...] = ()
    generator: str = ""
    etag: str = ""
    last_modified: str = ""
    body_sha256: bytes = b""
    digest: bytes = b""
    hints: PollingHints | None = None
    updates: UpdateHistory | None = None

    @property
    def validators(self) -> Validators:
        """The validators of the document from which the latest version was made: ETag, Last-Modified, and SHA-256."""
        return Validators(self.etag, self.last_modified, self.body_sha256.hex())

    def history(self) -> UpdateHistory:
        """Return the statistics of the channel's updates.

        If none are stored yet, the result is the statistics of a channel that has never been updated.
        """
        return UpdateHistory(since_s=self.created_s) if self.updates is None else self.updates

    def after(self, snapshot: Snapshot, digest: bytes) -> "StoredSnapshot":
        """Return a copy of this snapshot in which the values of ``snapshot`` replace the stored ones.

        Values that ``snapshot`` marks as unchanged are kept. ``digest`` is the digest of the content of ``snapshot``.
        """
        validators, metadata = snapshot.validators, snapshot.metadata
        if metadata == FeedMetadata():
            metadata = FeedMetadata(self.tags, self.generator)
        return StoredSnapshot(
            snapshot.title or self.title,
            snapshot.link or self.link,
            snapshot.language or self.language,
            snapshot.kind or self.kind,
            self.created_s,
            metadata.tags,
            metadata.generator,
            validators.etag,
            validators.last_modified,
            bytes.fromhex(validators.body_sha256),
            digest,
            snapshot.polling_hints if snapshot.polling_hints != _NO_HINTS else None,
            snapshot.updates or self.updates,
        )


_decode_pairs = msgspec.msgpack.Decoder(list[Pair]).decode
_decode_snapshot = msgspec.msgpack.Decoder(StoredSnapshot).decode


def decode_snapshot(packed: bytes | None) -> StoredSnapshot:
    """Decode the field ``snapshot`` of a channel's hash; return an empty snapshot if ``packed`` is None."""
    return _decode_snapshot(packed) if packed else StoredSnapshot()


async def read_records(redis: RedisClient, cids: Sequence[ChannelId], names: Sequence[str]) -> list[dict[bytes, bytes]]:
    """Read the fields ``names`` of each channel's Redis hash.

    Return one dictionary per channel, in the order of ``cids``. It maps the name of each existing field to the field's
    value.
    """
    found = await redis.call_many([("HMGET", keys.channel(cid), *names) for cid in cids])
    return [existing_fields(names, values) for values in found]


def existing_fields(names: Sequence[str], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return a dictionary that maps the name of each existing field of a Redis hash to the field's value.

    ``values`` contains the value of each field in ``names``, in the same order; None for a field that does not exist.
    """
    return {name.encode(): value for name, value in zip(names, values, strict=True) if value is not None}


def parse_channel(cid: ChannelId, values: Sequence[bytes | None]) -> Channel | None:
    """Return the channel with the id ``cid``; None if it does not exist.

    ``values`` contains the values of the fields ``CHANNEL_FIELDS`` from the channel's Redis hash, in this order; None
    for a field that does not exist.
    """
    return None if values[0] is None else _channel(cid, decode_snapshot(values[1]), values)


def _channel(cid: ChannelId, stored: StoredSnapshot, values: Sequence[bytes | None]) -> Channel:
    url, _, version, private, listed, dormant, condition, moved_to = values
    return Channel(
        id=cid,
        url=(url or b"").decode(),
        title=stored.title,
        link=stored.link,
        kind=stored.kind,
        version=int(version or b"0"),
        created_s=stored.created_s,
        private=private == b"1",
        listed=listed == b"1",
        dormant=dormant == b"1",
        condition=_condition((condition or b"").decode()),
        moved_to=(moved_to or b"").decode(),
        language=stored.language,
    )


def parse_state(cid: ChannelId, fields: dict[bytes, bytes]) -> ChannelState | None:
    """Return the state of the channel whose Redis hash contains ``fields``.

    The result is None if ``fields`` contains no URL, which means that the channel does not exist.
    """
    if b"url" not in fields:
        return None

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    stored = decode_snapshot(fields.get(b"snapshot"))
    channel = _channel(cid, stored, [fields.get(name) for name in _CHANNEL_FIELD_NAMES])
    failing = fields.get(b"failing_since")
    return ChannelState(
        channel=channel,
        epoch=int(fields.get(b"epoch", b"0")),
        owner=text(b"owner"),
        fanned_version=int(fields.get(b"fanned", b"0")),
        cursor=text(b"cursor"),
        validators=stored.validators,
        failing_since_s=float(failing) if failing else None,
        updates=stored.history(),
        polling_hints=stored.hints or _NO_HINTS,
        digest=stored.digest,
        backoff_s=float(fields.get(b"backoff", b"0")),
        paused_until_s=max(float(fields.get(b"paused", b"0")), float(fields.get(b"no_poll_before", b"0"))),
    )


def _condition(text: str) -> Literal["", "dead", "quarantined", "refused"]:
    match text:
        case "dead" | "quarantined" | "refused":
            return text
        case _:
            return ""


def notice_fields(notice: Notice | None) -> tuple[str, str]:
    """Return the name and the value of the hash field in which a channel records a notice.

    A notice tells subscribers that the channel is dead, quarantined or refused, works again, or has moved. If
    ``notice`` is None, the result is ("", "").
    """
    if notice is None:
        return "", ""
    if notice.kind == "moved":
        return "moved_to", channel_id(notice.detail)
    return "condition", "" if notice.kind == "back" else notice.kind


def channel_fields(channel: Channel) -> list[str | bytes]:
    """Return the fields for a new channel's Redis hash, as alternating names and values.

    The field ``snapshot`` is not included.
    """
    return [
        *("url", channel.url),
        *(("private", "1") if channel.private else ()),
        *(("listed", "1") if channel.listed else ()),
        *(("dormant", "1") if channel.dormant else ()),
    ]


_RESULT: Final = struct.Struct("<20sddIH")

_USUAL_OUTCOME: Final = "unchanged"


def pack_result(result: PollResult) -> bytes:
    """Encode the result of a poll. The encoded result is usually 42 bytes long."""
    outcome = "" if result.outcome == _USUAL_OUTCOME else result.outcome
    text = f"{outcome}\n{result.detail}" if result.detail else outcome
    node = bytes.fromhex(result.node)
    numbers = _RESULT.pack(node, result.at_s, result.took_s, result.size_bytes, result.status)
    return numbers + text.encode()


def unpack_result(packed: bytes) -> PollResult:
    """Decode the result of a poll that was encoded by :func:`pack_result`."""
    node, at_s, took_s, size_bytes, status = _RESULT.unpack_from(packed)
    outcome, _, detail = packed[_RESULT.size :].decode().partition("\n")
    return PollResult(node.hex(), at_s, outcome or _USUAL_OUTCOME, status, detail, took_s, size_bytes)


def pack_name(version: int, pairs: Collection[Pair]) -> bytes:
    """Encode a channel's content name: the attribute-value pairs that searches use to find the channel.

    The pairs were computed from the channel's version ``version``. This number is encoded together with them.
    """
    return b"%d %b" % (version, brotli.compress(msgspec.msgpack.encode(sorted(pairs)), quality=_NAME_QUALITY))


def unpack_name(packed: bytes) -> frozenset[Pair]:
    """Return the attribute-value pairs in ``packed``, which :func:`pack_name` has encoded.

    If ``packed`` is empty, the result is an empty set.
    """
    pairs = packed.partition(b" ")[2]
    return frozenset(_decode_pairs(brotli.decompress(pairs))) if pairs else frozenset()


class StoredPairs(AbstractSet[Pair]):
    """The attribute-value pairs of a content name that :func:`pack_name` has encoded; decoded when they are needed."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._unpacked: frozenset[Pair] | None = None

    def __contains__(self, pair: object) -> bool:
        return pair in self._pairs

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def isdisjoint(self, other: Iterable[object]) -> bool:
        """Return whether the content name has none of the pairs in ``other``."""
        return self._pairs.isdisjoint(other)

    @property
    def _pairs(self) -> frozenset[Pair]:
        if self._unpacked is None:
            self._unpacked = unpack_name(self._packed)
        return self._unpacked
