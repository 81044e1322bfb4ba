"""Polls by node: the members of every polling set, side by side, and what each of them polls.

Polling sets of one channel lie inside each other, so that a member is a channel and a rank, whatever the size is at
the time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.simulate.nearest import Trie
from service.simulate.timetable import Timetable
from service.simulate.trace import Floats, Ints
from service.simulate.workload import Points

CHANNELS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Members:
    """One line for each member of the largest set that its channel has had, in the order of channels and ranks."""

    channel: Ints
    rank: Ints


def members(timetable: Timetable, begin: int, end: int) -> Members:
    """Return the members of the channels from ``begin`` up to ``end``."""
    first, last = timetable.rows[begin], timetable.rows[end]
    largest = np.zeros(end - begin, dtype=np.int64)
    np.maximum.at(largest, timetable.channel[first:last] - begin, timetable.size[first:last])
    channel = np.repeat(np.arange(begin, end), largest)
    return Members(channel, np.arange(len(channel)) - np.repeat(np.cumsum(largest) - largest, largest))


class Counted(Protocol):
    """A timetable, and how its polls are counted."""

    @property
    def timetable(self) -> Timetable:
        """All rotas."""

    def counts(self, of: Members, row: Ints, begin_s: Floats, end_s: Floats) -> Floats:
        """Return how often each member polls by its row after ``begin_s``, up to ``end_s``."""


def _member_polls(schedule: Counted, begin_s: float, end_s: float) -> Iterator[tuple[Members, Floats]]:
    """Yield all members, some channels' at a time, and how often each polls after ``begin_s``, up to ``end_s``."""
    table = schedule.timetable
    for begin in range(0, len(table.rows) - 1, CHANNELS_AT_ONCE):
        of = members(table, begin, min(begin + CHANNELS_AT_ONCE, len(table.rows) - 1))
        polls = np.zeros(len(of.channel))
        first, count = table.rows[of.channel], table.rows[of.channel + 1] - table.rows[of.channel]
        for place in range(int(count.max(initial=0))):
            row = first + np.minimum(place, count - 1)
            from_s, to_s = np.maximum(table.start_s[row], begin_s), np.minimum(table.end_s[row], end_s)
            counts = schedule.counts(of, row, from_s, np.maximum(from_s, to_s))
            polls += np.where((place < count) & (from_s < to_s), counts, 0.0)
        yield of, polls


def node_polls(schedule: Counted, trie: Trie, points: Points, begin_s: float, end_s: float) -> Floats:
    """Return how often each node of a ring that did not change polls in this time."""
    found = np.zeros(len(trie.nodes))
    for of, polls in _member_polls(schedule, begin_s, end_s):
        busy = np.flatnonzero(polls)
        nodes = trie.at_rank(points[of.channel[busy]], of.rank[busy])
        found += np.bincount(nodes, polls[busy], len(found))
    return found
