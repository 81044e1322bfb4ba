"""Records how far public channels are published on pubsub services, and notifies processes of changed channels.

The progress of publishing is stored permanently. Notifications are stored only while a process waits for them, and may
be lost.
"""

from collections.abc import Sequence

import msgspec

from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.store.client.streams import append_command, wait_for_entries

_STREAM_TTL_S = 86_400
_STREAM_LENGTH = 10_000


class PublishedPosition(msgspec.Struct, frozen=True, array_like=True):
    """How far a channel has been published on its pubsub node.

    - ``version``: the last published version; 0 if none was published. In this case, the node may not exist yet.
    - ``title``: the node's title.
    """

    version: int = 0
    title: str = ""


class PubsubNodes(RedisRepository):
    """Records how far channels are published on pubsub services.

    The parameter ``service`` of the methods is the address of a pubsub service. Every method may raise
    :class:`service.errors.StoreUnavailable`.
    """

    async def positions(self, service: str, cids: Sequence[ChannelId]) -> dict[ChannelId, PublishedPosition]:
        """Return a mapping from the channels in ``cids`` to how far they are published on ``service``.

        Channels for which nothing was recorded are left out.
        """
        if not cids:
            return {}
        found = await self._redis.call("HMGET", keys.pubsub_nodes(service), *cids)
        pairs = zip(cids, found, strict=True)
        return {cid: msgspec.msgpack.decode(packed, type=PublishedPosition) for cid, packed in pairs if packed}

    async def channel_ids(self, service: str) -> list[ChannelId]:
        """Return the ids of the channels that have a node on ``service``, according to the records."""
        return [cid.decode() for cid in await self._redis.call("HKEYS", keys.pubsub_nodes(service))]

    async def put(self, service: str, cid: ChannelId, position: PublishedPosition) -> None:
        """Record how far a channel is published on ``service``."""
        await self._redis.call("HSET", keys.pubsub_nodes(service), cid, msgspec.msgpack.encode(position))

    async def drop(self, service: str, cid: ChannelId) -> None:
        """Delete the record of a channel on ``service``, because the channel's node no longer exists there."""
        await self._redis.call("HDEL", keys.pubsub_nodes(service), cid)

    async def notify_changed(self, cid: ChannelId) -> None:
        """Notify waiting processes that a channel has a new version. If no process is waiting, this has no effect."""
        await self._redis.call(
            "XADD", keys.CHANGED_CHANNELS, "NOMKSTREAM", "MAXLEN", "~", _STREAM_LENGTH, "*", "c", cid
        )

    async def wait_for_changes(self, after: str) -> tuple[list[ChannelId], str]:
        """Wait up to a few seconds for channels to change.

        ``after`` is the position that the previous call returned; "" waits for changes that happen from now on.

        Return (channel ids, position): the changed channels, and the position to pass to the next call.
        """
        if not after:
            after = (await self._redis.call(*append_command(keys.CHANGED_CHANNELS, "c", ""))).decode()
        await self._redis.call("EXPIRE", keys.CHANGED_CHANNELS, _STREAM_TTL_S)
        found = await wait_for_entries(self._redis, keys.CHANGED_CHANNELS, after, 100)
        changed = dict.fromkeys(fields[b"c"].decode() for _, fields in found if fields[b"c"])
        return list(changed), found[-1][0] if found else after
