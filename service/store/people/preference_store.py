"""Stored preferences of users for their subscriptions (:mod:`service.users.preferences`)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.users.preferences import NO_PREFERENCES, Preferences, PreferencesByNumber

_NOTHING: Final[PreferencesByNumber] = {}
"""The preferences of nearly all users: one shared object, because callers cache them for each recipient."""


class PreferenceStore(RedisRepository):
    """Preferences by user and by number of the subscription.

    Methods may raise :class:`service.errors.StoreUnavailable`.
    """

    async def of_users(self, uids: Sequence[UserId]) -> list[PreferencesByNumber]:
        """Return the preferences of each user, in order. Number 0 stands for all subscriptions."""
        found = await self._redis.call_many([("HGETALL", keys.preferences(uid)) for uid in uids])
        return [
            {int(number): msgspec.msgpack.decode(packed, type=Preferences) for number, packed in held.items()}
            if held
            else _NOTHING
            for held in found
        ]

    async def put(self, jid: str, number: int, preferences: Preferences) -> None:
        """Store a user's preferences for the subscription with this number. Number 0 stands for all subscriptions."""
        key = keys.preferences(keys.user_id(jid))
        if preferences == NO_PREFERENCES:
            await self._redis.call("HDEL", key, number)
        else:
            await self._redis.call("HSET", key, number, msgspec.msgpack.encode(preferences))
