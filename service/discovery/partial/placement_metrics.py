"""The metrics of §4 of a *placement*: servers by entries, true where a server has an entry.

They are exact means over all lookups that clients can make, where the paper draws some; for up to 14 servers. The
sixth metric, update overhead (§6.4), is a count of messages: whoever delivers them counts, a client's as well.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.discovery.partial.servers import strided_order
from service.discovery.partial.strategies import RoundRobin, Strategy

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

MAX_SERVERS = 14
"""All sets of so many are gone through: 16,384."""


@dataclass(frozen=True, slots=True)
class LookupSteps:
    """All steps that a lookup can take, as long as it has not enough.

    Of each number of servers asked before, the chances add up to 1.
    """

    sets: Floats
    """Sets by servers, 0 or 1: what can have been asked before."""
    before: Ints
    """Which of the sets has been asked before, by step."""
    server: Ints
    """Who is asked, by step."""
    chance: Floats
    """How likely a lookup that goes on as long takes this step."""


@cache
def lookup_steps(strategy: Strategy, servers: int) -> LookupSteps:
    """Return the steps of :func:`service.discovery.partial.servers.asking_order`, for up to ``MAX_SERVERS``."""
    if isinstance(strategy, RoundRobin):
        return _steps_of_orders([strided_order(begin, strategy.y, servers) for begin in range(servers)])
    return _random_order_steps(servers)


@cache
def subsets(servers: int) -> Floats:
    """Return all sets of servers, 2^n by n, 0 or 1."""
    if servers > MAX_SERVERS:
        raise ValueError(f"{servers} servers have too many subsets to go through; {MAX_SERVERS} are the most.")
    numbers = np.arange(1 << servers)[:, None]
    return ((numbers >> np.arange(servers)) & 1).astype(np.float64)


def _random_order_steps(servers: int) -> LookupSteps:
    """In a random order, the first k are each set of k equally often, and any other is as likely to be next."""
    sets = subsets(servers)
    before, server = np.nonzero(sets == 0)
    size = sets.sum(axis=1).astype(int)[before]
    ways = np.array([comb(servers, count) * (servers - count) for count in range(servers)], dtype=np.float64)
    return LookupSteps(sets, before, server, 1 / ways[size])


def _steps_of_orders(orders: Sequence[Sequence[int]]) -> LookupSteps:
    servers = len(orders[0])
    before = np.zeros((len(orders), servers, servers))
    for number, order in enumerate(orders):
        for place, server in enumerate(order):
            before[number, place + 1 :, server] = 1
    count = len(orders) * servers
    return LookupSteps(
        before.reshape(count, servers), np.arange(count), np.array(orders).reshape(-1), np.full(count, 1 / len(orders))
    )


def placement(shares: Sequence[Collection[str]], entries: Sequence[str]) -> Bools:
    """Return who has which of these entries; what is no entry is left out."""
    columns = {entry: column for column, entry in enumerate(entries)}
    found = np.zeros((len(shares), len(entries)), dtype=np.bool_)
    for server, share in enumerate(shares):
        found[server, [columns[entry] for entry in share if entry in columns]] = True
    return found


def storage(placed: Bools) -> int:
    """Return how many entries all servers keep together (§4.1)."""
    return int(placed.sum())


def coverage(placed: Bools) -> int:
    """Return how many different entries can be had of all servers together (§4.3)."""
    return int(placed.any(axis=0).sum())


def lookup_costs(placed: Bools, steps: LookupSteps) -> Floats:
    """Return how many servers are asked on average (§4.2), for every target from 0 to the coverage."""
    known = _union_sizes(placed, steps.sets)[steps.before]
    # Asked by all whose target is above what is known before.
    asked = np.bincount(known, weights=steps.chance, minlength=coverage(placed) + 1)
    costs: Floats = np.concatenate(([0.0], np.cumsum(asked)))[: coverage(placed) + 1]
    return costs


def fault_tolerances(placed: Bools) -> Ints:
    """Return how many servers may fail, whichever, before some lookup does (§4.4), for every target from 0 to h.

    With targets above the coverage, lookups fail anyway: -1. The paper has a heuristic here; this goes through all
    sets of servers that can be left.
    """
    servers, entries = placed.shape
    left = subsets(servers)
    known, size = _union_sizes(placed, left), left.sum(axis=1).astype(np.int64)
    # The largest set that has no more than so many entries; one server more, and each set has more.
    largest = np.full(entries + 1, -1, dtype=np.int64)
    np.maximum.at(largest, known, size)
    tolerances = servers - 1 - np.maximum.accumulate(largest)
    return np.concatenate(([servers], tolerances[:-1]))


def retrieval_chances(placed: Bools, target: int, steps: LookupSteps) -> Floats:
    """Return how likely each entry is among those that a lookup returns: p_I(j) of §4.5.

    A lookup that cannot have ``target`` entries returns what there is.
    """
    known = steps.sets @ placed > 0
    missing = (target - known.sum(axis=1))[steps.before]
    taken = missing > 0
    fresh = placed[steps.server[taken]] & ~known[steps.before[taken]]
    share = np.minimum(missing[taken] / np.maximum(fresh.sum(axis=1), 1), 1) * steps.chance[taken]
    chances: Floats = share @ fresh
    return chances


def unfairness(chances: Floats, target: int) -> float:
    """Return how far lookups are from returning every entry as often (formula 1): 0 is fair."""
    ideal = target / len(chances)
    return float(np.sqrt(np.mean((chances - ideal) ** 2)) / ideal)


def _union_sizes(placed: Bools, sets: Floats) -> Ints:
    sizes: Ints = (sets @ placed > 0).sum(axis=1)
    return sizes
