"""Which parts of the id space a node may own, by prefix: where it has to look for its channels."""

from collections.abc import Sequence

from service.model import NodeId
from service.overlay.ids import BITS, from_hex
from service.overlay.ring import RingView


def owned_prefixes(view: RingView, me: NodeId, digits: int = 2) -> tuple[str, ...]:
    """Return the prefixes of so many hex digits under which ``me`` is the owner of any point.

    A point's owner is found bit by bit: of the nodes that are still nearest, those that agree with
    the point's next bit stay, or all of them if none agrees.
    """
    points = tuple(from_hex(node.id) for node in view.nodes)
    mine, bits = from_hex(me), 4 * digits
    return tuple(f"{prefix:0{digits}x}" for prefix in range(1 << bits) if mine in _nearest(points, prefix, bits))


def _nearest(points: Sequence[int], prefix: int, bits: int) -> Sequence[int]:
    for place in range(bits):
        wanted = prefix >> (bits - 1 - place) & 1
        agreeing = [point for point in points if point >> (BITS - 1 - place) & 1 == wanted]
        points = agreeing or points
    return points
