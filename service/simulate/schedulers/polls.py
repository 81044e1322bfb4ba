"""Simulated polls of channels, and what each poll returns.

Every poll succeeds immediately, and returns the feed's latest entries with their dates. A scheduler sees only what the
polls of a channel have returned. For speed, the polls are simulated with arrays, not one by one in chronological order.
"""

# A reader's scheduler decides after each poll of a channel when the next one is due, independently of other channels.
# Therefore one poll of every channel is simulated at a time. A fleet's schedules are fixed from one maintenance to the
# next. Therefore all polls of all channels until then are simulated together.

from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from service.corona.weekly_rhythm import HOURS_OF_WEEK
from service.simulate.numerics import HOUR_S, WEEK_S, Floats, Ints, first_index_beyond, ranges
from service.simulate.schedulers.publication_trace import PublicationTrace

ENTRIES_IN_DOCUMENT = 20
"""Maximum number of entries in a channel's first document. Later polls miss no entry, which favours the readers."""

APART_S = 2.0**25
"""The times of each channel are shifted by this value times the channel's index, so that times of different channels
do not overlap. The value is more than the duration of a trace. It is a power of two, so that sums are exact."""


@dataclass(frozen=True, slots=True)
class PollObservations:
    """What polls of some channels have returned. The arrays have one element per channel, except ``published_s``.

    - ``channel`` contains the indices of the channels.
    - ``now_s`` contains the time of each channel's last poll.
    - ``published_s`` contains the publication times of the entries of all channels.
    - ``first``, ``upto``: a channel's known entries have the indices ``first`` to ``upto`` - 1 in ``published_s``, from
      the oldest to the newest.
    """

    channel: Ints
    now_s: Floats
    new: Ints
    """Number of entries that no earlier poll returned."""
    first: Ints
    """Index in ``published_s`` of the oldest known entry."""
    upto: Ints
    """Index in ``published_s`` after the newest known entry."""
    published_s: Floats
    """Publication times of all entries of all channels; schedulers may use only those from ``first`` to ``upto`` -
    1."""

    @property
    def known(self) -> Ints:
        """For each channel, the number of entries that its polls have returned so far."""
        return self.upto - self.first

    @property
    def newest_s(self) -> Floats:
        """For each channel, the publication time of its newest known entry; -inf if no entry is known."""
        return np.where(self.known > 0, self.published_s[self.upto - 1], -np.inf)

    def new_entries(self) -> tuple[Ints, Ints]:
        """Return (channels, entries), two arrays of indices with one element per new entry.

        - ``channels``: index of the entry's channel in the array ``channel`` of this object.
        - ``entries``: index of the entry in ``published_s``.
        """
        count = np.minimum(self.new, self.known)
        return np.repeat(np.arange(len(count)), count), ranges(self.upto - count, count)

    def first_since(self, from_s: Floats) -> Ints:
        """Return, for each polled channel, the index of its oldest known entry published at or after ``from_s``.

        If there is no such entry, the result is ``upto``, the index after the channel's newest known entry.
        """
        return first_index_beyond(self.first, self.upto, lambda place: self.published_s[place] >= from_s)


class Scheduler(Protocol):
    """Decides when each channel is polled next. A scheduler may keep state."""

    def wait_s(self, seen: PollObservations) -> Floats:
        """Return, for each channel in ``seen``, how many seconds to wait until its next poll.

        All channels in ``seen`` have just been polled.
        """


class WeeklyClocks:
    """One clock for each channel, with a speed that varies over the hours of the week.

    If polls are evenly spaced on a channel's clock, the channel is polled more often in hours in which the clock runs
    faster. Over a whole week, a clock neither gains nor loses time. Each clock shows real time until
    :meth:`set_speed` is called for it.
    """

    def __init__(self, channels: int) -> None:
        self._apart_s = 2 * WEEK_S * np.arange(channels)
        self._shown_s = np.tile(np.arange(HOURS_OF_WEEK + 1) * HOUR_S, (channels, 1))
        """The time that each clock shows at every full hour of the week."""
        self._all_shown_s = self._shown_s + self._apart_s[:, None]
        """The same in one ascending array, to search for all channels at once."""

    def set_speed(self, channel: Ints, speed: Floats) -> None:
        """Set the speeds of the clocks of the K channels whose indices are in ``channel``.

        ``speed`` contains, for each of these channels, the speed in each hour of the week; its shape is (K, 168). The
        speeds of a clock are scaled so that the clock neither gains nor loses time over a week.
        """
        shown = np.cumsum(speed, axis=1)
        self._shown_s[channel, 1:] = shown / shown[:, -1:] * WEEK_S
        self._all_shown_s[channel] = self._shown_s[channel] + self._apart_s[channel, None]

    def shown_s(self, channel: Ints, at_s: Floats) -> Floats:
        """Convert real times to the times that channels' clocks show.

        Element i of the result is the time that the clock of the channel with the index ``channel[i]`` shows at the
        real time ``at_s[i]``.
        """
        week_s = np.floor(at_s / WEEK_S) * WEEK_S
        hour = np.minimum(((at_s - week_s) / HOUR_S).astype(np.int64), HOURS_OF_WEEK - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + begin_s + ((at_s - week_s) / HOUR_S - hour) * (end_s - begin_s))

    def time_s(self, channel: Ints, shown_s: Floats) -> Floats:
        """Convert times that channels' clocks show to real times. This is the inverse of :meth:`shown_s`.

        Element i of the result is the real time at which the clock of the channel with the index ``channel[i]`` shows
        ``shown_s[i]``.
        """
        week_s = np.floor(shown_s / WEEK_S) * WEEK_S
        inside_s = shown_s - week_s
        place = np.searchsorted(self._all_shown_s.ravel(), inside_s + self._apart_s[channel], side="right") - 1
        hour = np.minimum(place - channel * (HOURS_OF_WEEK + 1), HOURS_OF_WEEK - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + (hour + (inside_s - begin_s) / (end_s - begin_s)) * HOUR_S)


