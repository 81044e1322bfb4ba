"""Routing of queries for documents: the neighbour to which a query goes next (Rhea and Kubiatowicz §II.C)."""

from collections.abc import Iterable

import msgspec

from service.location.bloom_filters import Link
from service.model import NodeId


class LocationQuery(msgspec.Struct, frozen=True):
    """A query in transit, which searches for a node that has a copy of ``document``.

    - ``visited``: the nodes on the query's path, beginning with the node that started the query.
    - ``max_row``: the deepest row of filters that the next node searches. Row i contains the documents at i hops.

    Deviation from the paper: a node that received the query because of a match in row i searches only the rows with
    lower numbers than i, not all d rows. If none of them matches, the earlier match was false or is outdated. The query
    then fails at once instead of after d hops. Likewise, a query never follows a row whose number is greater than the
    number of hops that the query has left.
    """

    document: str
    visited: tuple[NodeId, ...]
    max_row: int


def first_row(received: list[int], mask: int, deepest: int) -> int | None:
    """Return the number of the first row of a filter that has all bits of ``mask``; None if no row has.

    - ``received``: the rows of the filter, which a neighbour has sent.
    - ``deepest``: the number of the last row to search.
    """
    for row in range(1, deepest + 1):
        if received[row] & mask == mask:
            return row
    return None


def next_hop(query: LocationQuery, mask: int, links: Iterable[tuple[NodeId, Link]]) -> tuple[NodeId, int] | None:
    """Return the neighbour to which a query goes next, and the number of the filter row that matched.

    - ``mask``: the bits that the query's document sets in a filter (:func:`document_mask`).
    - ``links``: pairs (neighbour, link), the nearest neighbour first.

    Each row is searched in all links before the next row. The result is None if the query fails.
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
