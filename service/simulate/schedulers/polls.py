"""Simulated polls over a publication trace, and what each poll returns.

Every poll succeeds at once and returns the feed's latest entries with their dates. The next polls of all channels are
simulated together as array operations: a channel's polls depend only on its own earlier polls, so that the order among
channels does not matter between two plans of a fleet. A scheduler sees only what a channel's polls have returned.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.simulate.schedulers.publication_trace import Floats, Ints, PublicationTrace, first_index_beyond

ENTRIES_IN_DOCUMENT = 20
"""Number of entries that a channel's first poll returns; later polls miss none, in favour of the readers."""

APART_S = 2.0**25
"""Offset between channels, longer than a trace; a power of two, so that adding it does not round times."""


@dataclass(frozen=True, slots=True)
class PollObservations:
    """The results of one poll each of some channels, as arrays with one element per channel.

    A channel's known entries have the indexes ``first`` until before ``upto`` in ``published_s``, from the oldest to
    the newest. ``new`` is the number of entries that no earlier poll returned.
    """

    channel: Ints
    now_s: Floats
    new: Ints
    """Number of entries that no earlier poll returned."""
    first: Ints
    """Index in ``published_s`` of the oldest known entry."""
    upto: Ints
    """Index after the newest known entry."""
    published_s: Floats
    """Publication times of all entries; schedulers may use only those from ``first`` to ``upto``."""

    @property
    def known(self) -> Ints:
        """The number of entries of each channel that its polls have returned so far."""
        return self.upto - self.first

    @property
    def newest_s(self) -> Floats:
        """The publication time of each channel's newest known entry; -inf if no entry is known."""
        return np.where(self.known > 0, self.published_s[self.upto - 1], -np.inf)

    def new_entries(self) -> tuple[Ints, Ints]:
        """Return, for each entry that is new in these polls, its channel's row and its index in ``published_s``."""
        count = np.minimum(self.new, self.known)
        return np.repeat(np.arange(len(count)), count), _ranges(self.upto - count, count)

    def since(self, from_s: Floats) -> Ints:
        """Return, for each polled channel, the index of its oldest known entry published at or after ``from_s``.

        The result is the channel's ``upto`` if there is no such entry.
        """
        return first_index_beyond(self.first, self.upto, lambda place: self.published_s[place] >= from_s)


class Scheduler(Protocol):
    """Decides when each channel is polled next; it may keep state."""

    def wait_s(self, seen: PollObservations) -> Floats:
        """Return the time in seconds until the next poll, for each channel in ``seen``, which was just polled."""


class PollSimulation:
    """The simulation of one scheduler's polls on a publication trace."""

    def __init__(
        self, trace: PublicationTrace, scheduler: Scheduler, first_s: Floats, window_s: tuple[float, float]
    ) -> None:
        self.due_s = first_s.copy()
        self.found_s = np.full(len(trace.published_s), np.inf)
        """Detection time of each entry."""
        self.requests = 0
        """Number of polls within the window; ``wasted`` of them returned nothing new."""
        self.wasted = 0
        self._published_s = trace.published_s
        self._row_s = trace.published_s + trace.channel * APART_S
        """All publication times in one ascending array, to search for all channels at once."""
        self._ends = trace.starts[1:]
        self._upto = trace.starts[:-1].copy()
        self._first = np.full(trace.channels, -1)
        self._next_s = self._published_or_never_s(np.arange(trace.channels), self._upto)
        """Publication time of each channel's first undetected entry; schedulers do not see it."""
        self._scheduler = scheduler
        self._window_s = window_s

    def advance(self, until_s: float) -> None:
        """Simulate all polls that are due before ``until_s``.

        Each channel is polled once after the end of the measurement window, and then no more.
        """
        begin_s, end_s = self._window_s
        while len(channel := np.flatnonzero(self.due_s < until_s)):
            now_s = self.due_s[channel]
            observations = self._poll(channel, now_s)
            inside = (now_s >= begin_s) & (now_s < end_s)
            self.requests += int(inside.sum())
            self.wasted += int((inside & (observations.new == 0)).sum())
            # One poll after the end detects everything published before it.
            self.due_s[channel] = np.where(now_s < end_s, now_s + self._scheduler.wait_s(observations), np.inf)

    def _poll(self, channel: Ints, now_s: Floats) -> PollObservations:
        before = self._upto[channel]
        upto = before.copy()
        found = np.flatnonzero(self._next_s[channel] <= now_s)
        if len(found):
            upto[found] = np.searchsorted(self._row_s, now_s[found] + channel[found] * APART_S, side="right")
            new = upto[found] - before[found]
            self.found_s[_ranges(before[found], new)] = np.repeat(now_s[found], new)
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


def _ranges(first: Ints, length: Ints) -> NDArray[np.int64]:
    """Return the concatenation of the ranges first, first + 1, … with ``length`` numbers each."""
    shift = first - np.concatenate(([0], np.cumsum(length)[:-1]))
    return np.repeat(shift, length) + np.arange(length.sum())


class SchedulerResults(msgspec.Struct, frozen=True, rename={"p95_s": "p95"}):
    """The results of one scheduler, for the entries published and the polls made within the measurement window.

    Notification delays are weighted by subscribers.
    """

    requests: int
    mean_notification_delay_s: float
    p95_s: float
    """The 95th percentile of notification delays."""
    wasted_share: float
    """Share of requests that returned nothing new."""


def measure_results(
    trace: PublicationTrace, polling: PollSimulation, window_s: tuple[float, float]
) -> SchedulerResults:
    """Return the results of a simulation, which must have been advanced past the end of ``window_s`` = (begin, end)."""
    begin_s, end_s = window_s
    inside = (trace.published_s >= begin_s) & (trace.published_s < end_s)
    delay_s = (polling.found_s - trace.published_s)[inside]
    subscribers = trace.subscribers[trace.channel[inside]]
    return SchedulerResults(
        requests=polling.requests,
        mean_notification_delay_s=float(np.average(delay_s, weights=subscribers)),
        p95_s=weighted_quantile(delay_s, subscribers, 0.95),
        wasted_share=polling.wasted / polling.requests,
    )


def weighted_quantile(values: Floats, weights: Ints, share: float) -> float:
    """Return the smallest of ``values`` such that it and lower ones have at least a ``share`` of the total weight."""
    order = np.argsort(values)
    weight = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(weight, share * weight[-1])])
