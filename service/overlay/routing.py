"""Routing rows: the contacts by which any point is reached digit by digit (Corona §3.1).

Row i of a node holds, for each digit j other than its own, one contact that shares i digits with
the node and has j next. The rows of a node are the edges of the directed acyclic graph rooted at
it: every other node lies below exactly one contact.

Workers know the whole ring (at most about a thousand nodes) and polling sets are small, so the
protocol sends to a set's members directly. What travels along the graph, from contacts to those
whose contacts they are, is what all nodes below them have to tell.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain

from service.model import ChannelId, NodeId
from service.overlay.ids import BITS, digit, from_hex, shared_digits
from service.overlay.ring import RingView

Rows = tuple[dict[int, NodeId], ...]
"""By prefix length: digit → contact. Digits below which there is no node are absent."""


def routing_rows(view: RingView, me: NodeId, base: int) -> Rows:
    """Return the rows of ``me``, as many as it takes until no other node shares its prefix.

    A contact is the node nearest to ``me`` among those with its digit. On even ids there are
    K = ceil(log_base N) rows.
    """
    mine = from_hex(me)
    rows: dict[int, dict[int, NodeId]] = {}
    for node in view.nearest(me, len(view.nodes)):
        point = from_hex(node)
        if point != mine:
            index = shared_digits(mine, point, base)
            rows.setdefault(index, {}).setdefault(digit(point, index, base), node)
    return tuple(rows.get(index, {}) for index in range(max(rows, default=-1) + 1))


def next_hop(rows: Rows, me: NodeId, point: ChannelId | NodeId, base: int) -> NodeId | None:
    """Return the contact that is one step nearer to the owner of ``point``, or None if ``me`` owns it.

    Each hop agrees with the owner in at least one more digit, so there are at most K.
    """
    for index, row in enumerate(rows):
        mine, wanted = digit(from_hex(me), index, base), digit(from_hex(point), index, base)
        best = min({mine, *row}, key=wanted.__xor__)
        if best != mine:
            return row[best]
    return None


def followers(view: RingView, me: NodeId, base: int) -> tuple[tuple[NodeId, ...], ...]:
    """Return, for each row, the nodes that have ``me`` as a contact in it: :func:`routing_rows` read backwards.

    Of the nodes that have i digits in common with me and another one next, those that agree with me wherever
    the ids below my own next digit branch off my path.
    """
    mine, points, width = from_hex(me), view.points, (base - 1).bit_length()
    rows: list[tuple[NodeId, ...]] = []
    low, high = 0, len(points)
    while high - low > 1 and me in view:
        free = BITS - width * (len(rows) + 1)
        start = mine >> free << free
        inner = bisect_left(points, start, low, high), bisect_left(points, start + (1 << free), low, high)
        branchings = _branchings(points, *inner, mine)
        others = chain(range(low, inner[0]), range(inner[1], high))
        rows.append(tuple(view.ids[place] for place in others if not (points[place] ^ mine) & branchings))
        low, high = inner
    return tuple(rows)


def _branchings(points: Sequence[int], low: int, high: int, mine: int) -> int:
    """Return the bits at which the range's ids branch along the path to ``mine``."""
    bits = 0
    while high - low > 1:
        bit = (points[low] ^ points[high - 1]).bit_length() - 1
        bits |= 1 << bit
        middle = bisect_left(points, points[high - 1] >> bit << bit, low, high)
        low, high = (middle, high) if mine >> bit & 1 else (low, middle)
    return bits
