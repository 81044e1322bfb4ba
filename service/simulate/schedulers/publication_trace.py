"""When publishers publish: the one trace that all schedulers of an experiment meet.

Update intervals and subscribers are those of Corona §5: 10 % of the channels change every 10 min to 1 h and 40 %
every 1 to 120 h, log-uniformly, and half of them once a week; channels' popularity is Zipf with exponent 0.5,
independent of how often they change.

*Poisson* publishers have no habits. *Rhythmic* ones publish as often, but mostly in the daytime of the working days
where they live, and a third of them several entries at a time; these habits are our choice, not a measurement.
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


def first_place(low: Ints, high: Ints, is_beyond: Callable[[Ints], Bools]) -> Ints:
    """Return the first place beyond a mark in each range [low, high), else its end: many binary searches at once.

    ``is_beyond`` tells of some place in each range whether it is; of a range that is empty it may tell anything.
    """
    low, high = low.copy(), high.copy()
    while (ahead := low < high).any():
        middle = (low + high) // 2
        beyond = is_beyond(np.where(ahead, middle, 0))
        low, high = np.where(ahead & ~beyond, middle + 1, low), np.where(ahead & beyond, middle, high)
    return low


class Publishers(StrEnum):
    """What publishers are like."""

    POISSON = "poisson"
    RHYTHMIC = "rhythmic"


@dataclass(frozen=True, slots=True)
class Trace:
    """Entries of all channels: those of channel c are ``published_s[starts[c]:starts[c + 1]]``, ascending.

    Time 0 is when polling begins; earlier entries are what feeds hold already then.
    """

    subscribers: Ints
    interval_s: Floats
    """The publisher's own mean interval, which no scheduler can see."""
    published_s: Floats
    starts: Ints

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.subscribers)

    @property
    def channel(self) -> Ints:
        """The channel of every entry."""
        return np.repeat(np.arange(self.channels), np.diff(self.starts))


def make_trace(channels: int, begin_s: float, end_s: float, publishers: Publishers, rng: np.random.Generator) -> Trace:
    """Draw a trace from ``begin_s`` to ``end_s``, whole weeks apart."""
    interval_s = draw_intervals_s(channels, rng)
    entries_each = np.ones(channels)
    if publishers is Publishers.RHYTHMIC:
        entries_each[rng.random(channels) < BURSTY_SHARE] = BURST_ENTRIES
    events = rng.poisson((end_s - begin_s) / (interval_s * entries_each))
    channel = np.repeat(np.arange(channels), events)
    published_s = begin_s + rng.random(len(channel)) * (end_s - begin_s)
    if publishers is Publishers.RHYTHMIC:
        zone_s = rng.integers(24, size=channels).astype(np.float64) * HOUR_S
        published_s = in_working_time_s(published_s - begin_s, zone_s[channel]) + begin_s
        size = np.where(entries_each[channel] > 1, rng.geometric(1 / BURST_ENTRIES, len(channel)), 1)
        channel = np.repeat(channel, size)
        published_s = np.repeat(published_s, size) + rng.exponential(BURST_S, len(channel)) * (
            np.repeat(size, size) > 1
        )
        channel, published_s = channel[published_s < end_s], published_s[published_s < end_s]
    published_s = published_s[np.lexsort((published_s, channel))]
    starts = np.concatenate(([0], np.cumsum(np.bincount(channel, minlength=channels))))
    return Trace(zipf_subscribers(channels, rng), interval_s, published_s, starts)


def draw_intervals_s(channels: int, rng: np.random.Generator) -> Floats:
    """Draw every channel's mean update interval (Corona §5)."""
    fast = np.exp(rng.uniform(np.log(10 * MINUTE_S), np.log(HOUR_S), channels))
    middle = np.exp(rng.uniform(np.log(HOUR_S), np.log(120 * HOUR_S), channels))
    place = rng.random(channels)
    return np.where(place < 0.1, fast, np.where(place < 0.5, middle, WEEK_S))  # noqa: PLR2004 - shares of the paper


def zipf_subscribers(channels: int, rng: np.random.Generator, per_channel: int = SUBSCRIBERS_PER_CHANNEL) -> Ints:
    """Return every channel's subscribers, in random order, at least one each, ``per_channel`` on average."""
    share = np.arange(1, channels + 1) ** -ZIPF_EXPONENT
    wanted = share / share.sum() * channels * per_channel
    return rng.permutation(np.maximum(1, np.round(wanted)).astype(np.int64))


def in_working_time_s(even_s: Floats, zone_s: Floats) -> Floats:
    """Move times that are even over whole weeks to where the publishers of a time zone are busy.

    The week keeps its number of entries: a time is read as a share of the week's work and becomes the moment by
    which that share is done.
    """
    done = np.concatenate(([0.0], np.cumsum(week_of_work())))
    week = np.floor(even_s / WEEK_S)
    share = (even_s / WEEK_S - week) * done[-1]
    local_s = np.interp(share, done, np.arange(len(done)) * HOUR_S)
    return np.asarray(week * WEEK_S + (local_s + zone_s) % WEEK_S)


def week_of_work() -> Floats:
    """Return how busy publishers are in each hour of their week: office hours, evenings, nights; half at weekends."""
    day = np.full(24, 0.1)
    day[7:23] = 1.0
    day[9:18] = 3.0
    return np.concatenate([np.tile(day, 5), np.tile(day, 2) / 2])
