"""What several processes share out among themselves: numbered parts, each held by one that lives.

A process says once a second that it lives. It is given free parts up to its fair part, and gives back what it has above
that when it has finished with it. What a dead one held is not free before somebody has *buried* it: the living say by
that that nothing of what it began is still under way. Redis's clock is the only one that counts.
"""

import msgspec

from service.store import keys
from service.store.link import Part


class Dead(msgspec.Struct, frozen=True):
    """A process whose lease ended, at this moment of Redis's clock (Unix s), and that nobody has buried."""

    holder: str
    ended_s: float


class Spread(msgspec.Struct, frozen=True):
    """What a heartbeat brought: our parts, how many we may have, and the dead, if it is on us to bury them."""

    mine: frozenset[int]
    most: int
    dead: tuple[Dead, ...]


class Spreads(Part):
    """Shared-out parts, by name. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def beat(
        self, name: str, holder: str, parts: int, ttl_s: float, back: frozenset[int] = frozenset()
    ) -> Spread:
        """Say that a process lives, for ``ttl_s``; give parts ``back``; return what it has of all ``parts``."""
        reply = await self._link.vital(
            "spread_beat", keys.spread(name), holder, int(ttl_s * 1000), parts, " ".join(map(str, sorted(back)))
        )
        mine, most, dead, undertaker = reply
        found = (Dead(dead[i].decode(), float(dead[i + 1]) / 1000) for i in range(0, len(dead), 2))
        return Spread(frozenset(mine), most, tuple(found) if undertaker.decode() == holder else ())

    async def bury(self, name: str, holder: str) -> bool:
        """Free what a dead process held; False if it lives after all."""
        return bool(await self._link.script("spread_leave", keys.spread(name), holder, "dead"))

    async def leave(self, name: str, holder: str) -> None:
        """Free what a process held that ends in order."""
        await self._link.script("spread_leave", keys.spread(name), holder)

    async def holders(self, name: str) -> dict[int, str]:
        """Return who holds which part."""
        found = await self._link.call("HGETALL", keys.spread(name)[1])
        return {int(number): holder.decode() for number, holder in found.items()}
