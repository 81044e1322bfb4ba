"""Erasure of users: removes all data about a user, except usage counts and restrictions set by admins.

The user is added to a list first and removed from it last, so that :meth:`Erasure.resume` can continue after a crash.

What remains after an erasure:

- The restrictions that admins have set (suspension, maximum number of subscriptions) and the user's address, for
  ``RESTRICTIONS_KEPT_DAYS`` days, and usage counts, for up to a day. Otherwise, users could lift their own limits by
  having themselves erased. When an admin erases the user
  (:meth:`service.store.people.user_administration.People.erase`), these data are deleted too.
- The user's id, which is a hash, and the time of the erasure, for ``ERASURES_KEPT_DAYS`` days. If an older backup is
  restored, the user is erased again (:mod:`service.store.client.erasure_file`).
- The greatest change number (``seq``) of all erased users, for a day. If an erased user returns, new changes get
  greater numbers. Delayed copies of changes from before the erasure then have no effect.
"""

import time
from collections.abc import AsyncIterator
from typing import Final

from service.feeds.canonical_urls import reader_of
from service.model import UserId
from service.store.channels.channels import Channels
from service.store.client import keys
from service.store.client.erasure_file import ERASURES_KEPT_DAYS
from service.store.client.redis_client import RedisClient
from service.store.client.streams import append_command
from service.store.directory.saved_search_store import SavedSearches
from service.store.people.feed_links import FeedLinks
from service.store.subscriptions.subscriptions import Subscriptions

_PAGE = 1_000
_FLOOR_TTL_S = 86_400
"""Time in seconds for which the greatest change number (``seq``) of all erased users is kept.

Delayed copies of changes arrive within a far shorter time.
"""

RESTRICTIONS_KEPT_DAYS: Final = 180
"""How many days the restrictions of an erased user are kept. If the user returns, they are kept permanently."""
_RESTRICTIONS_TTL_S: Final = RESTRICTIONS_KEPT_DAYS * 86_400


class Erasure:
    """Deletes the data about a user, except restrictions set by admins and usage counts.

    Every method may raise :class:`service.errors.StoreUnavailable`, and can then be called again.
    """

    def __init__(
        self, redis: RedisClient, subscriptions: Subscriptions, saved_searches: SavedSearches, channels: Channels
    ) -> None:
        """Create an object that deletes users' data from ``redis`` and the given repositories."""
        self._channels = channels
        self._redis = redis
        self._subscriptions = subscriptions
        self._saved_searches = saved_searches

    async def erase(self, jid: str) -> bool:
        """Erase a user; return whether restrictions set by admins remain.

        No new delivery to the user starts while the call runs.
        """
        uid = keys.user_id(jid)
        now_s = int(await self._redis.time_s())
        await self._redis.call_many(
            [
                ("SADD", keys.USERS_BEING_ERASED, uid),
                ("ZADD", keys.ERASED_USERS, now_s, uid),
                ("ZREMRANGEBYSCORE", keys.ERASED_USERS, "-inf", now_s - ERASURES_KEPT_DAYS * 86_400),
            ]
        )
        return await self._finish(uid)

    async def resume(self) -> int:
        """Complete the erasures that a crash interrupted; return how many there were."""
        left = [uid.decode() for uid in await self._redis.call("SMEMBERS", keys.USERS_BEING_ERASED)]
        for uid in left:
            await self._finish(uid)
        return len(left)

    async def _finish(self, uid: UserId) -> bool:
        """Carry out the erasure of a user who is in the list of users being erased.

        Return whether restrictions set by admins remain.
        """
        ended = await self._channels.get_many(await self._subscriptions.end_all_of_user(uid))
        for channel in ended:
            if channel is not None and reader_of(channel.url) == uid:
                await self._channels.delete(channel.id)
                await self._channels.finish_deletion(channel.id)
        await self._saved_searches.remove_all(uid)
        seq = int(await self._redis.call("HGET", keys.user(uid), "seq") or 0)
        await self._redis.run_script("counter_raise", (keys.SEQ_FLOOR,), seq, _FLOOR_TTL_S)
        is_restricted = await self._keep_restrictions(uid)
        await FeedLinks(self._redis).revoke(uid)
        await self._redis.call("DEL", *keys.erasable_user_keys(uid))
        await self._redis.call_many(
            [
                ("ZREM", keys.USERS_WITH_DELIVERIES, uid),
                ("ZREM", keys.USERS_WITH_INTENTS, uid),
                ("HDEL", keys.USERS_WITH_IMPORTS, uid),
            ]
        )
        await self._redis.call("ZREM", keys.USERS_WITH_INBOUND, uid)
        await self._redis.call("SREM", keys.WEBHOOK_USERS, uid)
        for stream in (keys.DELIVERY_WAKEUPS, keys.BOT_NOTICES, keys.DEAD_LETTERS):
            await self._remove_from_stream(stream, uid)
        await self._redis.call_many(
            [("SREM", each, uid) for each in (keys.USERS, keys.GUESTS, keys.USERS_BEING_ERASED)]
        )
        return is_restricted

    async def _keep_restrictions(self, uid: UserId) -> bool:
        """Keep an erased user's restrictions, which admins have set, for ``RESTRICTIONS_KEPT_DAYS`` days.

        Return whether the user has any restrictions. If so, the console lists the user until the restrictions expire.
        """
        now_s = int(time.time())
        await self._redis.call("ZREMRANGEBYSCORE", keys.ERASED_USERS_WITH_RESTRICTIONS, "-inf", now_s)
        is_restricted = bool(await self._redis.call("EXISTS", keys.restrictions(uid)))
        if is_restricted:
            await self._redis.call("ZADD", keys.ERASED_USERS_WITH_RESTRICTIONS, now_s + _RESTRICTIONS_TTL_S, uid)
            await self._redis.call("EXPIRE", keys.restrictions(uid), _RESTRICTIONS_TTL_S)
        return is_restricted

    async def _remove_from_stream(self, stream: str, uid: UserId) -> None:
        """Remove a user's entries from a Redis stream.

        An entry that also names other users is replaced with a new entry that names only the other users.
        """
        # They are notified a second time, which has no effect.
        async for entry_id, fields in self._entries(stream):
            users = fields.get(b"u", b"").decode().split()
            if uid in users:
                others = " ".join(other for other in users if other != uid)
                if others:
                    await self._redis.call(*append_command(stream, "u", others))
                await self._redis.call("XDEL", stream, entry_id)

    async def _entries(self, stream: str) -> AsyncIterator[tuple[str, dict[bytes, bytes]]]:
        """Yield the id and fields of each entry in a stream."""
        after = "-"
        while page := await self._redis.call("XRANGE", stream, after, "+", "COUNT", _PAGE):
            for entry_id, fields in page:
                after = f"({entry_id.decode()}"
                yield entry_id.decode(), fields
