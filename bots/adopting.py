"""Whose batches in flight were begun by another bot, and what may have become of them."""

import asyncio
from typing import Final

from bots.charges import Charges, part_of
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.outbox import Outbox

_RETRY_S: Final = 0.5


class Adopting:
    """People whom we have not served before."""

    def __init__(self, outbox: Outbox, charges: Charges, clock: Clock) -> None:
        """Look at what waits in this outbox for those whom ``charges`` has."""
        self._outbox = outbox
        self._charges = charges
        self._clock = clock
        self._gained: set[int] = set()
        self._stirred = asyncio.Event()
        self._session_since_s = 0.0

    def started(self) -> None:
        """A session of ours began that continues no earlier one."""
        self._session_since_s = self._clock.wall_s()

    def gained(self, parts: frozenset[int]) -> None:
        """These parts have become ours."""
        self._gained |= parts
        self._stirred.set()

    async def adopted(self) -> tuple[list[UserId], list[UserId]]:
        """Wait until parts have become ours; return for whom what the server confirmed may be lost, and the others.

        What it confirmed in this session of ours it has kept, for it lives; what it confirmed before may have died
        with it.
        """
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            parts, self._gained = self._gained, set()
            try:
                waiting = await self._charges.among(await self._outbox.waiting())
                uids = [uid for uid in waiting if part_of(uid) in parts]
                flying = await self._outbox.inflight(uids)
            except StoreUnavailable:
                self.gained(frozenset(parts))
                await asyncio.sleep(_RETRY_S)
                continue
            since_s = self._session_since_s
            older = {uid for uid in uids if any(each.acked and each.claimed_s < since_s for each in flying[uid])}
            return sorted(older), [uid for uid in uids if uid not in older]
