"""Metrics (Sun & Garcia-Molina §4) of a *placement*, the distribution of a directory's entries over servers.

A placement is an array of shape (servers, entries), true where the server stores the entry. The update overhead (Sun &
Garcia-Molina §6.4) is not computed here. It is a number of messages, and the caller that delivers the messages can
count them.

Deviation: the metrics are exact means over all possible lookups, for up to 14 servers. The paper averages over a sample
of lookups.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.discovery.partial_lookup.lookup_client import strided_order
from service.discovery.partial_lookup.strategies import RoundRobin, Strategy

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

MAX_SERVERS = 14
"""Maximum number of servers, because all 2^14 = 16,384 sets of them are enumerated."""


@dataclass(frozen=True, slots=True)
class LookupSteps:
    """All steps that lookups can take. In each step of a lookup, the client queries one more server.

    - ``sets``: the sets of servers that a client may have queried so far, one per row: 1 for servers in the set, 0 for
      others.
    - ``before``: for each step, the servers that were queried before it, as an index in ``sets``.
    - ``server``: for each step, the index of the server that is queried.
    - ``chance``: for each step, the probability that a lookup takes it, provided that the lookup still needs entries.
      The probabilities of all possible first steps add up to 1, and so do those of all second steps, and so on.
    """

    sets: Floats
    """Sets of servers that a client may have queried so far: a row per set, 1 for servers in it and 0 for others."""
    before: Ints
    """For each step, the set of servers queried before, as an index in ``sets``."""
    server: Ints
    """For each step, the index of the server that is queried."""
    chance: Floats
    """For each step, the probability that a lookup takes it, given that the lookup still needs entries."""


@cache
def lookup_steps(strategy: Strategy, servers: int) -> LookupSteps:
    """Return the steps that lookups can take if the directory uses the strategy ``strategy``.

    ``servers`` is the number of servers, at most ``MAX_SERVERS``. Clients query servers in the order of
    :func:`service.discovery.partial_lookup.lookup_client.lookup_order`.
    """
    if isinstance(strategy, RoundRobin):
        return _steps_of_orders([strided_order(begin, strategy.y, servers) for begin in range(servers)])
    return _random_order_steps(servers)


@cache
def subsets(servers: int) -> Floats:
    """Return all subsets of n = ``servers`` servers as an array of shape (2^n, n): 1 for members, 0 for others."""
    if servers > MAX_SERVERS:
        raise ValueError(f"{servers} servers have too many subsets to go through; {MAX_SERVERS} are the most.")
    numbers = np.arange(1 << servers)[:, None]
    return ((numbers >> np.arange(servers)) & 1).astype(np.float64)


def _random_order_steps(servers: int) -> LookupSteps:
    """Return the steps of lookups that query ``servers`` servers in random order.

    All orders of the servers are equally likely.
    """
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
    """Return the placement: an array of shape (servers, entries), true where the server stores the entry.

    ``shares`` contains the stored entries of each server. ``entries`` defines the columns of the array. Stored entries
    that are not in ``entries`` are ignored.
    """
    columns = {entry: column for column, entry in enumerate(entries)}
    found = np.zeros((len(shares), len(entries)), dtype=np.bool_)
    for server, share in enumerate(shares):
        found[server, [columns[entry] for entry in share if entry in columns]] = True
    return found


def storage(placement: Bools) -> int:
    """Return how many entries the servers store in total (Sun & Garcia-Molina §4.1).

    An entry counts once for each server that stores it. ``placement`` is an array of shape (servers, entries), true
    where the server stores the entry.
    """
    return int(placement.sum())


def coverage(placement: Bools) -> int:
    """Return how many distinct entries the servers store in total (Sun & Garcia-Molina §4.3).

    ``placement`` is an array of shape (servers, entries), true where the server stores the entry.
    """
    return int(placement.any(axis=0).sum())


def lookup_costs(placement: Bools, steps: LookupSteps) -> Floats:
    """Return the mean number of servers that a lookup queries (Sun & Garcia-Molina §4.2), for each possible target.

    The *target* is the number of entries that the lookup requests. The returned array is indexed by target, from 0 to
    the number of distinct entries on all servers.

    - ``placement``: array of shape (servers, entries), true where the server stores the entry.
    - ``steps``: the result of :func:`lookup_steps`.
    """
    known = _union_sizes(placement, steps.sets)[steps.before]
    # A step is taken by all lookups whose target exceeds the number of entries found before.
    queried = np.bincount(known, weights=steps.chance, minlength=coverage(placement) + 1)
    costs: Floats = np.concatenate(([0.0], np.cumsum(queried)))[: coverage(placement) + 1]
    return costs


def fault_tolerances(placement: Bools) -> Ints:
    """Return, for each target, how many servers may fail, whichever they are, without making a lookup fail (§4.4).

    The *target* is the number of entries that the lookup requests. The returned array is indexed by target, from
    0 to the number of all entries. The value is -1 if the servers store fewer distinct entries than the target,
    because such a lookup always fails.

    ``placement`` is an array of shape (servers, entries), true where the server stores the entry.

    Deviation: the paper uses a heuristic; this function enumerates all sets of remaining servers.
    """
    servers, entries = placement.shape
    left = subsets(servers)
    known, size = _union_sizes(placement, left), left.sum(axis=1).astype(np.int64)
    # The largest set with at most this many entries; every larger set has more.
    largest = np.full(entries + 1, -1, dtype=np.int64)
    np.maximum.at(largest, known, size)
    tolerances = servers - 1 - np.maximum.accumulate(largest)
    return np.concatenate(([servers], tolerances[:-1]))


def retrieval_chances(placement: Bools, target: int, steps: LookupSteps) -> Floats:
    """Return, for each entry, the probability p_I(j) that a lookup for ``target`` entries returns it (§4.5).

    A lookup that cannot find ``target`` entries returns all entries that it finds.

    - ``placement``: array of shape (servers, entries), true where the server stores the entry.
    - ``steps``: the result of :func:`lookup_steps`.
    """
    known = steps.sets @ placement > 0
    missing = (target - known.sum(axis=1))[steps.before]
    taken = missing > 0
    fresh = placement[steps.server[taken]] & ~known[steps.before[taken]]
    share = np.minimum(missing[taken] / np.maximum(fresh.sum(axis=1), 1), 1) * steps.chance[taken]
    chances: Floats = share @ fresh
    return chances


def unfairness(chances: Floats, target: int) -> float:
    """Return how much entries differ in their chance of being returned by a lookup (§4.5, formula 1).

    ``chances`` contains, for each of h entries, the probability that a lookup for ``target`` entries returns it. The
    result is the root-mean-square deviation from ``target`` / h, relative to ``target`` / h. It is 0 if all chances are
    equal.
    """
    ideal = target / len(chances)
    return float(np.sqrt(np.mean((chances - ideal) ** 2)) / ideal)


def _union_sizes(placement: Bools, sets: Floats) -> Ints:
    sizes: Ints = (sets @ placement > 0).sum(axis=1)
    return sizes
