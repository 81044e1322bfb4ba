"""The ring as one node sees it: which nodes are nearest to a point of the id space.

The sorted ids are a flattened binary trie: the ids with a common prefix are adjacent in the list. A query descends the
trie from its root, always first to the side that is nearer to the target, and skips bits that all ids of a range share.
It takes one step per branching, about log2 N for evenly distributed ids.

Joining nodes take balanced ids, so that every node owns about the same share of the channels. Deviation: in Corona §4,
an id is a hash of the node's address. The store writes an id only if the ring's version is still the one from which the
id was computed; otherwise the id is computed again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from service.model import ChannelId, NodeId, NodeInfo
from service.overlay.id_space import BITS, from_hex, to_hex

_MAX_CACHED_SETS = 1_000


@dataclass(frozen=True)
class RingView:
    """The members of the ring at one version, sorted by id. ``version`` grows with every join and departure."""

    version: int
    nodes: tuple[NodeInfo, ...]

    def changed(self, version: int, present: Iterable[NodeInfo], left: Iterable[NodeId]) -> "RingView":
        """Return the ring of a later version, given what has changed since this one.

        ``present`` are the nodes that have joined, also those that replace a node with the same id; ``left`` are the
        ids of those that have left. A join or departure takes the time to copy a list of all nodes, without sorting.
        """
        ids, points, nodes = list(self.ids), list(self.points), list(self.nodes)
        for node in left:
            place = bisect_left(ids, node)
            if ids[place : place + 1] == [node]:
                del ids[place], points[place], nodes[place]
        for info in present:
            place = bisect_left(ids, info.id)
            if ids[place : place + 1] == [info.id]:
                nodes[place] = info
            else:
                ids.insert(place, info.id)
                points.insert(place, from_hex(info.id))
                nodes.insert(place, info)
        view = RingView(version, tuple(nodes))
        view.__dict__.update(ids=tuple(ids), points=tuple(points))  # instead of computing these properties again
        return view

    @cached_property
    def ids(self) -> tuple[NodeId, ...]:
        """The members' ids, sorted."""
        return tuple(node.id for node in self.nodes)

    @cached_property
    def points(self) -> tuple[int, ...]:
        """The members' ids as integers, in the order of ``ids``."""
        return tuple(map(from_hex, self.ids))

    def __contains__(self, node: NodeId) -> bool:
        return node in self._members

    def owner(self, point: ChannelId | NodeId) -> NodeId | None:
        """Return the node nearest to ``point`` by XOR, or None if the ring is empty."""
        return next(self._by_distance(point), None)

    def nearest(self, point: ChannelId | NodeId, count: int) -> tuple[NodeId, ...]:
        """Return the ``count`` nodes nearest to ``point`` by XOR, nearest first; all nodes if there are fewer."""
        found = tuple(islice(self._by_distance(point), count))
        return self._sets.setdefault(found, found) if len(self._sets) < _MAX_CACHED_SETS else found

    def is_among_nearest(self, point: ChannelId | NodeId, node: NodeId, count: int) -> bool:
        """Return whether ``node`` is one of the ``count`` nodes nearest to ``point`` by XOR.

        With ``count`` 1, the result is whether ``node`` is the owner of ``point``. The time does not depend on
        ``count``.
        """
        if node not in self._members:
            return False
        target, nearer = from_hex(point), 0
        for bit, side, beside in self._paths.get(node) or self._path(node):
            if target & bit != side:
                nearer += beside
                if nearer >= count:
                    return False
        return nearer < count

    @cached_property
    def _sets(self) -> dict[tuple[NodeId, ...], tuple[NodeId, ...]]:
        """The tuples that :meth:`nearest` has returned, so that equal results share one tuple.

        In small fleets, tens of thousands of channels have the same polling set.
        """
        return {}

    @cached_property
    def _paths(self) -> dict[NodeId, list[tuple[int, int, int]]]:
        return {}

    def _path(self, node: NodeId) -> list[tuple[int, int, int]]:
        """Return the branchings on the path from the root of the trie of ids to ``node``.

        Each branching is a tuple: a mask with one bit, the value of this bit in the node's id (0 or the mask), and the
        number of nodes on the other side of the branching.
        """
        points, own = self.points, from_hex(node)
        low, high = 0, len(points)
        path = self._paths[node] = []
        while high - low > 1:
            bit = (points[low] ^ points[high - 1]).bit_length() - 1
            middle = bisect_left(points, points[high - 1] >> bit << bit, low, high)
            side = own >> bit & 1
            path.append((1 << bit, side << bit, middle - low if side else high - middle))
            low, high = (middle, high) if side else (low, middle)
        return path

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


def owned_prefixes(view: RingView, node_id: NodeId, digits: int = 2) -> tuple[str, ...]:
    """Return all prefixes of ``digits`` hex digits with which points owned by ``node_id`` can begin.

    A point's owner is found bit by bit: the nodes whose ids agree with the point's next bit remain, or all nodes if
    none agrees.
    """
    mine, bits = from_hex(node_id), 4 * digits
    owned: list[tuple[int, Sequence[int]]] = [(0, view.points)] if node_id in view else []
    """Prefixes, and the nodes that remain for each: this node and others."""
    for place in range(bits):
        shift, longer = BITS - 1 - place, []
        for prefix, nodes in owned:
            for bit in (0, 1):
                agreeing = [node for node in nodes if node >> shift & 1 == bit]
                if not agreeing or mine >> shift & 1 == bit:
                    longer.append((prefix << 1 | bit, agreeing or nodes))
        owned = longer
    return tuple(f"{prefix:0{digits}x}" for prefix, _ in owned)


def balanced_id(existing: Sequence[NodeId]) -> NodeId:
    """Return an unused id that splits the emptiest part of the id space.

    The function descends the binary trie of ids, always to the side with fewer nodes (the zeros if both sides have
    equally many), until a side is empty, and returns that side's first id. If all ids are chosen by this function,
    starting with an empty ring, the nodes' shares of the id space differ at most by a factor of 2, and are equal if the
    number of nodes is a power of two.
    """
    points = sorted(map(from_hex, existing))
    low, high, start, width = 0, len(points), 0, BITS
    while low < high:
        width -= 1
        ones = start | 1 << width
        middle = bisect_left(points, ones, low, high)
        if middle - low <= high - middle:
            high = middle
        else:
            low, start = middle, ones
    return to_hex(start)
