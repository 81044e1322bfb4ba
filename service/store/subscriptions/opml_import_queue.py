"""Queues of feeds from the OPML lists that users send. A feed stays queued until the user is subscribed to it.

A crash causes at most one step of the import to be repeated.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.errors import LimitReached
from service.feeds.opml_writer import OpmlSubscription
from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

MAX_QUEUED_FEEDS: Final = 5_000
"""Maximum number of queued feeds of one user: as many as one OPML list may contain."""


class ImportQueue(RedisRepository):
    """Each user's queue of feeds to import. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def add(self, jid: str, feeds: Sequence[OpmlSubscription], bot: str) -> None:
        """Queue feeds for a user. ``bot`` is the address of the bot that will subscribe the user to them.

        Raises :class:`LimitReached` if the user would then have more than ``MAX_QUEUED_FEEDS`` queued feeds.
        """
        uid = keys.user_id(jid)
        await self._redis.call("HSET", keys.USERS_WITH_IMPORTS, uid, bot)
        packed = (msgspec.msgpack.encode(feed) for feed in feeds)
        if not await self._redis.run_script("list_append", (keys.pending_imports(uid),), MAX_QUEUED_FEEDS, *packed):
            raise LimitReached("I'm still importing the lists you sent. Please send this one when I'm done.")

    async def count(self, jid: str) -> int:
        """Return how many feeds a user has in the queue."""
        return int(await self._redis.call("LLEN", keys.pending_imports(keys.user_id(jid))))

    async def users(self, bot: str) -> list[UserId]:
        """Return the users whose queued feeds are imported by the bot with the address ``bot``."""
        found = await self._redis.call("HGETALL", keys.USERS_WITH_IMPORTS)
        return [uid.decode() for uid, address in found.items() if address.decode() == bot]

    async def peek(self, uid: UserId, count: int) -> list[OpmlSubscription]:
        """Return up to ``count`` of a user's next feeds, without removing them from the queue."""
        found = await self._redis.call("LRANGE", keys.pending_imports(uid), 0, count - 1)
        return [msgspec.msgpack.decode(packed, type=OpmlSubscription) for packed in found]

    async def remove(self, uid: UserId, count: int) -> None:
        """Remove the first ``count`` feeds from a user's queue.

        Call this only when each of these feeds is done: the user has been subscribed, or a subscription is impossible.
        """
        await self._redis.call("LTRIM", keys.pending_imports(uid), count, -1)

    async def remove_user(self, uid: UserId, bot: str) -> None:
        """Remove a user from the list of users with pending imports, unless new feeds were queued in the meantime.

        ``bot`` is the address of the bot that runs the user's imports.
        """
        await self._redis.call("HDEL", keys.USERS_WITH_IMPORTS, uid)
        if await self._redis.call("LLEN", keys.pending_imports(uid)):
            await self._redis.call("HSET", keys.USERS_WITH_IMPORTS, uid, bot)
