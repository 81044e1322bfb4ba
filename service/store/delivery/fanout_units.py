"""Division of a *fan-out* among several workers. A fan-out queues a new version for all subscribers of a channel.

If a channel has many subscribers, its fan-out is divided into *units*. Each unit covers the subscribers in one key
group (:mod:`service.clash.key_groups`).

1. The channel's owner divides the fan-out into units.
2. Any worker can claim a unit. It then queues the version for the unit's subscribers, page by page.
3. After each page, the worker records the *cursor*, the position at which to continue. This also extends the worker's
   claim.
4. A claim that is not extended ends after ``CLAIM_S`` seconds of Redis's clock. Another worker then continues the unit.

If a worker continues after its claim has ended, two workers queue the same pages. This is harmless: a version is queued
once for each user (guarantee I2), and never after a later version (guarantee I4). Only the worker with the latest claim
can record progress.
"""

# The units of a version are in the slot of their channel.

from collections.abc import Mapping
from typing import Final

import msgspec

from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

DIVIDED: Final = "*"
"""Value of a channel's fan-out cursor which means that the fan-out of the next version is divided into units."""
CLAIM_S: Final = 10.0
"""Duration of a claim (s). Each recorded page extends it. A page takes 50 ms, or a second under heavy load."""
_UNITS_TTL_S: Final = 86_400


class ClaimedUnit(msgspec.Struct, frozen=True):
    """A unit of a fan-out that a worker has claimed.

    A fan-out queues a version for all subscribers of a channel. A unit is a part of these subscribers. The worker
    must queue the version ``version`` for them.

    - ``unfinished``: number of units of the fan-out that are not finished, including this one.
    - ``label``: identifies the unit.
    - ``token``: identifies the worker's claim.
    - ``cursor``: position in the unit at which to continue; "" stands for the first subscriber.
    """

    version: int
    unfinished: int
    label: str
    token: str
    cursor: str


class UnitsLeft(msgspec.Struct, frozen=True):
    """Tells a worker that no unit of a fan-out can be claimed at present.

    All units are finished or claimed by other workers. A unit is a part of the channel's subscribers.

    - ``queued``: number of users for whom the version has been queued so far.
    - ``wait_s``: seconds until the first of the present claims ends; 0 if all units are finished.
    """

    queued: int
    wait_s: float


class FanOutUnits(RedisRepository):
    """Divides fan-outs into units, and lets workers claim them.

    A fan-out queues a version for all subscribers of a channel. A unit covers a part of these subscribers. Units are
    deleted a day after the fan-out was divided. Every method may raise :class:`service.errors.StoreUnavailable` and can
    then be called again.
    """

    async def divide(self, cid: ChannelId, epoch: int, version: int, units: Mapping[str, str]) -> bool:
        """Divide the fan-out of a version into units that several workers can claim, unless this was done before.

        - ``epoch``: the channel's epoch, with which the caller proves that it owns the channel.
        - ``units``: maps the label of each unit to the position in the unit at which to begin; "" stands for the
          first subscriber.

        Return False if another node owns the channel, or if ``version`` is not the next version to be queued.
        """
        fields = [value for unit in units.items() for value in unit]
        return bool(
            await self._redis.run_script("fanout_divide", _keys(cid), epoch, version, DIVIDED, _UNITS_TTL_S, *fields)
        )

    async def claim(self, cid: ChannelId, version: int | None = None) -> ClaimedUnit | UnitsLeft | None:
        """Claim a unit of a channel's divided fan-out.

        A unit can be claimed if no worker has claimed it, or if the last claim has ended. The result is one of these:

        - :class:`ClaimedUnit`: the claimed unit.
        - :class:`UnitsLeft`: no unit can be claimed at present.
        - None: the channel has no divided fan-out, or the fan-out is for a version other than ``version``.

        If ``version`` is None, the fan-out may be for any version.
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
        """Record that the version was queued for a page of users; return False if another worker has claimed the unit.

        - ``cursor``: the position at which to continue; "" if the unit is finished.
        - ``queued``: the number of users in the page.
        """
        arguments = (unit.label, unit.token, cursor, queued, int(CLAIM_S * 1000))
        return bool(await self._redis.run_script("fanout_record", (keys.fanout_units(cid),), *arguments))


def _keys(cid: ChannelId) -> tuple[str, str]:
    return keys.channel(cid), keys.fanout_units(cid)
