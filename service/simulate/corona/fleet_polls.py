"""The polls of a simulated fleet, with and without faults.

- ``ScheduledPolls`` are the polls of a fleet without faults. They follow the schedules exactly. There are tens of
  millions of them, so they are computed from the schedules when needed.
- ``FaultyPolls`` are the polls of a fleet in which nodes die and join and messages are lost. Because faults affect
  individual nodes, the polls are listed one by one, for a sample of channels.
"""

# A channel's larger polling set contains its smaller ones. Therefore a node of a polling set is identified by the
# channel and the node's rank, its place in order of distance from the channel; the size of the set does not matter.
#
# A node that misses the message that assigns a new schedule continues the previous one until the next such message, or
# does not poll if there is none. Therefore a poll of a schedule may be missing, or an additional one may occur. A dead
# node's polls are missing until its lease ends.

from dataclasses import dataclass

import numpy as np

from service.simulate.corona.fleet import SimulatedFleet
from service.simulate.corona.timetable import Timetable, mean_waits_s
from service.simulate.corona.workload import NodeTrie, Points
from service.simulate.numerics import Bools, Floats, Ints, first_index_beyond, mix_bits, ranges

CHANNEL_BATCH = 4096


@dataclass(frozen=True, slots=True)
class Members:
    """The members of channels' polling sets, as arrays with one element per pair (channel, node).

    The pairs are sorted by channel and rank. The rank is the node's position in the channel's polling set: the node
    nearest to the channel has rank 0.
    """

    channel: Ints
    rank: Ints


