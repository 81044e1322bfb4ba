"""Simulations of how other feed readers schedule their polls, according to their source code and default settings.

Each class is the scheduler of one project, or of several projects with the same rule. Its docstring names the source
files. Two simplifications make these readers look better than they are:

- Every feed is polled exactly when it is due. The real projects poll later, because a timer starts polls in batches.
- Publishers never fail, and answer immediately with status 304 or 200. They give no hints such as a TTL or a cache
  lifetime.
"""

from collections.abc import Callable

import numpy as np

from service.simulate.numerics import DAY_S, HOUR_S, MINUTE_S, WEEK_S, Floats, Ints
from service.simulate.schedulers.polls import ENTRIES_IN_DOCUMENT, PollObservations, Scheduler
from service.simulate.schedulers.publication_trace import PublicationTrace


class FixedInterval:
    """The scheduler of readers that poll every feed at the same interval.

    - Miniflux with its default scheduler, round robin: SCHEDULER_ROUND_ROBIN_MIN_INTERVAL = 60 minutes
      (internal/model/feed.go, ScheduleNextCheck; internal/config/options.go).
    - MonitoRSS without a paid plan: every 10 minutes; the hash of a feed's URL decides when within the interval the
      feed is polled (slotOffsetMs in user-feed.entity.ts, schedule-handler.service.ts).
    - RSS-to-Telegram: default_interval = 10 minutes; every feed is polled once in each round, in an unspecified order
      (src/db/effective_utils.py, EffectiveTasks).
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s

    def wait_s(self, seen: PollObservations) -> Floats:
        """Return, for each polled feed, the seconds until its next poll."""
        return np.full(len(seen.channel), self._interval_s)


class MinifluxEntryFrequency:
    """The scheduler of Miniflux with POLLING_SCHEDULER=entry_frequency: polls a feed about once per expected new entry.

    - The weekly entry count c is 7 days divided by the mean gap between the entries of the last 7 days, rounded up. If
      there were fewer than two entries, c is 0 (internal/storage/feed.go, WeeklyFeedEntryCount).
    - The interval is 7 days / c, but at least 5 min and at most 24 h. If c is 0, the interval is 24 h
      (internal/model/feed.go, ScheduleNextCheck).
    """

    def wait_s(self, seen: PollObservations) -> Floats:
        """Return, for each polled feed, the seconds until Miniflux polls it again."""
        oldest = seen.first_since(seen.now_s - WEEK_S)
        count = seen.upto - oldest
        span_s = np.where(count > 1, seen.newest_s - seen.published_s[np.minimum(oldest, seen.upto - 1)], 0.0)
        gaps = np.maximum(count - 1, 1)
        weekly_count = np.where(span_s > 0, np.ceil(WEEK_S * gaps / np.maximum(span_s, 1.0)), 0.0)
        interval_s = np.clip(WEEK_S / np.maximum(weekly_count, 1.0), 5 * MINUTE_S, DAY_S)
        return np.where(weekly_count > 0, interval_s, DAY_S)


class CommaFeed:
    """The scheduler of CommaFeed, which uses the age of the newest entry and the gaps between entries.

    The first matching rule determines the interval between two polls:

    - The newest entry is at least 30 days old: 4 h.
    - The newest entry is at least 14 days old: 2 h.
    - The newest entry is at least 7 days old: 1 h.
    - The feed document contains only one entry: 4 h.
    - Otherwise: half the mean gap between the document's entries, but at least 5 min and at most 1 h.

    Sources: FeedRefreshIntervalCalculator.java (computeEmpiricalRefreshInterval), FeedParser.java
    (averageTimeBetweenEntries), CommaFeedConfiguration.java (interval 5 min, maxInterval 4 h, intervalEmpirical).
    """

    def wait_s(self, seen: PollObservations) -> Floats:
        """Return, for each polled feed, the seconds until CommaFeed polls it again."""
        shown = np.minimum(seen.known, ENTRIES_IN_DOCUMENT)
        oldest_s = seen.published_s[np.where(shown > 0, seen.upto - shown, 0)]
        gap_s = np.where(shown > 1, (seen.newest_s - oldest_s) / np.maximum(shown - 1, 1), np.nan)
        half_s = np.clip(gap_s / 2, 5 * MINUTE_S, HOUR_S)
        known_s = np.where(np.isnan(gap_s), 4 * HOUR_S, half_s)
        days = np.floor((seen.now_s - seen.newest_s) / DAY_S)
        quiet = [days >= 30, days >= 14, days >= 7]  # noqa: PLR2004 - the source's numbers
        return np.select(quiet, [4 * HOUR_S, 2 * HOUR_S, HOUR_S], known_s)


class NewsBlur:
    """The scheduler of NewsBlur, which polls a feed more often if it has many new entries or many subscribers.

    The interval depends on the feed's mean number of entries per day over the last 30 days, and on its number of
    subscribers. A random delay of up to a quarter of the interval is added. All subscribers are assumed to be premium
    users, for whom NewsBlur polls most often.

    Source: apps/rss_feeds/models.py (get_next_scheduled_update, set_next_scheduled_update).
    """

    # NewsBlur counts a free user as a tenth of a user.

    def __init__(self, subscribers: Ints, rng: np.random.Generator) -> None:
        self._subscribers = subscribers
        self._rng = rng

    def wait_s(self, seen: PollObservations) -> Floats:
        """Return, for each polled feed, the seconds until NewsBlur polls it again, including the random delay."""
        stories = seen.upto - seen.first_since(seen.now_s - 30 * DAY_S)
        total_s = by_stories_s(stories / 30, self._subscribers[seen.channel], seen.now_s - seen.newest_s)
        return total_s * (1 + self._rng.random(len(total_s)) / 4)


def by_stories_s(stories_per_day: Floats, subscribers: Ints, silent_s: Floats) -> Floats:
    """Return NewsBlur's polling interval in seconds for each feed, without the random delay.

    - ``stories_per_day``: mean number of entries per day in the last 30 days.
    - ``subscribers``: number of subscribers of each feed.
    - ``silent_s``: seconds since the feed's newest entry.
    """
    popular = [subscribers > 10, subscribers > 1]  # noqa: PLR2004 - the source's numbers
    busy_min = np.select(popular, [6.0, 15.0], 60.0)
    slow_min = np.where(subscribers > 1, 60.0, 720.0) * (1 - stories_per_day)
    silent_min = np.select([subscribers > 1, subscribers == 1], [360.0, 720.0], 1440.0)
    silent_min *= np.maximum(1.0, np.minimum(silent_s, 1000 * DAY_S) / (30 * DAY_S))
    total_min = np.select([stories_per_day >= 1, stories_per_day > 0], [busy_min, slow_min], silent_min)
    most_min = np.where(subscribers >= 1, 720.0, 2880.0)
    return np.asarray(MINUTE_S * np.minimum(total_min, most_min))


class JabRSS:
    """The scheduler of JabRSS. The interval between polls depends on when earlier polls have found new entries.

    Only the last 16 polls that found new entries count. The interval is computed as follows:

    - Two or more such polls: a sixth of the mean time between entries, but at least 30 min and at most 12 h.
    - One such poll: 30 min plus a third of the time since that poll, but at least 1 h and at most 24 h.
    - No such poll: 8 h.

    Then random noise is added to the interval.

    Source: parserss.py (next_update).
    """

    # The numbers follow from the source:
    #
    # - The interval is first a third of the mean time (INTERVAL_DIVIDER 3), at least 45 min (MIN_INTERVAL) and at most
    #   24 h (MAX_INTERVAL).
    # - A "bonus for well-behaved feeds" multiplies the interval and the maximum by 32 / (64 - penalty / 28), and the
    #   minimum by 32 / (48 - penalty / 64).
    # - The penalty is 0 for publishers that answer 304, as the simulated ones do. The factors are then 1/2 and 2/3.

    FINDS = 16

    def __init__(self, channels: int, rng: np.random.Generator) -> None:
        self._times_s = np.zeros((channels, self.FINDS))
        self._entries = np.zeros((channels, self.FINDS))
        self._finds = np.zeros(channels, dtype=np.int64)
        self._rng = rng

    def wait_s(self, seen: PollObservations) -> Floats:
        """Return, for each polled feed, the seconds until JabRSS polls it again, including random noise.

        The method also records the results of the polls, on which later intervals depend.
        """
        self._remember(seen.channel[seen.new > 0], seen.now_s[seen.new > 0], seen.new[seen.new > 0])
        finds = self._finds[seen.channel]
        interval_s = finds_interval_s(finds, self._times_s[seen.channel], self._entries[seen.channel], seen.now_s)
        noise_s = self._rng.normal(30.0, 50.0 + interval_s / 50)
        return np.maximum(interval_s + noise_s, MINUTE_S)  # it refuses to poll twice within a minute

    def _remember(self, channel: Ints, now_s: Floats, new: Ints) -> None:
        full = channel[self._finds[channel] == self.FINDS]
        self._times_s[full] = np.roll(self._times_s[full], -1, axis=1)
        self._entries[full] = np.roll(self._entries[full], -1, axis=1)
        self._finds[full] -= 1
        self._times_s[channel, self._finds[channel]] = now_s
        self._entries[channel, self._finds[channel]] = new
        self._finds[channel] += 1


def finds_interval_s(finds: Ints, times_s: Floats, entries: Floats, now_s: Floats) -> Floats:
    """Return JabRSS's polling interval in seconds for each feed, without random noise.

    The interval depends on the feed's *finds*: the polls that found new entries. Only the last 16 finds count.

    - ``finds``: number of finds of each feed.
    - ``times_s``: one row per feed with the times of its finds, oldest first.
    - ``entries``: one row per feed with the number of new entries in each find.
    - ``now_s``: the time of each feed's present poll.
    """
    rows = np.arange(len(finds))
    total = entries[:, 1:].sum(axis=1)
    span_s = now_s - times_s[:, 0]
    half = finds // 2
    old = np.where(np.arange(1, entries.shape[1]) <= half[:, None], entries[:, 1:], 0.0).sum(axis=1)
    old_span_s = times_s[rows, half] - times_s[:, 0]
    # If a publisher's rate has changed, only one half of its history counts.
    enough = finds >= 12  # noqa: PLR2004 - the source's number
    first_half = enough & (3 * old < total) & (5 * old_span_s < span_s)
    second_half = enough & ~first_half & (3 * old > 2 * total) & (5 * old_span_s > 4 * span_s)
    entries_then = np.select([first_half, second_half], [old, total - old], total)
    span_then_s = np.select([first_half, second_half], [old_span_s, span_s - old_span_s], span_s)
    many_s = np.clip(span_then_s / np.maximum(entries_then, 1) / 3 / 2, 30 * MINUTE_S, 12 * HOUR_S)
    one_s = np.clip(30 * MINUTE_S + span_s / 3, HOUR_S, DAY_S)
    return np.select([finds > 1, finds == 1], [many_s, one_s], 8 * HOUR_S)


READERS: dict[str, Callable[[PublicationTrace, np.random.Generator], Scheduler]] = {
    "miniflux round robin": lambda _trace, _rng: FixedInterval(HOUR_S),
    "miniflux entry frequency": lambda _trace, _rng: MinifluxEntryFrequency(),
    "commafeed": lambda _trace, _rng: CommaFeed(),
    "newsblur": lambda trace, rng: NewsBlur(trace.subscribers, rng),
    "monitorss": lambda _trace, _rng: FixedInterval(10 * MINUTE_S),
    "rss-to-telegram": lambda _trace, _rng: FixedInterval(10 * MINUTE_S),
    "jabrss": lambda trace, rng: JabRSS(trace.channels, rng),
}
