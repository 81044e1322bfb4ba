"""Who is whose neighbour (§III.B): greedily the nearest, or with as few interdomain edges as possible.

In both, so many links are made that a server reaches as many others within the filters' depth as the paper's (§III.C).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

from service.simulate.location_graph import Ints, Ways

REACHED = 20.0
STEPS = 12


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
    if kind is Overlay.GREEDY or depth == 1:
        nearest = np.argsort(ways.latency_s, axis=1, kind="stable")[:, 1:]
        return _fitted(lambda degree: _greedy(nearest, np.floor(degree + luck).astype(int)), depth, len(luck))
    pairs = _by_latency(ways)
    domains, places = np.unique(ways.domain, return_inverse=True)
    return _fitted(
        lambda most: _restricted(pairs, places, np.floor(most + luck[: len(domains)]).astype(int)), depth, len(luck)
    )


def reached(edges: Edges, servers: int, depth: int) -> float:
    """Return how many others a server reaches on average within so many hops."""
    neighbours: list[list[int]] = [[] for _ in range(servers)]
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    found = [1 << server for server in range(servers)]
    for _ in range(depth):
        wider = found.copy()
        for server, of in enumerate(neighbours):
            for other in of:
                wider[server] |= found[other]
        found = wider
    return sum(each.bit_count() for each in found) / servers - 1


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


def _greedy(nearest: Ints, degrees: Ints) -> Edges:
    chosen = {
        (min(server, other), max(server, other))
        for server, degree in enumerate(degrees.tolist())
        for other in nearest[server, :degree].tolist()
    }
    return sorted(chosen)


def _by_latency(ways: Ways) -> Edges:
    one, other = np.triu_indices(len(ways.latency_s), 1)
    latency = ways.latency_s[one, other]
    near = np.argsort(latency, kind="stable")[: 60 * ways.servers]
    return list(zip(one[near].tolist(), other[near].tolist(), strict=True))


def _restricted(pairs: Edges, places: Ints, most: Sequence[int] | Ints) -> Edges:
    """Link all servers of a stub domain with each other, and domains by so many links each, the shortest first."""
    left = [int(each) for each in most]
    domain = places.tolist()
    edges: Edges = []
    linked: set[tuple[int, int]] = set()
    for one, other in pairs:
        here, there = domain[one], domain[other]
        if here == there:
            edges.append((one, other))
        elif left[here] > 0 and left[there] > 0 and (key := (min(here, there), max(here, there))) not in linked:
            linked.add(key)
            left[here] -= 1
            left[there] -= 1
            edges.append((one, other))
    return edges