class ScheduledPolls:
    """The polls of a fleet without faults: evenly spaced, exactly as scheduled, and computed only when needed."""

    def __init__(self, timetable: Timetable) -> None:
        self.table = timetable
        self.numbers = np.arange(len(timetable.rows) - 1)
        largest = np.zeros(len(self.numbers), dtype=np.int64)
        np.maximum.at(largest, timetable.channel, timetable.size)
        self._starts = np.concatenate(([0], np.cumsum(largest)))
        """The index of each channel's first node in a list of the members of all channels' largest polling sets."""

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return, for each ``channel``, the time of its first poll after the corresponding time in ``after_s``."""
        return self.table.next_s(channel, after_s)

    def polls_per_channel(self, begin_s: float, end_s: float) -> float:
        """Return the mean number of polls per channel after ``begin_s`` and up to ``end_s``."""
        first, last = self.table.span(begin_s, end_s)
        return float((last - first).sum()) / len(self.numbers)

    def node_polls(self, trie: NodeTrie, points: Points, begin_s: float, end_s: float) -> Floats:
        """Return the number of polls by each node after ``begin_s`` and up to ``end_s``.

        The fleet must have the same nodes during the whole period. ``points`` contains the ids of the channels, which
        determine the nodes that poll them.
        """
        polls, sizes = self._member_polls(begin_s, end_s), np.diff(self._starts)
        channel, rank = np.repeat(self.numbers, sizes), ranges(0, sizes)
        return np.asarray(np.bincount(trie.nodes_at_rank(points[channel], rank), polls, len(trie.nodes)), np.float64)

    def max_over_mean(self, fleet: SimulatedFleet, begin_s: float, end_s: float) -> float:
        """Return the number of polls by the busiest node, divided by the mean over all nodes of ``fleet``.

        Polls are counted after ``begin_s`` and up to ``end_s``.
        """
        polls = self.node_polls(fleet.trie, fleet.channels.points, begin_s, end_s)
        return float(polls.max() / polls.mean())

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:
        """Return, for each channel, the exact mean time from a random moment until its next poll.

        The moment is uniformly distributed between ``begin_s`` and ``end_s``.
        """
        return mean_waits_s(self.table, begin_s, end_s)

    def _member_polls(self, begin_s: float, end_s: float) -> Floats:
        """Return how many polls each node makes of each channel after ``begin_s`` and up to ``end_s``.

        The result has one element for each channel and each node that polls this channel at some time of the run. It
        is sorted by channel, and then by the node's distance from the channel.
        """
        table, polls = self.table, np.zeros(self._starts[-1])
        rows = np.flatnonzero((table.end_s > begin_s) & (table.start_s < end_s))
        for begin in range(0, len(rows), CHANNEL_BATCH):
            row, of = self._members_of_rows(rows[begin : begin + CHANNEL_BATCH])
            from_s, to_s = np.maximum(table.start_s[row], begin_s), np.minimum(table.end_s[row], end_s)
            np.add.at(polls, self._starts[of.channel] + of.rank, self._poll_counts(of, row, from_s, to_s))
        return polls

    def _poll_counts(self, members: Members, row: Ints, begin_s: Floats, end_s: Floats) -> Floats:
        """Return, for each member, how many polls it makes after ``begin_s`` and up to ``end_s``.

        A member is a node that polls a channel. All arrays have one element per member. ``row`` contains the index of
        the member's schedule in the timetable.
        """
        size = self.table.size[row]
        turn = (members.rank - self.table.first_rank[row]) % size
        first, last = (np.maximum(self.table.index_after(row, at_s), 0) for at_s in (begin_s, end_s))
        polls = (last - 1 - turn) // size - (first - 1 - turn) // size
        return np.where(members.rank < size, polls, 0).astype(np.float64)

    def _members_of_rows(self, row: Ints) -> tuple[Ints, Members]:
        """Return (rows, members): all nodes that follow the given schedules.

        ``row`` contains the indices of the schedules in the timetable. ``members`` lists the nodes of the first
        schedule, then those of the second, and so on. ``rows`` contains, for each element of ``members``, the index
        of its schedule.
        """
        size = self.table.size[row]
        lines = np.repeat(row, size)
        return lines, Members(self.table.channel[lines], ranges(0, size))


class RandomPhasePolls(ScheduledPolls):
    """Polls as in Corona §3.3: a node waits a random time before its first poll of a channel, then polls regularly."""

    def __init__(self, timetable: Timetable, rng: np.random.Generator) -> None:
        super().__init__(timetable)
        self._phases = rng.random(int(self._starts[-1]))

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return, for each ``channel``, the time of its first poll after the corresponding time in ``after_s``."""
        table = self.table
        row = table.row_at(channel, after_s)
        found_s = self._next_in_row_s(row, after_s)
        late = np.flatnonzero(found_s > table.end_s[row])
        while late.size:
            row[late] += 1
            found_s[late] = self._next_in_row_s(row[late], np.maximum(after_s[late], table.start_s[row[late]]))
            late = late[found_s[late] > table.end_s[row[late]]]
        return found_s

    def polls_per_channel(self, begin_s: float, end_s: float) -> float:
        """Return the mean number of polls per channel after ``begin_s`` and up to ``end_s``."""
        return float(self._member_polls(begin_s, end_s).sum()) / len(self.numbers)

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:  # noqa: ARG002 - levels are constant by then
        """Return, for each channel, the mean time from a random moment until its next poll.

        Only the schedules that apply at ``end_s`` are used, because schedules no longer change by then. ``begin_s``
        is ignored.
        """
        waits_s = np.empty(len(self.numbers))
        last_row = self.table.row_at(self.numbers, np.full(len(waits_s), end_s))
        for begin in range(0, len(last_row), CHANNEL_BATCH):
            row, of = self._members_of_rows(last_row[begin : begin + CHANNEL_BATCH])
            phase = self._phases[self._starts[of.channel] + of.rank]
            phase = phase[np.lexsort((phase, of.channel))]
            starts = np.flatnonzero(of.rank == 0)
            lengths = np.diff(np.append(starts, len(phase)))
            gap = np.diff(phase, prepend=0.0)
            gap[starts] = phase[starts] + 1 - phase[starts + lengths - 1]
            interval_s = (self.table.size * self.table.gap_s)[row[starts]]
            waits_s[begin : begin + len(starts)] = np.add.reduceat(gap**2, starts) / 2 * interval_s
        return waits_s

    def _poll_counts(self, members: Members, row: Ints, begin_s: Floats, end_s: Floats) -> Floats:
        size = self.table.size[row]
        interval_s = size * self.table.gap_s[row]
        phase = self._phases[self._starts[members.channel] + np.minimum(members.rank, size - 1)]
        polls = np.floor(end_s / interval_s - phase) - np.floor(begin_s / interval_s - phase)
        return np.where(members.rank < size, polls, 0.0)

    def _next_in_row_s(self, row: Ints, after_s: Floats) -> Floats:
        """Return, for each schedule, the time of its first poll after the corresponding time in ``after_s``.

        ``row`` contains the indices of the schedules in the timetable.
        """
        found_s = np.empty(len(row))
        for begin in range(0, len(row), CHANNEL_BATCH):
            part = slice(begin, begin + CHANNEL_BATCH)
            size, at_s = self.table.size[row[part]], after_s[part]
            lines, of = self._members_of_rows(row[part])
            interval_s = self.table.size[lines] * self.table.gap_s[lines]
            phase = self._phases[self._starts[of.channel] + of.rank]
            wait_s = (phase * interval_s - np.repeat(at_s, size)) % interval_s
            found_s[part] = at_s + np.minimum.reduceat(wait_s, np.cumsum(size) - size)
        return found_s


