"""Units of the fan-out of a large channel's version, which several workers carry out together.

A *fan-out* queues a version for all subscribers of its channel. A *unit* is a fixed part of the subscribers: those in
one key group under the channel's key group (:mod:`service.clash.key_groups`). The channel's owner divides the fan-out
into units. Then any worker claims a unit, queues the version for the unit's subscribers page by page, and after each
page records the *cursor*, the position to continue from.

Each record extends the claim. A claim that is not extended ends, by Redis's clock, so that another worker continues the
unit of a worker that has died. The units of a version are in the slot of their channel.

If a claim ends although its worker is still alive, two workers queue the same pages. This is harmless, because a
version is queued once for each user (guarantee I2), and never after a later version (guarantee I4). Only the worker
with the latest claim records progress.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

DIVIDED: Final = "*"
"""The cursor of a channel whose next version is fanned out in units."""
CLAIM_S: Final = 10.0
"""Length of a claim, which is extended by each recorded page. A page takes 50 ms, or a second under heavy load."""
_UNITS_TTL_S: Final = 86_400


class ClaimedUnit(msgspec.Struct, frozen=True):
    """A unit of the fan-out of ``version`` that the caller has claimed.

    - ``label``: label of the unit's key group.
    - ``cursor``: position in the channel index from which to continue; "" is the first subscriber of the unit.
    - ``token``: token that identifies the claim.
    - ``unfinished``: number of units of the fan-out that are not finished, including this one.
    """

    version: int
    unfinished: int
    label: str
    token: str
    cursor: str


class UnitsLeft(msgspec.Struct, frozen=True):
    """The state of a divided fan-out in which no unit can be claimed at present.

    ``wait_s`` is the time in seconds until the first claim ends; 0 if all units are finished. ``queued`` is the number
    of users for whom the version has been queued so far.
    """

    queued: int
    wait_s: float


class FanOutUnits(RedisRepository):
    """The units of fan-outs that are in progress.

    Every method may raise :class:`service.errors.StoreUnavailable` and can then be repeated. Units are dropped a day
    after the fan-out was divided.
    """

    async def divide(self, cid: ChannelId, epoch: int, version: int, units: Mapping[str, str]) -> bool:
        """Divide the fan-out of a version of a channel into units.

        Return False if another node owns the channel, or ``version`` is not the next one to fan out. ``epoch`` is the
        caller's fencing token. ``units`` maps the label of each key group to the cursor from which to continue. A
        fan-out that is divided already stays as it is.
        """
        fields = [value for unit in units.items() for value in unit]
        return bool(
            await self._redis.run_script("fanout_divide", _keys(cid), epoch, version, DIVIDED, _UNITS_TTL_S, *fields)
        )

    async def claim(self, cid: ChannelId, version: int | None = None) -> ClaimedUnit | UnitsLeft | None:
        """Claim a unit that no worker has claimed, or whose claim has ended, and return it.

        If there is no such unit, return the state of the fan-out (UnitsLeft). Return None if no divided fan-out of the
        channel is in progress, or if it is the fan-out of another version than ``version``. If ``version`` is None, any
        version is accepted.
        """
        wanted = "" if version is None else version
        reply = await self._redis.run_script("fanout_claim", _keys(cid), DIVIDED, int(CLAIM_S * 1000), wanted)
        if reply is None:
            return None
        first, second, *unit = reply
        if not unit:
            return UnitsLeft(queued=first, wait_s=second / 1000)
        return ClaimedUnit(first, second, *(part.decode() for part in unit))

    async def record(self, cid: ChannelId, unit: ClaimedUnit, cursor: str, queued: int) -> bool:
        """Record that a page of ``queued`` users has been queued; return False if another worker has the claim.

        ``cursor`` is the position to continue from; "" means that the unit is finished.
        """
        arguments = (unit.label, unit.token, cursor, queued, int(CLAIM_S * 1000))
        return bool(await self._redis.run_script("fanout_record", (keys.fanout_units(cid),), *arguments))


def _keys(cid: ChannelId) -> tuple[str, str]:
    return keys.channel(cid), keys.fanout_units(cid)
