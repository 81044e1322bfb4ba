"""The history of how often each channel was polled. It contains the last ``MAX_POLL_RATES`` changes of the poll rate.

It is stored in the field ``paces`` of the channel's hash, oldest change first. Each change takes 8 bytes, in
little-endian order:

====  =======  ==================================================
size  type     content
====  =======  ==================================================
4     uint32   time from which the poll rate applied (Unix s)
4     float32  interval between two polls (s); 0 if not polled
====  =======  ==================================================
"""

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from service.corona.polling_plans import NOTABLE_GAP_CHANGE
from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository, script_command

MAX_POLL_RATES: Final = 24


_POLL_RATE: Final = struct.Struct("<If")


POLL_RATE_BYTES: Final = _POLL_RATE.size


class PollRate(msgspec.Struct, frozen=True):
    """How often a channel was polled from ``since_s`` (Unix s) until the next change of its poll rate.

    ``interval_s`` is the time between two polls of the channel in seconds, regardless of which workers make the
    polls. It is 0 if the channel was not polled.
    """

    since_s: float
    interval_s: float


class PollRateHistory(RedisRepository):
    """Records and reads the history of each channel's poll rate. Every method may raise :class:`StoreUnavailable`."""

    async def record(self, intervals_s: Iterable[tuple[ChannelId, float]]) -> None:
        """Record how often channels are polled from now on.

        ``intervals_s`` contains pairs (channel id, seconds between two polls). An interval is recorded only if it
        differs from the channel's last recorded interval by more than the fraction ``NOTABLE_GAP_CHANGE``.
        """
        await self._redis.call_many(
            [
                script_command(
                    "channel_record_poll_rate",
                    (keys.channel(cid),),
                    repr(interval_s),
                    NOTABLE_GAP_CHANGE,
                    MAX_POLL_RATES,
                )
                for cid, interval_s in intervals_s
            ]
        )

    async def get(self, cid: ChannelId) -> tuple[PollRate, ...]:
        """Return a channel's poll rates, oldest first."""
        return unpack_poll_rates(await self._redis.call("HGET", keys.channel(cid), "paces") or b"")


def unpack_poll_rates(packed: bytes) -> tuple[PollRate, ...]:
    """Decode a history of poll rates, oldest first.

    ``packed`` is the content of the field ``paces`` of a channel's Redis hash.
    """
    return tuple(PollRate(float(since_s), interval_s) for since_s, interval_s in _POLL_RATE.iter_unpack(packed))