class PollPlan:
    """A plan of polls: each channel is polled at constant intervals.

    This class ignores the results of polls. Subclasses may use them to change the intervals.
    """

    # The intervals are constant by each channel's weekly clock.

    def __init__(self, gap_s: Floats, clocks: WeeklyClocks | None = None) -> None:
        """Create a plan. ``gap_s`` contains, for each channel, the time between two polls.

        The time between polls is measured by the channel's clock in ``clocks``, or in real time if ``clocks`` is None.
        """
        self.gap_s = gap_s
        self._clocks = clocks

    def count_polls(self, channel: Ints, due_s: Floats, until_s: float) -> Ints:
        """Return, for each channel, the number of polls before ``until_s``, given that the first is at ``due_s``."""
        span_s = until_s - due_s
        if self._clocks is not None:
            end_s = self._clocks.shown_s(channel, np.full(len(channel), until_s))
            span_s = end_s - self._clocks.shown_s(channel, due_s)
        return np.asarray(np.ceil(span_s / self.gap_s[channel])).astype(np.int64)

    def poll_times_s(self, channel: Ints, due_s: Floats, number: Ints) -> Floats:
        """Return, for each channel, the time of the poll that comes ``number`` polls after the poll at ``due_s``.

        If ``number`` is 0, this is the poll at ``due_s`` itself.
        """
        later_s = number * self.gap_s[channel]
        if self._clocks is None:
            return due_s + later_s
        shown_s = self._clocks.shown_s(channel, due_s)
        return np.where(number > 0, self._clocks.time_s(channel, shown_s + later_s), due_s)

    def record(self, seen: PollObservations) -> None:
        """Do nothing. Subclasses can override this method to learn from the results of polls.

        :class:`PlannedSimulation` calls it with the results of the polls that it has just simulated.
        """


class Detections:
    """The state of a simulation: which of the published entries have been found by polls, and when."""

    def __init__(self, trace: PublicationTrace, first_s: Floats, window_s: tuple[float, float]) -> None:
        self.due_s = first_s.copy()
        """Time of each channel's next poll."""
        self.found_s = np.full(len(trace.published_s), np.inf)
        """Detection time of each entry."""
        self.requests = 0
        """Number of polls within the window; ``successful`` of them returned new entries."""
        self.successful = 0
        self._published_s = trace.published_s
        self._row_s = trace.published_s + trace.channel * APART_S
        """All publication times in one ascending array, to search for all channels at once."""
        self._ends = trace.starts[1:]
        self._upto = trace.starts[:-1].copy()
        self._first = np.full(trace.channels, -1)
        self._next_s = self._published_or_never_s(np.arange(trace.channels), self._upto)
        """Publication time of each channel's first undetected entry; schedulers do not see it."""
        self._window_s = window_s

    def _poll(self, polled: Ints, at_s: Floats, last: Ints | None = None) -> PollObservations:
        """Simulate polls, and return their results, combined for each channel.

        - ``polled`` and ``at_s`` contain the channel and the time of each poll, sorted by channel, then by time.
        - ``last`` contains, for each channel, the index of its last poll in these arrays. None means that each channel
          is polled once.
        """
        channel, now_s = (polled, at_s) if last is None else (polled[last], at_s[last])
        before = self._upto[channel]
        upto = before.copy()
        found = np.flatnonzero(self._next_s[channel] <= now_s)
        begin_s, end_s = self._window_s
        is_inside = (at_s >= begin_s) & (at_s < end_s)
        self.requests += int(is_inside.sum())
        if len(found):
            upto[found] = np.searchsorted(self._row_s, now_s[found] + channel[found] * APART_S, side="right")
            entries = ranges(before[found], upto[found] - before[found])
            polls = np.searchsorted(at_s + polled * APART_S, self._row_s[entries])
            self.found_s[entries] = at_s[polls]
            self.successful += int(is_inside[np.unique(polls)].sum())
            self._upto[channel[found]] = upto[found]
            self._next_s[channel[found]] = self._published_or_never_s(channel[found], upto[found])
        fresh = self._first[channel] < 0
        if fresh.any():
            shown = np.maximum(before, upto - ENTRIES_IN_DOCUMENT)
            self._first[channel[fresh]] = shown[fresh]
        return PollObservations(channel, now_s, upto - before, self._first[channel], upto, self._published_s)

    def _published_or_never_s(self, channel: Ints, entry: Ints) -> Floats:
        left = entry < self._ends[channel]
        return np.where(left, self._published_s[np.where(left, entry, 0)], np.inf)


