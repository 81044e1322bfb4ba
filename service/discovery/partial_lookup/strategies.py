"""The five strategies of partial lookup (Sun & Garcia-Molina §3), and the paper's formulas for their costs.

In partial lookup, a directory is stored on several servers, and its clients need only some of its entries. In the
formulas, n is the number of servers, h is the number of entries, and t is the *target*, the number of entries that a
lookup requests.

This module also computes the *cushion* (Sun & Garcia-Molina §6.2). A server stores t entries plus the cushion, so that
lookups do not fail after a few deletions.
"""

from math import ceil, erf, sqrt
from typing import TypeAlias

import msgspec

from service.errors import BadStrategy


class _SizedStrategy(msgspec.Struct, frozen=True, tag=True):
    x: int
    """Maximum number of entries per server."""

    def __post_init__(self) -> None:
        if self.x < 1:
            raise BadStrategy(f"x is {self.x}: a server needs at least 1 entry.")


class _CopiedStrategy(msgspec.Struct, frozen=True, tag=True):
    y: int
    """Number of servers that store an entry.

    For Hash-y, this is the maximum number, because two hash functions may select the same server.
    """

    def __post_init__(self) -> None:
        if self.y < 1:
            raise BadStrategy(f"y is {self.y}: an entry needs at least 1 server.")


class FullReplication(msgspec.Struct, frozen=True, tag=True):
    """Full replication: every server stores every entry."""


class Fixed(_SizedStrategy, frozen=True, tag=True):
    """Fixed-x: all servers store the same x entries."""


class RandomServer(_SizedStrategy, frozen=True, tag=True):
    """RandomServer-x: each server stores x entries, drawn at random independently of the other servers."""


class RoundRobin(_CopiedStrategy, frozen=True, tag=True):
    """Round-Robin-y: entry i is on y successive servers, beginning with server i (modulo the number of servers)."""


class Hash(_CopiedStrategy, frozen=True, tag=True):
    """Hash-y: y hash functions select the servers for each entry."""


Strategy: TypeAlias = FullReplication | Fixed | RandomServer | RoundRobin | Hash


def strategy_name(strategy: Strategy) -> str:
    """Return a strategy's name as in the paper, including its parameter x or y, such as "Round-Robin-2"."""
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
    """Return how many entries the servers store in total (Table 1); for Hash-y, the expected value.

    An entry counts once for each server that stores it. ``entries`` is the number of entries in the directory, and
    ``servers`` is the number of servers.
    """
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
    """Return how many distinct entries the servers store in total (§4.3); for RandomServer-x, the expected value.

    ``entries`` is the number of entries in the directory, and ``servers`` is the number of servers.
    """
    match strategy:
        case Fixed(x):
            return min(x, entries)
        case RandomServer(x):
            return entries * (1 - (1 - min(x, entries) / entries) ** servers) if entries else 0
        case FullReplication() | RoundRobin() | Hash():
            return entries


def expected_lookup_cost(strategy: Strategy, target: int, entries: int, servers: int) -> float:
    """Return the mean number of servers that a lookup for ``target`` entries contacts (Sun & Garcia-Molina §4.2).

    Let t be ``target``, n ``servers``, and h ``entries`` (the number of entries in the directory). A lookup that cannot
    find t entries contacts all servers.

    - Full replication and Fixed-x: 1.
    - Round-Robin-y: ceil(t·n/(h·y)), as derived in the paper.
    - RandomServer-x and Hash-y: 1 + P(1) + … + P(n-1). P(k) is the probability that k servers together store fewer than
      t distinct entries. This formula is ours; the paper measures these costs.
    """
    # The number of distinct entries is approximated by a normal distribution. A given entry is on at least one of k
    # servers with the probability 1 - (1 - x/h)^k for RandomServer-x, and 1 - (1 - k/n)^y for Hash-y.
    match strategy:
        case FullReplication():
            return 1.0 if target <= entries else float(servers)
        case Fixed(x):
            return 1.0 if target <= min(x, entries) else float(servers)
        case RoundRobin(y):
            return float(min(max(ceil(target * servers / max(entries * min(y, servers), 1)), 1), servers))
        case RandomServer(x):
            missed = 1 - min(x, entries) / max(entries, 1)
            both_missed = missed * (1 - min(x, entries) / max(entries - 1, 1))
            chances = [(missed**asked, max(both_missed, 0.0) ** asked) for asked in range(1, servers)]
        case Hash(y):
            chances = [((1 - asked / servers) ** y, (1 - asked / servers) ** (2 * y)) for asked in range(1, servers)]
    return 1 + sum(_chance_of_fewer(target, entries, *chance) for chance in chances)


