"""The five strategies as values (§3), what they cost by the paper's formulas, and the cushion for deletes (§6.2).

Formulas are of mean values: for each server, or each entry.
"""

from math import ceil
from typing import TypeAlias

import msgspec

from service.errors import BadStrategy


class _SizedStrategy(msgspec.Struct, frozen=True, tag=True):
    x: int
    """How many entries a server keeps at most."""

    def __post_init__(self) -> None:
        if self.x < 1:
            raise BadStrategy(f"A server cannot keep {self.x} entries. Take x of 1 or more.")


class _CopiedStrategy(msgspec.Struct, frozen=True, tag=True):
    y: int
    """On how many servers an entry is kept; for Hash-y at most."""

    def __post_init__(self) -> None:
        if self.y < 1:
            raise BadStrategy(f"An entry cannot be kept on {self.y} servers. Take y of 1 or more.")


class FullReplication(msgspec.Struct, frozen=True, tag=True):
    """Every server has every entry."""


class Fixed(_SizedStrategy, frozen=True, tag=True):
    """All servers have the same x entries."""


class RandomServer(_SizedStrategy, frozen=True, tag=True):
    """Each server has x entries of its own choice."""


class RoundRobin(_CopiedStrategy, frozen=True, tag=True):
    """Entry i is on the y servers from the i-th on."""


class Hash(_CopiedStrategy, frozen=True, tag=True):
    """An entry is where its y hashes say."""


Strategy: TypeAlias = FullReplication | Fixed | RandomServer | RoundRobin | Hash


def strategy_name(strategy: Strategy) -> str:
    """Return what the paper calls it."""
    match strategy:
        case FullReplication():
            return "full replication"
        case Fixed(x):
            return f"Fixed-{x}"
        case RandomServer(x):
            return f"RandomServer-{x}"
        case RoundRobin(y):
            return f"Round-Robin-{y}"
        case Hash(y):
            return f"Hash-{y}"


def expected_storage(strategy: Strategy, entries: int, servers: int) -> float:
    """Return how many entries all servers together keep (Table 1); with Hash-y, and only there, on average."""
    match strategy:
        case FullReplication():
            return entries * servers
        case Fixed(x) | RandomServer(x):
            return min(x, entries) * servers
        case RoundRobin(y):
            return entries * min(y, servers)
        case Hash(y):
            return entries * servers * (1 - (1 - 1 / servers) ** y)


def expected_coverage(strategy: Strategy, entries: int, servers: int) -> float:
    """Return how many different entries there are on all servers (§4.3); with RandomServer-x on average."""
    match strategy:
        case Fixed(x):
            return min(x, entries)
        case RandomServer(x):
            return entries * (1 - (1 - min(x, entries) / entries) ** servers) if entries else 0
        case FullReplication() | RoundRobin() | Hash():
            return entries


def round_robin_tolerance(y: int, target: int, entries: int, servers: int) -> int:
    """Return how many servers of Round-Robin-y may fail before some lookup does (§4.4); t at most h."""
    return min(servers - 1, servers + y - 1 - ceil(target * servers / entries))


def copies_needed(target: int, entries: int, servers: int) -> int:
    """Return the least y with which a server has ``target`` entries on average (§6.4)."""
    return max(ceil(target * servers / max(entries, 1)), 1)


def expected_overhead(strategy: Strategy, entries: int, servers: int) -> float:
    """Return how many messages an add or delete takes, on average (§6.4): the client's, and those to servers.

    The paper counts for Fixed-x and Hash-y; the others are what our servers send: a broadcast, and for Round-Robin-y
    y messages to add, and to delete a broadcast, a report of the hole, and y messages each to fetch and to fill.
    """
    match strategy:
        case FullReplication() | RandomServer():
            return 1 + servers
        case Fixed(x):
            return 1 + min(x / max(entries, 1), 1) * servers
        case RoundRobin(y):
            added, deleted = min(y, servers), servers + 1 + 2 * min(y, servers)
            return 1 + (added + deleted) / 2
        case Hash(y):
            return 1 + y


FAILING = 0.001
"""The share of the time in which there may be less than the target."""


def failing_share(target: int, cushion: int, entries: int) -> float:
    """Return for which share of the time a share of ``target + cushion`` has less than ``target`` entries.

    Entries come one at a time and live as long as they may; h is constant on average. So a share that is short by
    some is filled by the next add, and of k entries one is deleted k / h times as often as any is added: a birth-death
    chain, of which the lowest states are too low. The paper measures what follows from it.
    """
    most = min(target + cushion, entries)
    weight, weights = 1.0, [1.0]
    for kept in range(most, 0, -1):
        weight *= kept / entries
        weights.append(weight)
    return sum(weights[most - target + 1 :]) / sum(weights) if target <= most else 1.0


def cushion_needed(target: int, entries: int) -> int:
    """Return the least cushion with which lookups fail at most ``FAILING`` of the time; at most h - t."""
    cushion = 0
    while target + cushion < entries and failing_share(target, cushion, entries) > FAILING:
        cushion += 1
    return cushion
