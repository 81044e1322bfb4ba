"""Clocks for each channel that run fast when its publisher tends to publish.

Two of them, both a week long each week:

- The *publishing* clock runs with λ(t), how much a channel publishes at this time of the week. On it a publisher has no
  habits any more, so that a silent night is no silence. It is what an update estimate should read.
- The *polling* clock runs with √λ(t). Polls that are evenly spaced on it are dense in busy hours and rare at night, and
  for their number they make the mean delay of a notification least (Cauchy and Schwarz: the same square root as
  between channels).

λ is learnt as hour of the day times day of the week, from entries' dates, each with some entries more to begin with, so
that the clocks of whoever publishes rarely are even.
"""

import numpy as np

from service.simulate.trace import DAY_S, HOUR_S, WEEK_S, Floats, Ints

HOURS, DAYS = 24, 7
PRIOR_PER_HOUR = 2.0
"""Entries that every hour of the day is taken to have had; every day of the week as many as its hours."""


class Clocks:
    """One clock for each channel; all begin even."""

    def __init__(self, channels: int) -> None:
        self._apart_s = 2 * WEEK_S * np.arange(channels)
        self._show(np.tile(np.arange(HOURS * DAYS + 1) * HOUR_S, (channels, 1)))

    def set_speed(self, speed: Floats) -> None:
        """Let each clock run with these speeds in the hours of the week, relative to one another."""
        shown = np.cumsum(speed, axis=1)
        self._show(np.pad(shown / shown[:, -1:] * WEEK_S, ((0, 0), (1, 0))))

    def shown_s(self, channel: Ints, at_s: Floats) -> Floats:
        """Return what the clocks of these channels show at these times."""
        week_s = np.floor(at_s / WEEK_S) * WEEK_S
        hour = np.minimum(((at_s - week_s) / HOUR_S).astype(np.int64), HOURS * DAYS - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + begin_s + ((at_s - week_s) / HOUR_S - hour) * (end_s - begin_s))

    def time_s(self, channel: Ints, shown_s: Floats) -> Floats:
        """Return when the clocks of these channels show this; the inverse of :meth:`shown_s`."""
        week_s = np.floor(shown_s / WEEK_S) * WEEK_S
        inside_s = shown_s - week_s
        place = np.searchsorted(self._all_shown_s, inside_s + self._apart_s[channel], side="right") - 1
        hour = np.minimum(place - channel * (HOURS * DAYS + 1), HOURS * DAYS - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + (hour + (inside_s - begin_s) / (end_s - begin_s)) * HOUR_S)

    def _show(self, shown_s: Floats) -> None:
        self._shown_s = shown_s
        """What each clock shows at every full hour of the week."""
        self._all_shown_s = (shown_s + self._apart_s[:, None]).ravel()
        """The same in one ascending row, for all channels to be searched at once."""


class Rhythm:
    """When each channel tends to publish, and its two clocks."""

    def __init__(self, channels: int) -> None:
        self.publishing = Clocks(channels)
        self.polling = Clocks(channels)
        self._by_hour = np.full((channels, HOURS), PRIOR_PER_HOUR)
        self._by_day = np.full((channels, DAYS), PRIOR_PER_HOUR * HOURS)

    def count(self, channel: Ints, published_s: Floats) -> None:
        """Take note of entries' dates, one channel each."""
        np.add.at(self._by_hour, (channel, (published_s // HOUR_S).astype(np.int64) % HOURS), 1.0)
        np.add.at(self._by_day, (channel, (published_s // DAY_S).astype(np.int64) % DAYS), 1.0)

    def learn(self) -> None:
        """Set all clocks by what was counted. Only at the end of a week do they show the same before and after."""
        busy = (self._by_day[:, :, None] * self._by_hour[:, None, :]).reshape(len(self._by_day), -1)
        self.publishing.set_speed(busy)
        self.polling.set_speed(np.sqrt(busy))
