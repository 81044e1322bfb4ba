"""The weekly clocks of many channels as arrays; a test compares them with production's clocks one by one."""

import numpy as np

from service.corona.rhythm import HOUR_S, HOURS_OF_WEEK, WEEK_S
from service.simulate.numerics import Floats, Ints


class WeeklyClocks:
    """A clock for each channel that runs at different speeds in the hours of a week.

    Over a whole week, a clock neither gains nor loses time. At first all clocks run evenly.
    """

    def __init__(self, channels: int) -> None:
        self._apart_s = 2 * WEEK_S * np.arange(channels)
        self._shown_s = np.tile(np.arange(HOURS_OF_WEEK + 1) * HOUR_S, (channels, 1))
        """The time of each clock at every full hour of the week."""
        self._all_shown_s = self._shown_s + self._apart_s[:, None]
        """The same in one ascending array, to search for all channels at once."""

    def set_speed(self, channel: Ints, speed: Floats) -> None:
        """Set the relative speeds of these channels' clocks in each hour of the week, shape (K, 168)."""
        shown = np.cumsum(speed, axis=1)
        self._shown_s[channel, 1:] = shown / shown[:, -1:] * WEEK_S
        self._all_shown_s[channel] = self._shown_s[channel] + self._apart_s[channel, None]

    def shown_s(self, channel: Ints, at_s: Floats) -> Floats:
        """Return the time that the clock of each ``channel`` shows at the real time ``at_s``."""
        week_s = np.floor(at_s / WEEK_S) * WEEK_S
        hour = np.minimum(((at_s - week_s) / HOUR_S).astype(np.int64), HOURS_OF_WEEK - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + begin_s + ((at_s - week_s) / HOUR_S - hour) * (end_s - begin_s))

    def time_s(self, channel: Ints, shown_s: Floats) -> Floats:
        """Return the real time at which the clock of each ``channel`` shows ``shown_s``.

        This is the inverse of :meth:`shown_s`.
        """
        week_s = np.floor(shown_s / WEEK_S) * WEEK_S
        inside_s = shown_s - week_s
        place = np.searchsorted(self._all_shown_s.ravel(), inside_s + self._apart_s[channel], side="right") - 1
        hour = np.minimum(place - channel * (HOURS_OF_WEEK + 1), HOURS_OF_WEEK - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + (hour + (inside_s - begin_s) / (end_s - begin_s)) * HOUR_S)
