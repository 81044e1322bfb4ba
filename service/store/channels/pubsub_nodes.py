"""Progress of publishing public channels on pubsub services, and hints which channels have changed.

A node's position is kept; the stream of changed channels may be lost and exists only while a process listens.
"""

from collections.abc import Sequence

import msgspec

from service.model import ChannelId
from service.store.client import keys
from service.store.client.connection import MAX_BLOCK_S, RedisRepository

_STREAM_TTL_S = 86_400
_STREAM_LENGTH = 10_000


class PublishedPosition(msgspec.Struct, frozen=True, array_like=True):
    """All versions of a channel up to ``version`` are published on its node, which has this title.

    Version 0: the node has to be created, possibly again.
    """

    version: int = 0
    title: str = ""


class PubsubNodes(RedisRepository):
    """Positions by address of the pubsub service. Every method may raise :class:`service.errors.StoreUnavailable`."""

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
        """Set the position of a channel."""
        await self._redis.call("HSET", keys.pubsub_nodes(service), cid, msgspec.msgpack.encode(position))

    async def drop(self, service: str, cid: ChannelId) -> None:
        """Delete the position of a channel whose node is gone."""
        await self._redis.call("HDEL", keys.pubsub_nodes(service), cid)

    async def notify_changed(self, cid: ChannelId) -> None:
        """Notify listeners that a channel has a new version; nothing is stored without listeners."""
        await self._redis.call(
            "XADD", keys.CHANGED_CHANNELS, "NOMKSTREAM", "MAXLEN", "~", _STREAM_LENGTH, "*", "c", cid
        )

    async def wait_for_changes(self, after: str, timeout_s: float) -> tuple[list[ChannelId], str]:
        """Wait up to ``timeout_s`` for changed channels; return them and the position to continue from, "" for now."""
        if not after:
            begun: bytes = await self._redis.call(
                "XADD", keys.CHANGED_CHANNELS, "MAXLEN", "~", _STREAM_LENGTH, "*", "c", ""
            )
            after = begun.decode()
        await self._redis.call("EXPIRE", keys.CHANGED_CHANNELS, _STREAM_TTL_S)
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
