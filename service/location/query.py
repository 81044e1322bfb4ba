"""The walk of a query to the nearest copy (§II.C)."""

from collections.abc import Iterable

import msgspec

from service.location.links import Link, first_row
from service.model import NodeId


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
