"""The ring as one node sees it: who is nearest to a point of the id space.

Sorted ids are a binary trie written flat: the ids below any prefix are neighbours in the list.
A query walks that trie from its root, always to the side nearer to the target first, and skips
bits on which all ids of a range agree. It costs one step per branching, about log2 N for even
ids, whatever the target.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from service.model import ChannelId, NodeId, NodeInfo
from service.overlay.ids import from_hex

_MOST_SETS_KNOWN = 1_000


@dataclass(frozen=True)
class RingView:
    """The members at one version of the ring. ``version`` grows with every join and departure."""

    version: int
    nodes: tuple[NodeInfo, ...]

    @cached_property
    def ids(self) -> tuple[NodeId, ...]:
        """The members' ids, sorted."""
        return tuple(sorted(self._members))

    @cached_property
    def points(self) -> tuple[int, ...]:
        """The same as integers."""
        return tuple(map(from_hex, self.ids))

    def __contains__(self, node: NodeId) -> bool:
        return node in self._members

    def owner(self, point: ChannelId | NodeId) -> NodeId | None:
        """Return the node nearest to ``point``, or None when the ring is empty."""
        return next(self._by_distance(point), None)

    def nearest(self, point: ChannelId | NodeId, count: int) -> tuple[NodeId, ...]:
        """Return the ``count`` nodes nearest to ``point`` by XOR, nearest first; all if there are fewer."""
        found = tuple(islice(self._by_distance(point), count))
        return self._sets.setdefault(found, found) if len(self._sets) < _MOST_SETS_KNOWN else found

    def watchers(self, point: ChannelId | NodeId, count: int = 3) -> tuple[NodeId, ...]:
        """Return the next-nearest nodes after the owner: those that take over (Corona §3.3, F = 3)."""
        return self.nearest(point, count + 1)[1:]

    @cached_property
    def _sets(self) -> dict[tuple[NodeId, ...], tuple[NodeId, ...]]:
        """Sets that were found: small fleets have few, and tens of thousands of channels share them."""
        return {}

    @cached_property
    def _members(self) -> frozenset[NodeId]:
        return frozenset(node.id for node in self.nodes)

    def _by_distance(self, point: ChannelId | NodeId) -> Iterator[NodeId]:
        target, points = from_hex(point), self.points
        ranges = [(0, len(points))] if points else []
        while ranges:
            low, high = ranges.pop()
            first, last = points[low], points[high - 1]
            if first == last:
                yield self.ids[low]
                continue
            bit = (first ^ last).bit_length() - 1
            middle = bisect_left(points, last >> bit << bit, low, high)
            zeros, ones = (low, middle), (middle, high)
            ranges += (zeros, ones) if target >> bit & 1 else (ones, zeros)
