"""Publication traces: the entries of all channels over time, the same for all schedulers of an experiment.

Update intervals and subscribers are those of Corona §5: 10 % of the channels change every 10 min to 1 h and 40 % every
1 to 120 h, log-uniformly, and half of them once a week; popularity is Zipf with exponent 0.5, independent of the update
interval.

*Poisson* publishers have no daily or weekly pattern. *Rhythmic* ones publish as often, but mostly during the day on
working days of their time zone, and a third of them several entries at a time; these patterns are assumptions, not
measurements.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S

ZIPF_EXPONENT = 0.5
SUBSCRIBERS_PER_CHANNEL = 50
"""Corona §5: 5,000,000 subscriptions to 100,000 channels."""

BURSTY_SHARE = 1 / 3
BURST_ENTRIES = 3
BURST_S = 10 * MINUTE_S


def first_index_beyond(low: Ints, high: Ints, is_beyond: Callable[[Ints], Bools]) -> Ints:
    """Return, for each range [low, high), the first index for which ``is_beyond`` holds, or ``high`` if none does.

    ``is_beyond`` maps an array with one index of each range to booleans; its results for empty ranges are ignored. In a
    range it must be false up to some index, and true from there on, because the search is binary.
    """
    low, high = low.copy(), high.copy()
    while (ahead := low < high).any():
        middle = (low + high) // 2
        beyond = is_beyond(np.where(ahead, middle, 0))
        low, high = np.where(ahead & ~beyond, middle + 1, low), np.where(ahead & beyond, middle, high)
    return low


class Publishers(StrEnum):
    """The publication pattern of publishers."""

    POISSON = "poisson"
    RHYTHMIC = "rhythmic"


@dataclass(frozen=True, slots=True)
class PublicationTrace:
    """The entries of all channels.

    Channel c has the entries published at ``published_s[starts[c]:starts[c + 1]]``, in ascending order. Polls begin at
    time 0; the entries published before are then already in the feeds.
    """

    subscribers: Ints
    interval_s: Floats
    """The true mean update intervals, which schedulers do not see."""
    published_s: Floats
    starts: Ints
    zone_h: Ints | None = None
    """The time zones of rhythmic publishers, in hours; None for publishers without a weekly pattern."""

    @property
    def hourly_rates(self) -> Floats:
        """The true publication rate of each channel in each hour of a week, divided by its mean; shape (M, 168)."""
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
        """The number of the channel of each entry."""
        return np.repeat(np.arange(self.channels), np.diff(self.starts))


def make_trace(
    channels: int, begin_s: float, end_s: float, publishers: Publishers, rng: np.random.Generator
) -> PublicationTrace:
    """Draw a trace from ``begin_s`` to ``end_s``, which must be whole weeks apart."""
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


def draw_intervals_s(channels: int, rng: np.random.Generator) -> Floats:
    """Draw the mean time between updates of each channel, with the distribution of Corona §5."""
    fast = np.exp(rng.uniform(np.log(10 * MINUTE_S), np.log(HOUR_S), channels))
    middle = np.exp(rng.uniform(np.log(HOUR_S), np.log(120 * HOUR_S), channels))
    place = rng.random(channels)
    return np.where(place < 0.1, fast, np.where(place < 0.5, middle, WEEK_S))  # noqa: PLR2004 - shares of the paper


def zipf_subscribers(channels: int, rng: np.random.Generator, per_channel: int = SUBSCRIBERS_PER_CHANNEL) -> Ints:
    """Return the number of subscribers of each channel in random order, with a Zipf distribution.

    The number is at least 1, and ``per_channel`` on average.
    """
    share = np.arange(1, channels + 1) ** -ZIPF_EXPONENT
    wanted = share / share.sum() * channels * per_channel
    return rng.permutation(np.maximum(1, np.round(wanted)).astype(np.int64))


def apply_weekly_pattern_s(even_s: Floats, zone_s: Floats) -> Floats:
    """Move times that are uniform over weeks so that they have the weekly pattern of publishers.

    ``zone_s`` is the offset of the publisher's time zone for each time. Each week keeps its number of entries: a time
    at which a fraction of the week has passed becomes the time at which the same fraction of the week's entries are
    published.
    """
    done = np.concatenate(([0.0], np.cumsum(weekly_rates())))
    week = np.floor(even_s / WEEK_S)
    share = (even_s / WEEK_S - week) * done[-1]
    local_s = np.interp(share, done, np.arange(len(done)) * HOUR_S)
    return np.asarray(week * WEEK_S + (local_s + zone_s) % WEEK_S)


def weekly_rates() -> Floats:
    """Return the relative publication rate in each hour of a week.

    Publishers are most active in office hours, less in evenings, least at night, and half as active at weekends.
    """
    day = np.full(24, 0.1)
    day[7:23] = 1.0
    day[9:18] = 3.0
    return np.concatenate([np.tile(day, 5), np.tile(day, 2) / 2])
