"""What a node keeps of one neighbour: an attenuated Bloom filter for each direction (§II.B, §II.D)."""

from collections.abc import Iterable

from service.location.bloom import Shape
from service.model import NodeId


class Link:
    """``heard`` is the neighbour's attenuated filter, ``told`` our image of what it has of us; rows begin at 1.

    ``told`` has all that the neighbour has: what it left out as redundant, and perhaps more. ``ignores`` has, by
    source, the row from which on the neighbour wants no more of it. A link is ``open`` when both have the same shape.
    """

    __slots__ = ("heard", "ignores", "open", "rtt_s", "told")

    def __init__(self, rtt_s: float, shape: Shape) -> None:
        """Know nothing yet."""
        self.rtt_s = rtt_s
        self.emptied(shape)

    def emptied(self, shape: Shape) -> None:
        """Forget everything, and wait for the neighbour's :class:`Hello`."""
        self.heard = [0] * (shape.depth + 1)
        self.told = [0] * (shape.depth + 1)
        self.ignores: dict[NodeId, int] = {}
        self.open = False


def first_row(heard: list[int], mask: int, deepest: int) -> int | None:
    """Return the first row, up to the deepest, that may have the document of this mask."""
    for row in range(1, deepest + 1):
        if heard[row] & mask == mask:
            return row
    return None


def potential(heard: list[int], mask: int) -> float:
    """Return the paper's potential of a link for a document: 1/2 for row 1, 1/4 for row 2, and so on, in sum."""
    return sum(2.0**-row for row in range(1, len(heard)) if heard[row] & mask == mask)


def heard_of(links: Iterable[Link], row: int) -> int:
    """Return the union of what these neighbours say of a row."""
    bits = 0
    for link in links:
        bits |= link.heard[row]
    return bits
