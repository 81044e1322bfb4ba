"""Attenuated Bloom filters of one neighbour, for each direction (§II.B, §II.D), and the next hop of a query (§II.C)."""

from collections.abc import Iterable

import msgspec

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


def heard_of(links: Iterable[Link], row: int) -> int:
    """Return the union of what these neighbours say of a row."""
    bits = 0
    for link in links:
        bits |= link.heard[row]
    return bits


class Query(msgspec.Struct, frozen=True):
    """A query on its way. ``visited`` begins with who asks; ``rows`` is how deep the next node may look.

    We deviate: a node that was said to be i hops away from a copy looks only into its rows below i, not into all d.
    If it finds nothing there, what led here was a false positive or is outdated, and the query has failed then and
    there instead of after d hops. It also never follows a row that is deeper than the hops it has left.
    """

    document: str
    visited: tuple[NodeId, ...]
    rows: int


def next_hop(query: Query, mask: int, links: Iterable[tuple[NodeId, Link]]) -> tuple[NodeId, int] | None:
    """Return the neighbour to go on to, and the row that says so; None where the query fails.

    ``links`` are nearest first. A row is looked for in all links before the next one is.
    """
    best: tuple[NodeId, int] | None = None
    deepest = query.rows
    for neighbour, link in links:
        if not deepest:
            break
        row = first_row(link.heard, mask, deepest)
        if row is not None and neighbour not in query.visited:
            best, deepest = (neighbour, row), row - 1
    return best
