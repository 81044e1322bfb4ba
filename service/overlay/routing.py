"""Routing rows: the contacts by which any point is reached digit by digit (Corona §3.1).

Row i of a node holds, for each digit j other than its own, one contact that shares i digits with
the node and has j next. The rows of a node are the edges of the directed acyclic graph rooted at
it: every other node lies below exactly one contact.

Workers know the whole ring (at most about a thousand nodes) and polling sets are small, so the
protocol sends to a set's members directly; nothing is fanned out along the graph.
"""

from service.model import ChannelId, NodeId
from service.overlay.ids import digit, from_hex, shared_digits
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
