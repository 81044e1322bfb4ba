"""Every poll of a run, told by arithmetic: tens of millions of them, of which none is enumerated.

A channel's polls follow from the rotas it has had, each in force from when its owner made it until the next. Which
poll comes first after a moment, and how many fall between two, is what ``schedule.PollingSchedule`` says of one
channel; here it is said of many at once. A test holds the two to the same polls, one by one.
"""

from dataclasses import dataclass

import numpy as np

from service.corona.polling_schedule import ROUNDING_S, PollingSchedule, new_schedule, revised_schedule
from service.simulate.corona.workload import Channels, Setup
from service.simulate.schedulers.publication_trace import Floats, Ints, first_place


@dataclass(frozen=True, slots=True)
class Timetable:
    """All rotas, sorted by channel and then by time: those of channel c are rows ``rows[c]`` to ``rows[c + 1]``.

    A rota's polls are those after ``start_s`` up to ``end_s``, at ``first_s + k·gap_s`` by rank ``first_rank + k``
    modulo ``size``. ``ring`` is the ring by which ranks were told.
    """

    rows: Ints
    channel: Ints
    start_s: Floats
    end_s: Floats
    first_s: Floats
    gap_s: Floats
    size: Ints
    first_rank: Ints
    ring: Ints

    def row_at(self, channel: Ints, at_s: Floats) -> Ints:
        """Return the row in force; at the very moment of a change, the new one."""
        return first_place(self.rows[channel] + 1, self.rows[channel + 1], lambda row: self.start_s[row] > at_s) - 1

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return when each channel is polled first after its moment, whatever rota that poll is of."""
        row = self.row_at(channel, after_s)
        found_s = self.in_row_s(row, after_s)
        # A poll nearer to the change than rounding is one of the row that ends: the next rota counts it as made.
        late = np.flatnonzero(found_s > self.end_s[row] + ROUNDING_S)
        while late.size:
            row[late] += 1
            found_s[late] = self.in_row_s(row[late], after_s[late])
            late = late[found_s[late] > self.end_s[row[late]] + ROUNDING_S]
        return found_s

    def in_row_s(self, row: Ints, after_s: Floats) -> Floats:
        """Return what ``PollingSchedule.next_s`` says of these rotas, whenever they end."""
        return self.first_s[row] + np.maximum(self.index_after(row, after_s), 0) * self.gap_s[row]

    def index_after(self, row: Ints, after_s: Floats) -> Ints:
        """Return the number k of each row's first poll after its moment; negative before the row's first."""
        return np.floor((after_s + ROUNDING_S - self.first_s[row]) / self.gap_s[row]).astype(np.int64) + 1

    def span(self, begin_s: float, end_s: float) -> tuple[Ints, Ints]:
        """Return the numbers k of each row's polls in this time: from the first, up to but without the second."""
        every = np.arange(len(self.channel))
        first = np.maximum(self.index_after(every, np.maximum(self.start_s, begin_s)), 0)
        last = np.maximum(self.index_after(every, np.minimum(self.end_s, end_s)), 0)
        return first, np.maximum(first, last)


def mean_waits_s(timetable: Timetable, begin_s: float, end_s: float) -> Floats:
    """Return what an update at any moment of this time waits on average, for each channel, exactly.

    The wait at t is that for the next poll; its integral over a row is a sum of triangles: down to the row's first
    poll, between its polls, and from its last one on, towards the next row's first.
    """
    every = np.arange(len(timetable.channel))
    from_s = np.maximum(timetable.start_s, begin_s)
    to_s = np.maximum(from_s, np.minimum(timetable.end_s, end_s))
    beyond_s = timetable.next_s(timetable.channel, np.where(to_s > from_s, to_s, end_s))
    first, last = (np.maximum(timetable.index_after(every, at_s), 0) for at_s in (from_s, to_s))
    count = np.maximum(last - first, 0)
    first_s = np.where(count > 0, timetable.first_s + first * timetable.gap_s, beyond_s)
    last_s = np.where(count > 0, timetable.first_s + (last - 1) * timetable.gap_s, from_s)
    triangles = np.maximum(count - 1, 0) * timetable.gap_s**2
    triangles += np.where(count > 0, (first_s - from_s) ** 2, 0.0)
    triangles += (beyond_s - last_s) ** 2 - (beyond_s - to_s) ** 2
    waited = np.bincount(timetable.channel, np.where(to_s > from_s, triangles / 2, 0.0), len(timetable.rows) - 1)
    return waited / (end_s - begin_s)


class Book:
    """Where owners write their rotas down."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, float, float, float, int, int, int]] = []

    def write(self, channel: int, rota: PollingSchedule, now_s: float, ring: int) -> None:
        """Note that from now on, and in no earlier time, this rota holds."""
        self._lines.append((channel, now_s, rota.first_s, rota.gap_s, rota.size, rota.first_rank, ring))

    def timetable(self, channels: int) -> Timetable:
        """Return everything written."""
        columns = list(zip(*self._lines, strict=True))
        channel = np.array(columns[0], dtype=np.int64)
        start_s, first_s, gap_s = (np.array(column, dtype=np.float64) for column in columns[1:4])
        size, first_rank, ring = (np.array(column, dtype=np.int64) for column in columns[4:])
        order = np.lexsort((np.arange(len(channel)), channel))
        channel, start_s = channel[order], start_s[order]
        last = np.append(channel[1:] != channel[:-1], True)
        return Timetable(
            rows=np.concatenate(([0], np.cumsum(np.bincount(channel, minlength=channels)))),
            channel=channel,
            start_s=start_s,
            end_s=np.where(last, np.inf, np.append(start_s[1:], np.inf)),
            first_s=first_s[order],
            gap_s=gap_s[order],
            size=size[order],
            first_rank=first_rank[order],
            ring=ring[order],
        )


class Rotas(Book):
    """The rotas that owners have made for the channels that are followed; the others have none."""

    def __init__(self, setup: Setup, channels: Channels, followed: Ints) -> None:
        super().__init__()
        self.followed = followed
        self._setup, self._ids = setup, channels.ids()
        self._present: dict[int, PollingSchedule] = {}
        self._size: Floats = np.zeros(setup.channels)
        """By channel, what its present rota was made for."""

    def begin(self, numbers: Ints, sizes: Floats, ring: int, nodes: int, now_s: float) -> None:
        """Begin anew the rotas of those that are followed, with n of their own out of all ``sizes``."""
        chosen = numbers[np.isin(numbers, self.followed, assume_unique=True)]
        for number, size in zip(chosen.tolist(), sizes[chosen].tolist(), strict=True):
            rota = new_schedule(self._ids[number], size, nodes, self._setup.poll_interval_s, now_s)
            self._replace(number, rota, ring, now_s)
        self._size[chosen] = sizes[chosen]

    def change(self, numbers: Ints, sizes: Floats, ring: int, nodes: int, now_s: float) -> None:
        """Go on with another n, or for another ring, from the next poll of each on."""
        if not self._setup.restless:  # else members may have missed what stays as it was, and are told again
            numbers = numbers[self._size[numbers] != sizes[numbers]]
        for number, size in zip(numbers.tolist(), sizes[numbers].tolist(), strict=True):
            if (rota := self._present.get(number)) is not None:
                changed_rota = revised_schedule(rota, size, nodes, self._setup.poll_interval_s, now_s)
                self._replace(number, changed_rota, ring, now_s)
        self._size[numbers] = sizes[numbers]

    def _replace(self, number: int, rota: PollingSchedule, ring: int, now_s: float) -> None:
        self._present[number] = rota
        self.write(number, rota, now_s, ring)
