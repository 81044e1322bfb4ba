"""Reads a store's durable keys page by page while Coronet is running; see :mod:`service.store.backup`."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from service.model import ChannelId
from service.store.backup.backup_records import (
    BackupOrigin,
    ChannelRecord,
    FanOutRecord,
    KeyRecord,
    Record,
    StoredKey,
    UserRecord,
    stored_keys,
)
from service.store.client import keys
from service.store.client.cluster_routing import Address
from service.store.client.data_loss_guard import READ_IDENTITY, SCHEMA_VERSION, parse_identity
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisClient, script_command

_PAGE: Final = 100
"""Number of users or channels read in one round trip."""
_SCAN_COUNT: Final = 1_000
_READ_AFTER_USERS: Final = (
    keys.USERS_BEING_ERASED,
    keys.ERASED_USERS,
    keys.ERASED_USERS_WITH_RESTRICTIONS,
    *(keys.DEAD_LETTERS, keys.FEED_OWNERS, keys.WEBHOOK_USERS),
)
"""Keys that are read twice: before the users' keys, and again after them.

The second reading finds items that moved from users' keys to these keys while the users' keys were read.
"""


class StoreExport:
    """Reads the durable keys of a store, that is, the keys that belong in a backup.

    To save memory, only one page of users or channels is held at a time, plus the ids of all users. Each key is
    read as a whole, however large it is.
    """

    def __init__(self, redis: RedisClient) -> None:
        """Create an export of the store that ``redis`` is connected to."""
        self._redis = redis

    async def origin(self) -> BackupOrigin:
        """Return the store's identity and the present time of Redis's clock, for a backup that begins now.

        Raises :class:`service.errors.StoreUnavailable` if Redis is unavailable.
        """
        found = parse_identity(await self._redis.call(*READ_IDENTITY))
        return BackupOrigin(found.fleet, found.counter, found.schema or SCHEMA_VERSION, await self._redis.time_s())

    async def records(self) -> AsyncIterator[Record]:
        """Yield the records of all durable keys, in the order in which :class:`StoreRestoration` needs them.

        Raises :class:`service.errors.StoreUnavailable` if Redis is unavailable.
        """
        names = [*keys.DURABLE_KEYS]
        for pattern in keys.DURABLE_PATTERNS:
            names += [name async for page in scan_keys(self._redis, pattern) for name in page]
        early, late = self._keys(names), self._keys(_READ_AFTER_USERS)
        for part in (early, self._fan_outs(), self._users(), late, self._channels()):
            async for record in part:
                yield record

    async def _keys(self, names: Sequence[str]) -> AsyncIterator[Record]:
        for name in names:
            for found in (await self._read_groups([[name]]))[0]:
                yield KeyRecord(found)

    async def _fan_outs(self) -> AsyncIterator[Record]:
        async for cids in self._channel_ids():
            found = await self._redis.call_many([("HGET", keys.channel(cid), "fanned") for cid in cids])
            yield FanOutRecord({cid: int(version) for cid, version in zip(cids, found, strict=True) if version})

    async def _users(self) -> AsyncIterator[Record]:
        async for uids in self._user_ids():
            owned = await self._read_groups([list(keys.durable_user_keys(uid)) for uid in uids])
            for uid, found in zip(uids, owned, strict=True):
                if found:
                    yield UserRecord(uid, found)

    async def _channels(self) -> AsyncIterator[Record]:
        async for cids in self._channel_ids():
            owned = await self._read_groups([list(keys.durable_channel_keys(cid)) for cid in cids])
            for cid, found in zip(cids, owned, strict=True):
                if found and found[0].key == keys.channel(cid) and b"url" in found[0].items[::2]:
                    yield ChannelRecord(cid, found)

    async def _read_groups(self, groups: Sequence[list[str]]) -> list[list[StoredKey]]:
        """Read groups of keys; return, for each group in order, the group's existing keys with their contents.

        The keys of one group are read atomically. They must have the same hash tag, so that they are in the same
        cluster slot.
        """
        commands: list[Command] = [script_command("backup_read", names) for names in groups]
        replies = await self._redis.call_many(commands)
        return [stored_keys(names, reply) for names, reply in zip(groups, replies, strict=True)]

    async def _channel_ids(self) -> AsyncIterator[list[ChannelId]]:
        """Yield the ids of all channels, page by page."""
        for bucket in keys.REGISTRY_BUCKETS:
            found = await self._redis.call("SMEMBERS", keys.channel_registry(bucket))
            cids = sorted(cid.decode() for cid in found)
            for first in range(0, len(cids), _PAGE):
                yield cids[first : first + _PAGE]

    async def _user_ids(self) -> AsyncIterator[list[str]]:
        """Yield the ids of all users that have durable keys, page by page."""
        found: set[bytes] = set()
        # The last two have erased users with restrictions, and users whose first message is not handled yet.
        listed: Sequence[Command] = (
            ("SMEMBERS", keys.USERS),
            ("ZRANGE", keys.ERASED_USERS_WITH_RESTRICTIONS, 0, -1),
            ("ZRANGE", keys.USERS_WITH_INBOUND, 0, -1),
        )
        for command in listed:
            uids = [uid.decode() for uid in await self._redis.call(*command) if uid not in found]
            found.update(uid.encode() for uid in uids)
            for first in range(0, len(uids), _PAGE):
                yield uids[first : first + _PAGE]


async def scan_keys(redis: RedisClient, pattern: str) -> AsyncIterator[list[str]]:
    """Yield the names of all keys that match the glob pattern ``pattern``, page by page.

    In a cluster, all primary nodes are scanned. The same name may be yielded more than once. Raises
    :class:`service.errors.StoreUnavailable` if Redis is unavailable.
    """
    # A client knows that Redis is a cluster when a node has refused a key that it does not serve.
    await redis.call_many([("EXISTS", keys.channel_registry(bucket)) for bucket in keys.REGISTRY_BUCKETS])
    nodes: list[Address | None] = [*redis.primaries()]
    for node in nodes or [None]:
        cursor: Any = 0
        while True:
            command: Command = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            reply = await (redis.call(*command) if node is None else redis.call_on_node(node, *command))
            cursor, found = reply
            if found:
                yield [name.decode() for name in found]
            if not int(cursor):
                break
