"""All polls of a run, computed from the channels' polling schedules instead of being listed one by one.

A schedule applies from the time when it is made until the channel's next schedule is made. ``PollingSchedule`` computes
the polls of one channel; ``Timetable`` computes the polls of many channels at once. A test checks that both compute the
same polls.
"""

from dataclasses import dataclass

import numpy as np

from service.corona.polling_schedule import (
    ROUNDING_S,
    PollingSchedule,
    new_schedule,
    polling_set_size,
    revised_schedule,
)
from service.simulate.corona.workload import CoronaSetup, SimulatedChannels
from service.simulate.numerics import Floats, Ints, first_index_beyond


@dataclass(frozen=True, slots=True)
class Timetable:
    """All polling schedules of a run, as columns of a table. A row is one schedule of one channel.

    - ``rows``: the schedules of channel c are in the rows ``rows[c]`` to ``rows[c + 1]`` - 1, in chronological order.
    - ``start_s``, ``end_s``: the schedule applies after ``start_s`` and up to ``end_s``.
    - ``first_s``, ``gap_s``: poll k is at ``first_s + k·gap_s``, for k = 0, 1, ….
    - ``first_rank``, ``size``: poll k is made by the node with the rank ``(first_rank + k) mod size``. A node's rank is
      its position when nodes are sorted by distance from the channel.
    - ``ring`` is the index of the ring (the set of nodes) when the schedule was made. Ranks refer to this ring.
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
        """Return, for each ``channel``, the row of the schedule that applies at the corresponding time in ``at_s``.

        If the schedule changes at exactly this time, the row of the new schedule is returned.
        """
        return (
            first_index_beyond(self.rows[channel] + 1, self.rows[channel + 1], lambda row: self.start_s[row] > at_s) - 1
        )

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return, for each ``channel``, the time of its first poll after the corresponding time in ``after_s``."""
        row = self.row_at(channel, after_s)
        found_s = self.next_in_row_s(row, after_s)
        # A poll within rounding distance of a change belongs to the row that ends; the next schedule treats it as done.
        late = np.flatnonzero(found_s > self.end_s[row] + ROUNDING_S)
        while late.size:
            row[late] += 1
            found_s[late] = self.next_in_row_s(row[late], after_s[late])
            late = late[found_s[late] > self.end_s[row[late]] + ROUNDING_S]
        return found_s

    def next_in_row_s(self, row: Ints, after_s: Floats) -> Floats:
        """Return, for each schedule, the time of its first poll after the corresponding time in ``after_s``.

        ``row`` contains the rows of the schedules. The returned time may be after the end of the schedule.
        """
        return self.first_s[row] + np.maximum(self.index_after(row, after_s), 0) * self.gap_s[row]

    def index_after(self, row: Ints, after_s: Floats) -> Ints:
        """Return, for each schedule, the index k of its first poll after the corresponding time in ``after_s``.

        ``row`` contains the rows of the schedules. A schedule's first poll has index 0. If ``after_s`` is more than one
        gap before this poll, the result is negative, as if there were earlier polls.
        """
        return np.floor((after_s + ROUNDING_S - self.first_s[row]) / self.gap_s[row]).astype(np.int64) + 1

    def span(self, begin_s: float, end_s: float) -> tuple[Ints, Ints]:
        """Return (first, end): each schedule's polls after ``begin_s`` and up to ``end_s``, as a range of poll indices.

        The range includes ``first``, but not ``end``.
        """
        every = np.arange(len(self.channel))
        first = np.maximum(self.index_after(every, np.maximum(self.start_s, begin_s)), 0)
        last = np.maximum(self.index_after(every, np.minimum(self.end_s, end_s)), 0)
        return first, np.maximum(first, last)


def mean_waits_s(timetable: Timetable, begin_s: float, end_s: float) -> Floats:
    """Return, for each channel, the exact mean time from a random moment until its next poll.

    The moment is uniformly distributed between ``begin_s`` and ``end_s``.
    """
    # In a plot of the wait over time, each gap between two polls is a triangle; the mean is their area divided by the
    # time. A row of the timetable has one triangle until its first poll, one between each two polls, and one from its
    # last poll towards the first poll of the next row.
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


