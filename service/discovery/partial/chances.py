"""Which servers a client asks, and how likely: so that metrics are means over all lookups, not over some."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.discovery.partial.lookup import in_strides
from service.discovery.partial.strategies import RoundRobin, Strategy

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

MOST_SERVERS = 14
"""All sets of so many are gone through: 16,384."""


@dataclass(frozen=True, slots=True)
class Steps:
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
def steps(strategy: Strategy, servers: int) -> Steps:
    """Return the steps of :func:`service.discovery.partial.lookup.asking_order`, for up to ``MOST_SERVERS``."""
    if isinstance(strategy, RoundRobin):
        return _of_orders([in_strides(begin, strategy.y, servers) for begin in range(servers)])
    return _of_random_order(servers)


@cache
def subsets(servers: int) -> Floats:
    """Return all sets of servers, 2^n by n, 0 or 1."""
    if servers > MOST_SERVERS:
        raise ValueError(f"{servers} servers have too many subsets to go through; {MOST_SERVERS} are the most.")
    numbers = np.arange(1 << servers)[:, None]
    return ((numbers >> np.arange(servers)) & 1).astype(np.float64)


def _of_random_order(servers: int) -> Steps:
    """In a random order, the first k are each set of k equally often, and any other is as likely to be next."""
    sets = subsets(servers)
    before, server = np.nonzero(sets == 0)
    size = sets.sum(axis=1).astype(int)[before]
    ways = np.array([comb(servers, count) * (servers - count) for count in range(servers)], dtype=np.float64)
    return Steps(sets, before, server, 1 / ways[size])


def _of_orders(orders: Sequence[Sequence[int]]) -> Steps:
    servers = len(orders[0])
    before = np.zeros((len(orders), servers, servers))
    for number, order in enumerate(orders):
        for place, server in enumerate(order):
            before[number, place + 1 :, server] = 1
    count = len(orders) * servers
    return Steps(
        before.reshape(count, servers), np.arange(count), np.array(orders).reshape(-1), np.full(count, 1 / len(orders))
    )
