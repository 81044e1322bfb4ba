"""The static experiments (§III.C): each document is on one server, and is located both with and without filters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from service.location.bloom_filters import FilterShape, best_hashes, false_positive_rate
from service.simulate.location.graph import (
    Edges,
    OverlayKind,
    ServerDistances,
    build_overlay,
    mean_reach,
    servers_within,
)
from service.simulate.location.network import QueryWalk, SimulatedOverlay, TapestryMesh, UpdateAlgorithm, home_query_s

DEPTHS = (1, 2, 3, 4)
INDEX_BYTES = 1830.0
"""The paper's index size: the mean size of all filters of a server, one per link with all its rows, in bytes."""
INDEX_SIZES = (INDEX_BYTES, 2 * INDEX_BYTES, 4 * INDEX_BYTES)
ALGORITHMS_INDEX_BYTES = 4 * INDEX_BYTES
"""The index size with which update algorithms are compared (Figure 8). If the index were smaller, nearly all bits of
filters would be set, and updates would change almost nothing."""
ALGORITHMS = (
    UpdateAlgorithm.NONE,
    UpdateAlgorithm.DESTINATION,
    UpdateAlgorithm.SOURCE,
    UpdateAlgorithm.PRODUCT_DESTINATION,
)
"""The update algorithms that are compared with ``PRODUCT_SOURCE``, which all other runs use."""
DISTANCES_MS = (2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0)
"""Boundaries of the distance bins in Figure 11."""
ALMOST = 1.2
QUANTILES = (0.5, 0.86, 0.95, 0.99)
ANNOUNCE_BATCH = 40
"""Messages are delivered each time this many servers have added their documents. The number does not affect results."""


class LocationMethod(StrEnum):
    """How a document is located.

    - TAPESTRY uses Tapestry, a routing network.
    - HOME uses the document's home node, which is a server determined by a hash of the document.
    - HYBRID uses filters first, and TAPESTRY only if the query through filters fails.
    - HYBRID_HOME uses filters first, and HOME only if the query through filters fails.
    """

    TAPESTRY = "tapestry"
    HYBRID = "hybrid"
    HOME = "home node"
    HYBRID_HOME = "hybrid, home node"


class FilterIndex(msgspec.Struct, frozen=True):
    """The parameters of the filters of one run. A filter has one row for each distance in hops.

    - ``overlay`` is how servers are linked.
    - ``updates`` is the algorithm that updates filters.
    - ``depth`` is the number of rows of a filter.
    - ``bytes`` is the total size of a server's filters.
    - ``width`` is the number of bits of a row.
    - ``hashes`` is the number of hash functions.
    - ``links`` is the mean number of links of a server.
    - ``crossing_links`` is the total number of links between domains.
    - ``reached`` is the mean number of other servers within ``depth`` hops of a server.
    - ``even_failed`` is the predicted fraction of queries that fail. The prediction assumes that all rows of a server's
      filters contain the same number of documents.
    """

    overlay: OverlayKind
    depth: int
    updates: UpdateAlgorithm
    bytes: float
    width: int
    hashes: int
    links: float
    crossing_links: int
    reached: float
    even_failed: float


class StretchResult(msgspec.Struct, frozen=True):
    """The stretch of queries: the time that a query takes, divided by the latency to the server with the document.

    - ``way`` is how documents are located.
    - ``mean`` is the mean stretch over all queries.
    - ``by_distance`` contains the mean stretch for each range of latencies. ``DISTANCES_MS`` contains the boundaries
      between these ranges.
    - ``p99_by_distance`` contains the 99th percentile of the stretch for each range.

    A value is None if no query is in the range.
    """

    way: LocationMethod
    mean: float
    by_distance: tuple[float | None, ...]
    p99_by_distance: tuple[float | None, ...]


class StaticResult(msgspec.Struct, frozen=True):
    """The results of one run. Filters forward a query; if they do not find the document, Tapestry answers the query.

    Tapestry is a routing network. These fields are about queries:

    - ``found`` is the fraction of queries that filters answer.
    - ``failed`` is the fraction of queries that filters forward without finding the document.
    - ``cost`` contains the quantiles ``QUANTILES`` of the cost of failed queries. A query's cost is the time that
      it takes, divided by the time that Tapestry alone would take.
    - ``failed_almost`` is the fraction of failed queries with a cost of at most 1.2.

    These fields are means for adding one new document; bytes are counted on edges between domains:

    - ``messages`` is the number of filter updates.
    - ``crossed_bytes`` is the size of the filter updates in bytes.
    - ``pointer_bytes`` is the size of Tapestry's messages in bytes.
    - ``missing`` is the fraction of servers with filters that lack the document. Only servers within the filters'
      depth are counted, because only their filters should contain it.
    """

    index: FilterIndex
    found: float
    failed: float
    failed_almost: float
    cost: tuple[float, ...]
    crossed_bytes: float
    pointer_bytes: float
    messages: float
    missing: float
    located: tuple[StretchResult, ...]

    @property
    def document_bytes(self) -> float:
        """The bytes that a new document costs: the sum of ``crossed_bytes`` and ``pointer_bytes`` (Figure 8)."""
        return self.crossed_bytes + self.pointer_bytes


