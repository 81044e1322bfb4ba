"""Polls as a restless fleet makes them: nodes die and join, and one message in so many is lost.

Whoever misses an assignment goes on by the one before, or stays idle if there was none, until the channel is assigned
anew; so a rota's poll may be missing, and another one come in between. And who is dead polls nothing, although its
turn comes until its lease ends. This depends on each node, so the polls of the channels followed are enumerated.
"""

import numpy as np

from service.simulate.fleet import Fleet
from service.simulate.timetable import Timetable
from service.simulate.trace import Bools, Floats, Ints, first_place

AFTERWARDS_S = 7200.0
"""Polls are told for so long after the end, so that updates of the end are found."""
ROWS_AT_ONCE = 1 << 14


class Restless:
    """All polls that were really made, sorted by channel and time."""

    def __init__(self, fleet: Fleet, timetable: Timetable, numbers: Ints, seed: int) -> None:
        self.numbers = numbers
        self._place = np.full(fleet.setup.channels, -1)
        self._place[numbers] = np.arange(len(numbers))
        self._fleet, self._table = fleet, timetable
        self._salt, self._horizon_s = np.uint64(seed), fleet.setup.end_s + AFTERWARDS_S
        self._died_s = np.full(int(max(ring.max() for ring in fleet.numbers)) + 1, np.inf)
        for number, died_s in fleet.died_s.items():
            self._died_s[number] = died_s
        rows = np.arange(len(timetable.channel))
        parts = [
            part
            for begin in range(0, len(rows), ROWS_AT_ONCE)
            for part in self._made(rows[begin : begin + ROWS_AT_ONCE])
        ]
        channel = np.concatenate([part[0] for part in parts])
        at_s = np.concatenate([part[1] for part in parts])
        node = np.concatenate([part[2] for part in parts])
        order = np.lexsort((at_s, channel))
        self._at_s, self._node = at_s[order], node[order]
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(channel, minlength=len(numbers)))))

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return when each of these channels is polled first after its moment; never, if not long after the end."""
        place = self._place[channel]
        end = self._starts[place + 1]
        found = first_place(self._starts[place], end, lambda poll: self._at_s[poll] > after_s)
        return np.where(found < end, self._at_s[np.minimum(found, len(self._at_s) - 1)], self._horizon_s)

    def polls_per_channel(self, begin_s: float, end_s: float) -> float:
        """Return how often a channel is polled after ``begin_s``, up to ``end_s``, on average."""
        return float(((self._at_s > begin_s) & (self._at_s <= end_s)).sum() / len(self.numbers))

    def busiest_node(self, fleet: Fleet, begin_s: float, end_s: float) -> float:
        """Return the polls of the node that made most of them, over the mean of as many as there were at first."""
        inside = (self._at_s > begin_s) & (self._at_s <= end_s)
        polls = np.bincount(self._node[inside], minlength=len(self._died_s))
        return float(polls.max() / (inside.sum() / fleet.setup.nodes))

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:
        """Return what an update at any moment of this time waits on average, in the order of ``numbers``."""
        first_s = self.next_s(self.numbers, np.full(len(self.numbers), begin_s))
        last_s = self.next_s(self.numbers, np.full(len(self.numbers), end_s))
        place = np.repeat(np.arange(len(self.numbers)), np.diff(self._starts))
        gap_s = np.diff(self._at_s, prepend=0.0)
        inside = (self._at_s > first_s[place]) & (self._at_s <= last_s[place])
        between = np.bincount(place[inside], gap_s[inside] ** 2, len(self.numbers))
        squares = between + (first_s - begin_s) ** 2 - (last_s - end_s) ** 2
        return np.asarray(squares / 2 / (end_s - begin_s))

    def _made(self, rows: Ints) -> list[tuple[Ints, Floats, Ints]]:
        """Return the polls of these rows, and those of their predecessors that go on beside them."""
        table = self._table
        from_s, to_s = table.start_s[rows], np.minimum(table.end_s[rows], self._horizon_s)
        own = self._polls(rows, rows, from_s, to_s)
        after = rows[table.rows[table.channel[rows]] < rows]
        return [
            own,
            self._polls(after, after - 1, table.start_s[after], np.minimum(table.end_s[after], self._horizon_s)),
        ]

    def _polls(self, rows: Ints, planned: Ints, from_s: Floats, to_s: Floats) -> tuple[Ints, Floats, Ints]:
        """Return what is polled in the time of ``rows`` by the rotas ``planned``: by those who know no newer one."""
        table = self._table
        first, last = (np.maximum(table.index_after(planned, at_s), 0) for at_s in (from_s, to_s))
        count = np.maximum(last - first, 0)
        line = np.repeat(np.arange(len(rows)), count)
        index = np.arange(len(line)) - np.repeat(np.cumsum(count) - count, count) + first[line]
        row, plan = rows[line], planned[line]
        node = self._node_at(plan, (table.first_rank[plan] + index) % table.size[plan])
        at_s = table.first_s[plan] + index * table.gap_s[plan]
        made = self._hears(plan, node) & (at_s < self._died_s[node])
        made &= (row == plan) | ~self._hears(row, node)
        return self._place[table.channel[row[made]]], at_s[made], node[made]

    def _node_at(self, row: Ints, rank: Ints) -> Ints:
        """Return the number of the node of this rank in each row's polling set."""
        found = np.empty(len(row), dtype=np.int64)
        rings = self._table.ring[row]
        order = np.argsort(rings, kind="stable")
        present, starts = np.unique(rings[order], return_index=True)
        for ring, lines in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            points = self._fleet.channels.points[self._table.channel[row[lines]]]
            found[lines] = self._fleet.numbers[ring][self._fleet.tries[ring].at_rank(points, rank[lines])]
        return found

    def _hears(self, row: Ints, node: Ints) -> Bools:
        """Say whether each node got the assignment of each row: the same whenever it is asked."""
        mixed = (row.astype(np.uint64) << np.uint64(24)) + node.astype(np.uint64) + (self._salt << np.uint64(52))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return mixed.astype(np.float64) / 2.0**64 >= self._fleet.setup.loss
