"""Channels: their states, their versions, and the logs of versions.

A channel is stored as a hash of :data:`FIELDS`, which :class:`ChannelState` represents. Only the node that adopted the
channel last, its owner, can add a version (:meth:`Channels.publish`). The log has the Delta of each of the last ~1,000
versions.
"""

from collections.abc import Collection, Sequence
from math import ceil
from typing import Literal

import msgspec

from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.update_rates import UpdateHistory
from service.discovery.av_pairs import Pair
from service.errors import LeaseLost, StaleVersion
from service.feeds.channel_health import (
    FIRST_BACKOFF_S,
    HEALTHY,
    LONGEST_BACKOFF_S,
    ChannelHealth,
    Evidence,
    PollReport,
)
from service.feeds.polling_hints import shortest_interval_s
from service.feeds.urls import channel_id
from service.location.content_cache import Content, Digest, digest_of, merge_latest, pack_entries, unpack_entries
from service.model import (
    Change,
    Channel,
    ChannelId,
    Delta,
    Entry,
    FeedMetadata,
    NodeId,
    Notice,
    PollingHints,
    PollResult,
    Validators,
)
from service.store.channels.registry_changes import record_change
from service.store.client import keys
from service.store.client.connection import BatchingClient, script_command
from service.store.delivery.fanout_units import DIVIDED
from service.store.subscriptions.channel_index import ChannelIndex

CHANNEL_FIELDS = (
    *("url", "title", "link", "kind", "version", "created"),
    *("private", "listed", "dormant", "condition", "moved_to", "language"),
)
STATE_FIELDS = (
    *CHANNEL_FIELDS,
    *("epoch", "owner", "fanned", "cursor", "etag", "last_modified", "body_sha256"),
    *("failing_since", "backoff", "paused", "no_poll_before", "wishes", "updates", "digest"),
)


_NO_HINTS = PollingHints()
_NONE = msgspec.msgpack.encode(_NO_HINTS)


class ChannelState(msgspec.Struct, frozen=True):
    """A channel with the state that pollers and its owner need. The channel's content is read separately.

    ``epoch`` is the owner's fencing token: the store rejects changes with an earlier token. ``fanned_version`` is the
    last version that was queued for all its recipients (its fan-out is complete), and ``cursor`` is the progress of the
    fan-out of the next version; it is ``fanout_units.DIVIDED`` if the units have their own. ``digest`` identifies the
    content. ``backoff_s`` is the shortest interval between polls while they fail
    (:class:`service.feeds.channel_health.ChannelHealth`), and ``paused_until_s`` is the end of a pause of the channel
    (Unix s), which may be in the past.
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
        """Return the limits of the channel's polls that are stored with it; a pause of its site is not."""
        hint_s = 0.0 if self.channel.private else shortest_interval_s(self.polling_hints)
        if not hint_s and not self.backoff_s and not self.paused_until_s:
            return NO_LIMITS
        return PollingLimits(ceil(hint_s), ceil(self.backoff_s), ceil(self.paused_until_s))


