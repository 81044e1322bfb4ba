"""Clocks that run at different speeds in the hours of a week, by which a channel's polls follow its weekly rhythm.

A clock's speed is the product of a factor for the hour of the day and one for the day of the week, both in UTC. Over a
whole week, a clock neither gains nor loses time: at the begin of each week, which is that of a Unix day divisible by 7
(a Thursday), it shows the real time. Its speeds have a short form in bytes, for messages and the store.
"""

from bisect import bisect_right
from itertools import accumulate

HOURS, DAYS = 24, 7
SPEEDS_BYTES = HOURS + DAYS
"""Length of a clock's speeds in bytes: one per hour of the day, then one per day of the week.

Each byte is the logarithm of a factor in sixteenths of an octave, as a signed number.
"""
STEPS_PER_OCTAVE = 16

HOUR_S = 3600.0
DAY_S = HOURS * HOUR_S
WEEK_S = DAYS * DAY_S

_FACTORS: tuple[float, ...] = tuple(2.0 ** (step / STEPS_PER_OCTAVE) for step in [*range(128), *range(-128, 0)])
"""The factor for each value of a byte."""


class WeeklyClock:
    """A clock with the speeds of the bytes ``speeds``, which must be ``SPEEDS_BYTES`` long.

    Its time grows strictly with real time. Both are in seconds since the Unix epoch.
    """

    __slots__ = ("_day_begins_s", "_hour_begins")

    def __init__(self, speeds: bytes) -> None:
        factors = [_FACTORS[byte] for byte in speeds]
        hours = list(accumulate(factors[:HOURS], initial=0.0))
        days = list(accumulate(factors[HOURS:], initial=0.0))
        self._hour_begins = [passed / hours[-1] for passed in hours]
        """Fraction of a day's clock time that has passed at each full hour."""
        self._day_begins_s = [passed / days[-1] * WEEK_S for passed in days]
        """Clock time since the begin of the week at which each day begins."""

    def shown_s(self, at_s: float) -> float:
        """Return the time that the clock shows at the real time ``at_s``."""
        week, inside_s = divmod(at_s, WEEK_S)
        day, hour, part = _position(inside_s)
        hours, days_s = self._hour_begins, self._day_begins_s
        share = hours[hour] + part * (hours[hour + 1] - hours[hour])
        return week * WEEK_S + days_s[day] + share * (days_s[day + 1] - days_s[day])

    def time_s(self, shown_s: float) -> float:
        """Return the real time at which the clock shows ``shown_s``; the inverse of :meth:`shown_s`."""
        week, inside_s = divmod(shown_s, WEEK_S)
        hours, days_s = self._hour_begins, self._day_begins_s
        day = min(bisect_right(days_s, inside_s) - 1, DAYS - 1)
        share = (inside_s - days_s[day]) / (days_s[day + 1] - days_s[day])
        hour = min(bisect_right(hours, share) - 1, HOURS - 1)
        part = (share - hours[hour]) / (hours[hour + 1] - hours[hour])
        return week * WEEK_S + day * DAY_S + (hour + part) * HOUR_S

    def speed(self, at_s: float) -> float:
        """Return the clock's speed at the real time ``at_s``, relative to its mean."""
        day, hour, _ = _position(at_s % WEEK_S)
        hours, days_s = self._hour_begins, self._day_begins_s
        return (hours[hour + 1] - hours[hour]) * HOURS * (days_s[day + 1] - days_s[day]) / DAY_S


def _position(inside_s: float) -> tuple[int, int, float]:
    """Return the day and the hour at this time since the begin of the week, and the fraction of the hour passed."""
    day = min(int(inside_s // DAY_S), DAYS - 1)
    hours = (inside_s - day * DAY_S) / HOUR_S
    hour = min(int(hours), HOURS - 1)
    return day, hour, hours - hour
