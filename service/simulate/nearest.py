"""Nearest nodes for a hundred thousand channels at once: what ``RingView`` answers one by one, as arrays.

The ring's binary trie is walked from the root by all questions together: as ``RingView`` does, always to the side that
is nearer first, or past it where it has too few nodes. A test holds the two to the same answers.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from service.model import NodeId
from service.simulate.trace import Ints
from service.simulate.workload import DRAWN_BITS, Points, point_of

AT_ONCE = 1 << 17
"""Questions walked together: what fits the caches of a processor."""


class Trie:
    """One ring. Nodes are numbered in the order of their ids."""

    def __init__(self, nodes: Sequence[NodeId]) -> None:
        self.nodes = tuple(sorted(nodes))
        """Their ids."""
        self.points = np.array([point_of(node) for node in self.nodes], dtype=np.uint64)
        count = len(self.nodes)
        # Inner vertices are 0 to count - 2, a parent before its children; leaves are count - 1 and on. A leaf's
        # children are itself, so that a walk that has arrived stays.
        self._shift = np.zeros(2 * count - 1, dtype=np.uint64)
        self._zeros = np.arange(2 * count - 1, dtype=np.int32)
        self._ones = np.arange(2 * count - 1, dtype=np.int32)
        self._below = np.ones(2 * count - 1, dtype=np.int32)
        self._depth = self._build(count)

    def at_rank(self, targets: Points, ranks: Ints) -> Ints:
        """Return the number of the node that is nearest but so many to each target; 0 asks for the owner.

        Args:
            targets: First bits of channels' ids, shape (K,).
            ranks: Less than the number of nodes, shape (K,).
        """
        found = np.empty(len(targets), dtype=np.int64)
        for begin in range(0, len(targets), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            found[part] = self._walk(targets[part], ranks[part].astype(np.int32))
        return found

    def rank_of(self, node: NodeId, targets: Points) -> Ints:
        """Return which rank this node has for each target: how many nodes are nearer."""
        own = self.points[bisect_left(self.nodes, node)] ^ targets
        return np.asarray(np.count_nonzero((self.points[:, None] ^ targets) < own, axis=0))

    def sharing(self, targets: Points, bits: int) -> Ints:
        """Return how many nodes share this many leading bits with each target: the size of its wedge (Corona §3.1)."""
        if not bits:
            return np.full(len(targets), len(self.nodes), dtype=np.int64)
        shift = np.uint64(DRAWN_BITS - bits)
        prefixes, wanted = self.points >> shift, targets >> shift
        return np.searchsorted(prefixes, wanted, side="right") - np.searchsorted(prefixes, wanted)

    def _walk(self, targets: Points, ranks: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> Ints:
        vertex = np.zeros(len(targets), dtype=np.int32)
        for _ in range(self._depth):
            ones = (targets >> self._shift[vertex] & np.uint64(1)).astype(bool)
            zero, one = self._zeros[vertex], self._ones[vertex]
            near = np.where(ones, one, zero)
            skipped = self._below[near]
            beyond = ranks >= skipped
            ranks = ranks - np.where(beyond, skipped, 0)
            vertex = np.where(beyond, zero + one - near, near)
        return vertex.astype(np.int64) - (len(self.nodes) - 1)

    def _build(self, count: int) -> int:
        """Fill in the vertices; return how many steps the longest walk takes."""
        points = self.points.tolist()
        pending, made, deepest = [(0, 0, count, 0)] if count > 1 else [], 1, 0
        while pending:
            vertex, low, high, depth = pending.pop()
            bit = (points[low] ^ points[high - 1]).bit_length() - 1
            middle = int(np.searchsorted(self.points, np.uint64(points[high - 1] >> bit << bit)))
            self._shift[vertex], self._below[vertex] = bit, high - low
            for side, first, last in ((self._zeros, low, middle), (self._ones, middle, high)):
                if last - first == 1:
                    side[vertex] = count - 1 + first
                else:
                    side[vertex] = made
                    pending.append((made, first, last, depth + 1))
                    made += 1
            deepest = max(deepest, depth + 1)
        return deepest