def existing_fields(names: Sequence[str], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return the existing fields of a hash by name. ``values`` are the values of ``names``, in order.

    The result is None if absent.
    """
    return {name.encode(): value for name, value in zip(names, values, strict=True) if value is not None}


def parse_state(cid: ChannelId, fields: dict[bytes, bytes]) -> ChannelState | None:
    """Return the state of the channel whose hash has these ``fields``; None if the channel does not exist.

    A channel exists if its hash has a URL.
    """
    if b"url" not in fields:
        return None

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    channel = Channel(
        id=cid,
        url=text(b"url"),
        title=text(b"title"),
        link=text(b"link"),
        kind="page" if text(b"kind") == "page" else "feed",
        version=int(text(b"version") or 0),
        created_s=float(text(b"created") or 0),
        private=text(b"private") == "1",
        listed=text(b"listed") == "1",
        dormant=text(b"dormant") == "1",
        condition=_condition(text(b"condition")),
        moved_to=text(b"moved_to"),
        language=text(b"language"),
    )
    failing = text(b"failing_since")
    return ChannelState(
        channel=channel,
        epoch=int(text(b"epoch") or 0),
        owner=text(b"owner"),
        fanned_version=int(text(b"fanned") or 0),
        cursor=text(b"cursor"),
        validators=Validators(text(b"etag"), text(b"last_modified"), text(b"body_sha256")),
        failing_since_s=float(failing) if failing else None,
        updates=_parse_updates(fields.get(b"updates"), channel),
        polling_hints=_parse_hints(fields.get(b"wishes", _NONE)),
        digest=fields.get(b"digest", b""),
        backoff_s=float(text(b"backoff") or 0),
        paused_until_s=max(float(text(b"paused") or 0), float(text(b"no_poll_before") or 0)),
    )


def _parse_hints(raw: bytes) -> PollingHints:
    """Parse polling hints. Channels without hints, which are most, share one object."""
    return _NO_HINTS if raw == _NONE else msgspec.msgpack.decode(raw, type=PollingHints)


def _parse_updates(raw: bytes | None, channel: Channel) -> UpdateHistory:
    """Parse the update statistics of ``channel``.

    If ``raw`` is None, the result states that the channel has had no update since its creation.
    """
    return msgspec.msgpack.decode(raw, type=UpdateHistory) if raw else UpdateHistory(since_s=channel.created_s)


def _condition(text: str) -> Literal["", "dead", "quarantined"]:
    return "dead" if text == "dead" else "quarantined" if text == "quarantined" else ""


def notice_fields(notice: Notice | None) -> tuple[str, str]:
    """Return the name and the value of the field in which a channel records a notice; ("", "") without a notice."""
    if notice is None:
        return "", ""
    if notice.kind == "moved":
        return "moved_to", channel_id(notice.detail)
    return "condition", "" if notice.kind == "back" else notice.kind


def channel_fields(channel: Channel) -> list[str]:
    """Return the fields of a new channel as a flat list of alternating names and values."""
    return [
        *("url", channel.url, "kind", channel.kind, "created", repr(channel.created_s)),
        *("private", str(int(channel.private)), "listed", str(int(channel.listed))),
        *(("dormant", "1") if channel.dormant else ()),
    ]


LOG_LENGTH = 1_000
POLLS_KEPT = 20
_BUCKETS_PER_READ = 32
_UNDECIDED = "?"
_NO_METADATA = FeedMetadata()
_MAX_REDIRECTIONS = 8
_CONTENT_FIELDS = ("version", "digest", "memory", "latest")

FIELDS = {
    "url": "canonical URL; a hash without it is no channel",
    "title": "title, as the publisher states it",
    "link": "home page",
    "language": "language, as the publisher states it",
    "imprint": "categories and generator, as the publisher states them: model.FeedMetadata (msgpack)",
    "kind": "feed or page",
    "created": "when it was created (Unix s)",
    "private": "1 if the publisher's address is not public",
    "listed": "1 if an admin wants it polled without subscribers",
    "dormant": "1 while it is not polled; the entries of the next poll are not delivered",
    "condition": "condition that was last announced to subscribers: dead or quarantined",
    "moved_to": "id of its successor",
    "epoch": "fencing token, raised by each adoption",
    "owner": "node that adopted it last",
    "version": "number of the latest version",
    "fanned": "last version whose fan-out is complete",
    "cursor": "progress of the fan-out of version fanned + 1; * if it is divided into units",
    "etag": "HTTP validator of the body from which the version was made",
    "last_modified": "HTTP validator of that body",
    "body_sha256": "SHA-256 of that body",
    "memory": "change-detection state, a part of the content: see service.feeds.entries.change_detection (msgpack)",
    "latest": "latest entries, the other part of the content: see service.location.content_cache",
    "digest": "digest of the content",
    "wishes": "polling hints in the publisher's documents: model.PollingHints (msgpack)",
    "site": "registrable domain that places its subscriptions: see service.store.subscriptions.channel_index",
    "joins": "counter of new subscribers, by which an outdated count of subscribers is recognized",
    "paces": "poll rate history: see service.store.channels.admin_settings",
    "updates": "update statistics: service.corona.update_rates.UpdateHistory (msgpack)",
    "name": "content name as registered last: AV-pairs (msgpack)",
    "named": "version from which the content name was made",
    "failing_since": "first failed poll since the last good one (Unix s)",
    "failed": "last failed poll that the back-off includes (Unix s)",
    "backoff": "shortest interval between polls while they fail (s): see service.feeds.channel_health.ChannelHealth",
    "tags": "admins' tags, separated by spaces",
    "note": "admins' note",
    "paused": "end of an admin's pause (Unix s)",
    "no_poll_before": "time before which the publisher wants no poll, or at which an admin's pause ended (Unix s)",
    "polled": "end of the last poll (Unix s)",
    "evidence": "evidence of consecutive polls: service.feeds.channel_health.Evidence (JSON)",
}
"""Fields of a channel's hash."""


class ChannelStatus(msgspec.Struct, frozen=True):
    """The state of a channel as it is shown to users.

    ``epoch`` is the owner's fencing token. ``failing_since_s`` is the time (Unix s) since which polls have failed; None
    if they succeed. ``last`` is the result of the last poll; None before the first poll. ``subscribers`` is their
    number.
    """

    owner: NodeId
    epoch: int
    version: int
    failing_since_s: float | None
    last: PollResult | None
    subscribers: int


class Snapshot(msgspec.Struct, frozen=True):
    """The state in which a delta leaves the channel.

    ``memory`` is the change-detection state, ``polling_hints`` are those of the publisher, and ``metadata`` is that of
    the document. An empty ``title``, ``link``, ``language`` or ``metadata`` leaves the channel's present value
    unchanged. ``kind`` is the new kind of the channel; None leaves it unchanged. ``updates`` are the new update
    statistics; None leaves them unchanged. ``latest`` are the latest entries, newest first.
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


class Channels:
    """Creates, reads, adopts, versions and deletes channels."""

    def __init__(self, redis: BatchingClient, index: ChannelIndex) -> None:
        """Create the repository; ``index`` counts the subscribers of channels."""
        self._redis = redis
        self._index = index

    async def create(self, channel: Channel, snapshot: Snapshot, latest: Sequence[Entry], now_s: float) -> Channel:
        """Create a channel at version 1 and return it. If the channel exists already, return it unchanged.

        ``snapshot`` is its state, ``latest`` are its latest entries, oldest first, and ``now_s`` is the Unix time.
        """
        first = Delta(channel.id, 0, 1, now_s, _additions(latest), initial=True)
        fields = channel_fields(channel) + _snapshot_fields(_beginning(snapshot, first))
        # First, because an id without a channel is harmless, but a channel missing from the registry is never polled.
        await self._redis.call("SADD", keys.channel_registry(channel.id[:2]), channel.id)
        own = (keys.channel(channel.id), keys.channel_log(channel.id))
        await self._redis.run_script("channel_create", own, msgspec.msgpack.encode(first), *fields)
        await self._redis.call(*record_change(channel.id))
        return await self.get(channel.id) or channel

    async def take_over(
        self,
        former: ChannelId,
        channel: Channel,
        snapshot: Snapshot,
        latest: Sequence[Entry],
        *,
        joins_at: int,
        now_s: float,
    ) -> int | None:
        """Make ``channel`` the successor of the channel ``former``.

        ``channel`` is the successor as the caller knows it; its version is 0 if it does not exist. A successor that is
        new or dormant continues from ``snapshot`` and gets the entries ``latest`` (oldest first). A successor that is
        polled already continues from its own state, and subscribers join it at its version ``joins_at``. ``now_s`` is
        the Unix time.

        Returns the version at which subscribers of ``former`` join; repeated calls return the same version until
        :meth:`finish_joining` is called. Returns None if the successor has changed since the caller read it.
        """
        first = Delta(channel.id, channel.version, channel.version + 1, now_s, _additions(latest), initial=True)
        fields = channel_fields(channel) + _snapshot_fields(_beginning(snapshot, first))
        await self._redis.call("SADD", keys.channel_registry(channel.id[:2]), channel.id)
        own = (keys.channel(channel.id), keys.channel_log(channel.id), keys.incoming_moves(channel.id))
        packed = msgspec.msgpack.encode(first)
        done, version = await self._redis.run_script(
            "channel_take_over", own, former, channel.version, joins_at, packed, *fields
        )
        await self._redis.call(*record_change(channel.id))
        return version if done else None

    async def finish_joining(self, former: ChannelId, cid: ChannelId) -> None:
        """Record that all subscribers of the channel ``former`` have joined the channel ``cid``."""
        await self._redis.call("HDEL", keys.incoming_moves(cid), former)

    async def get(self, cid: ChannelId) -> Channel | None:
        """Return a channel; None if it does not exist."""
        return (await self.get_many([cid]))[0]

    async def resolve(self, cid: ChannelId) -> Channel | None:
        """Return a channel, or its successor if the channel has moved; None if the channel does not exist.

        A channel has moved when all its subscribers have joined the successor.
        """
        channel = await self.get(cid)
        for _ in range(_MAX_REDIRECTIONS):
            if channel is None or not (channel.moved_to and channel.dormant):
                break
            channel = await self.get(channel.moved_to) or channel
        return channel

    async def get_many(self, cids: Sequence[ChannelId]) -> list[Channel | None]:
        """Return channels in the order of ``cids``; None for a channel that does not exist."""
        found = await self._redis.call_many([("HMGET", keys.channel(cid), *CHANNEL_FIELDS) for cid in cids])
        states = [
            parse_state(cid, existing_fields(CHANNEL_FIELDS, values)) for cid, values in zip(cids, found, strict=True)
        ]
        return [state.channel if state else None for state in states]

    async def states(self, cids: Sequence[ChannelId]) -> list[ChannelState | None]:
        """Return the states of channels in the order of ``cids``; None for a channel that does not exist."""
        found = await self._redis.call_many([("HMGET", keys.channel(cid), *STATE_FIELDS) for cid in cids])
        return [
            parse_state(cid, existing_fields(STATE_FIELDS, values)) for cid, values in zip(cids, found, strict=True)
        ]

    async def memory(self, cid: ChannelId) -> tuple[int, bytes]:
        """Return a channel's version and its change-detection state; (0, b"") if it does not exist."""
        version, memory = await self._redis.call("HMGET", keys.channel(cid), "version", "memory")
        return int(version or 0), memory or b""

    async def content(self, cid: ChannelId) -> tuple[int, Digest, Content]:
        """Return a channel's version, the digest of its content, and the content.

        If the channel does not exist, the result is 0, an empty digest, and an empty content.
        """
        version, digest, memory, latest = await self._redis.call("HMGET", keys.channel(cid), *_CONTENT_FIELDS)
        return int(version or 0), digest or b"", Content(memory or b"", latest or b"")

    async def content_entries(self, cid: ChannelId) -> tuple[Entry, ...]:
        """Return the latest entries in a channel's content, newest first."""
        return unpack_entries(await self._redis.call("HGET", keys.channel(cid), "latest") or b"")

    async def adopt(self, cids: Sequence[ChannelId], node: NodeId) -> list[ChannelState | None]:
        """Make ``node`` the owner of channels, and increment their epochs (fencing tokens).

        Returns the states of the channels in the order of ``cids``; None for a channel that does not exist.
        """
        found = await self._redis.call_many(
            [script_command("channel_adopt", (keys.channel(cid),), node, *STATE_FIELDS) for cid in cids]
        )
        return [
            parse_state(cid, existing_fields(STATE_FIELDS, values)) for cid, values in zip(cids, found, strict=True)
        ]

    async def publish(self, delta: Delta, snapshot: Snapshot | None, epoch: int, *, silent: bool) -> Delta:
        """Add a version to a channel and return the versioned delta.

        The version is added only if the channel is at ``delta.base_version`` and ``epoch`` is its present fencing
        token. ``snapshot`` is the state after the delta; None for a notice. A notice of a condition that was announced
        already gets no new version. A ``silent`` delta is not delivered to subscribers.
        Versions of a channel therefore have one order, in which subscribers receive entries (guarantee I4).

        Raises :class:`LeaseLost` if another node owns the channel, or the channel has moved or was deleted. Raises
        :class:`StaleVersion` if the channel is at another version.
        """
        cid = delta.channel
        versioned = msgspec.structs.replace(delta, version=delta.base_version + 1, initial=silent)
        won, *rest = await self._redis.run_script(
            "channel_publish",
            (keys.channel(cid), keys.channel_log(cid)),
            epoch,
            delta.base_version,
            msgspec.msgpack.encode(versioned),
            int(silent),
            LOG_LENGTH,
            *notice_fields(delta.notice),
            *(_snapshot_fields(snapshot) if snapshot else ()),
        )
        if won:
            return msgspec.structs.replace(versioned, version=rest[0])
        if rest[0] == b"version":
            raise StaleVersion(f"Channel {cid[:8]} is at version {rest[1]}, not {delta.base_version}.", current=rest[1])
        raise LeaseLost(f"Channel {cid[:8]} has another owner, has moved, or is gone.")

    async def record_fanout(self, cid: ChannelId, epoch: int, version: int, cursor: str) -> bool:
        """Record how far ``version`` has been queued for its recipients; return False if another node owns the channel.

        ``cursor`` is the position to continue from; "" means that the version has been queued for all, and ends the
        units of a divided fan-out. ``epoch`` is the caller's fencing token.
        """
        own = (keys.channel(cid), keys.fanout_units(cid))
        return bool(await self._redis.run_script("channel_record_fanout", own, epoch, version, cursor, DIVIDED))

    async def mark_dormant(self, cid: ChannelId) -> None:
        """Record that a channel is no longer polled. If it is polled again, the first poll delivers no entries.

        Nothing changes if the channel has subscribers, or if subscribers of another channel are about to move to it.
        """
        joins = await self._redis.call("HGET", keys.channel(cid), "joins")
        if (await self._index.count([cid]))[0] == 0:
            await self._redis.run_script(
                "channel_mark_dormant", (keys.channel(cid), keys.incoming_moves(cid)), joins or b""
            )

    async def record_polls(self, reports: Sequence[tuple[ChannelId, PollReport]]) -> list[ChannelHealth | None]:
        """Record results of polls: pairs (channel id, report).

        Returns, for each report in order, the state by which to judge the channel's health; None if no judgement is
        due.
        """
        commands = []
        for cid, report in reports:
            result = report.result
            kept = b"" if report.is_repeat else msgspec.msgpack.encode(result)
            charge = _UNDECIDED if report.symptom is None else report.symptom
            own = (keys.channel(cid), keys.poll_results(cid))
            commands.append(
                script_command(
                    "channel_record_poll",
                    own,
                    kept,
                    POLLS_KEPT,
                    charge,
                    repr(result.at_s),
                    result.node,
                    FIRST_BACKOFF_S,
                    LONGEST_BACKOFF_S,
                )
            )
        found = await self._redis.call_many(commands)
        return [_case(report, *reply) if reply else None for (_, report), reply in zip(reports, found, strict=True)]

    async def delta(self, cid: ChannelId, version: int) -> Delta | None:
        """Return the delta of a version; None if the version is no longer in the log."""
        found = await self._redis.call("XRANGE", keys.channel_log(cid), f"{version}-0", f"{version}-0")
        return msgspec.msgpack.decode(found[0][1][b"d"], type=Delta) if found else None

    async def deltas(self, cid: ChannelId, first: int, last: int) -> list[Delta]:
        """Return the deltas of versions ``first`` to ``last`` (inclusive) that are still in the log, in order."""
        found = await self._redis.call("XRANGE", keys.channel_log(cid), f"{first}-0", f"{last}-0")
        return [msgspec.msgpack.decode(fields[b"d"], type=Delta) for _, fields in found]

    async def versions(self, cid: ChannelId, count: int, before: int = 0) -> list[Delta]:
        """Return the deltas of the last ``count`` versions before version ``before``, newest first.

        If ``before`` is 0, the result begins with the newest version.
        """
        start = f"{before - 1}-0" if before else "+"
        found = await self._redis.call("XREVRANGE", keys.channel_log(cid), start, "-", "COUNT", count)
        return [msgspec.msgpack.decode(fields[b"d"], type=Delta) for _, fields in found]

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return up to ``count`` of the latest entries in the channel's log, newest first."""
        newest: dict[str, Entry] = {}
        found = await self._redis.call("XREVRANGE", keys.channel_log(cid), "+", "-", "COUNT", count + 1)
        for _, fields in found:
            delta = msgspec.msgpack.decode(fields[b"d"], type=Delta)
            for change in reversed(delta.changes):
                if change.kind != "omission":
                    newest.setdefault(change.entry.key, change.entry)
        return tuple(newest.values())[:count]

    async def polls(self, cid: ChannelId, count: int) -> tuple[PollResult, ...]:
        """Return the results of the last ``count`` polls, newest first."""
        return (await self.polls_of_many([cid], count))[0]

    async def polls_of_many(self, cids: Sequence[ChannelId], count: int) -> list[tuple[PollResult, ...]]:
        """Return, for each channel in order, the results of its last ``count`` polls, newest first."""
        found = await self._redis.call_many([("LRANGE", keys.poll_results(cid), 0, count - 1) for cid in cids])
        return [tuple(msgspec.msgpack.decode(result, type=PollResult) for result in results) for results in found]

    async def status(self, cid: ChannelId) -> ChannelStatus | None:
        """Return the status of a channel; None if it does not exist."""
        state = (await self.states([cid]))[0]
        if state is None:
            return None
        last = await self.polls(cid, 1)
        subscribers = (await self._index.count([cid]))[0]
        return ChannelStatus(
            owner=state.owner,
            epoch=state.epoch,
            version=state.channel.version,
            failing_since_s=state.failing_since_s,
            last=last[0] if last else None,
            subscribers=subscribers,
        )

    async def set_listed(self, cid: ChannelId, *, listed: bool) -> None:
        """Set whether a channel is listed: a listed channel is polled even without subscribers."""
        await self._redis.run_script("channel_set_field", (keys.channel(cid),), "listed", "1" if listed else "")
        await self._redis.call(*record_change(cid))

    async def set_content_name(self, cid: ChannelId, version: int, pairs: Collection[Pair]) -> None:
        """Store a channel's content name: the AV-pairs (attribute and value) under which the directory lists it.

        ``version`` is the channel version from which ``pairs`` were computed. A stored name of a later version is kept.
        """
        packed = msgspec.msgpack.encode(sorted(pairs)) if pairs else b""
        await self._redis.run_script("channel_set_content_name", (keys.channel(cid),), version, packed)

    async def feed_metadata(self, cids: Sequence[ChannelId]) -> list[FeedMetadata]:
        """Return the metadata of the channels' documents, in the order of ``cids``."""
        found = await self._redis.call_many([("HGET", keys.channel(cid), "imprint") for cid in cids])
        return [msgspec.msgpack.decode(held, type=FeedMetadata) if held else _NO_METADATA for held in found]

    async def content_names(self, cids: Sequence[ChannelId]) -> list[frozenset[Pair]]:
        """Return the AV-pairs of each channel's content name as last registered, in the order of ``cids``.

        The set is empty for a channel without a content name.
        """
        found = await self._redis.call_many([("HGET", keys.channel(cid), "name") for cid in cids])
        return [frozenset(msgspec.msgpack.decode(name, type=list[Pair])) if name else frozenset() for name in found]

    async def delete(self, cid: ChannelId) -> None:
        """Delete a channel and its log. The caller ends the channel's subscriptions before and after this call."""
        await self._redis.call_many(
            [script_command("channel_delete", _deleted_keys(cid), ""), ("SREM", keys.channel_registry(cid[:2]), cid)]
        )
        await self._redis.call(*record_change(cid))

    async def finish_deletion(self, cid: ChannelId) -> None:
        """Delete the last field of a deleted channel.

        The field was kept so that remaining subscriptions can be found.
        """
        await self._redis.run_script("channel_delete", _deleted_keys(cid), "1")

    async def ids_in_buckets(self, buckets: Sequence[str]) -> list[ChannelId]:
        """Return the sorted ids of the registered channels in these buckets.

        The bucket of a channel is the first two digits of its id.
        """
        found = await self._redis.call_many([("SMEMBERS", keys.channel_registry(bucket)) for bucket in buckets])
        return sorted(cid.decode() for ids in found for cid in ids)

    async def page(self, cursor: str = "", count: int = 50) -> tuple[Sequence[Channel], str]:
        """Return the next ``count`` channels, sorted by id, and the cursor of the next page.

        The cursor "" stands for the first page. It is also returned with the last page.
        """
        start = int(cursor[:2], 16) if cursor else 0
        ids: list[ChannelId] = []
        for first in range(start, len(keys.REGISTRY_BUCKETS), _BUCKETS_PER_READ):
            buckets = keys.REGISTRY_BUCKETS[first : first + _BUCKETS_PER_READ]
            ids += [cid for cid in await self.ids_in_buckets(buckets) if cid > cursor]
            if len(ids) > count:
                break
        taken = ids[:count]
        found = [channel for channel in await self.get_many(taken) if channel is not None]
        return found, taken[-1] if len(ids) > count else ""

    async def bucket_sizes(self, buckets: Sequence[str]) -> list[int]:
        """Return the number of registered channels in each of these buckets.

        The bucket of a channel is the first two digits of its id.
        """
        found: list[int] = await self._redis.call_many([("SCARD", keys.channel_registry(bucket)) for bucket in buckets])
        return found

    async def count(self) -> int:
        """Return the number of registered channels."""
        return sum(await self.bucket_sizes(keys.REGISTRY_BUCKETS))


def _deleted_keys(cid: ChannelId) -> tuple[str, ...]:
    own = (keys.channel, keys.channel_log, keys.poll_results, keys.incoming_moves, keys.fanout_units)
    return tuple(key(cid) for key in own)


def _additions(latest: Sequence[Entry]) -> tuple[Change, ...]:
    return tuple(Change("addition", entry) for entry in latest)


def _case(report: PollReport, condition: bytes, backoff_s: bytes, evidence: bytes) -> ChannelHealth:
    proof = msgspec.json.decode(evidence, type=Evidence) if evidence else None
    return ChannelHealth(report.symptom or HEALTHY, condition.decode(), float(backoff_s), proof)


def _beginning(snapshot: Snapshot, first: Delta) -> Snapshot:
    return msgspec.structs.replace(snapshot, latest=merge_latest(first.changes, ()))


def _snapshot_fields(snapshot: Snapshot) -> list[str | bytes]:
    validators, content = snapshot.validators, snapshot.content
    return [
        *(("title", snapshot.title) if snapshot.title else ()),
        *(("link", snapshot.link) if snapshot.link else ()),
        *(("language", snapshot.language) if snapshot.language else ()),
        *(("imprint", msgspec.msgpack.encode(snapshot.metadata)) if snapshot.metadata != _NO_METADATA else ()),
        *("memory", content.memory, "latest", content.latest, "digest", digest_of(content)),
        *("wishes", msgspec.msgpack.encode(snapshot.polling_hints)),
        *("etag", validators.etag, "last_modified", validators.last_modified, "body_sha256", validators.body_sha256),
        *(("kind", snapshot.kind) if snapshot.kind else ()),
        *(("updates", msgspec.msgpack.encode(snapshot.updates)) if snapshot.updates else ()),
    ]
