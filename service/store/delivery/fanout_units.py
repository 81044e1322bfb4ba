"""Division of a *fan-out* among several workers. A fan-out queues a new version for all subscribers of a channel.

The fan-out of a channel with many subscribers is divided into *units*. A unit is a fixed part of the subscribers: those
in one key group (:mod:`service.clash.key_groups`).

1. The channel's owner divides the fan-out into units.
2. Any worker claims a unit, and queues the version for its subscribers, page by page.
3. After each page, the worker records the *cursor*, the position to continue from. This extends the claim.
4. If a claim is not extended, it ends, by Redis's clock. Another worker then continues the unit.

If a worker is alive after its claim has ended, two workers queue the same pages. This is harmless: a version is queued
once for each user (guarantee I2), and never after a later version (guarantee I4). Only the worker with the latest claim
records progress.
"""

# The units of a version are in the slot of their channel.

from collections.abc import Mapping
from typing import Final

import msgspec

from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

DIVIDED: Final = "*"
"""Value of a channel's fan-out cursor that means: several workers queue the next version, in units."""
CLAIM_S: Final = 10.0
"""Length of a claim, which is extended by each recorded page. A page takes 50 ms, or a second under heavy load."""
_UNITS_TTL_S: Final = 86_400


class ClaimedUnit(msgspec.Struct, frozen=True):
    """A part of a channel's subscribers for whom the caller has to queue ``version``.

    - ``label``: identifies this part.
    - ``cursor``: position to continue from; "" is the first subscriber.
    - ``token``: identifies the caller's claim.
    - ``unfinished``: number of parts that are not finished, including this one.
    """

    version: int
    unfinished: int
    label: str
    token: str
    cursor: str


class UnitsLeft(msgspec.Struct, frozen=True):
    """The state of a divided fan-out in which no unit (part of the subscribers) can be claimed at present.

    - ``wait_s``: seconds until the first claim ends; 0 if all units are finished.
    - ``queued``: number of users for whom the version has been queued so far.
    """

    queued: int
    wait_s: float


class FanOutUnits(RedisRepository):
    """Parts (units) of the fan-outs in progress. A fan-out queues a version for all subscribers of a channel.

    Units are dropped a day after the fan-out was divided. Every method may raise
    :class:`service.errors.StoreUnavailable` and can then be repeated.
    """

    async def divide(self, cid: ChannelId, epoch: int, version: int, units: Mapping[str, str]) -> bool:
        """Divide the subscribers for whom a version has to be queued into units, unless this was done before.

        - ``epoch``: number by which the caller proves that it owns the channel.
        - ``units``: position from which to continue in each unit, by the unit's label.

        Return False if another node owns the channel, or ``version`` is not the next one to be queued.
        """
        fields = [value for unit in units.items() for value in unit]
        return bool(
            await self._redis.run_script("fanout_divide", _keys(cid), epoch, version, DIVIDED, _UNITS_TTL_S, *fields)
        )

    async def claim(self, cid: ChannelId, version: int | None = None) -> ClaimedUnit | UnitsLeft | None:
        """Claim a unit, that is, a part of a channel's subscribers for whom a version has to be queued.

        Only a unit that no worker has claimed, or whose claim has ended, can be claimed. The result is one of these:

        - ClaimedUnit: the claimed unit.
        - UnitsLeft: no unit can be claimed at present.
        - None: no version of the channel is being queued in units, or it is not ``version``.

        If ``version`` is None, any version is accepted.
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