AFTER_END_S = 7200.0
"""Polls are listed until this long after the end of the run, so that the last updates are detected."""
ROW_BATCH = 1 << 14


class EnumeratedPolls:
    """All polls of the channels with the indices ``numbers``, listed one by one and sorted by channel and time."""

    def __init__(self, numbers: Ints, channel: Ints, at_s: Floats, node: Ints, horizon_s: float) -> None:
        """Sort the given polls. The arrays ``channel``, ``at_s`` and ``node`` have one element per poll.

        - ``numbers`` contains the indices of the channels whose polls are given.
        - ``channel`` contains the index of the polled channel.
        - ``at_s`` contains the time of the poll.
        - ``node`` contains an integer that identifies the polling node.
        - ``horizon_s`` is the time until which the list of polls is complete.
        """
        self.numbers = numbers
        self._place_of = np.full(int(numbers.max()) + 1, -1)
        self._place_of[numbers] = np.arange(len(numbers))
        self._horizon_s = horizon_s
        place = self._place_of[channel]
        order = np.lexsort((at_s, place))
        self._at_s, self._node = at_s[order], node[order]
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(place, minlength=len(numbers)))))

    def next_s(self, channel: Ints, after_s: Floats) -> Floats:
        """Return, for each ``channel``, the time of its first poll after the corresponding time in ``after_s``.

        If there is no such poll, the time is ``horizon_s``, the end of the period for which polls are known.
        """
        place = self._place_of[channel]
        end = self._starts[place + 1]
        found = first_index_beyond(self._starts[place], end, lambda poll: self._at_s[poll] > after_s)
        return np.where(found < end, self._at_s[np.minimum(found, len(self._at_s) - 1)], self._horizon_s)

    def polls_per_channel(self, begin_s: float, end_s: float) -> float:
        """Return the mean number of polls per channel after ``begin_s`` and up to ``end_s``."""
        return float(((self._at_s > begin_s) & (self._at_s <= end_s)).sum() / len(self.numbers))

    def max_over_mean_of(self, nodes: int, begin_s: float, end_s: float) -> float:
        """Return the number of polls by the busiest node, divided by the mean over ``nodes`` nodes.

        Polls are counted after ``begin_s`` and up to ``end_s``.
        """
        inside = (self._at_s > begin_s) & (self._at_s <= end_s)
        return float(np.bincount(self._node[inside]).max() / (inside.sum() / nodes))

    def mean_waits_s(self, begin_s: float, end_s: float) -> Floats:
        """Return, for each channel in ``numbers``, the mean time from a random moment until its next poll.

        The moment is uniformly distributed between ``begin_s`` and ``end_s``. The result has the order of the attribute
        ``numbers``.
        """
        first_s = self.next_s(self.numbers, np.full(len(self.numbers), begin_s))
        last_s = self.next_s(self.numbers, np.full(len(self.numbers), end_s))
        place = np.repeat(np.arange(len(self.numbers)), np.diff(self._starts))
        gap_s = np.diff(self._at_s, prepend=0.0)
        inside = (self._at_s > first_s[place]) & (self._at_s <= last_s[place])
        between = np.bincount(place[inside], gap_s[inside] ** 2, len(self.numbers))
        squares = between + (first_s - begin_s) ** 2 - (last_s - end_s) ** 2
        return np.asarray(squares / 2 / (end_s - begin_s))


