"""Who does not want to hear from us now: quiet hours, digests, and presence as far as people let us see it."""

from collections.abc import Mapping
from typing import Final

from bots import stanzas
from bots.link import Link
from bots.presences import MOST_PEOPLE
from service.clock import Clock
from service.habits import Habits, may_be_told_s
from service.model import UserId
from service.store.outbox import Outbox

PRESENCE_LOOK_S: Final = 3_600.0
"""Somebody's presence is news to us, so this is only for what was lost."""
PRESENCE_WITHIN_S: Final = 30.0
"""After so long without a word of somebody's presence in this session we see none of it."""


class Resting:
    """Remembers who is free to be told, for one session."""

    def __init__(self, outbox: Outbox, link: Link, clock: Clock) -> None:
        """Look at what waits in this outbox; ask after people's presence through ``link``."""
        self._outbox = outbox
        self._link = link
        self._clock = clock
        self._free: dict[UserId, bool] = {}
        self._asked_s: dict[UserId, float] = {}

    def started(self) -> None:
        """A session began: nothing is known of anybody's presence."""
        self._free.clear()
        self._asked_s.clear()

    def seen(self, uid: UserId, *, is_free: bool) -> None:
        """Remember whether somebody is free to be told; forget whom we saw longest ago, if there are too many."""
        self._free.pop(uid, None)
        self._free[uid] = is_free
        if len(self._free) > MOST_PEOPLE:
            del self._free[next(iter(self._free))]

    def forget(self, uid: UserId) -> None:
        """Remember nothing of somebody."""
        self._free.pop(uid, None)
        self._asked_s.pop(uid, None)

    async def of(self, people: Mapping[UserId, Habits], since_s: Mapping[UserId, float | None]) -> dict[UserId, float]:
        """Return who does not want now what is queued for them, and for how many seconds. Raises StoreUnavailable.

        ``since_s`` says of some since when what they may be told waits, None for nothing (Unix s).
        """
        resting: dict[UserId, float] = {}
        if not people:
            return resting
        wall_s = self._clock.wall_s()
        others = [uid for uid in people if uid not in since_s]
        waits_s = dict(zip(others, await self._outbox.oldest_s(others), strict=True)) | dict(since_s)
        for uid, habits in people.items():
            queued_s = waits_s[uid]
            if queued_s is None:
                continue
            rest_s = may_be_told_s(habits, queued_s, wall_s) - wall_s
            if habits.heeds_presence:
                rest_s = max(rest_s, await self._absent_s(uid))
            if rest_s > 0:
                resting[uid] = rest_s
        return resting

    async def _absent_s(self, uid: UserId) -> float:
        """Return how long to wait before looking again whether somebody is free to be told; 0 if they are.

        Who lets us see no presence at all is told: nobody is to wait for ever.
        """
        free = self._free.get(uid)
        if free is not None:
            return 0.0 if free else PRESENCE_LOOK_S
        now_s = self._clock.monotonic_s()
        if uid not in self._asked_s:
            self._asked_s[uid] = now_s
            (jid,) = await self._outbox.address([uid])
            self._link.hint(stanzas.presence(self._link.address, jid, "probe"))
        return max(0.0, self._asked_s.get(uid, now_s) + PRESENCE_WITHIN_S - now_s)