def _chance_of_fewer(target: int, entries: int, missed: float, both_missed: float) -> float:
    """Return the approximate probability that a set of servers stores fewer than ``target`` distinct entries.

    - ``entries``: the number of entries in the directory.
    - ``missed``: the probability that a given entry is on none of these servers.
    - ``both_missed``: the probability that neither of two given entries is on any of these servers.
    """
    mean = entries * (1 - missed)
    variance = entries * missed * (1 - missed) + entries * (entries - 1) * (both_missed - missed**2)
    if variance < 1e-6:  # noqa: PLR2004 - rounding errors of the two terms
        return float(round(mean) < target)
    return 0.5 * (1 + erf((target - 0.5 - mean) / sqrt(2 * variance)))


def round_robin_tolerance(y: int, target: int, entries: int, servers: int) -> int:
    """Return how many servers can fail without making a lookup fail, with the strategy Round-Robin-``y`` (§4.4).

    The lookup requests ``target`` entries. The directory has ``entries`` entries, at least ``target``.
    """
    return min(servers - 1, servers + y - 1 - ceil(target * servers / entries))


def copies_needed(target: int, entries: int, servers: int) -> int:
    """Return how many servers must store each entry so that a server has ``target`` entries on average (§6.4).

    The result is max(1, ceil(t·n/h)), where t is ``target``, n is ``servers``, and h is ``entries``, the number of
    entries in the directory.
    """
    return max(ceil(target * servers / max(entries, 1)), 1)


def expected_overhead(strategy: Strategy, entries: int, servers: int) -> float:
    """Return the mean number of messages per add or delete, including the client's request (Sun & Garcia-Molina §6.4).

    The directory has ``entries`` entries on ``servers`` servers. Adds and deletes are assumed to be equally frequent.
    The formulas for Fixed-x and Hash-y are derived in the paper. For the other strategies, the result is the number of
    messages that this implementation sends.
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
"""Fraction of the time during which a server may have fewer entries than a lookup requests."""


def failing_share(target: int, cushion: int, entries: int) -> float:
    """Return the fraction of the time during which a server has fewer than ``target`` entries (§6.2).

    During this time, a lookup for ``target`` entries would fail. The directory has ``entries`` entries. The server
    stores at most ``target + cushion`` of them. The ``cushion`` compensates for deleted entries.

    The paper (Sun & Garcia-Molina) measures this fraction; the formula is ours.
    """
    # Model: the directory's size h is constant on average, and entries may have any distribution of lifetimes. A server
    # that is not full stores each entry that is added. A server with k entries loses one k/h times as often as the
    # directory gets one. The number k is thus the state of a birth-death chain, and the result is the probability of
    # the states below the target.
    most = min(target + cushion, entries)
    weight, weights = 1.0, [1.0]
    for count in range(most, 0, -1):
        weight *= count / entries
        weights.append(weight)
    return sum(weights[most - target + 1 :]) / sum(weights) if target <= most else 1.0


def cushion_needed(target: int, entries: int) -> int:
    """Return the smallest cushion with which lookups fail for at most the fraction ``FAILING`` of the time (§6.2).

    A lookup requests ``target`` entries. A server stores ``target`` entries plus the cushion. The directory has
    ``entries`` entries, so the cushion is at most ``entries - target``.
    """
    cushion = 0
    while target + cushion < entries and failing_share(target, cushion, entries) > FAILING:
        cushion += 1
    return cushion