class FaultyPolls(EnumeratedPolls):
    """All polls of the channels with the indices ``numbers``, in a fleet with faults.

    Nodes die and join, and messages between nodes can be lost.
    """

    def __init__(self, fleet: SimulatedFleet, timetable: Timetable, numbers: Ints, seed: int) -> None:
        self._fleet, self._table = fleet, timetable
        self._salt, self._until_s = np.uint64(seed), fleet.setup.end_s + AFTER_END_S
        self._died_s = np.full(int(max(ring.max() for ring in fleet.numbers)) + 1, np.inf)
        for number, died_s in fleet.died_s.items():
            self._died_s[number] = died_s
        rows = np.arange(len(timetable.channel))
        parts = [self._polls_of_rows(rows[begin : begin + ROW_BATCH]) for begin in range(0, len(rows), ROW_BATCH)]
        channel, at_s, node = (np.concatenate(part) for part in zip(*parts, strict=True))
        super().__init__(numbers, channel, at_s, node, self._until_s)

    def max_over_mean(self, fleet: SimulatedFleet, begin_s: float, end_s: float) -> float:
        """Return the number of polls by the busiest node, divided by the mean number of polls per node.

        Polls are counted after ``begin_s`` and up to ``end_s``. The mean is the total number of polls, divided by the
        number of nodes at the start of the run.
        """
        return self.max_over_mean_of(fleet.setup.nodes, begin_s, end_s)

    def _polls_of_rows(self, rows: Ints) -> tuple[Ints, Floats, Ints]:
        """Return the polls made while the schedules with the indices ``rows`` apply, as arrays (channel, time, node).

        A node that missed the message with a new schedule still follows the channel's previous schedule. Its polls are
        included.
        """
        table = self._table
        after = rows[table.rows[table.channel[rows]] < rows]
        planned = np.concatenate((rows, after - 1))
        rows = np.concatenate((rows, after))
        from_s, to_s = table.start_s[rows], np.minimum(table.end_s[rows], self._until_s)
        first, last = (np.maximum(table.index_after(planned, at_s), 0) for at_s in (from_s, to_s))
        count = np.maximum(last - first, 0)
        row, plan = np.repeat(rows, count), np.repeat(planned, count)
        index = ranges(first, count)
        node = self._node_at(plan, (table.first_rank[plan] + index) % table.size[plan])
        at_s = table.first_s[plan] + index * table.gap_s[plan]
        made = self._received(plan, node) & (at_s < self._died_s[node])
        made &= (row == plan) | ~self._received(row, node)
        return table.channel[row[made]], at_s[made], node[made]

    def _node_at(self, row: Ints, rank: Ints) -> Ints:
        """Return, for each pair (``row``, ``rank``), an integer that identifies the node with this rank.

        ``row`` contains the index of each schedule. A node's rank is its position when nodes are sorted by distance
        from the schedule's channel.
        """
        found = np.empty(len(row), dtype=np.int64)
        rings = self._table.ring[row]
        order = np.argsort(rings, kind="stable")
        present, starts = np.unique(rings[order], return_index=True)
        for ring, lines in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            points = self._fleet.channels.points[self._table.channel[row[lines]]]
            found[lines] = self._fleet.numbers[ring][self._fleet.tries[ring].nodes_at_rank(points, rank[lines])]
        return found

    def _received(self, row: Ints, node: Ints) -> Bools:
        """Return, for each pair (``row``, ``node``), whether the node received the message that announced the schedule.

        ``row`` contains the index of each schedule. Messages are lost at random, but the result for a given schedule
        and node is always the same.
        """
        mixed = (row.astype(np.uint64) << np.uint64(24)) + node.astype(np.uint64) + (self._salt << np.uint64(52))
        return mix_bits(mixed).astype(np.float64) / 2.0**64 >= self._fleet.setup.loss
