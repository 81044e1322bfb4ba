"""Routing of queries for documents: which neighbour a query goes to next (Rhea and Kubiatowicz §II.C)."""

from collections.abc import Iterable

import msgspec

from service.location.bloom_filters import Link
from service.model import NodeId


class LocationQuery(msgspec.Struct, frozen=True):
    """A query in transit that searches for a node with a copy of ``document``.

    - ``visited``: the nodes on the query's path, beginning with the node that started the query.
    - ``max_row``: the number of the last filter row that the next node searches. Row i contains the documents at a
      distance of i hops.

    Each hop should bring the query nearer to the document. After a match in row i, the next node therefore searches
    only the rows before row i. If none of them matches, the earlier match was wrong or is outdated, and the query
    fails at once. Deviation: in the paper, a query fails only after as many hops as there are rows.
    """

    document: str
    visited: tuple[NodeId, ...]
    max_row: int


def first_row(received: list[int], mask: int, deepest: int) -> int | None:
    """Return the number of the first filter row that may contain a document; None if there is no such row.

    - ``received``: the rows of a filter that a neighbour has sent.
    - ``mask``: the bits that the document sets. A row may contain the document if all these bits are set in the row.
    - ``deepest``: the number of the last row to search.
    """
    for row in range(1, deepest + 1):
        if received[row] & mask == mask:
            return row
    return None


def next_hop(query: LocationQuery, mask: int, links: Iterable[tuple[NodeId, Link]]) -> tuple[NodeId, int] | None:
    """Return (neighbour, row): the neighbour to which a query goes next, and the filter row that matched.

    - ``mask``: the bits that the query's document sets in a filter (:func:`document_mask`).
    - ``links``: pairs (neighbour, link), the nearest neighbour first.

    The query goes to a neighbour that it has not visited yet. The neighbour whose filter matches in the lowest row is
    chosen; if there are several, the nearest of them. The result is None if no filter matches; the query then fails.
    """
    best: tuple[NodeId, int] | None = None
    deepest = query.max_row
    for neighbour, link in links:
        if not deepest:
            break
        row = first_row(link.received, mask, deepest)
        if row is not None and neighbour not in query.visited:
            best, deepest = (neighbour, row), row - 1
    return best
