"""Transit-stub graphs of GT-ITM's kind (§III.B), the ways between servers in them, and overlays.

Six transit domains of ten nodes, seven stub domains at each of these nodes, twelve nodes in a stub domain on average:
5,100 nodes. Nodes of a transit domain are connected with probability 0.6, of a stub domain with 0.3, all transit
domains with each other, and 20 pairs of stub domains directly (the paper has "several").

The paper leaves latencies to GT-ITM. Here, too, they are distances in a plane, as a signal needs for them: transit
domains anywhere in a square of 60 ms, their nodes within 10 ms of the domain's centre, stub domains within 5 ms of
their transit node, stub nodes within 1 ms of their domain's centre.

*Overlays* link each server greedily with the nearest, or with as few interdomain edges as possible. In both, so many
links are made that a server reaches as many others within the filters' depth as the paper's (§III.C). Greedily, all
servers have the same number of neighbours, but for those that come too late: an index has constant size per server, and
is filter width times depth times neighbours (§I, §III.C). If each had its nearest ones, whether or not it is among
theirs, servers in a sparse part would have dozens of links, and filters that are all ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DOMAINS, TRANSIT, STUBS = 6, 10, 7
STUB_SIZES = (8, 16)
TRANSIT_EDGES, STUB_EDGES = 0.6, 0.3
SHORTCUTS = 20
SQUARE_MS, TRANSIT_MS, STUB_MS, NODE_MS = 60.0, 10.0, 5.0, 1.0

SECONDS_PER_BYTE = {"stub": 8 / 100e6, "access": 8 / 1.5e6, "transit": 8 / 45e6}
"""By kind of edge; one between a stub and a transit domain is an *access* edge, the paper's interdomain edge."""


@dataclass(frozen=True)
class Ways:
    """Between all pairs of servers, by the ways of least latency: square arrays, from row to column.

    A message of s bytes takes ``latency_s + s * seconds_per_byte``, the latter of the way's slowest edge;
    ``crossings`` is how many interdomain edges it goes along. ``domain`` is each server's stub domain.
    """

    latency_s: Floats
    seconds_per_byte: Floats
    crossings: Ints
    domain: Ints

    @property
    def servers(self) -> int:
        """How many there are."""
        return len(self.latency_s)

    @cached_property
    def lists(self) -> tuple[list[list[float]], list[list[float]], list[list[int]]]:
        """Latency, seconds per byte and crossings as lists, from which single values are read much faster."""
        return self.latency_s.tolist(), self.seconds_per_byte.tolist(), self.crossings.tolist()


class _Border(NamedTuple):
    """Of all transit nodes and those stub nodes that have an edge out of their domain."""

    latency_s: Floats
    crossings: Ints


def ways(servers: int, rng: np.random.Generator) -> Ways:
    """Draw a graph, choose so many of its nodes as servers, and find the ways between them."""
    transit_at = _transit_places(rng)
    transits = DOMAINS * TRANSIT
    sizes = rng.integers(STUB_SIZES[0], STUB_SIZES[1] + 1, transits * STUBS)
    centres = np.repeat(transit_at, STUBS, axis=0) + _around(transits * STUBS, STUB_MS, rng)
    stubs = [_stub(int(size), rng) for size in sizes]
    places = [centre + inside for centre, (inside, _) in zip(centres, stubs, strict=True)]
    borders, edges = _access(transit_at, places, rng)
    direct = _direct(transit_at, borders, edges, stubs, rng)
    border = _shortest(direct.latency_s, direct.crossings)
    return _between(_chosen(servers, sizes, transits, rng), borders, border, stubs)


def _transit_places(rng: np.random.Generator) -> Floats:
    centres = rng.uniform(0, SQUARE_MS, (DOMAINS, 2))
    return np.repeat(centres, TRANSIT, axis=0) + _around(DOMAINS * TRANSIT, TRANSIT_MS, rng)


def _around(count: int, radius_ms: float, rng: np.random.Generator) -> Floats:
    angle, length = rng.uniform(0, 2 * np.pi, count), radius_ms * np.sqrt(rng.uniform(0, 1, count))
    return np.stack([length * np.cos(angle), length * np.sin(angle)], axis=1)


def _connected(places: Floats, share: float, rng: np.random.Generator) -> Floats:
    """Return the lengths of edges drawn until they connect all places; infinite where there is none."""
    length = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    while True:
        drawn = np.triu(rng.random(length.shape) < share, 1)
        edges = np.where(drawn | drawn.T, length, np.inf)
        np.fill_diagonal(edges, 0)
        reached = np.linalg.matrix_power(np.isfinite(edges).astype(float), len(places)) > 0
        if reached.all():
            return edges


