"""Polls over a trace, and what each of them shows.

Every poll answers at once and shows the feed's latest entries with their dates. All channels take their next poll
together, as one step of arrays: a channel's polls follow from its own earlier ones, so their order among channels is
free between two plans of a fleet. A scheduler sees of a channel what its last poll has shown, and nothing later.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.simulate.schedulers.publication_trace import Floats, Ints, Trace, first_place

ENTRIES_IN_DOCUMENT = 20
"""How many entries a feed shows to who asks for the first time; later polls miss none (to the peers' favour)."""

APART_S = 2.0**25
"""More than a trace is long; a power of two, so that adding it keeps a time's digits."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one poll each of some channels has shown: one row a channel."""

    channel: Ints
    now_s: Floats
    new: Ints
    """Entries that no earlier poll had shown; all, for the first poll."""
    first: Ints
    """Of the entries known by now, the index of the oldest in ``published_s``."""
    upto: Ints
    """One more than the index of the newest."""
    published_s: Floats
    """Of all entries; only those from ``first`` to ``upto`` are a scheduler's to look at."""

    @property
    def known(self) -> Ints:
        """How many entries are known."""
        return self.upto - self.first

    @property
    def newest_s(self) -> Floats:
        """When the newest was published; -inf without any."""
        return np.where(self.known > 0, self.published_s[self.upto - 1], -np.inf)

    def new_entries(self) -> tuple[Ints, Ints]:
        """Return the row and the index in ``published_s`` of every known entry that this poll was the first to show."""
        count = np.minimum(self.new, self.known)
        return np.repeat(np.arange(len(count)), count), _ranges(self.upto - count, count)

    def since(self, from_s: Floats) -> Ints:
        """Return the index of the oldest known entry published at or after a time of each channel's own."""
        return first_place(self.first, self.upto, lambda place: self.published_s[place] >= from_s)


class Scheduler(Protocol):
    """Decides when a channel is polled again. It may keep what it has seen; randomness is given to it."""

    def wait_s(self, seen: Seen) -> Floats:
        """Return how long until the next poll of each channel that was just polled."""


class Polling:
    """One scheduler at work on one trace."""

    def __init__(self, trace: Trace, scheduler: Scheduler, first_s: Floats, window_s: tuple[float, float]) -> None:
        self.due_s = first_s.copy()
        self.found_s = np.full(len(trace.published_s), np.inf)
        """When each entry was first seen."""
        self.requests = 0
        """Polls within the window; ``wasted`` of them have shown nothing new."""
        self.wasted = 0
        self._published_s = trace.published_s
        self._row_s = trace.published_s + trace.channel * APART_S
        """All times in one ascending row, so that all channels can be searched at once."""
        self._ends = trace.starts[1:]
        self._upto = trace.starts[:-1].copy()
        self._first = np.full(trace.channels, -1)
        self._next_s = self._published_or_never_s(np.arange(trace.channels), self._upto)
        """When each channel's first unseen entry is published: the engine's own knowledge, not the scheduler's."""
        self._scheduler = scheduler
        self._window_s = window_s

    def advance(self, until_s: float) -> None:
        """Carry out every poll that is due before ``until_s``, or, at the window's end, the first after it."""
        begin_s, end_s = self._window_s
        while len(channel := np.flatnonzero(self.due_s < until_s)):
            now_s = self.due_s[channel]
            seen = self._look(channel, now_s)
            inside = (now_s >= begin_s) & (now_s < end_s)
            self.requests += int(inside.sum())
            self.wasted += int((inside & (seen.new == 0)).sum())
            # What was published before the end is found by one poll after it; then the channel is done.
            self.due_s[channel] = np.where(now_s < end_s, now_s + self._scheduler.wait_s(seen), np.inf)

    def _look(self, channel: Ints, now_s: Floats) -> Seen:
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
        return Seen(channel, now_s, upto - before, self._first[channel], upto, self._published_s)

    def _published_or_never_s(self, channel: Ints, entry: Ints) -> Floats:
        left = entry < self._ends[channel]
        return np.where(left, self._published_s[np.where(left, entry, 0)], np.inf)


def _ranges(first: Ints, length: Ints) -> NDArray[np.int64]:
    """Return first, first + 1, …, ``length`` numbers each, one range after the other."""
    shift = first - np.concatenate(([0], np.cumsum(length)[:-1]))
    return np.repeat(shift, length) + np.arange(length.sum())


class Figures(msgspec.Struct, frozen=True, rename={"p95_s": "p95"}):
    """Of one scheduler, over the entries published and the polls carried out within the window."""

    requests: int
    mean_notification_delay_s: float
    p95_s: float
    """The delay that 95 % of the notifications kept below."""
    wasted_share: float
    """Of the requests, those that found nothing new."""


def figures(trace: Trace, polling: Polling, window_s: tuple[float, float]) -> Figures:
    """Return the figures of a polling that has been advanced past its window."""
    begin_s, end_s = window_s
    inside = (trace.published_s >= begin_s) & (trace.published_s < end_s)
    delay_s = (polling.found_s - trace.published_s)[inside]
    people = trace.subscribers[trace.channel[inside]]
    return Figures(
        requests=polling.requests,
        mean_notification_delay_s=float(np.average(delay_s, weights=people)),
        p95_s=weighted_quantile(delay_s, people, 0.95),
        wasted_share=polling.wasted / polling.requests,
    )


def weighted_quantile(values: Floats, weights: Ints, share: float) -> float:
    """Return the smallest value that, with all below it, holds this share of the weight."""
    order = np.argsort(values)
    weight = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(weight, share * weight[-1])])
