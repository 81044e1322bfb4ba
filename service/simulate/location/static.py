"""The static experiments (§III.C): each document on one server; Tapestry and home nodes, alone and with filters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from service.location.bloom import FilterShape, best_hashes, estimate_documents, false_positive_rate
from service.simulate.location.graph import Edges, Overlay, Ways, around, overlay, reached
from service.simulate.location.network import Network, Tapestry, Updates, Walk, home_s

DEPTHS = (1, 2, 3, 4)
INDEX_BYTES = 1830.0
"""The paper's index: so much is kept per server on average, of all links and rows together."""
INDEX_SIZES = (INDEX_BYTES, 2 * INDEX_BYTES, 4 * INDEX_BYTES)
ALGORITHMS_INDEX_BYTES = 4 * INDEX_BYTES
"""For Figure 8: in filters that are nearly full, updates change nothing, whatever the algorithm."""
ALGORITHMS = (Updates.NONE, Updates.DESTINATION, Updates.SOURCE, Updates.PRODUCT_DESTINATION)
"""What is compared with the product's source filtering, which all other runs have."""
DISTANCES_MS = (2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0)
"""Between these, stretch is averaged for Figure 11."""
ALMOST = 1.2
QUANTILES = (0.5, 0.86, 0.95, 0.99)
AT_ONCE = 40
"""So many servers announce their documents at the same time: it is all the same for what comes of it."""


class Way(StrEnum):
    """How a document is located."""

    TAPESTRY = "tapestry"
    HYBRID = "hybrid"
    HOME = "home node"
    HYBRID_HOME = "hybrid, home node"


class Index(msgspec.Struct, frozen=True):
    """What the filters of one run are like; ``links`` is per server, ``crossing_links`` of all servers.

    ``even_failed`` is the share of failed queries, by formula, if all rows of a server had as many documents.
    """

    overlay: Overlay
    depth: int
    updates: Updates
    bytes: float
    width: int
    hashes: int
    links: float
    crossing_links: int
    reached: float
    even_failed: float


class Located(msgspec.Struct, frozen=True):
    """Routing stretch by one way, by the distance to the document."""

    way: Way
    mean: float
    by_distance: tuple[float | None, ...]
    p99_by_distance: tuple[float | None, ...]


class Static(msgspec.Struct, frozen=True):
    """One run. ``failed`` are queries that went to a neighbour, and fell back on Tapestry.

    ``failed_almost`` is the share of them that took at most 20 % longer than by Tapestry at once, ``cost`` how much
    longer the quantiles took. ``crossed_bytes`` are of the updates for a new document, ``pointer_bytes`` of Tapestry's
    messages for it; ``missing`` is the share of servers near it that do not find it where it is in their filters.
    """

    index: Index
    found: float
    failed: float
    failed_almost: float
    cost: tuple[float, ...]
    crossed_bytes: float
    pointer_bytes: float
    messages: float
    missing: float
    located: tuple[Located, ...]


@dataclass(frozen=True)
class World:
    """What all static runs on a graph have in common. A query is (who asks, what, who has it)."""

    ways: Ways
    tapestry: Tapestry
    documents: list[list[str]]
    queries: list[tuple[int, str, int]]
    by_tapestry_s: list[float]
    """What each query takes by Tapestry at once."""
    new: list[str]
    """Another document of each server, which comes when all queries have been asked."""
    pointer_bytes: float
    """What goes along interdomain edges to publish one of these."""


class Links(NamedTuple):
    """An overlay, and how many documents each server's rows will have."""

    kind: Overlay
    depth: int
    edges: Edges
    loads: list[list[float]]


