"""What each person prefers, with the rest of their records; see :mod:`service.preferences`."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.model import UserId
from service.preferences import NONE, ByNumber, Preferences
from service.store import keys
from service.store.link import Link

_NOTHING: Final[ByNumber] = {}
"""Of nearly everybody: it is remembered for each who is told something."""


class PreferenceStore:
    """Preferences by person and number. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def of_users(self, uids: Sequence[UserId]) -> list[ByNumber]:
        """Return what these people prefer, in the same order."""
        found = await self._link.many([("HGETALL", keys.preferences(uid)) for uid in uids])
        return [
            {int(number): msgspec.msgpack.decode(packed, type=Preferences) for number, packed in held.items()}
            if held
            else _NOTHING
            for held in found
        ]

    async def put(self, jid: str, number: int, preferences: Preferences) -> None:
        """Keep what a person prefers of one subscription, or of all."""
        own = keys.preferences(keys.user_id(jid))
        if preferences == NONE:
            await self._link.call("HDEL", own, number)
        else:
            await self._link.call("HSET", own, number, msgspec.msgpack.encode(preferences))
