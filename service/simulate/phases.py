"""When the members of polling sets poll: by rotas, or with random phases, the paper's text (§3.3) literally."""

from typing import Protocol

import numpy as np

from service.simulate.members import CHANNELS_AT_ONCE, Counted, Members
from service.simulate.timetable import Timetable, mean_waits_s
from service.simulate.trace import Floats, Ints


class Schedule(Counted, Protocol):
    """Which node polls when: by rotas, or by phases of its own."""

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return when each channel is polled first after its moment."""

    def polls(self, begin_s: float, end_s: float) -> float:
        """Return how many polls there are after ``begin_s``, up to ``end_s``."""

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:
        """Return what an update at any moment of this time waits on average, for each channel."""


class EvenPhases:
    """Rotas, as they are."""

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return when each channel is polled first after its moment."""
        return self.timetable.next_s(channel, after_s)

    def polls(self, begin_s: float, end_s: float) -> float:
        """Return how many polls there are after ``begin_s``, up to ``end_s``."""
        first, last = self.timetable.span(begin_s, end_s)
        return float((last - first).sum())

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:
        """Return what an update at any moment of this time waits on average, for each channel, exactly."""
        return mean_waits_s(self.timetable, begin_s, end_s)

    def counts(self, of: Members, row: Ints, begin_s: Floats, end_s: Floats) -> Floats:
        """Return how often each member polls by its row after ``begin_s``, up to ``end_s``."""
        size = self.timetable.size[row]
        turn = (of.rank - self.timetable.first_rank[row]) % size
        first, last = (np.maximum(self.timetable.index_after(row, at_s), 0) for at_s in (begin_s, end_s))
        polls = (last - 1 - turn) // size - (first - 1 - turn) // size
        return np.where(of.rank < size, polls, 0).astype(np.float64)


class RandomPhases:
    """Each member waits a random time before its first poll, and then polls every τ (Corona §3.3, literally)."""

    def __init__(self, timetable: Timetable, rng: np.random.Generator) -> None:
        self.timetable = timetable
        channels = len(timetable.rows) - 1
        largest = np.zeros(channels, dtype=np.int64)
        np.maximum.at(largest, timetable.channel, timetable.size)
        self._starts = np.concatenate(([0], np.cumsum(largest)))
        self._phases = rng.random(int(self._starts[-1]))

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return when each channel is polled first after its moment, whatever rota's members do it."""
        row = self.timetable.row_at(channel, after_s)
        found_s = self._in_row_s(row, after_s)
        late = np.flatnonzero(found_s > self.timetable.end_s[row])
        while late.size:
            row[late] += 1
            found_s[late] = self._in_row_s(row[late], np.maximum(after_s[late], self.timetable.start_s[row[late]]))
            late = late[found_s[late] > self.timetable.end_s[row[late]]]
        return found_s

    def polls(self, begin_s: float, end_s: float) -> float:
        """Return how many polls there are after ``begin_s``, up to ``end_s``."""
        table = self.timetable
        inside = np.flatnonzero((table.end_s > begin_s) & (table.start_s < end_s))
        found = 0.0
        for begin in range(0, len(inside), CHANNELS_AT_ONCE):
            row, of = self._lines(inside[begin : begin + CHANNELS_AT_ONCE])
            from_s, to_s = np.maximum(table.start_s[row], begin_s), np.minimum(table.end_s[row], end_s)
            found += float(self.counts(of, row, from_s, to_s).sum())
        return found

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:  # noqa: ARG002 - levels do not change any more
        """Return what an update at any moment waits on average, for each channel, with the set of the end."""
        waits_s = np.empty(len(self.timetable.rows) - 1)
        last_row = self.timetable.row_at(np.arange(len(waits_s)), np.full(len(waits_s), end_s))
        for begin in range(0, len(last_row), CHANNELS_AT_ONCE):
            row, of = self._lines(last_row[begin : begin + CHANNELS_AT_ONCE])
            phase = self._phases[self._starts[of.channel] + of.rank]
            phase = phase[np.lexsort((phase, of.channel))]
            starts = np.flatnonzero(of.rank == 0)
            lengths = np.diff(np.append(starts, len(phase)))
            gap = np.diff(phase, prepend=0.0)
            gap[starts] = phase[starts] + 1 - phase[starts + lengths - 1]
            interval_s = (self.timetable.size * self.timetable.gap_s)[row[starts]]
            waits_s[begin : begin + len(starts)] = np.add.reduceat(gap**2, starts) / 2 * interval_s
        return waits_s

    def counts(self, of: Members, row: Ints, begin_s: Floats, end_s: Floats) -> Floats:
        """Return how often each member polls by its row after ``begin_s``, up to ``end_s``."""
        size = self.timetable.size[row]
        interval_s = size * self.timetable.gap_s[row]
        phase = self._phases[self._starts[of.channel] + np.minimum(of.rank, size - 1)]
        polls = np.floor(end_s / interval_s - phase) - np.floor(begin_s / interval_s - phase)
        return np.where(of.rank < size, polls, 0.0)

    def _in_row_s(self, row: Ints, after_s: Floats) -> Floats:
        """Return when the first of the row's members polls."""
        found_s = np.empty(len(row))
        for begin in range(0, len(row), CHANNELS_AT_ONCE):
            part = slice(begin, begin + CHANNELS_AT_ONCE)
            size, at_s = self.timetable.size[row[part]], after_s[part]
            lines, of = self._lines(row[part])
            interval_s = self.timetable.size[lines] * self.timetable.gap_s[lines]
            phase = self._phases[self._starts[of.channel] + of.rank]
            wait_s = (phase * interval_s - np.repeat(at_s, size)) % interval_s
            found_s[part] = at_s + np.minimum.reduceat(wait_s, np.cumsum(size) - size)
        return found_s

    def _lines(self, row: Ints) -> tuple[Ints, Members]:
        """Return one line for each member of these rows, and which row it is of."""
        size = self.timetable.size[row]
        lines = np.repeat(row, size)
        rank = np.arange(len(lines)) - np.repeat(np.cumsum(size) - size, size)
        return lines, Members(self.timetable.channel[lines], rank)
