"""Channels, their fenced versions and their logs.

A channel is a hash of :data:`FIELDS`. Only the owner that last adopted it can advance its version
(:meth:`Channels.publish`); the log keeps the deltas that made each version.
"""

from collections.abc import Sequence

import msgspec

from service.errors import LeaseLost, StaleVersion
from service.model import Change, Channel, ChannelId, Delta, Entry, NodeId, PollResult, Validators
from service.store import keys
from service.store.index import ChannelIndex
from service.store.link import Link, script

LOG_LENGTH = 1_000
POLLS_KEPT = 20
_BUCKETS_AT_ONCE = 32

FIELDS = {
    "url": "the canonical URL; a channel without it does not exist",
    "title": "what the publisher calls it",
    "link": "its home page",
    "kind": "feed or page",
    "created": "Unix s",
    "private": "1 if the publisher's address is not public",
    "listed": "1 if an admin wants it polled without subscribers",
    "dormant": "1 while nobody polls it; the first poll after that is taken in silently",
    "epoch": "raised by each owner that adopts it; fences writes",
    "owner": "the node that adopted it last",
    "version": "increasing number",
    "fanned": "the last version whose fan-out is complete",
    "cursor": "how far the fan-out of version fanned + 1 is",
    "etag": "validators of the body the version was made from",
    "last_modified": "same",
    "body_sha256": "same",
    "identity": "state of service.feeds.identity (msgpack)",
    "failing_since": "Unix s of the first failed poll after the last good one",
}


_OF_CHANNEL = ("url", "title", "link", "kind", "version", "created", "private", "listed", "dormant")


class ChannelState(msgspec.Struct, frozen=True):
    """A channel with what its pollers and owner need to go on. ``epoch`` is the owner's fencing token."""

    channel: Channel
    epoch: int
    owner: NodeId
    fanned: int
    cursor: str
    validators: Validators
    identity: bytes
    failing_since_s: float | None


class ChannelStatus(msgspec.Struct, frozen=True):
    """How a channel is doing, for people."""

    owner: NodeId
    epoch: int
    version: int
    failing_since_s: float | None
    last: PollResult | None
    subscribers: int


class Snapshot(msgspec.Struct, frozen=True):
    """What a delta leaves behind: the content's validators and identities, and how the channel now calls itself."""

    validators: Validators
    identity: bytes
    title: str
    link: str


