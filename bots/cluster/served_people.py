"""Whom a bot serves. Of several bots with one account each serves some people; of sharded addresses each has its own.

The people of an account are divided into ``PARTS``, by their ids. A bot knows which parts are its own, and until when
it can be sure of that: afterwards another may have them, should this process have been stopped meanwhile.
"""

import math
import zlib
from collections.abc import Collection, Sequence
from typing import Final

from service.clock import Clock
from service.model import UserId
from service.store.delivery.inbound_log import Heard

PARTS: Final = 64
EVERYBODY: Final = frozenset(range(PARTS))


def part_of(uid: UserId) -> int:
    """Return the part of all people that somebody belongs to."""
    return zlib.crc32(uid.encode()) % PARTS


class Charges:
    """One bot's people. Times are monotonic s."""

    def __init__(self, heard: Heard, clock: Clock, address: str, addresses: Sequence[str] = ()) -> None:
        """Serve nobody yet. If there are several ``addresses``, only those whose home is ``address``."""
        self._heard = heard
        self._clock = clock
        self._address = address
        self._addresses = addresses or (address,)
        self.parts: frozenset[int] = frozenset()
        self._until_s = -math.inf

    @property
    def leads(self) -> bool:
        """Whether this is the one bot of its address that does what is done once."""
        return 0 in self.parts

    @property
    def publishes(self) -> bool:
        """Whether this is the one bot of all addresses that publishes nodes."""
        return self.leads and self._address == self._addresses[0]

    def hold(self, parts: frozenset[int], until_s: float = math.inf) -> None:
        """These parts are ours, for sure until this moment."""
        self.parts, self._until_s = parts, until_s

    def are_certain(self) -> bool:
        """Whether nobody can have taken our parts over."""
        return self._clock.monotonic_s() < self._until_s

    def holds(self, uid: UserId) -> bool:
        """Whether somebody is in one of our parts, as far as we know."""
        return part_of(uid) in self.parts

    async def among(self, uids: Collection[UserId]) -> list[UserId]:
        """Return which of these people are ours, in the same order. Raises StoreUnavailable."""
        ours = [uid for uid in uids if self.holds(uid)]
        if len(self._addresses) == 1 or not ours:
            return ours
        homes = await self._heard.homes(ours)
        return [uid for uid, home in zip(ours, homes, strict=True) if self._home(home) == self._address]

    def _home(self, noted: str) -> str:
        return noted if noted in self._addresses else self._addresses[0]
