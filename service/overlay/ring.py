"""The members of the fleet as one node sees them (the *ring*), and how to find the nodes that are nearest to an id.

Ids have 160 bits (Corona §4). In memory, they are integers, also called points; elsewhere, they are strings of 40 hex
digits. Ids can be divided into digits in the bases 2, 4, 16, 32 and 256, because such digits fill 160 bits exactly. The
most significant digit comes first.

Ids with a common prefix are adjacent in the sorted list of ids, so the list is a flattened binary trie. To find the
nearest nodes, a query descends this trie from its root and always visits the side nearer to the target first. It skips
the bits that all ids in a range share. If N ids are evenly distributed, a query takes about log2 N steps.

Deviation from the paper: in Corona §4, an id is a hash of the node's address. Here, the id of a joining node is chosen
such that all nodes own about the same share of the channels (:func:`balanced_id`). The store accepts this id only if no
other node has joined or left since it was computed. Otherwise the id is computed again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from service.model import ChannelId, NodeId, NodeInfo

BITS = 160


def from_hex(text: str) -> int:
    """Convert an id of 40 hex digits to an integer (a point)."""
    return int(text, 16)


def to_hex(point: int) -> str:
    """Convert an id from an integer (a point) to 40 lower-case hex digits."""
    return f"{point:040x}"


def digit(point: int, index: int, base: int) -> int:
    """Return the digit of ``point`` at position ``index`` in base ``base``. Index 0 is the most significant digit."""
    width = _digit_bits(base)
    return point >> (BITS - width * (index + 1)) & (base - 1)


def shared_digits(a: int, b: int, base: int) -> int:
    """Return how many leading digits two points have in common when they are written in base ``base``."""
    return (BITS - (a ^ b).bit_length()) // _digit_bits(base)


def _digit_bits(base: int) -> int:
    return base.bit_length() - 1


_MAX_COMPARED_NODES = 8
"""Maximum number of joined and departed nodes that :meth:`RingChange.concerns` compares one by one."""


@dataclass(frozen=True)
class RingView:
    """The nodes of the fleet at one point in time, sorted by id.

    ``version`` increases each time a node joins or leaves the fleet.
    """

    version: int
    nodes: tuple[NodeInfo, ...]

    def with_changes(self, version: int, present: Iterable[NodeInfo], left: Iterable[NodeId]) -> "RingView":
        """Return a new view at ``version``, with the nodes in ``present`` added and the nodes in ``left`` removed.

        ``version`` is later than the version of this view. A node in ``present`` replaces a member with the same id.
        """
        members = {**self._members}
        for node in left:
            members.pop(node, None)
        members.update((node.id, node) for node in present)
        return RingView(version, tuple(members[node] for node in sorted(members)))

    def change_since(self, former: "RingView") -> "RingChange":
        """Return what has changed between ``former``, an earlier view of the ring, and this view."""
        before, after = former._members.keys(), self._members.keys()  # noqa: SLF001 - of the same class
        return RingChange(former, self, frozenset(after - before), frozenset(before - after))

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

    def node(self, node: NodeId) -> NodeInfo | None:
        """Return the description of the node with the id ``node``, or None if it is not a member."""
        return self._members.get(node)

    def owner(self, point: ChannelId | NodeId) -> NodeId | None:
        """Return the id of the node nearest to ``point`` by XOR, or None if the ring is empty."""
        return next(self._by_distance(point), None)

    def nearest(self, point: ChannelId | NodeId, count: int) -> tuple[NodeId, ...]:
        """Return the ids of the ``count`` nodes nearest to ``point`` by XOR, nearest first.

        If the ring has fewer than ``count`` nodes, return the ids of all nodes.
        """
        return tuple(islice(self._by_distance(point), count))

    def is_among_nearest(self, point: ChannelId | NodeId, node: NodeId, count: int) -> bool:
        """Return whether ``node`` is one of the ``count`` nodes nearest to ``point`` by XOR.

        With ``count`` 1, this means that ``node`` is the owner of ``point``. The running time does not depend on
        ``count``.
        """
        if node not in self._members:
            return False
        target, nearer = from_hex(point), 0
        for bit, side, beside in self._path(node):
            if target & bit != side:
                nearer += beside
                if nearer >= count:
                    return False
        return nearer < count

    def nodes_with_bits(self, mask: int, bits: int) -> Iterator[NodeId]:
        """Yield, in ascending order, the node ids that agree with ``bits`` in every bit that is set in ``mask``."""
        points = self.points
        ranges = [(0, len(points))] if points else []
        while ranges:
            low, high = ranges.pop()
            first, last = points[low], points[high - 1]
            split = (first ^ last).bit_length()
            if ((first ^ bits) & mask) >> split:
                continue
            if first == last:
                yield self.ids[low]
                continue
            bit = 1 << split - 1
            middle = bisect_left(points, last & -bit, low, high)
            if not mask & bit or bits & bit:
                ranges.append((middle, high))
            if not mask & bit or not bits & bit:
                ranges.append((low, middle))

    def branchings(self, node: NodeId) -> int | None:
        """Return a mask of the bits that determine whether ``node`` is the node nearest to a point.

        ``node`` is nearest if and only if the point agrees with the node's id in every bit of the mask. The result is
        None if ``node`` is not a member.
        """
        # These are the bits at which the binary trie of ids branches on the path from its root to the node.
        return sum(bit for bit, _, _ in self._path(node)) if node in self else None

    @cached_property
    def _paths(self) -> dict[NodeId, list[tuple[int, int, int]]]:
        return {}

    def _path(self, node: NodeId) -> list[tuple[int, int, int]]:
        """Return the branches on the path to ``node``, beginning at the root of the binary trie of all ids.

        Each branch is a tuple:

        - a mask with the one bit that decides the branch
        - the value of this bit in the node's id: equal to the mask, or 0
        - the number of nodes on the other side of the branch
        """
        if known := self._paths.get(node):
            return known
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
    def _members(self) -> dict[NodeId, NodeInfo]:
        return {node.id: node for node in self.nodes}

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


@dataclass(frozen=True)
class RingChange:
    """The difference between an earlier view of the ring, ``former``, and a later one, ``present``.

    - ``joined``: the ids of the nodes that are only in ``present``.
    - ``left``: the ids of the nodes that are only in ``former``.
    """

    former: RingView
    present: RingView
    joined: frozenset[NodeId]
    left: frozenset[NodeId]

    def concerns(self, point: ChannelId | NodeId, count: int) -> bool:
        """Return whether the change may affect the ``count`` nodes nearest to ``point``.

        False means that these nodes are certainly the same as before. True can be a false alarm.
        """
        return (
            len(self.joined) + len(self.left) > _MAX_COMPARED_NODES
            or any(self.present.is_among_nearest(point, node, count + 1) for node in self.joined)
            or any(self.former.is_among_nearest(point, node, count) for node in self.left)
        )


def owned_prefixes(view: RingView, node_id: NodeId, digits: int = 2) -> tuple[str, ...]:
    """Return the prefixes with which the id of a channel can begin if the node ``node_id`` owns the channel.

    Each prefix is ``digits`` hex digits long. The result is empty if the node is not a member of ``view``.
    """
    shift = BITS - 4 * digits
    own, branchings = from_hex(node_id) >> shift, view.branchings(node_id)
    if branchings is None:
        return ()
    found = (prefix for prefix in range(1 << 4 * digits) if not (prefix ^ own) & branchings >> shift)
    return tuple(f"{prefix:0{digits}x}" for prefix in found)


def balanced_id(existing: Sequence[NodeId]) -> NodeId:
    """Return an id for a new node, in a part of the id space that has few nodes.

    ``existing`` contains the ids of the present nodes. If all ids in a fleet come from this function, the nodes'
    shares of the id space differ by at most a factor of 2. The shares are equal if the number of nodes is a power
    of two.
    """
    # Descend the binary trie of ids, always to the side with fewer nodes (the zeros if both sides have equally many),
    # until a side is empty: its first id is the result.
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
