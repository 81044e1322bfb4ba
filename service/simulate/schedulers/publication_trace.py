"""Simulation of when channels publish entries.

An experiment runs all its schedulers on the same publications, so that their results can be compared. Update intervals
and subscriber counts are drawn at random as described in Corona §5 (``corona.workload``). There are two kinds of
publishers:

- *Poisson* publishers have no daily or weekly pattern.
- *Rhythmic* publishers have the same mean update intervals, but publish mostly on working days during the day, in
  their own time zones. A third of them publish several entries at a time. These patterns are assumptions, not
  measurements.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from service.simulate.corona.workload import draw_intervals_s, zipf_subscribers
from service.simulate.numerics import HOUR_S, MINUTE_S, WEEK_S, Floats, Ints

BURSTY_SHARE = 1 / 3
BURST_ENTRIES = 3
BURST_S = 10 * MINUTE_S


class Publishers(StrEnum):
    """The two kinds of publishers: with constant rates (POISSON), or with rates that vary over the week (RHYTHMIC)."""

    POISSON = "poisson"
    RHYTHMIC = "rhythmic"


@dataclass(frozen=True, slots=True)
class PublicationTrace:
    """All entries that a simulation's channels publish, ordered by channel and then by time.

    Polling begins at time 0. Entries with negative times were published before that, so the first polls find them in
    the feeds.

    - ``subscribers``: number of subscribers of each channel.
    - ``published_s``: publication time of each entry. The entries of channel ``c`` are
      ``published_s[starts[c]:starts[c + 1]]``, oldest first.
    - ``starts``: index in ``published_s`` of each channel's first entry, followed by the total number of entries.
    """

    subscribers: Ints
    interval_s: Floats
    """The true mean update interval of each channel, which schedulers do not see."""
    published_s: Floats
    starts: Ints
    zone_h: Ints | None = None
    """How many hours each publisher's local time is behind UTC; None if publishers have no weekly pattern."""

    @property
    def hourly_rates(self) -> Floats:
        """Each channel's true publication rate in each hour of the week, relative to the channel's mean rate.

        The shape is (number of channels, 168).
        """
        if self.zone_h is None:
            return np.ones((self.channels, round(WEEK_S / HOUR_S)))
        pattern = weekly_rates() / weekly_rates().mean()
        return np.stack([np.roll(pattern, zone) for zone in self.zone_h.tolist()])

    @property
    def channels(self) -> int:
        """The number of channels."""
        return len(self.subscribers)

    @property
    def channel(self) -> Ints:
        """For each entry in ``published_s``, the index of the channel that published it."""
        return np.repeat(np.arange(self.channels), np.diff(self.starts))


def make_trace(
    channels: int, begin_s: float, end_s: float, publishers: Publishers, rng: np.random.Generator
) -> PublicationTrace:
    """Simulate the entries that ``channels`` channels publish from ``begin_s`` to ``end_s``.

    - ``publishers``: whether the publication rates are constant or vary over the week.
    - ``rng``: the source of random numbers.

    The period must be a whole number of weeks long.
    """
    interval_s = draw_intervals_s(channels, rng)
    entries_each = np.ones(channels)
    if publishers is Publishers.RHYTHMIC:
        entries_each[rng.random(channels) < BURSTY_SHARE] = BURST_ENTRIES
    events = rng.poisson((end_s - begin_s) / (interval_s * entries_each))
    channel = np.repeat(np.arange(channels), events)
    published_s = begin_s + rng.random(len(channel)) * (end_s - begin_s)
    zone_h = None
    if publishers is Publishers.RHYTHMIC:
        zone_h = rng.integers(24, size=channels)
        published_s = (
            apply_weekly_pattern_s(published_s - begin_s, zone_h[channel].astype(np.float64) * HOUR_S) + begin_s
        )
        size = np.where(entries_each[channel] > 1, rng.geometric(1 / BURST_ENTRIES, len(channel)), 1)
        channel = np.repeat(channel, size)
        published_s = np.repeat(published_s, size) + rng.exponential(BURST_S, len(channel)) * (
            np.repeat(size, size) > 1
        )
        channel, published_s = channel[published_s < end_s], published_s[published_s < end_s]
    published_s = published_s[np.lexsort((published_s, channel))]
    starts = np.concatenate(([0], np.cumsum(np.bincount(channel, minlength=channels))))
    return PublicationTrace(zipf_subscribers(channels, rng), interval_s, published_s, starts, zone_h)


def apply_weekly_pattern_s(even_s: Floats, zone_s: Floats) -> Floats:
    """Return the times ``even_s``, shifted within their weeks so that they follow the weekly pattern.

    The pattern is the result of :func:`weekly_rates`, in the publisher's local time.

    - ``even_s``: uniformly distributed times in seconds. Time 0 is the beginning of a week.
    - ``zone_s``: for each time, how many seconds the publisher's local time is behind UTC.
    """
    # A time at which a fraction of the week has passed becomes the time at which the pattern has the same fraction of
    # the week's publications behind it.
    done = np.concatenate(([0.0], np.cumsum(weekly_rates())))
    week = np.floor(even_s / WEEK_S)
    share = (even_s / WEEK_S - week) * done[-1]
    local_s = np.interp(share, done, np.arange(len(done)) * HOUR_S)
    return np.asarray(week * WEEK_S + (local_s + zone_s) % WEEK_S)


def weekly_rates() -> Floats:
    """Return the relative publication rate in each of the 168 hours of a week, beginning on Monday at midnight.

    Publishers are most active in office hours, less active in the evening, and least active at night. At weekends, they
    are half as active as on working days.
    """
    day = np.full(24, 0.1)
    day[7:23] = 1.0
    day[9:18] = 3.0
    return np.concatenate([np.tile(day, 5), np.tile(day, 2) / 2])
