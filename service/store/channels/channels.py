"""Channels: their states, and the logs of their versions.

Each channel is stored as a Redis hash (:mod:`service.store.channels.channel_records`), which also contains the changes
in its last versions (:mod:`service.store.channels.version_log`). A channel's *owner* is the node that adopted it last.
Only the owner can add a version to the channel (:meth:`Channels.publish`).
"""

import time
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from service.discovery.av_pairs import Pair
from service.errors import LeaseLost, StaleVersion
from service.feeds.canonical_urls import reader_of
from service.feeds.channel_health import (
    FIRST_BACKOFF_S,
    HEALTHY,
    LONGEST_BACKOFF_S,
    ChannelHealth,
    Evidence,
    PollReport,
)
from service.location.content_cache import (
    MAX_LATEST_ENTRIES,
    Content,
    Digest,
    digest_of,
    merge_latest,
    unpack_entries,
    unpack_titles,
)
from service.model import Change, Channel, ChannelId, Delta, Entry, FeedMetadata, NodeId, PollResult
from service.store.channels import version_log
from service.store.channels.channel_records import (
    CHANNEL_FIELDS,
    STATE_FIELDS,
    ChannelState,
    Snapshot,
    StoredPairs,
    StoredSnapshot,
    channel_fields,
    decode_snapshot,
    existing_fields,
    notice_fields,
    pack_name,
    pack_result,
    parse_channel,
    parse_state,
    read_records,
    unpack_name,
    unpack_result,
)
from service.store.channels.registry_changes import record_change
from service.store.client import keys
from service.store.client.redis_client import RedisClient, script_command
from service.store.delivery.fanout_units import DIVIDED
from service.store.subscriptions.channel_index import ChannelIndex

POLLS_KEPT = 10
_FULL_TEXTS_S = 90 * 86_400
_UNDECIDED = "?"
_MAX_REDIRECTIONS = 8
_PREDECESSOR_FIELDS = ("url", "snapshot", "private", "full_texts")
_NAMED_FIELDS = (*CHANNEL_FIELDS, "name", "site")
_DOCUMENT_FIELDS = (*_NAMED_FIELDS, "latest")


class NamedChannel(msgspec.Struct, frozen=True):
    """A channel with the attribute-value pairs by which searches find it.

    - ``pairs``: empty if searches cannot find the channel.
    - ``site``: the registrable domain by which its subscriptions are placed; "" if it is not stored yet.
    - ``latest``: the channel's latest entries, encoded; empty if they were not read.
    """

    channel: Channel
    pairs: AbstractSet[Pair]
    site: str
    latest: bytes = b""

    @property
    def latest_titles(self) -> list[str]:
        """The titles of the channel's latest entries, newest first; empty if the entries were not read."""
        return unpack_titles(self.latest)


class Predecessor(msgspec.Struct, frozen=True):
    """The stored state of a channel before a new version is added to it.

    ``fields`` contains the fields of the channel's Redis hash that are needed to add the version. It maps their names
    to their values.
    """

    fields: dict[bytes, bytes]

    @property
    def latest(self) -> tuple[Entry, ...]:
        """The latest entries of the channel, newest first."""
        return unpack_entries(self.fields.get(b"latest", b""))

    @property
    def url(self) -> str:
        """The URL of the channel; "" if it does not exist."""
        return self.fields.get(b"url", b"").decode()

    @property
    def snapshot(self) -> StoredSnapshot:
        """The last known values from the publisher's documents, such as the channel's title."""
        return decode_snapshot(self.fields.get(b"snapshot"))

    @property
    def full_texts_until_s(self) -> float:
        """Until when full texts are to be added to new entries (Unix s)."""
        return float(self.fields.get(b"full_texts", b"0"))


