"""Routing rows: the contacts by which any point is reached digit by digit (Corona §3.1).

Row i of a node holds, for each digit j other than its own, one contact that shares i digits with
the node and has j next. The rows of a node are the edges of the directed acyclic graph rooted at
it: every other node lies below exactly one contact.

Workers know the whole ring (at most about a thousand nodes) and polling sets are small, so the
protocol sends to a set's members directly; nothing is fanned out along the graph.
"""

from service.model import ChannelId, NodeId
from service.overlay.ids import BITS, digit, from_hex, shared_digits, to_hex
from service.overlay.ring import RingView

Rows = tuple[dict[int, NodeId], ...]
"""By prefix length: digit → contact. Digits below which there is no node are absent."""


def routing_rows(view: RingView, me: NodeId, base: int) -> Rows:
    """Return the rows of ``me``, as many as it takes until no other node shares its prefix.

    A contact is the node nearest to ``me`` among those with its digit. On even ids there are
    K = ceil(log_base N) rows.
    """
    others = [node for node in view.nearest(me, 2) if node != me]
    depth = max((shared_digits(from_hex(me), from_hex(node), base) + 1 for node in others), default=0)
    return tuple(_row(view, from_hex(me), index, base) for index in range(depth))


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


def _row(view: RingView, me: int, index: int, base: int) -> dict[int, NodeId]:
    unit = BITS - (base.bit_length() - 1) * (index + 1)
    row = {}
    for sibling in range(1, base):
        goal = me ^ sibling << unit
        contact = view.owner(to_hex(goal))
        if contact is not None and shared_digits(from_hex(contact), goal, base) > index:
            row[digit(goal, index, base)] = contact
    return row
