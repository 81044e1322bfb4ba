"""The members of the fleet as one node sees them (the *ring*), and the nodes that are nearest to an id.

Ids have 160 bits (Corona §4). In memory, they are integers, also called points; elsewhere, they are 40 hex digits.
Functions that count digits accept the bases 2, 4, 16, 32 and 256, because a whole number of digits must fill 160 bits.
The most significant digit comes first.

How the nearest nodes are found: the sorted ids are a flattened binary trie, because ids with a common prefix are
adjacent in the list. A query descends the trie from its root, always first to the side that is nearer to the target.
The descent skips bits that all ids of a range share, so it takes about log2 N steps for N evenly distributed ids.

Deviation from the paper: in Corona §4, an id is a hash of the node's address. Here a joining node takes an id such that
all nodes own about the same share of the channels (:func:`balanced_id`). The store accepts this id only if no other
node has joined or left since it was computed. Otherwise the id is computed again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from service.model import ChannelId, NodeId, NodeInfo

BITS = 160


def from_hex(text: str) -> int:
    """Return the point (id as an integer) with these 40 hex digits."""
    return int(text, 16)


def to_hex(point: int) -> str:
    """Return the 40 lower-case hex digits of a point (id as an integer)."""
    return f"{point:040x}"


def digit(point: int, index: int, base: int) -> int:
    """Return one digit of ``point`` in the number system with the base ``base``.

    ``index`` 0 is the most significant digit.
    """
    width = _digit_bits(base)
    return point >> (BITS - width * (index + 1)) & (base - 1)


def shared_digits(a: int, b: int, base: int) -> int:
    """Return the number of leading digits, in the number system with this base, that two points have in common."""
    return (BITS - (a ^ b).bit_length()) // _digit_bits(base)


def _digit_bits(base: int) -> int:
    return base.bit_length() - 1


_MAX_COMPARED_NODES = 8
"""Number of joined and departed nodes above which :meth:`RingChange.concerns` does not compare single nodes."""


@dataclass(frozen=True)
class RingView:
    """The members of the fleet at one time, sorted by id. ``version`` grows whenever a node joins or leaves."""

    version: int
    nodes: tuple[NodeInfo, ...]

    def with_changes(self, version: int, present: Iterable[NodeInfo], left: Iterable[NodeId]) -> "RingView":
        """Return the members at the later ``version``: the nodes ``present`` are added, the ids ``left`` are removed.

        A node in ``present`` replaces a member with the same id.
        """
        members = {**self._members}
        for node in left:
            members.pop(node, None)
        members.update((node.id, node) for node in present)
        return RingView(version, tuple(members[node] for node in sorted(members)))

    def change_since(self, former: "RingView") -> "RingChange":
        """Return the difference between the earlier members ``former`` and these members."""
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
        """Return the description of the node with this id, or None if it is not a member."""
        return self._members.get(node)

    def owner(self, point: ChannelId | NodeId) -> NodeId | None:
        """Return the node nearest to ``point`` by XOR, or None if the ring is empty."""
        return next(self._by_distance(point), None)

    def nearest(self, point: ChannelId | NodeId, count: int) -> tuple[NodeId, ...]:
        """Return the ``count`` nodes nearest to ``point`` by XOR, nearest first; all nodes if there are fewer."""
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
        """Yield the nodes whose ids equal ``bits`` in all bits that are 1 in ``mask``, in the order of ``ids``."""
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
        """Return a mask of the bits that decide to which points ``node`` is the nearest node.

        The node is nearest to exactly those points that equal its id in all bits of the mask. The result is None if the
        node is not a member.
        """
        # These are the bits at which the binary trie of ids branches on the path from its root to the node.
        return sum(bit for bit, _, _ in self._path(node)) if node in self else None

    @cached_property
    def _paths(self) -> dict[NodeId, list[tuple[int, int, int]]]:
        return {}

    def _path(self, node: NodeId) -> list[tuple[int, int, int]]:
        """Return the branchings on the path from the root of the binary trie of ids to ``node``.

        Each branching is a tuple of three numbers:

        - A mask with one bit, the bit at which the trie branches.
        - The value of this bit in the node's id: 0 or the mask.
        - The number of nodes on the other side of the branching.
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
    """The difference between two sets of members, ``former`` and ``present``.

    ``joined`` has the ids of the nodes that only ``present`` has, ``left`` the ids of those that only ``former`` has.
    """

    former: RingView
    present: RingView
    joined: frozenset[NodeId]
    left: frozenset[NodeId]

    def concerns(self, point: ChannelId | NodeId, count: int) -> bool:
        """Return whether the change may affect the ``count`` + 1 nodes nearest to ``point``.

        The result is always True if many nodes have joined or left, even if the change does not affect these nodes.
        """
        return (
            len(self.joined) + len(self.left) > _MAX_COMPARED_NODES
            or any(self.present.is_among_nearest(point, node, count + 1) for node in self.joined)
            or any(self.former.is_among_nearest(point, node, count) for node in self.left)
        )


def owned_prefixes(view: RingView, node_id: NodeId, digits: int = 2) -> tuple[str, ...]:
    """Return the prefixes with which the ids of channels that the node ``node_id`` owns can begin.

    Each prefix has ``digits`` hex digits. A node owns the ids to which it is the nearest member of ``view``.
    """
    shift = BITS - 4 * digits
    own, branchings = from_hex(node_id) >> shift, view.branchings(node_id)
    if branchings is None:
        return ()
    found = (prefix for prefix in range(1 << 4 * digits) if not (prefix ^ own) & branchings >> shift)
    return tuple(f"{prefix:0{digits}x}" for prefix in found)


def balanced_id(existing: Sequence[NodeId]) -> NodeId:
    """Return an id that is not in ``existing`` and splits the emptiest part of the id space.

    If all ids are chosen by this function, beginning with no nodes, the nodes' shares of the id space differ at most by
    a factor of 2. They are equal if the number of nodes is a power of two.
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