_ROW = [
    *((name, np.int64) for name in ("channel", "size", "first_rank", "ring")),
    *((name, np.float64) for name in ("start_s", "first_s", "gap_s")),
]


class TimetableBuilder:
    """Collects schedules and builds a timetable from them."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, float, float, float]] = []

    def add(self, channel: int, schedule: PollingSchedule, now_s: float, ring: int) -> None:
        """Add a schedule of ``channel`` that applies from ``now_s`` on.

        A channel's schedules must be added in chronological order. ``ring`` is the index of the current ring (set of
        nodes).
        """
        self._rows.append((channel, schedule.size, schedule.first_rank, ring, now_s, schedule.first_s, schedule.gap_s))

    def timetable(self, channels: int) -> Timetable:
        """Return the timetable of all added schedules; ``channels`` is the number of channels."""
        table = np.array(self._rows, dtype=_ROW)
        table = table[np.argsort(table["channel"], kind="stable")]
        columns = {name: table[name].copy() for name, _ in _ROW}
        last = np.append(np.diff(columns["channel"]) > 0, True)
        return Timetable(
            rows=np.concatenate(([0], np.cumsum(np.bincount(columns["channel"], minlength=channels)))),
            end_s=np.where(last, np.inf, np.append(columns["start_s"][1:], np.inf)),
            **columns,
        )


class OwnerSchedules(TimetableBuilder):
    """Makes the polling schedules of the sampled channels, and collects them for the timetable.

    ``sampled`` contains the indices of these channels. In a real fleet, the owner of each channel (the node nearest
    to it) makes its schedules.
    """

    def __init__(self, setup: CoronaSetup, channels: SimulatedChannels, sampled: Ints) -> None:
        super().__init__()
        self.sampled = sampled
        self._setup, self._ids = setup, channels.ids()
        self._present: dict[int, PollingSchedule] = {}
        self._size: Floats = np.zeros(setup.channels)
        """The number of polling nodes in each channel's current schedule."""

    def begin(self, numbers: Ints, sizes: Floats, ring: int, nodes: int, now_s: float) -> None:
        """Make new schedules at ``now_s`` for the sampled channels in ``numbers``.

        The new schedules are independent of the channels' earlier ones.

        - ``numbers`` contains indices of channels. Channels that are not sampled are ignored.
        - ``sizes`` contains, for every channel in the fleet, how many nodes poll it.
        - ``ring`` is the index of the current ring (set of nodes).
        - ``nodes`` is the number of nodes in this ring.
        """
        chosen = numbers[np.isin(numbers, self.sampled, assume_unique=True)]
        for number, size in zip(chosen.tolist(), sizes[chosen].tolist(), strict=True):
            schedule = new_schedule(
                self._ids[number], size, polling_set_size(size, nodes), self._setup.poll_interval_s, now_s
            )
            self._replace(number, schedule, ring, now_s)
        self._size[chosen] = sizes[chosen]

    def change(self, numbers: Ints, sizes: Floats, ring: int, nodes: int, now_s: float) -> None:
        """Make schedules with new numbers of polling nodes for the sampled channels in ``numbers``.

        A new schedule continues the previous one: it begins with the poll that would have been next. The arguments
        are as in :meth:`begin`.
        """
        if not self._setup.has_faults:  # with faults, unchanged assignments are sent again
            numbers = numbers[self._size[numbers] != sizes[numbers]]
        for number, size in zip(numbers.tolist(), sizes[numbers].tolist(), strict=True):
            if (schedule := self._present.get(number)) is not None:
                members = polling_set_size(size, nodes)
                revised = revised_schedule(schedule, size, members, self._setup.poll_interval_s, now_s)
                self._replace(number, revised, ring, now_s)
        self._size[numbers] = sizes[numbers]

    def _replace(self, number: int, schedule: PollingSchedule, ring: int, now_s: float) -> None:
        self._present[number] = schedule
        self.add(number, schedule, now_s, ring)
