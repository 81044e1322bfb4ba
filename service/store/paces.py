"""How often channels were polled, over time: only what changed, and of that the last few.

What is noted of a channel takes at most ``8 * KEPT`` bytes of its hash, so 20 MB for 100,000 channels at the very most.
"""

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from service.corona.pacing import NOTABLE
from service.model import ChannelId
from service.store import keys
from service.store.link import BatchedPart, script

KEPT: Final = 24
_PACE: Final = struct.Struct("<If")
PACE_BYTES: Final = _PACE.size


class Pace(msgspec.Struct, frozen=True):
    """From ``since_s`` on (Unix s), the fleet polled a channel each ``interval_s``; 0 if not at all."""

    since_s: float
    interval_s: float


class Paces(BatchedPart):
    """Note and read them. Every method may raise :class:`StoreUnavailable`."""

    async def note(self, intervals_s: Iterable[tuple[ChannelId, float]]) -> None:
        """Note how often channels are polled from now on; what differs little from what was noted last is left out."""
        await self._link.many(
            [
                script("channel_paced", (keys.channel(cid),), repr(interval_s), NOTABLE, KEPT)
                for cid, interval_s in intervals_s
            ]
        )

    async def of(self, cid: ChannelId) -> tuple[Pace, ...]:
        """Return how often a channel was polled since when, oldest first."""
        return unpacked(await self._link.call("HGET", keys.channel(cid), "paces") or b"")


def unpacked(packed: bytes) -> tuple[Pace, ...]:
    """Return what a channel's field ``paces`` holds, oldest first."""
    return tuple(Pace(float(since_s), interval_s) for since_s, interval_s in _PACE.iter_unpack(packed))
