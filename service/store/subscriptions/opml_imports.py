"""Lists of feeds that people sent, until they are subscribed to all of it: a crash costs no more than a repetition."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.errors import LimitReached
from service.feeds.opml import OpmlSubscription
from service.model import UserId
from service.store.client import keys
from service.store.client.connection import RedisRepository

MAX_QUEUED_FEEDS: Final = 5_000
"""Feeds of one person: as many as one list may have."""


class ImportQueue(RedisRepository):
    """What is still to be imported, per person. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def add(self, jid: str, feeds: Sequence[OpmlSubscription], bot: str) -> None:
        """Add feeds to what is to be imported by the bot of this address.

        Raises :class:`LimitReached` if more than ``MAX_QUEUED_FEEDS`` of one person would wait.
        """
        uid = keys.user_id(jid)
        await self._redis.call("HSET", keys.USERS_WITH_IMPORTS, uid, bot)
        packed = (msgspec.msgpack.encode(feed) for feed in feeds)
        if not await self._redis.run_script("list_append", (keys.pending_imports(uid),), MAX_QUEUED_FEEDS, *packed):
            raise LimitReached("I'm still importing the lists you sent. Please send this one when I'm done.")

    async def count(self, jid: str) -> int:
        """Return how many feeds a person has still to import."""
        return int(await self._redis.call("LLEN", keys.pending_imports(keys.user_id(jid))))

    async def users(self, bot: str) -> list[UserId]:
        """Return the people for whom this bot has something to import."""
        found = await self._redis.call("HGETALL", keys.USERS_WITH_IMPORTS)
        return [uid.decode() for uid, address in found.items() if address.decode() == bot]

    async def peek(self, uid: UserId, count: int) -> list[OpmlSubscription]:
        """Return what is to be imported next, at most so many; they stay until :meth:`done`."""
        found = await self._redis.call("LRANGE", keys.pending_imports(uid), 0, count - 1)
        return [msgspec.msgpack.decode(packed, type=OpmlSubscription) for packed in found]

    async def remove(self, uid: UserId, count: int) -> None:
        """So many are imported, or cannot be."""
        await self._redis.call("LTRIM", keys.pending_imports(uid), count, -1)

    async def remove_user(self, uid: UserId, bot: str) -> None:
        """Nothing was left; what is added at this moment keeps the person on the list."""
        await self._redis.call("HDEL", keys.USERS_WITH_IMPORTS, uid)
        if await self._redis.call("LLEN", keys.pending_imports(uid)):
            await self._redis.call("HSET", keys.USERS_WITH_IMPORTS, uid, bot)
