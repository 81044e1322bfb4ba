"""Forgetting a person: nothing that names them stays behind but what limits them, however it ends in between.

They are noted as leaving first and struck off that list last, so that :meth:`Erasure.heal` goes on where a crash
came in between. What is left of them for a day is one number among all of those who left: see ``SEQ_FLOOR``.

Two things outlive a person, or they could lift their own limits by being forgotten: counters of how often they did
something, which expire within a day, and what admins restrict (address, suspension, most subscriptions), which expires
after ``RESTRICTIONS_KEPT_DAYS``. :meth:`service.store.people.people.People.forget`, for admins, deletes both.
"""

import time
from collections.abc import AsyncIterator
from typing import Final

from service.model import UserId
from service.store.client import keys
from service.store.client.connection import BatchingClient
from service.store.directory.saved_searches import SavedSearches
from service.store.subscriptions.subscriptions import Subscriptions

_PAGE = 1_000
_FLOOR_KEPT_S = 86_400
"""Far longer than a subscription's end lies anywhere where it could come after a new beginning."""

RESTRICTIONS_KEPT_DAYS: Final = 180
"""How long what admins restrict outlives a person, unless they come back: then it stays."""
_RESTRICTIONS_KEPT_S: Final = RESTRICTIONS_KEPT_DAYS * 86_400


class Erasure:
    """Every method may raise :class:`service.errors.StoreUnavailable`, and can be repeated then."""

    def __init__(self, redis: BatchingClient, subscriptions: Subscriptions, standing: SavedSearches) -> None:
        """Use this link to Redis; subscriptions and standing queries end as if their person ended them."""
        self._redis = redis
        self._subscriptions = subscriptions
        self._standing = standing

    async def erase(self, jid: str) -> bool:
        """Delete everything about a person but what limits them; nothing is claimed for them meanwhile.

        It is gone once this returns. Returns whether admins restrict them.
        """
        uid = keys.user_id(jid)
        await self._redis.call("SADD", keys.USERS_BEING_ERASED, uid)
        return await self._finish(uid)

    async def resume(self) -> int:
        """Go on with those whom a crash left behind; return how many."""
        left = [uid.decode() for uid in await self._redis.call("SMEMBERS", keys.USERS_BEING_ERASED)]
        for uid in left:
            await self._finish(uid)
        return len(left)

    async def _finish(self, uid: UserId) -> bool:
        """Return whether admins restrict them."""
        await self._subscriptions.end_all_of_user(uid)
        await self._standing.remove_all(uid)
        seq = int(await self._redis.call("HGET", keys.user(uid), "seq") or 0)
        await self._redis.run_script("string_raise", (keys.SEQ_FLOOR,), seq, _FLOOR_KEPT_S)
        is_restricted = await self._keep_restrictions(uid)
        await self._redis.call("DEL", *keys.erasable_user_keys(uid))
        await self._redis.call_many(
            [
                ("ZREM", keys.USERS_WITH_DELIVERIES, uid),
                ("ZREM", keys.USERS_WITH_INTENTS, uid),
                ("HDEL", keys.USERS_WITH_IMPORTS, uid),
            ]
        )
        await self._redis.call("ZREM", keys.USERS_WITH_INBOUND, uid)
        await self._out_of_wake(uid)
        await self._out_of(keys.BOT_NOTICES, uid)
        await self._out_of(keys.DEAD_LETTERS, uid)
        await self._redis.call_many(
            [("SREM", each, uid) for each in (keys.USERS, keys.GUESTS, keys.USERS_BEING_ERASED)]
        )
        return is_restricted

    async def _keep_restrictions(self, uid: UserId) -> bool:
        """Have what admins restrict expire later; it is listed for admins until then. Return whether there is any."""
        now_s = int(time.time())
        await self._redis.call("ZREMRANGEBYSCORE", keys.ERASED_USERS_WITH_RESTRICTIONS, "-inf", now_s)
        is_restricted = bool(await self._redis.call("EXISTS", keys.restrictions(uid)))
        if is_restricted:
            await self._redis.call("ZADD", keys.ERASED_USERS_WITH_RESTRICTIONS, now_s + _RESTRICTIONS_KEPT_S, uid)
            await self._redis.call("EXPIRE", keys.restrictions(uid), _RESTRICTIONS_KEPT_S)
        return is_restricted

    async def _out_of_wake(self, uid: UserId) -> None:
        """Leave the others of each entry to be woken: a second time is no harm."""
        async for place, fields in self._entries(keys.DELIVERY_WAKEUPS):
            woken = fields[b"u"].decode().split()
            if uid in woken:
                others = " ".join(other for other in woken if other != uid)
                if others:
                    await self._redis.call("XADD", keys.DELIVERY_WAKEUPS, "MAXLEN", "~", 10_000, "*", "u", others)
                await self._redis.call("XDEL", keys.DELIVERY_WAKEUPS, place)

    async def _out_of(self, stream: str, uid: UserId) -> None:
        async for place, fields in self._entries(stream):
            if fields.get(b"u") == uid.encode():
                await self._redis.call("XDEL", stream, place)

    async def _entries(self, stream: str) -> AsyncIterator[tuple[str, dict[bytes, bytes]]]:
        """Yield what is in a stream now, and not what comes meanwhile."""
        newest = await self._redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)
        after, last = "-", newest[0][0].decode() if newest else ""
        while last:
            page = await self._redis.call("XRANGE", stream, after, last, "COUNT", _PAGE)
            for place, fields in page:
                yield place.decode(), fields
            if len(page) < _PAGE:
                return
            after = f"({page[-1][0].decode()}"