class Channels:
    """Create, find, adopt, version and remove channels."""

    def __init__(self, link: Link, index: ChannelIndex) -> None:
        """Use this link to Redis; the index tells how many subscribe."""
        self._link = link
        self._index = index

    async def create(self, channel: Channel, snapshot: Snapshot, latest: Sequence[Entry], now_s: float) -> Channel:
        """Create a channel at version 1 with its latest entries (oldest first), or return the one that exists."""
        first = Delta(channel.id, 0, 1, now_s, _additions(latest), initial=True)
        fields = _fields(channel) + _snapshot_fields(snapshot)
        # Registered first: an id in the registry without a channel is harmless, the reverse would never be polled.
        await self._link.call("SADD", keys.registry(channel.id[:2]), channel.id)
        own = (keys.channel(channel.id), keys.log(channel.id))
        await self._link.script("channel_create", own, msgspec.msgpack.encode(first), *fields)
        return await self.get(channel.id) or channel

    async def get(self, cid: ChannelId) -> Channel | None:
        """Return a channel, or None."""
        return (await self.many([cid]))[0]

    async def many(self, cids: Sequence[ChannelId]) -> list[Channel | None]:
        """Return channels in the order asked for."""
        found = await self._link.many([("HMGET", keys.channel(cid), *_OF_CHANNEL) for cid in cids])
        states = [_state(cid, _present(values)) for cid, values in zip(cids, found, strict=True)]
        return [state.channel if state else None for state in states]

    async def states(self, cids: Sequence[ChannelId]) -> list[ChannelState | None]:
        """Return channels with what their pollers need, in the order asked for."""
        found = await self._link.many([("HGETALL", keys.channel(cid)) for cid in cids])
        return [_state(cid, fields) for cid, fields in zip(cids, found, strict=True)]

    async def adopt(self, cids: Sequence[ChannelId], node: NodeId) -> list[ChannelState | None]:
        """Become the owner of channels: raise their epochs and return their states."""
        found = await self._link.many([script("channel_adopt", (keys.channel(cid),), node) for cid in cids])
        states = []
        for cid, flat in zip(cids, found, strict=True):
            states.append(_state(cid, dict(zip(flat[::2], flat[1::2], strict=True))))
        return states

    async def publish(self, delta: Delta, snapshot: Snapshot, epoch: int, *, silent: bool) -> Delta:
        """Version a delta: compare-and-set against ``delta.base_version``, fenced by ``epoch``.

        ``silent`` deltas are never fanned out. Returns the delta with its version.
        Raises :class:`LeaseLost` if another owner adopted the channel or it is gone, :class:`StaleVersion`.
        """
        cid = delta.channel
        versioned = msgspec.structs.replace(delta, version=delta.base_version + 1, initial=silent)
        won, *rest = await self._link.script(
            "channel_publish",
            (keys.channel(cid), keys.log(cid)),
            epoch,
            delta.base_version,
            msgspec.msgpack.encode(versioned),
            int(silent),
            LOG_LENGTH,
            *_snapshot_fields(snapshot),
        )
        if won:
            return versioned
        if rest[0] == b"version":
            raise StaleVersion(f"Channel {cid[:8]} is at version {rest[1]}, not {delta.base_version}.", current=rest[1])
        raise LeaseLost(f"Channel {cid[:8]} has another owner, or is gone.")

    async def fanned(self, cid: ChannelId, epoch: int, version: int, cursor: str) -> bool:
        """Record how far the fan-out of ``version`` is ("" = done); False if another owner adopted the channel."""
        return bool(await self._link.script("channel_fanned", (keys.channel(cid),), epoch, version, cursor))

    async def doze(self, cid: ChannelId) -> None:
        """Note that nobody polls the channel any more: what it lists at the next poll is taken in silently.

        Does nothing if somebody has subscribed: they count on the polls that there have been.
        """
        await self._link.script("channel_doze", (keys.channel(cid), keys.channel_index(cid)))

    async def polled(self, results: Sequence[tuple[ChannelId, PollResult]]) -> None:
        """Keep how polls ended."""
        commands = []
        for cid, result in results:
            failed = "" if result.outcome in {"new", "unchanged"} else repr(result.at_s)
            own = (keys.channel(cid), keys.polls(cid))
            commands.append(script("channel_polled", own, msgspec.msgpack.encode(result), failed, POLLS_KEPT))
        await self._link.many(commands)

    async def delta(self, cid: ChannelId, version: int) -> Delta | None:
        """Return the delta that made a version; None once the log has dropped it."""
        found = await self._link.call("XRANGE", keys.log(cid), f"{version}-0", f"{version}-0")
        return msgspec.msgpack.decode(found[0][1][b"d"], type=Delta) if found else None

    async def latest(self, cid: ChannelId, count: int) -> tuple[Entry, ...]:
        """Return the channel's latest entries, newest first."""
        newest: dict[str, Entry] = {}
        found = await self._link.call("XREVRANGE", keys.log(cid), "+", "-", "COUNT", count + 1)
        for _, fields in found:
            delta = msgspec.msgpack.decode(fields[b"d"], type=Delta)
            for change in reversed(delta.changes):
                if change.kind != "omission":
                    newest.setdefault(change.entry.key, change.entry)
        return tuple(newest.values())[:count]

    async def polls(self, cid: ChannelId, count: int) -> tuple[PollResult, ...]:
        """Return how the last polls ended, newest first."""
        return (await self.polls_of([cid], count))[0]

    async def polls_of(self, cids: Sequence[ChannelId], count: int) -> list[tuple[PollResult, ...]]:
        """Return how each channel's last polls ended, newest first."""
        found = await self._link.many([("LRANGE", keys.polls(cid), 0, count - 1) for cid in cids])
        return [tuple(msgspec.msgpack.decode(result, type=PollResult) for result in results) for results in found]

    async def status(self, cid: ChannelId) -> ChannelStatus | None:
        """Return how a channel is doing, or None if there is none."""
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
        """Have the channel polled even without subscribers, or not."""
        await self._link.script("channel_set", (keys.channel(cid),), "listed", "1" if listed else "")

    async def forget(self, cid: ChannelId) -> None:
        """Delete a channel and its log. Its subscriptions have to be ended first and again afterwards."""
        await self._link.many(
            [
                ("DEL", keys.channel(cid), keys.log(cid), keys.polls(cid)),
                ("SREM", keys.registry(cid[:2]), cid),
            ]
        )

    async def registered(self, buckets: Sequence[str]) -> list[ChannelId]:
        """Return the ids in these registry buckets."""
        found = await self._link.many([("SMEMBERS", keys.registry(bucket)) for bucket in buckets])
        return sorted(cid.decode() for ids in found for cid in ids)

    async def page(self, cursor: str = "", count: int = 50) -> tuple[Sequence[Channel], str]:
        """Return the next channels by id and the next cursor; "" starts and ends."""
        start = int(cursor[:2], 16) if cursor else 0
        ids: list[ChannelId] = []
        for first in range(start, len(keys.REGISTRY_BUCKETS), _BUCKETS_AT_ONCE):
            buckets = keys.REGISTRY_BUCKETS[first : first + _BUCKETS_AT_ONCE]
            ids += [cid for cid in await self.registered(buckets) if cid > cursor]
            if len(ids) > count:
                break
        taken = ids[:count]
        found = [channel for channel in await self.many(taken) if channel is not None]
        return found, taken[-1] if len(ids) > count else ""

    async def count(self) -> int:
        """Return how many channels are registered."""
        return sum(await self._link.many([("SCARD", keys.registry(bucket)) for bucket in keys.REGISTRY_BUCKETS]))


def _additions(latest: Sequence[Entry]) -> tuple[Change, ...]:
    return tuple(Change("addition", entry) for entry in latest)


def _fields(channel: Channel) -> list[str]:
    return [
        *("url", channel.url, "kind", channel.kind, "created", repr(channel.created_s)),
        *("private", str(int(channel.private)), "listed", str(int(channel.listed))),
    ]


def _snapshot_fields(snapshot: Snapshot) -> list[str | bytes]:
    validators = snapshot.validators
    return [
        *("title", snapshot.title, "link", snapshot.link, "identity", snapshot.identity),
        *("etag", validators.etag, "last_modified", validators.last_modified, "body_sha256", validators.body_sha256),
    ]


def _present(values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return what HMGET found of a channel, as HGETALL would."""
    pairs = zip(_OF_CHANNEL, values, strict=True)
    return {name.encode(): value for name, value in pairs if value is not None}


def _state(cid: ChannelId, fields: dict[bytes, bytes]) -> ChannelState | None:
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
    )
    failing = text(b"failing_since")
    return ChannelState(
        channel=channel,
        epoch=int(text(b"epoch") or 0),
        owner=text(b"owner"),
        fanned=int(text(b"fanned") or 0),
        cursor=text(b"cursor"),
        validators=Validators(text(b"etag"), text(b"last_modified"), text(b"body_sha256")),
        identity=fields.get(b"identity", b""),
        failing_since_s=float(failing) if failing else None,
    )