class Channels:
    """Creates, reads and deletes channels, assigns them to owners, and adds versions to them."""

    def __init__(self, redis: RedisClient, index: ChannelIndex) -> None:
        """Create the repository. It uses ``index`` to count the subscribers of channels."""
        self._redis = redis
        self._index = index

    async def create(self, channel: Channel, snapshot: Snapshot, latest: Sequence[Entry], now_s: float) -> Channel:
        """Create a channel at version 1 and return it. If the channel already exists, return it unchanged.

        - ``channel``: the new channel.
        - ``snapshot``: the channel's first state.
        - ``latest``: the channel's latest entries, oldest first.
        - ``now_s``: the Unix time.
        """
        first = Delta(channel.id, 0, 1, now_s, _additions(latest), initial=True)
        fields = _first_fields(channel, StoredSnapshot(), snapshot, first)
        # First, because an id without a channel is harmless, but a channel missing from the registry is never polled.
        await self._redis.call("SADD", keys.channel_registry(channel.id[:2]), channel.id)
        await self._redis.run_script("channel_create", (keys.channel(channel.id),), *fields)
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
        """Make ``channel`` the successor of the channel ``former``, and choose the version at which subscribers join.

        If the successor does not exist, is not polled, or has itself moved, a new version is added to it, and the
        subscribers of ``former`` join at this version. Otherwise the successor is not changed, and they join at the
        version ``joins_at``.

        - ``channel``: the successor as the caller has read it; its version is 0 if it does not exist.
        - ``snapshot``, ``latest``: state and entries (oldest first) of the new version, if one is added.
        - ``joins_at``: the version at which subscribers join if no version is added.
        - ``now_s``: the Unix time.

        Return the version at which subscribers join. Repeated calls return the same version, until
        :meth:`finish_joining` is called. If the successor's version is no longer the one that the caller has read,
        return None without changing anything.
        """
        first = Delta(channel.id, channel.version, channel.version + 1, now_s, _additions(latest), initial=True)
        before = await self.predecessor(channel.id, channel.version)
        log = version_log.append(first, before.fields)
        fields = (*log.written, *_first_fields(channel, before.snapshot, snapshot, first))
        await self._redis.call("SADD", keys.channel_registry(channel.id[:2]), channel.id)
        script_keys = (keys.channel(channel.id), keys.incoming_moves(channel.id))
        done, version = await self._redis.run_script(
            "channel_take_over", script_keys, former, channel.version, joins_at, len(log.deleted), *log.deleted, *fields
        )
        await self._redis.call(*record_change(channel.id))
        return version if done else None

    async def finish_joining(self, former: ChannelId, cid: ChannelId) -> None:
        """Record that all subscribers of the channel ``former`` have joined the channel ``cid``."""
        await self._redis.call("HDEL", keys.incoming_moves(cid), former)

    async def get(self, cid: ChannelId) -> Channel | None:
        """Return the channel with the id ``cid``; None if it does not exist."""
        return (await self.get_many([cid]))[0]

    async def resolve(self, cid: ChannelId) -> Channel | None:
        """Return the channel ``cid``, or its successor if all its subscribers have moved there.

        The result is None if the channel ``cid`` does not exist.
        """
        channel = await self.get(cid)
        for _ in range(_MAX_REDIRECTIONS):
            if channel is None or not (channel.moved_to and channel.dormant):
                break
            channel = await self.get(channel.moved_to) or channel
        return channel

    async def get_many(self, cids: Sequence[ChannelId]) -> list[Channel | None]:
        """Return the channels with the given ids, in the same order; None for each channel that does not exist."""
        found = await self._redis.call_many([("HMGET", keys.channel(cid), *CHANNEL_FIELDS) for cid in cids])
        return [parse_channel(cid, values) for cid, values in zip(cids, found, strict=True)]

    async def get_named(self, cids: Sequence[ChannelId], *, with_latest: bool = False) -> list[NamedChannel | None]:
        """Return channels with their attribute-value pairs, in the order of ``cids``.

        If ``with_latest`` is true, their latest entries are also read. The result contains None for each channel that
        does not exist.
        """
        fields = _DOCUMENT_FIELDS if with_latest else _NAMED_FIELDS
        found = await self._redis.call_many([("HMGET", keys.channel(cid), *fields) for cid in cids])
        named: list[NamedChannel | None] = []
        for cid, values in zip(cids, found, strict=True):
            channel = parse_channel(cid, values[: len(CHANNEL_FIELDS)])
            if channel is None:
                named.append(None)
                continue
            name, site, *latest = values[len(CHANNEL_FIELDS) :]
            pairs, content = StoredPairs(name or b""), (latest[0] or b"" if latest else b"")
            named.append(NamedChannel(channel, pairs, (site or b"").decode(), content))
        return named

    async def states(self, cids: Sequence[ChannelId]) -> list[ChannelState | None]:
        """Return the states of channels in the order of ``cids``; None for each channel that does not exist."""
        found = await read_records(self._redis, cids, STATE_FIELDS)
        return [parse_state(cid, fields) for cid, fields in zip(cids, found, strict=True)]

    async def content(self, cid: ChannelId) -> tuple[int, Digest, Content]:
        """Return (version, digest, content): a channel's version, the digest of its content, and the content.

        If the channel does not exist, the version is 0, and both digest and content are empty.
        """
        (found,) = await read_records(self._redis, [cid], ("url", "snapshot", "version", "memory", "latest"))
        digest = decode_snapshot(found.get(b"snapshot")).digest
        return int(found.get(b"version", b"0")), digest, Content(found.get(b"memory", b""), found.get(b"latest", b""))

    async def adopt(self, cids: Sequence[ChannelId], node: NodeId) -> list[ChannelState | None]:
        """Make ``node`` the owner of channels, and increment their epochs.

        The owner passes a channel's epoch whenever it changes the channel, so that changes by former owners are
        rejected.

        Return the channels' new states, in the order of ``cids``; None for each channel that does not exist.
        """
        found = await self._redis.call_many(
            [script_command("channel_adopt", (keys.channel(cid),), node, *STATE_FIELDS) for cid in cids]
        )
        records = [existing_fields(STATE_FIELDS, values) for values in found]
        return [parse_state(cid, fields) for cid, fields in zip(cids, records, strict=True)]

    async def predecessor(self, cid: ChannelId, version: int) -> Predecessor:
        """Return the stored state of a channel at its current version ``version``, to be passed to :meth:`publish`.

        The result becomes unusable when another process adds a version.
        """
        (fields,) = await read_records(self._redis, [cid], (*_PREDECESSOR_FIELDS, *version_log.fields_before(version)))
        return Predecessor(fields)

    async def publish(
        self, delta: Delta, snapshot: Snapshot | None, epoch: int, *, silent: bool, before: Predecessor | None = None
    ) -> Delta:
        """Add a version to a channel and return ``delta`` with the number of this version.

        - ``delta``: the changes since the previous version, ``delta.base_version``.
        - ``snapshot``: the channel's state after the changes; None if ``delta`` is a notice, for example that the
          channel is dead.
        - ``epoch``: the channel's epoch, with which the caller proves that it owns the channel.
        - ``silent``: True if the version is not to be delivered to subscribers.
        - ``before``: the result of :meth:`predecessor` for ``delta.base_version``; if it is None, the method reads it.

        If ``delta`` is a notice of a condition that the channel already has, no version is added. The returned
        ``delta`` then has the number of the present version.

        Errors:

        - Raises :class:`LeaseLost` if another node owns the channel, or the channel has moved or was deleted.
        - Raises :class:`StaleVersion` if the channel is not at ``delta.base_version``.
        """
        # Only the owner can add a version, and only to the latest one. The versions of a channel therefore have
        # one order, in which subscribers receive entries (guarantee I4).
        cid = delta.channel
        before = before or await self.predecessor(cid, delta.base_version)
        versioned = msgspec.structs.replace(delta, version=delta.base_version + 1, initial=silent)
        log = version_log.append(versioned, before.fields)
        won, *rest = await self._redis.run_script(
            "channel_publish",
            (keys.channel(cid),),
            epoch,
            delta.base_version,
            int(silent),
            *notice_fields(delta.notice),
            len(log.deleted),
            *log.deleted,
            *log.written,
            *(_snapshot_fields(before.snapshot, snapshot, before.url) if snapshot else ()),
        )
        if won:
            return msgspec.structs.replace(versioned, version=rest[0])
        if rest[0] == b"version":
            raise StaleVersion(f"Channel {cid[:8]} is at version {rest[1]}, not {delta.base_version}.", current=rest[1])
        raise LeaseLost(f"Channel {cid[:8]} has another owner, has moved, or is gone.")

    async def record_fanout(self, cid: ChannelId, epoch: int, version: int, cursor: str) -> bool:
        """Record how far a version has been queued for subscribers; return False if another node owns the channel.

        - ``epoch``: the channel's epoch, with which the caller proves that it owns the channel.
        - ``version``: the version that is being queued.
        - ``cursor``: position in the list of subscribers at which to continue; "" if the version was queued for all
          subscribers.
        """
        # "" also deletes the units of a fan-out that was divided.
        script_keys = (keys.channel(cid), keys.fanout_units(cid))
        return bool(await self._redis.run_script("channel_record_fanout", script_keys, epoch, version, cursor, DIVIDED))

    async def mark_dormant(self, cid: ChannelId) -> None:
        """Mark a channel as dormant (no longer polled), unless it has subscribers or will soon get some through a move.

        If a dormant channel is polled again, the entries that the first poll finds are not delivered.
        """
        joins = await self._redis.call("HGET", keys.channel(cid), "joins")
        if (await self._index.count([cid]))[0] == 0:
            await self._redis.run_script(
                "channel_mark_dormant", (keys.channel(cid), keys.incoming_moves(cid)), joins or b""
            )

    async def record_polls(self, reports: Sequence[tuple[ChannelId, PollReport]]) -> list[ChannelHealth | None]:
        """Record the results of polls, given as pairs (channel id, report).

        Return, for each report in order, a :class:`ChannelHealth` with which the caller can judge whether the channel
        is healthy. It is None in these cases:

        - The channel does not exist.
        - The report's symptom is None.
        - The poll failed before the channel's last recovery, so the report is late.
        - The poll succeeded, and the channel is neither dead nor quarantined.
        """
        commands = []
        for cid, report in reports:
            result = report.result
            kept = b"" if report.is_repeat else pack_result(result)
            charge = _UNDECIDED if report.symptom is None else report.symptom
            script_keys = (keys.channel(cid), keys.poll_results(cid))
            commands.append(
                script_command(
                    "channel_record_poll",
                    script_keys,
                    kept,
                    POLLS_KEPT,
                    charge,
                    f"{result.at_s:.3f}",
                    result.node,
                    FIRST_BACKOFF_S,
                    LONGEST_BACKOFF_S,
                )
            )
        found = await self._redis.call_many(commands)
        return [
            _parse_health(report, *reply) if reply else None for (_, report), reply in zip(reports, found, strict=True)
        ]

    async def delta(self, cid: ChannelId, version: int) -> Delta | None:
        """Return the changes that version ``version`` made to a channel; None if that version is no longer stored."""
        return next(iter(await self.deltas(cid, version, version)), None)

    async def deltas(self, cid: ChannelId, first: int, last: int) -> list[Delta]:
        """Return the changes in versions ``first`` to ``last`` (inclusive) of a channel, oldest first.

        Versions that are no longer stored are left out.
        """
        return await self.deltas_of(cid, range(max(1, first), last + 1))

    async def deltas_of(self, cid: ChannelId, versions: Sequence[int]) -> list[Delta]:
        """Return the changes in the given versions, oldest first. Versions that are no longer stored are left out."""
        return await self._read_deltas(cid, versions, version_log.fields_of_versions(versions))

    async def _read_deltas(self, cid: ChannelId, versions: Sequence[int], names: Sequence[str]) -> list[Delta]:
        if not names:
            return []
        values = await self._redis.call("HMGET", keys.channel(cid), *names)
        try:
            return version_log.decode_deltas(cid, existing_fields(names, values), versions)
        except version_log.LatestNeeded:
            return await self._read_deltas(cid, versions, [version_log.LATEST_FIELD, *names])

    async def versions(self, cid: ChannelId, count: int, before: int = 0) -> list[Delta]:
        """Return the changes in the last ``count`` versions before version ``before``, newest first.

        If ``before`` is 0, the result begins with the newest version. Versions that are no longer stored are left out.
        """
        last = before - 1 if before else int(await self._redis.call("HGET", keys.channel(cid), "version") or 0)
        return (await self.deltas(cid, last - count + 1, last))[::-1]

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return up to ``count`` of a channel's latest entries, newest first."""
        version, latest = await self._redis.call("HMGET", keys.channel(cid), "version", "latest")
        entries = unpack_entries(latest or b"")
        if count <= MAX_LATEST_ENTRIES:
            return entries[:count]
        newest: dict[str, Entry] = {}
        for delta in reversed(await self.deltas(cid, int(version or 0) - count, int(version or 0))):
            for change in reversed(delta.changes):
                if change.kind != "omission":
                    newest.setdefault(change.entry.key, change.entry)
        return (*newest.values(), *(entry for entry in entries if entry.key not in newest))[:count]

    async def polls(self, cid: ChannelId, count: int) -> tuple[PollResult, ...]:
        """Return the results of a channel's last ``count`` polls, newest first."""
        return (await self.polls_of_many([cid], count))[0]

    async def polls_of_many(self, cids: Sequence[ChannelId], count: int) -> list[tuple[PollResult, ...]]:
        """Return, for each channel in ``cids``, in order, the results of its last ``count`` polls, newest first."""
        found = await self._redis.call_many([("LRANGE", keys.poll_results(cid), 0, count - 1) for cid in cids])
        return [tuple(map(unpack_result, results)) for results in found]

    async def set_listed(self, cid: ChannelId, *, listed: bool) -> None:
        """Set whether a channel is listed. A listed channel is polled even if it has no subscribers."""
        await self._redis.run_script("channel_set_field", (keys.channel(cid),), "listed", "1" if listed else "")
        await self._redis.call(*record_change(cid))

    async def request_full_texts(self, cids: Iterable[ChannelId]) -> None:
        """Request that full texts are added to new entries of channels for the next 90 days.

        Bots repeat the request for each delivery to a subscriber who wants full texts. It does not name the subscriber.
        """
        until = int(time.time()) + _FULL_TEXTS_S
        await self._redis.call_many(
            [script_command("channel_set_field", (keys.channel(cid),), "full_texts", until) for cid in cids]
        )

    async def set_content_name(self, cid: ChannelId, version: int, pairs: Collection[Pair]) -> None:
        """Store the attribute-value pairs by which searches find a channel.

        ``version`` is the channel's version from which ``pairs`` were computed. If the stored pairs were computed from
        a later version, they are kept.
        """
        await self._redis.run_script(
            "channel_set_content_name", (keys.channel(cid),), version, pack_name(version, pairs)
        )

    async def feed_metadata(self, cid: ChannelId) -> FeedMetadata:
        """Return the metadata of a channel's feed document: its tags and generator."""
        snapshot = decode_snapshot(await self._redis.call("HGET", keys.channel(cid), "snapshot"))
        return FeedMetadata(snapshot.tags, snapshot.generator)

    async def content_names(self, cids: Sequence[ChannelId]) -> list[frozenset[Pair]]:
        """Return, for each channel in ``cids``, in order, the attribute-value pairs by which searches find it.

        The set is empty for a channel that searches cannot find.
        """
        found = await self._redis.call_many([("HGET", keys.channel(cid), "name") for cid in cids])
        return [unpack_name(name or b"") for name in found]

    async def delete(self, cid: ChannelId) -> None:
        """Delete a channel and its versions, except for a field that is needed to find remaining subscriptions.

        The caller must end the channel's subscriptions before this call and once more after it. Then the caller must
        call :meth:`finish_deletion`, which deletes the remaining field.
        """
        await self._redis.call_many(
            [
                script_command("channel_delete", _deleted_keys(cid), ""),
                ("SREM", keys.channel_registry(cid[:2]), cid),
                ("SREM", keys.PROTECTED_CHANNELS, cid),
            ]
        )
        await self._redis.call(*record_change(cid))

    async def finish_deletion(self, cid: ChannelId) -> None:
        """Delete the field of a channel's Redis hash that :meth:`delete` has kept.

        Call this only after all subscriptions to the channel have ended.
        """
        # The field that was kept is needed to find remaining subscriptions.
        await self._redis.run_script("channel_delete", _deleted_keys(cid), "1")

    async def ids_in_buckets(self, buckets: Sequence[str]) -> list[ChannelId]:
        """Return the sorted ids of all registered channels in ``buckets``.

        A channel's bucket is the first two hexadecimal digits of its id.
        """
        found = await self._redis.call_many([("SMEMBERS", keys.channel_registry(bucket)) for bucket in buckets])
        return sorted(cid.decode() for ids in found for cid in ids)

    async def bucket_sizes(self, buckets: Sequence[str]) -> list[int]:
        """Return the number of registered channels in each bucket, in the order of ``buckets``.

        A channel's bucket is the first two hexadecimal digits of its id.
        """
        found: list[int] = await self._redis.call_many([("SCARD", keys.channel_registry(bucket)) for bucket in buckets])
        return found


