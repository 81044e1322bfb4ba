"""Progress of publishing public channels on pubsub services, and notifications of changed channels.

The progress is stored permanently. Notifications may be lost, and exist only while a process waits for them.
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

    - ``version``: all versions up to this one are published. 0 means that the node may have to be created.
    - ``title``: the node's title.
    """

    version: int = 0
    title: str = ""


class PubsubNodes(RedisRepository):
    """Progress of publishing channels on pubsub services. The parameter ``service`` is the address of such a service.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    async def positions(self, service: str, cids: Sequence[ChannelId]) -> dict[ChannelId, PublishedPosition]:
        """Return the progress of publishing on ``service``, by channel. Channels without a node are left out."""
        if not cids:
            return {}
        found = await self._redis.call("HMGET", keys.pubsub_nodes(service), *cids)
        pairs = zip(cids, found, strict=True)
        return {cid: msgspec.msgpack.decode(packed, type=PublishedPosition) for cid, packed in pairs if packed}

    async def channel_ids(self, service: str) -> list[ChannelId]:
        """Return the ids of the channels that have a node on this service."""
        return [cid.decode() for cid in await self._redis.call("HKEYS", keys.pubsub_nodes(service))]

    async def put(self, service: str, cid: ChannelId, position: PublishedPosition) -> None:
        """Set the published position of a channel on this service."""
        await self._redis.call("HSET", keys.pubsub_nodes(service), cid, msgspec.msgpack.encode(position))

    async def drop(self, service: str, cid: ChannelId) -> None:
        """Delete the published position of a channel whose node no longer exists."""
        await self._redis.call("HDEL", keys.pubsub_nodes(service), cid)

    async def notify_changed(self, cid: ChannelId) -> None:
        """Notify waiting processes that a channel has a new version. If no process waits, nothing is stored."""
        await self._redis.call(
            "XADD", keys.CHANGED_CHANNELS, "NOMKSTREAM", "MAXLEN", "~", _STREAM_LENGTH, "*", "c", cid
        )

    async def wait_for_changes(self, after: str) -> tuple[list[ChannelId], str]:
        """Wait some seconds for channels to change; return their ids, and the position for the next call.

        ``after`` is the position that the last call returned. If it is "", the call waits for changes from now on.
        """
        if not after:
            after = (await self._redis.call(*append_command(keys.CHANGED_CHANNELS, "c", ""))).decode()
        await self._redis.call("EXPIRE", keys.CHANGED_CHANNELS, _STREAM_TTL_S)
        found = await wait_for_entries(self._redis, keys.CHANGED_CHANNELS, after, 100)
        changed = dict.fromkeys(fields[b"c"].decode() for _, fields in found if fields[b"c"])
        return list(changed), found[-1][0] if found else after