def _stub(size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the places of a stub domain's nodes around its centre, and the distances between them."""
    places = _around(size, NODE_MS, rng)
    edges = _connected(places, STUB_EDGES, rng)
    return places, _shortest(edges, np.zeros(edges.shape, dtype=np.int64)).latency_s


def _access(
    transit_at: Floats, places: list[Floats], rng: np.random.Generator
) -> tuple[list[tuple[int, int]], list[tuple[int, int, float, int]]]:
    """Draw which stub nodes have edges out of their domain, and these edges, between border nodes."""
    borders: dict[tuple[int, int], int] = {}
    edges: list[tuple[int, int, float, int]] = []

    def border(stub: int) -> tuple[int, Floats]:
        node = int(rng.integers(len(places[stub])))
        return borders.setdefault((stub, node), len(transit_at) + len(borders)), places[stub][node]

    for stub in range(len(places)):
        number, at = border(stub)
        edges.append((number, stub // STUBS, float(np.hypot(*(at - transit_at[stub // STUBS]))), 1))
    for _ in range(SHORTCUTS):
        (one, one_at), (other, other_at) = (border(int(stub)) for stub in rng.choice(len(places), 2, replace=False))
        edges.append((one, other, float(np.hypot(*(one_at - other_at))), 0))
    return list(borders), edges


def _direct(
    transit_at: Floats,
    borders: list[tuple[int, int]],
    edges: list[tuple[int, int, float, int]],
    stubs: list[tuple[Floats, Floats]],
    rng: np.random.Generator,
) -> _Border:
    transits = len(transit_at)
    count = transits + len(borders)
    latency, crossings = np.full((count, count), np.inf), np.zeros((count, count), dtype=np.int64)
    np.fill_diagonal(latency, 0)
    for domain in range(DOMAINS):
        inside = slice(domain * TRANSIT, (domain + 1) * TRANSIT)
        latency[inside, inside] = _connected(transit_at[inside], TRANSIT_EDGES, rng)
        for other in range(domain):
            one, two = (int(each * TRANSIT + rng.integers(TRANSIT)) for each in (domain, other))
            latency[one, two] = latency[two, one] = np.hypot(*(transit_at[one] - transit_at[two]))
    for one, (stub, node) in enumerate(borders, start=transits):
        for two, (same, onward) in enumerate(borders, start=transits):
            if stub == same:
                latency[one, two] = stubs[stub][1][node, onward]
    for one, two, length, crossed in edges:
        if length < latency[one, two]:
            latency[one, two] = latency[two, one] = length
            crossings[one, two] = crossings[two, one] = crossed
    return _Border(latency, crossings)


def _shortest(latency: Floats, crossings: Ints) -> _Border:
    """Return the shortest ways (Floyd and Warshall), and how many interdomain edges they have."""
    latency, crossings = latency.copy(), crossings.copy()
    for middle in range(len(latency)):
        over = latency[:, middle, None] + latency[middle]
        shorter = over < latency
        latency[shorter] = over[shorter]
        crossings[shorter] = (crossings[:, middle, None] + crossings[middle])[shorter]
    return _Border(latency, crossings)


def _chosen(servers: int, sizes: Ints, transits: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Choose nodes; as (stub domain, node in it), or (-1, transit node)."""
    every = [(-1, node) for node in range(transits)]
    every += [(stub, node) for stub, size in enumerate(sizes) for node in range(size)]
    return [every[place] for place in sorted(rng.choice(len(every), servers, replace=False))]


def _between(
    chosen: list[tuple[int, int]], borders: list[tuple[int, int]], border: _Border, stubs: list[tuple[Floats, Floats]]
) -> Ways:
    transits = len(border.latency_s) - len(borders)
    of_stub: dict[int, list[tuple[int, int]]] = {}
    for number, (stub, node) in enumerate(borders, start=transits):
        of_stub.setdefault(stub, []).append((number, node))
    exits = [
        [(node, 0.0)] if stub < 0 else [(number, stubs[stub][1][node, out]) for number, out in of_stub[stub]]
        for stub, node in chosen
    ]
    most = max(map(len, exits))
    numbers = np.array([[way[min(rank, len(way) - 1)][0] for rank in range(most)] for way in exits])
    to_exit = np.array([[way[min(rank, len(way) - 1)][1] for rank in range(most)] for way in exits])
    latency = np.full((len(chosen), len(chosen)), np.inf)
    crossings = np.zeros(latency.shape, dtype=np.int64)
    for one in range(most):
        for other in range(most):
            pair = np.ix_(numbers[:, one], numbers[:, other])
            over = to_exit[:, one, None] + border.latency_s[pair] + to_exit[None, :, other]
            shorter = over < latency
            latency[shorter] = over[shorter]
            crossings[shorter] = border.crossings[pair][shorter]
    domain = np.array([stub if stub >= 0 else -1 - node for stub, node in chosen])
    for stub in set(domain.tolist()):
        members = np.flatnonzero(domain == stub)
        nodes = [chosen[member][1] for member in members]
        inside = stubs[stub][1][np.ix_(nodes, nodes)] if stub >= 0 else np.zeros((1, 1))
        pair = np.ix_(members, members)
        crossings[pair] = np.where(inside <= latency[pair], 0, crossings[pair])
        latency[pair] = np.minimum(inside, latency[pair])
    transit = (domain < 0)[:, None] & (domain < 0)[None]
    quick = np.where(transit, SECONDS_PER_BYTE["transit"], SECONDS_PER_BYTE["stub"])
    per_byte = np.where(crossings > 0, SECONDS_PER_BYTE["access"], quick)
    return Ways(latency / 1000, per_byte, crossings, domain)


REACHED = 20.0
STEPS = 12
CANDIDATES = 60
"""So many of the nearest may become neighbours."""


class Overlay(StrEnum):
    """How neighbours are chosen with global knowledge; the product's own way is in ``service.location.neighbours``."""

    GREEDY = "greedy"
    RESTRICTED = "restricted"


Edges = list[tuple[int, int]]


def overlay(kind: Overlay, ways: Ways, depth: int, rng: np.random.Generator) -> Edges:
    """Return links with which servers reach 20 others on average within so many hops.

    Within one hop there is nothing to restrict: 20 links per server are 20 links.
    """
    luck = rng.random(ways.servers)
    pairs = _by_latency(ways)
    if kind is Overlay.GREEDY or depth == 1:
        return _fitted(lambda degree: _greedy(pairs, np.floor(degree + luck).astype(int).tolist()), depth, len(luck))
    return _fitted(lambda most: _restricted(pairs, ways, np.floor(most + luck).astype(int).tolist()), depth, len(luck))


def reached(edges: Edges, servers: int, depth: int) -> float:
    """Return how many others a server reaches on average within so many hops."""
    return sum(each.bit_count() for each in around(edges, servers, depth)[depth]) / servers - 1


def around(edges: Edges, servers: int, depth: int) -> list[list[int]]:
    """Return, by hops from 0 to the depth and by server, whom it reaches within so many: bit n is server n."""
    neighbours: list[list[int]] = [[] for _ in range(servers)]
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    found = [[1 << server for server in range(servers)]]
    for _ in range(depth):
        wider = found[-1].copy()
        for server, of in enumerate(neighbours):
            for other in of:
                wider[server] |= found[-1][other]
        found.append(wider)
    return found


def _fitted(links: Callable[[float], Edges], depth: int, servers: int) -> Edges:
    low, high = 0.0, REACHED * 2
    best: tuple[float, Edges] = (np.inf, [])
    for _ in range(STEPS):
        middle = (low + high) / 2
        edges = links(middle)
        found = reached(edges, servers, depth)
        best = min(best, (abs(found - REACHED), edges), key=lambda each: each[0])
        low, high = (middle, high) if found < REACHED else (low, middle)
    return best[1]


def _by_latency(ways: Ways) -> Edges:
    """Return all pairs of which one is among the other's nearest, the nearest first."""
    nearest = np.argsort(ways.latency_s, axis=1, kind="stable")[:, 1 : CANDIDATES + 1]
    each = np.repeat(np.arange(ways.servers), nearest.shape[1])
    pairs = np.unique(np.sort(np.stack([each, nearest.ravel()], axis=1)), axis=0)
    order = np.argsort(ways.latency_s[pairs[:, 0], pairs[:, 1]], kind="stable")
    return [(one, other) for one, other in pairs[order].tolist()]


def _greedy(pairs: Edges, left: list[int]) -> Edges:
    """Link who is nearest, while both have room."""
    edges: Edges = []
    for one, other in pairs:
        if left[one] > 0 and left[other] > 0:
            left[one] -= 1
            left[other] -= 1
            edges.append((one, other))
    return edges


def _restricted(pairs: Edges, ways: Ways, left: Sequence[int]) -> Edges:
    """Link all who need no interdomain edge, and let so many links go over each of these edges, the shortest first."""
    room = dict(zip(ways.domain.tolist(), left, strict=True))
    room.update((domain, len(pairs)) for domain in room if domain < 0)
    domain, crossings = ways.domain.tolist(), ways.lists[2]
    edges: Edges = []
    linked: set[tuple[int, int]] = set()
    for one, other in pairs:
        here, there = sorted((domain[one], domain[other]))
        if not crossings[one][other]:
            edges.append((one, other))
        elif room[here] > 0 and room[there] > 0 and (here, there) not in linked:
            linked.add((here, there))
            room[here] -= 1
            room[there] -= 1
            edges.append((one, other))
    return edges