def _deleted_keys(cid: ChannelId) -> tuple[str, ...]:
    script_keys = (keys.channel, keys.poll_results, keys.incoming_moves, keys.fanout_units)
    return tuple(key(cid) for key in script_keys)


def _additions(latest: Sequence[Entry]) -> tuple[Change, ...]:
    return tuple(Change("addition", entry) for entry in latest)


def _parse_health(report: PollReport, condition: bytes, backoff_s: bytes, evidence: bytes) -> ChannelHealth:
    proof = msgspec.json.decode(evidence, type=Evidence) if evidence else None
    return ChannelHealth(report.symptom or HEALTHY, condition.decode(), float(backoff_s), proof)


def _first_fields(
    channel: Channel, before: StoredSnapshot, snapshot: Snapshot, first: Delta
) -> tuple[str | bytes, ...]:
    """Return the Redis hash fields for a channel that starts at the version ``first``.

    The result consists of alternating names and values.

    - ``before``: the values that were stored before this version. They are kept where ``snapshot`` marks a value as
      unchanged.
    - ``snapshot``: the channel's state at this version.
    - ``first``: the changes in this version.
    """
    known = msgspec.structs.replace(before, kind=channel.kind, created_s=channel.created_s)
    snapshot = msgspec.structs.replace(snapshot, latest=merge_latest(first.changes, ()))
    packed = version_log.encode_first(first, snapshot.latest)
    return (*channel_fields(channel), *_snapshot_fields(known, snapshot, channel.url), str(first.version), packed)


def _snapshot_fields(before: StoredSnapshot, snapshot: Snapshot, url: str) -> tuple[str | bytes, ...]:
    content = snapshot.content
    # Without a digest, workers neither cache the content nor exchange it.
    stored = before.after(snapshot, b"" if reader_of(url) else digest_of(content))
    return ("snapshot", msgspec.msgpack.encode(stored), "memory", content.memory, "latest", content.latest)
