"""Random networks like those of the generator GT-ITM (§III.B), distances between their servers, and overlays.

A network is a *transit-stub graph*. Its transit domains are connected with each other. Several stub domains are
connected to each node of a transit domain. An *overlay* links servers as neighbours:

- The *greedy* overlay links each server to the nearest servers.
- The *restricted* overlay has as few edges between domains as possible.

Deviation from the paper: latencies are distances in a plane, in ms. The paper takes latencies from GT-ITM.
"""

# A graph has six transit domains of ten nodes, seven stub domains at each of these nodes, and twelve nodes per stub
# domain on average: 5,100 nodes. Two nodes of a transit domain are connected with probability 0.6, two nodes of a stub
# domain with 0.3. All transit domains are connected with each other, and 20 pairs of stub domains are connected
# directly (in the paper "several"). The centres of transit domains are anywhere in a square of 60 ms, their nodes
# within 10 ms of the centre, the centres of stub domains within 5 ms of their transit node, and stub nodes within 1 ms
# of their domain's centre.
#
# The number of links of an overlay is chosen so that a server reaches as many others within the filters' depth as in
# the paper (§III.C). All servers of a greedy overlay have about the same number of neighbours, because the filters of
# each server have the same total size, width times depth times neighbours (§I, §III.C). If instead each server chose
# its nearest servers, and they had to accept, some servers would have dozens of links, and saturated filters.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from service.simulate.numerics import Floats, Ints

DOMAINS, TRANSIT, STUBS = 6, 10, 7
STUB_SIZES = (8, 16)
TRANSIT_EDGES, STUB_EDGES = 0.6, 0.3
SHORTCUTS = 20
SQUARE_MS, TRANSIT_MS, STUB_MS, NODE_MS = 60.0, 10.0, 5.0, 1.0

SECONDS_PER_BYTE = {"stub": 8 / 100e6, "access": 8 / 1.5e6, "transit": 8 / 45e6}
"""Transmission time of a byte by kind of edge: within a stub domain, between a stub and a transit domain (*access*),
and between transit nodes."""


@dataclass(frozen=True)
class ServerDistances:
    """Properties of the fastest paths between all pairs of servers.

    All arrays are square, except ``domain``.

    - ``latency_s``, ``seconds_per_byte``: a message of s bytes takes ``latency_s + s * seconds_per_byte`` seconds. The
      slowest edge of the path determines ``seconds_per_byte``.
    - ``crossings`` is the number of edges between a stub domain and a transit domain on the path.
    - ``domain`` contains the index of each server's stub domain, or a negative value if the server is in a transit
      domain.
    """

    latency_s: Floats
    seconds_per_byte: Floats
    crossings: Ints
    domain: Ints

    @property
    def servers(self) -> int:
        """The number of servers."""
        return len(self.latency_s)

    @cached_property
    def lists(self) -> tuple[list[list[float]], list[list[float]], list[list[int]]]:
        """The arrays ``latency_s``, ``seconds_per_byte`` and ``crossings`` as lists, for fast access to elements."""
        return self.latency_s.tolist(), self.seconds_per_byte.tolist(), self.crossings.tolist()


def draw_distances(servers: int, rng: np.random.Generator) -> ServerDistances:
    """Draw a random network, choose ``servers`` of its nodes as servers, and return the servers' distances."""
    transit_at = _transit_places(rng)
    transits = DOMAINS * TRANSIT
    sizes = rng.integers(STUB_SIZES[0], STUB_SIZES[1] + 1, transits * STUBS)
    centres = np.repeat(transit_at, STUBS, axis=0) + _around(transits * STUBS, STUB_MS, rng)
    stubs = [_draw_stub_domain(int(size), rng) for size in sizes]
    places = [centre + inside for centre, (inside, _) in zip(centres, stubs, strict=True)]
    borders, edges = _draw_access_edges(transit_at, places, rng)
    border = _shortest_paths(*_direct_distances(transit_at, borders, edges, stubs, rng))
    return _server_distances(_choose_servers(servers, sizes, transits, rng), borders, border, stubs)


def _transit_places(rng: np.random.Generator) -> Floats:
    centres = rng.uniform(0, SQUARE_MS, (DOMAINS, 2))
    return np.repeat(centres, TRANSIT, axis=0) + _around(DOMAINS * TRANSIT, TRANSIT_MS, rng)


def _around(count: int, radius_ms: float, rng: np.random.Generator) -> Floats:
    angle, length = rng.uniform(0, 2 * np.pi, count), radius_ms * np.sqrt(rng.uniform(0, 1, count))
    return np.stack([length * np.cos(angle), length * np.sin(angle)], axis=1)


