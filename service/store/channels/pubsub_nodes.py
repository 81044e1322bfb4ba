"""How far each public channel is published on a pubsub service, and which channels have changed just now.

A node's position lasts; the news of changes is a hint that may be lost, kept only while somebody listens.
"""

from collections.abc import Sequence

import msgspec

from service.model import ChannelId
from service.store.client import keys
from service.store.client.connection import MAX_BLOCK_S, RedisRepository

_KEPT_S = 86_400
_MOST_NEWS = 10_000


class PublishedPosition(msgspec.Struct, frozen=True, array_like=True):
    """All versions of a channel up to this one are published on its node, which has this title.

    Version 0: the node is to be made, or made again; it may be there.
    """

    version: int = 0
    title: str = ""


class PubsubNodes(RedisRepository):
    """Positions, by the address of the service. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def positions(self, service: str, cids: Sequence[ChannelId]) -> dict[ChannelId, PublishedPosition]:
        """Return the positions of those of these channels that have a node."""
        if not cids:
            return {}
        found = await self._redis.call("HMGET", keys.pubsub_nodes(service), *cids)
        pairs = zip(cids, found, strict=True)
        return {cid: msgspec.msgpack.decode(packed, type=PublishedPosition) for cid, packed in pairs if packed}

    async def channel_ids(self, service: str) -> list[ChannelId]:
        """Return the channels that have a node."""
        return [cid.decode() for cid in await self._redis.call("HKEYS", keys.pubsub_nodes(service))]

    async def put(self, service: str, cid: ChannelId, position: PublishedPosition) -> None:
        """Remember how far a channel is published."""
        await self._redis.call("HSET", keys.pubsub_nodes(service), cid, msgspec.msgpack.encode(position))

    async def drop(self, service: str, cid: ChannelId) -> None:
        """A channel has no node any more."""
        await self._redis.call("HDEL", keys.pubsub_nodes(service), cid)

    async def notify_changed(self, cid: ChannelId) -> None:
        """Tell who listens that a channel has a new version; nothing is kept if nobody does."""
        await self._redis.call("XADD", keys.CHANGED_CHANNELS, "NOMKSTREAM", "MAXLEN", "~", _MOST_NEWS, "*", "c", cid)

    async def wait_for_changes(self, after: str, timeout_s: float) -> tuple[list[ChannelId], str]:
        """Wait for channels that change; return them, and where to go on. ``after=""`` means from now."""
        if not after:
            begun: bytes = await self._redis.call(
                "XADD", keys.CHANGED_CHANNELS, "MAXLEN", "~", _MOST_NEWS, "*", "c", ""
            )
            after = begun.decode()
        await self._redis.call("EXPIRE", keys.CHANGED_CHANNELS, _KEPT_S)
        block_ms = max(1, int(min(timeout_s, MAX_BLOCK_S) * 1000))
        found = await self._redis.call_blocking(
            "XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", keys.CHANGED_CHANNELS, after
        )
        changed: dict[ChannelId, None] = {}
        for _, entries in found or ():
            for entry, fields in entries:
                after = entry.decode()
                changed[fields[b"c"].decode()] = None
        return [cid for cid in changed if cid], after
