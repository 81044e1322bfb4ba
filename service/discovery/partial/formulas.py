"""What strategies cost by the paper's formulas, for h entries on n servers."""

from math import ceil

from service.discovery.partial.strategies import Fixed, FullReplication, Hash, RandomServer, RoundRobin, Strategy


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