@dataclass(frozen=True)
class StaticSetup:
    """The data that all static runs on the same network share.

    - ``documents`` contains the names of each server's documents.
    - ``queries`` contains tuples (client, document, server that has the document). Each client is itself one of the
      servers.
    """

    distances: ServerDistances
    tapestry: TapestryMesh
    documents: list[list[str]]
    queries: list[tuple[int, str, int]]
    by_tapestry_s: list[float]
    """The time of each query in seconds if it uses Tapestry alone."""
    new: list[str]
    """The names of new documents, one per server. They are added after all queries."""
    pointer_bytes: float
    """Mean number of bytes that cross edges between domains when one new document is published in Tapestry."""


class OverlayLinks(NamedTuple):
    """The links between servers, and the expected number of documents in the servers' filters.

    A filter has a row for each distance in hops. ``loads`` contains, for each server, one number for each row of
    the filters that the server receives: the expected number of documents in this row.
    """

    kind: OverlayKind
    depth: int
    edges: Edges
    loads: list[list[float]]


def place_documents(distances: ServerDistances, documents: int, queries: int, rng: np.random.Generator) -> StaticSetup:
    """Place documents on servers and publish them in Tapestry; draw queries for documents on other servers.

    Tapestry is a routing network that locates documents without filters.

    - ``documents`` is the number of documents per server.
    - ``queries`` is the number of queries that each server sends.
    """
    tapestry = TapestryMesh(distances, rng)
    placed = [[f"{server}/{number}" for number in range(documents)] for server in range(distances.servers)]
    for server, here in enumerate(placed):
        for document in here:
            tapestry.publish(server, document)
    drawn_queries: list[tuple[int, str, int]] = []
    for server in range(distances.servers):
        for place in rng.choice((distances.servers - 1) * documents, queries, replace=False).tolist():
            holder = (server + 1 + place // documents) % distances.servers
            drawn_queries.append((server, placed[holder][place % documents], holder))
    by_tapestry_s = [tapestry.locate(server, document).time_s for server, document, _ in drawn_queries]
    new = [f"{server}/new" for server in range(distances.servers)]
    pointer_bytes = float(np.mean([tapestry.publish(server, document) for server, document in enumerate(new)]))
    return StaticSetup(distances, tapestry, placed, drawn_queries, by_tapestry_s, new, pointer_bytes)


def run_all(setup: StaticSetup, rng: np.random.Generator) -> Iterator[StaticResult]:
    """Run all static experiments, and yield the result of each run.

    Filters of each size are used with both overlays, which differ in how servers are linked. The update algorithms are
    compared only with the restricted overlay, which has as few links between domains as possible.
    """
    for kind in OverlayKind:
        for depth in DEPTHS if kind is OverlayKind.GREEDY else DEPTHS[1:]:
            links = link_servers(setup.distances, kind, depth, len(setup.documents[0]), rng)
            for index_bytes in INDEX_SIZES:
                yield run(
                    setup, links, filter_index(setup.distances, links, index_bytes, UpdateAlgorithm.PRODUCT_SOURCE)
                )
            if kind is OverlayKind.RESTRICTED:
                for updates in ALGORITHMS:
                    yield run(setup, links, filter_index(setup.distances, links, ALGORITHMS_INDEX_BYTES, updates))


def link_servers(
    distances: ServerDistances, kind: OverlayKind, depth: int, documents: int, rng: np.random.Generator
) -> OverlayLinks:
    """Link servers, and estimate how many documents each row of their filters contains.

    A filter has a row for each distance in hops. Each server has ``documents`` documents. ``kind`` is how servers are
    linked, and ``depth`` is the number of rows of a filter.
    """
    # The expected numbers are estimated from a trial with one document per server and wide filters.
    edges = build_overlay(kind, distances, depth, rng)
    network = SimulatedOverlay(distances, edges, FilterShape(1, 1 << 13, 1, depth), UpdateAlgorithm.PRODUCT_SOURCE)
    for server in range(distances.servers):
        network.change_documents(server, [str(server)])
    network.deliver_all()
    loads = [[documents * row for row in rows] for rows in network.row_documents()]
    return OverlayLinks(kind, depth, edges, loads)


def filter_index(
    distances: ServerDistances, links: OverlayLinks, index_bytes: float, updates: UpdateAlgorithm
) -> FilterIndex:
    """Return the parameters of filters whose total size is ``index_bytes`` bytes per server.

    The number of hash functions is optimal for the expected number of documents.
    """
    each = 2 * len(links.edges) / distances.servers
    width = int(8 * index_bytes / (each * links.depth))
    hashes = best_hashes(width, [row for rows in links.loads for row in rows])
    crossing = sum(bool(distances.crossings[one, other]) for one, other in links.edges)
    there = mean_reach(links.edges, distances.servers, links.depth)
    even = _even_failed(width, links.loads)
    return FilterIndex(links.kind, links.depth, updates, index_bytes, width, hashes, each, crossing, there, even)


def _even_failed(width: int, loads: Sequence[Sequence[float]]) -> float:
    rows = [(fmean(of_node), len(of_node)) for of_node in loads if of_node]
    hashes = best_hashes(width, [load for load, _ in rows])
    return fmean(1 - (1 - false_positive_rate(width, hashes, load)) ** count for load, count in rows)


def filter_shape(index: FilterIndex) -> FilterShape:
    """Convert the filter parameters of an experiment to the type that the product's nodes use."""
    return FilterShape(1, index.width, index.hashes, index.depth)


def run(setup: StaticSetup, links: OverlayLinks, used: FilterIndex) -> StaticResult:
    """Fill the filters, execute all queries, then add a new document to each server; return the measurements.

    - ``setup`` contains the documents and queries.
    - ``links`` contains the links between servers.
    - ``used`` contains the parameters of the filters.
    """
    network = SimulatedOverlay(setup.distances, links.edges, filter_shape(used), used.updates)
    for server, documents in enumerate(setup.documents):
        network.change_documents(server, documents)
        if server % ANNOUNCE_BATCH == 0:
            network.deliver_all()
    network.deliver_all()
    walks = [network.walk(server, document, (holder,)) for server, document, holder in setup.queries]
    failed = [place for place, walk in enumerate(walks) if walk.hops and not walk.found]
    cost = [_fallback_s(setup, walks[place], place) / setup.by_tapestry_s[place] for place in failed]
    network.crossed_bytes = network.messages = 0
    for server, document in enumerate(setup.new):
        network.change_documents(server, [document])
        network.deliver_all()
    return StaticResult(
        index=used,
        found=sum(walk.found for walk in walks) / len(walks),
        failed=len(failed) / len(walks),
        failed_almost=float(np.mean([each <= ALMOST for each in cost])) if cost else 1.0,
        cost=tuple(np.quantile(cost or [1.0], QUANTILES).tolist()),
        crossed_bytes=network.crossed_bytes / setup.distances.servers,
        pointer_bytes=setup.pointer_bytes,
        messages=network.messages / setup.distances.servers,
        missing=network.missing_share(servers_within(links.edges, setup.distances.servers, links.depth), setup.new),
        located=tuple(_located(setup, walks)) if used.bytes == INDEX_BYTES else (),
    )


def _fallback_s(setup: StaticSetup, walk: QueryWalk, place: int) -> float:
    """Return the time in seconds that a query takes if it fails in the filters and then uses Tapestry.

    Tapestry, a routing network, takes over at the last server of ``walk``, the query's path through the filters.
    ``place`` is the index of the query in ``setup.queries``.
    """
    return walk.time_s + setup.tapestry.locate(walk.at, setup.queries[place][1]).time_s


def _located(setup: StaticSetup, walks: list[QueryWalk]) -> Iterable[StretchResult]:
    ideal_s = np.array([setup.distances.latency_s[server, holder] for server, _, holder in setup.queries])
    home = [home_query_s(setup.tapestry, server, document, holder) for server, document, holder in setup.queries]
    taken: dict[LocationMethod, list[float]] = {
        LocationMethod.TAPESTRY: setup.by_tapestry_s,
        LocationMethod.HYBRID: [
            walk.time_s if walk.found else _fallback_s(setup, walk, place) for place, walk in enumerate(walks)
        ],
        LocationMethod.HOME: home,
        LocationMethod.HYBRID_HOME: [
            walk.time_s if walk.found else walk.time_s + home_query_s(setup.tapestry, walk.at, document, holder)
            for walk, (_, document, holder) in zip(walks, setup.queries, strict=True)
        ],
    }
    bins = np.digitize(ideal_s * 1000, DISTANCES_MS)
    for way, times in taken.items():
        stretch = np.array(times) / ideal_s
        groups = [stretch[bins == place] for place in range(len(DISTANCES_MS) + 1)]
        yield StretchResult(
            way,
            float(stretch.mean()),
            tuple(float(group.mean()) if group.size else None for group in groups),
            tuple(float(np.quantile(group, 0.99)) if group.size else None for group in groups),
        )
