"""Routing of queries along attenuated Bloom filters: the neighbour to which a query goes next (§II.C)."""

from collections.abc import Iterable

import msgspec

from service.location.bloom_filters import Link
from service.model import NodeId


class LocationQuery(msgspec.Struct, frozen=True):
    """A query in transit, which searches for a node that has a copy of ``document``.

    - ``visited``: the nodes on the query's path, beginning with the node that started the query.
    - ``max_row``: the deepest row of filters that the next node searches.

    Deviation: a node that received the query because of a match in row i searches only rows below i, not all d rows. If
    none of them matches, the earlier match was a false positive or is outdated, and the query fails at once instead of
    after d hops. A query also never follows a row deeper than its number of remaining hops.
    """

    document: str
    visited: tuple[NodeId, ...]
    max_row: int


def first_row(received: list[int], mask: int, deepest: int) -> int | None:
    """Return the number of the first row of ``received`` that has all bits of ``mask``; None if no row has.

    ``received`` are the rows of a neighbour's filter. Only the rows up to the number ``deepest`` are searched.
    """
    for row in range(1, deepest + 1):
        if received[row] & mask == mask:
            return row
    return None


def next_hop(query: LocationQuery, mask: int, links: Iterable[tuple[NodeId, Link]]) -> tuple[NodeId, int] | None:
    """Return the neighbour to which a query goes next, and the number of the row that matched; None if the query fails.

    ``mask`` is the filter of the query's document (:func:`document_mask`). ``links`` are pairs (neighbour, link), the
    nearest neighbour first. Each row is searched in all links before the next row.
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