class PollSimulation(Detections):
    """A simulation in which a feed reader's scheduler decides, after each poll of a channel, when to poll it next."""

    def __init__(
        self, trace: PublicationTrace, scheduler: Scheduler, first_s: Floats, window_s: tuple[float, float]
    ) -> None:
        super().__init__(trace, first_s, window_s)
        self._scheduler = scheduler

    def advance(self, until_s: float) -> None:
        """Simulate all polls that are due before ``until_s``.

        After the end of the measurement window, each channel is polled only once more.
        """
        while len(channel := np.flatnonzero(self.due_s < until_s)):
            now_s = self.due_s[channel]
            observations = self._poll(channel, now_s)
            # One poll after the end detects everything published before it.
            is_inside = now_s < self._window_s[1]
            self.due_s[channel] = np.where(is_inside, now_s + self._scheduler.wait_s(observations), np.inf)


class PlannedSimulation(Detections):
    """A simulation in which polls follow a plan. All polls of a channel up to a given time are simulated at once."""

    def __init__(self, trace: PublicationTrace, plan: PollPlan, first_s: Floats, window_s: tuple[float, float]) -> None:
        super().__init__(trace, first_s, window_s)
        self._plan = plan

    def advance(self, until_s: float) -> None:
        """Simulate all polls that are due before ``until_s``, which must be finite.

        After the end of the measurement window, each channel is polled only once more.
        """
        # A channel's first poll is recorded separately, because it returns entries of any age.
        end_s = self._window_s[1]
        while len(channel := np.flatnonzero(self.due_s < until_s)):
            due_s = self.due_s[channel]
            count = self._plan.count_polls(channel, due_s, min(until_s, end_s))
            count = np.where((self._first[channel] < 0) | (due_s >= end_s), 1, np.maximum(count, 1))
            row = np.repeat(np.arange(len(channel)), count)
            number = ranges(0, count)
            times_s = self._plan.poll_times_s(channel[row], due_s[row], number)
            last = np.cumsum(count) - 1
            self._plan.record(self._poll(channel[row], times_s, last))
            self.due_s[channel] = np.where(due_s < end_s, self._plan.poll_times_s(channel, due_s, count), np.inf)

    def finish(self) -> None:
        """Continue the simulation until each channel has been polled once after the end of the measurement window."""
        self.advance(self._window_s[1])
        self.advance(float(self.due_s.max(initial=0.0, where=np.isfinite(self.due_s))) + 1.0)


class SchedulerResults(msgspec.Struct, frozen=True, rename={"p95_s": "p95"}):
    """The results of one scheduler, for the entries published and the polls made in the measurement window.

    Means and percentiles of notification delays are weighted by subscribers.
    """

    requests: int
    mean_notification_delay_s: float
    p95_s: float
    """The 95th percentile of notification delays."""
    wasted_share: float
    """Share of requests that returned nothing new."""


def measure_results(trace: PublicationTrace, polling: Detections, window_s: tuple[float, float]) -> SchedulerResults:
    """Return the results of a simulation for the measurement window ``window_s``, a pair (begin, end).

    The simulation must already have polled each channel once after the end of the window.
    """
    begin_s, end_s = window_s
    inside = (trace.published_s >= begin_s) & (trace.published_s < end_s)
    delay_s = (polling.found_s - trace.published_s)[inside]
    subscribers = trace.subscribers[trace.channel[inside]]
    return SchedulerResults(
        requests=polling.requests,
        mean_notification_delay_s=float(np.average(delay_s, weights=subscribers)),
        p95_s=weighted_quantile(delay_s, subscribers, 0.95),
        wasted_share=(polling.requests - polling.successful) / polling.requests,
    )


def weighted_quantile(values: Floats, weights: Ints | Floats, share: float) -> float:
    """Return a weighted quantile of ``values``, for example the 95th percentile if ``share`` is 0.95.

    ``weights`` contains the weight of each value. The result is the smallest v in ``values`` that meets this
    condition: the weights of all values up to v add up to at least the fraction ``share`` of the total weight.
    """
    order = np.argsort(values)
    weight = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(weight, share * weight[-1])])
