"""Who is whose neighbour (§III.B): greedily the nearest, or with as few interdomain edges as possible.

In both, so many links are made that a server reaches as many others within the filters' depth as the paper's (§III.C).
Greedily, all servers have the same number of neighbours, but for those that come too late: an index has constant size
per server, and is filter width times depth times neighbours (§I, §III.C). If each had its nearest ones, whether or not
it is among theirs, servers in a sparse part would have dozens of links, and filters that are all ones.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

from service.simulate.location_graph import Ways

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