def _draw_edges(places: Floats, share: float, rng: np.random.Generator) -> Floats:
    """Draw random edges that connect all nodes; return a square matrix with the lengths of the edges.

    Each pair of nodes has an edge with probability ``share``. If the edges do not connect all nodes, all edges are
    drawn again. ``places`` contains the coordinates of each node in the plane. The length is infinite for pairs without
    an edge.
    """
    length = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    while True:
        drawn = np.triu(rng.random(length.shape) < share, 1)
        edges = np.where(drawn | drawn.T, length, np.inf)
        np.fill_diagonal(edges, 0)
        reached = np.linalg.matrix_power(np.isfinite(edges).astype(float), len(places)) > 0
        if reached.all():
            return edges


def _draw_stub_domain(size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw ``size`` connected nodes that are near each other (a stub domain).

    Return the nodes' positions relative to their centre, and the distances between them in ms.
    """
    places = _around(size, NODE_MS, rng)
    edges = _draw_edges(places, STUB_EDGES, rng)
    return places, _shortest_paths(edges, np.zeros(edges.shape, dtype=np.int64))[0]


def _draw_access_edges(
    transit_at: Floats, places: list[Floats], rng: np.random.Generator
) -> tuple[list[tuple[int, int]], list[tuple[int, int, float, int]]]:
    """Draw the edges between domains: from each stub domain to its transit node, and between some stub domains.

    Return (border nodes, edges):

    - A border node is a node in a stub domain that has an edge to another domain. It is given as a pair (stub domain,
      index of the node in this domain).
    - An edge is a tuple (node, node, length in ms, 1 if one of the nodes is a transit node else 0). Nodes are given as
      indices into a list of all transit nodes followed by all border nodes.

    ``transit_at`` contains the coordinates of each transit node. ``places`` contains, for each stub domain, the
    coordinates of its nodes.
    """
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


def _direct_distances(
    transit_at: Floats,
    borders: list[tuple[int, int]],
    edges: list[tuple[int, int, float, int]],
    stubs: list[tuple[Floats, Floats]],
    rng: np.random.Generator,
) -> tuple[Floats, Ints]:
    """Return (latencies, crossings), two square matrices that describe the edges between all transit and border nodes.

    - A latency is in ms; it is infinite if there is no edge.
    - A crossing is 1 for an edge between a stub domain and a transit domain, otherwise 0.

    ``borders`` and ``edges`` are as returned by ``_draw_access_edges``. ``transit_at`` contains the coordinates of each
    transit node. ``stubs`` contains, for each stub domain, the nodes' coordinates and the distances between the nodes
    in ms.
    """
    transits = len(transit_at)
    count = transits + len(borders)
    latency, crossings = np.full((count, count), np.inf), np.zeros((count, count), dtype=np.int64)
    np.fill_diagonal(latency, 0)
    for domain in range(DOMAINS):
        inside = slice(domain * TRANSIT, (domain + 1) * TRANSIT)
        latency[inside, inside] = _draw_edges(transit_at[inside], TRANSIT_EDGES, rng)
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
    return latency, crossings


def _shortest_paths(latency: Floats, crossings: Ints) -> tuple[Floats, Ints]:
    """Return (lengths, crossings) of the shortest paths between all pairs of nodes, as square matrices.

    - ``latency`` contains the length of each edge; it is infinite if there is no edge.
    - ``crossings`` contains 1 for an edge that crosses between domains, otherwise 0. The returned crossings are sums of
      these values along the paths.
    """
    # The algorithm is Floyd-Warshall.
    latency, crossings = latency.copy(), crossings.copy()
    for middle in range(len(latency)):
        over = latency[:, middle, None] + latency[middle]
        shorter = over < latency
        latency[shorter] = over[shorter]
        crossings[shorter] = (crossings[:, middle, None] + crossings[middle])[shorter]
    return latency, crossings


def _choose_servers(servers: int, sizes: Ints, transits: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Choose servers at random; return pairs (stub domain, node in it), or (-1, index of a transit node).

    ``servers`` is the number of servers. ``sizes`` contains the number of nodes in each stub domain. ``transits`` is
    the number of transit nodes.
    """
    every = [(-1, node) for node in range(transits)]
    every += [(stub, node) for stub, size in enumerate(sizes) for node in range(size)]
    return [every[place] for place in sorted(rng.choice(len(every), servers, replace=False))]


def _server_distances(
    chosen: list[tuple[int, int]],
    borders: list[tuple[int, int]],
    border: tuple[Floats, Ints],
    stubs: list[tuple[Floats, Floats]],
) -> ServerDistances:
    border_latency, border_crossings = border
    transits = len(border_latency) - len(borders)
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
            over = to_exit[:, one, None] + border_latency[pair] + to_exit[None, :, other]
            shorter = over < latency
            latency[shorter] = over[shorter]
            crossings[shorter] = border_crossings[pair][shorter]
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
    return ServerDistances(latency / 1000, per_byte, crossings, domain)


REACHED = 20.0
STEPS = 12
CANDIDATES = 60
"""Two servers can become neighbours only if one of them is among the ``CANDIDATES`` servers nearest to the other."""


class OverlayKind(StrEnum):
    """How the neighbours of servers are chosen if all distances are known.

    - GREEDY links each server to the nearest servers.
    - RESTRICTED uses as few links between domains as possible.

    The product cannot use these methods, because it does not know all distances; see
    :mod:`service.location.neighbour_choice`.
    """

    GREEDY = "greedy"
    RESTRICTED = "restricted"


Edges = list[tuple[int, int]]


def build_overlay(kind: OverlayKind, distances: ServerDistances, depth: int, rng: np.random.Generator) -> Edges:
    """Return links between servers such that a server reaches, on average, 20 others within ``depth`` hops.

    With depth 1, both kinds of overlay give the same result: 20 links per server.
    """
    fractions = rng.random(distances.servers)
    pairs = _near_pairs(distances)

    def links(mean_limit: float) -> Edges:
        limits = np.floor(mean_limit + fractions).astype(int).tolist()
        if kind is OverlayKind.GREEDY or depth == 1:
            return _greedy_links(pairs, limits)
        return _restricted_links(pairs, distances, limits)

    return _fit_to_reach(links, depth, len(fractions))


def mean_reach(edges: Edges, servers: int, depth: int) -> float:
    """Return the mean number of other servers that a server reaches within ``depth`` hops."""
    return sum(each.bit_count() for each in servers_within(edges, servers, depth)[depth]) / servers - 1


def servers_within(edges: Edges, servers: int, depth: int) -> list[list[int]]:
    """Return, for each number of hops from 0 to ``depth``, the servers that each server reaches within this many hops.

    ``result[hops][server]`` is a bit set: bit i is set if the server reaches server i. A server reaches itself within 0
    hops.
    """
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


def _fit_to_reach(links: Callable[[float], Edges], depth: int, servers: int) -> Edges:
    low, high = 0.0, REACHED * 2
    best: tuple[float, Edges] = (np.inf, [])
    for _ in range(STEPS):
        middle = (low + high) / 2
        edges = links(middle)
        found = mean_reach(edges, servers, depth)
        best = min(best, (abs(found - REACHED), edges), key=lambda each: each[0])
        low, high = (middle, high) if found < REACHED else (low, middle)
    return best[1]


def _near_pairs(distances: ServerDistances) -> Edges:
    """Return all pairs of servers in which one is among the 60 servers nearest to the other, nearest pairs first."""
    nearest = np.argsort(distances.latency_s, axis=1, kind="stable")[:, 1 : CANDIDATES + 1]
    each = np.repeat(np.arange(distances.servers), nearest.shape[1])
    pairs = np.unique(np.sort(np.stack([each, nearest.ravel()], axis=1)), axis=0)
    order = np.argsort(distances.latency_s[pairs[:, 0], pairs[:, 1]], kind="stable")
    return [(one, other) for one, other in pairs[order].tolist()]


def _greedy_links(pairs: Edges, left: list[int]) -> Edges:
    """Link each of ``pairs`` in turn if both servers may have more links, and return the links.

    ``left`` contains how many more links each server may have. It is decremented for each link.
    """
    edges: Edges = []
    for one, other in pairs:
        if left[one] > 0 and left[other] > 0:
            left[one] -= 1
            left[other] -= 1
            edges.append((one, other))
    return edges


def _restricted_links(pairs: Edges, distances: ServerDistances, left: Sequence[int]) -> Edges:
    """Return links for all ``pairs`` of servers within a domain, and for some pairs in different domains.

    - ``pairs`` contains pairs of servers, the preferred ones first.
    - ``left`` contains, for each server, the maximum number of links that its stub domain may have to other
      domains.

    Two domains get only one link, between the first pair of their servers in ``pairs``. They get none if one of
    them has already reached its limit. Transit domains have no limit.

    A pair counts as within a domain if the path between the servers contains no edge between a stub domain and a
    transit domain.
    """
    links_left = dict(zip(distances.domain.tolist(), left, strict=True))
    links_left.update((domain, len(pairs)) for domain in links_left if domain < 0)
    domain, crossings = distances.domain.tolist(), distances.lists[2]
    edges: Edges = []
    linked: set[tuple[int, int]] = set()
    for one, other in pairs:
        here, there = sorted((domain[one], domain[other]))
        if not crossings[one][other]:
            edges.append((one, other))
        elif links_left[here] > 0 and links_left[there] > 0 and (here, there) not in linked:
            linked.add((here, there))
            links_left[here] -= 1
            links_left[there] -= 1
            edges.append((one, other))
    return edges