def world(ways: Ways, documents: int, queries: int, rng: np.random.Generator) -> World:
    """Place so many documents on each server, publish them, and draw so many queries of each, for others' documents."""
    tapestry = Tapestry(ways, rng)
    placed = [[f"{server}/{number}" for number in range(documents)] for server in range(ways.servers)]
    for server, here in enumerate(placed):
        for document in here:
            tapestry.publish(server, document)
    asked: list[tuple[int, str, int]] = []
    for server in range(ways.servers):
        for place in rng.choice((ways.servers - 1) * documents, queries, replace=False).tolist():
            holder = (server + 1 + place // documents) % ways.servers
            asked.append((server, placed[holder][place % documents], holder))
    by_tapestry_s = [tapestry.locate(server, document).time_s for server, document, _ in asked]
    new = [f"{server}/new" for server in range(ways.servers)]
    pointer_bytes = float(np.mean([tapestry.publish(server, document) for server, document in enumerate(new)]))
    return World(ways, tapestry, placed, asked, by_tapestry_s, new, pointer_bytes)


def runs(of: World, rng: np.random.Generator) -> Iterator[Static]:
    """Yield all runs: every index size on both overlays, and all update algorithms on the restricted one."""
    for kind in Overlay:
        for depth in DEPTHS if kind is Overlay.GREEDY else DEPTHS[1:]:
            links = linked(of.ways, kind, depth, len(of.documents[0]), rng)
            for index_bytes in INDEX_SIZES:
                yield run(of, links, index(of.ways, links, index_bytes, Updates.PRODUCT_SOURCE))
            if kind is Overlay.RESTRICTED:
                for updates in ALGORITHMS:
                    yield run(of, links, index(of.ways, links, ALGORITHMS_INDEX_BYTES, updates))


def linked(ways: Ways, kind: Overlay, depth: int, documents: int, rng: np.random.Generator) -> Links:
    """Return an overlay. What its filters will have is measured with one document per server, in wide filters."""
    edges = overlay(kind, ways, depth, rng)
    probe = FilterShape(1, 1 << 13, 1, depth)
    network = Network(ways, edges, probe, Updates.PRODUCT_SOURCE)
    for server in range(ways.servers):
        network.change(server, [str(server)])
    network.quiet()
    rows = ([bits for link in node.links.values() for bits in link.received[1:]] for node in network.nodes)
    loads = [[documents * estimate_documents(probe, bits.bit_count()) for bits in of_node] for of_node in rows]
    return Links(kind, depth, edges, loads)


def index(ways: Ways, links: Links, index_bytes: float, updates: Updates) -> Index:
    """Return filters that take so many bytes, with the best number of hashes for what will be in them."""
    each = 2 * len(links.edges) / ways.servers
    width = int(8 * index_bytes / (each * links.depth))
    hashes = best_hashes(width, [row for rows in links.loads for row in rows])
    crossing = sum(bool(ways.crossings[one, other]) for one, other in links.edges)
    there = reached(links.edges, ways.servers, links.depth)
    even = _even_failed(width, links.loads)
    return Index(links.kind, links.depth, updates, index_bytes, width, hashes, each, crossing, there, even)


def _even_failed(width: int, loads: Sequence[Sequence[float]]) -> float:
    rows = [(fmean(of_node), len(of_node)) for of_node in loads if of_node]
    hashes = best_hashes(width, [load for load, _ in rows])
    return fmean(1 - (1 - false_positive_rate(width, hashes, load)) ** count for load, count in rows)


def shape(of: Index) -> FilterShape:
    """Return the product's word for it."""
    return FilterShape(1, of.width, of.hashes, of.depth)


def run(of: World, links: Links, used: Index) -> Static:
    """Fill the filters, ask all queries, and then add a document to each server."""
    network = Network(of.ways, links.edges, shape(used), used.updates)
    for server, documents in enumerate(of.documents):
        network.change(server, documents)
        if server % AT_ONCE == 0:
            network.quiet()
    network.quiet()
    walks = [network.walk(server, document, (holder,)) for server, document, holder in of.queries]
    failed = [place for place, walk in enumerate(walks) if walk.hops and not walk.found]
    cost = [_after(of, walks[place], place) / of.by_tapestry_s[place] for place in failed]
    network.crossed_bytes = network.messages = 0
    for server, document in enumerate(of.new):
        network.change(server, [document])
        network.quiet()
    return Static(
        index=used,
        found=sum(walk.found for walk in walks) / len(walks),
        failed=len(failed) / len(walks),
        failed_almost=float(np.mean([each <= ALMOST for each in cost])) if cost else 1.0,
        cost=tuple(np.quantile(cost or [1.0], QUANTILES).tolist()),
        crossed_bytes=network.crossed_bytes / of.ways.servers,
        pointer_bytes=of.pointer_bytes,
        messages=network.messages / of.ways.servers,
        missing=network.missing(around(links.edges, of.ways.servers, links.depth), of.new),
        located=tuple(_located(of, walks)) if used.bytes == INDEX_BYTES else (),
    )


def _after(of: World, walk: Walk, place: int) -> float:
    """Return what a query takes by Tapestry from where its walk failed, with the walk."""
    return walk.time_s + of.tapestry.locate(walk.at, of.queries[place][1]).time_s


def _located(of: World, walks: list[Walk]) -> Iterable[Located]:
    ideal_s = np.array([of.ways.latency_s[server, holder] for server, _, holder in of.queries])
    home = [home_s(of.tapestry, server, document, holder) for server, document, holder in of.queries]
    taken: dict[Way, list[float]] = {
        Way.TAPESTRY: of.by_tapestry_s,
        Way.HYBRID: [walk.time_s if walk.found else _after(of, walk, place) for place, walk in enumerate(walks)],
        Way.HOME: home,
        Way.HYBRID_HOME: [
            walk.time_s if walk.found else walk.time_s + home_s(of.tapestry, walk.at, document, holder)
            for walk, (_, document, holder) in zip(walks, of.queries, strict=True)
        ],
    }
    bins = np.digitize(ideal_s * 1000, DISTANCES_MS)
    for way, times in taken.items():
        stretch = np.array(times) / ideal_s
        groups = [stretch[bins == place] for place in range(len(DISTANCES_MS) + 1)]
        yield Located(
            way,
            float(stretch.mean()),
            tuple(float(group.mean()) if group.size else None for group in groups),
            tuple(float(np.quantile(group, 0.99)) if group.size else None for group in groups),
        )
