"""The client of a directory: the servers that it asks, in what order, and until when it asks more of them (§3)."""

from collections.abc import Iterable

from service.discovery.partial_lookup.servers import COORDINATOR, random_sort_key
from service.discovery.partial_lookup.strategies import RoundRobin, Strategy


def choose_coordinator(strategy: Strategy, servers: int, draw: float) -> int:
    """Return the number of the server that receives an update (§5).

    The number is random, according to ``draw`` in [0, 1), except for Round-Robin-y, where it is always 0.
    """
    return COORDINATOR if isinstance(strategy, RoundRobin) else int(draw * servers)


def lookup_order(strategy: Strategy, servers: int, draw: float) -> list[int]:
    """Return the numbers of all servers in the order in which a client queries them.

    The order is random, according to ``draw`` in [0, 1). For Round-Robin-y, the order begins with servers that have no
    entries in common.
    """
    if isinstance(strategy, RoundRobin):
        return strided_order(int(draw * servers), strategy.y, servers)
    return sorted(range(servers), key=lambda server: random_sort_key(str(server), draw))


def strided_order(begin: int, stride: int, servers: int) -> list[int]:
    """Return the numbers of all servers: every ``stride``-th one, once around, then the others (§3.4).

    Both parts begin at the number ``begin``, and continue with the number 0 after the last server.
    """
    once_around = [(begin + step) % servers for step in range(0, servers, stride)]
    return list(dict.fromkeys([*once_around, *((begin + step) % servers for step in range(servers))]))


class PartialLookup:
    """A client's lookup, partial_lookup(t), of ``target`` entries, without I/O.

    The caller requests entries that are not in ``found`` from the server that :meth:`next_server` returns, passes the
    answer to :meth:`on_answer`, and repeats this until :meth:`next_server` returns None. A server that does not answer
    is skipped.
    """

    def __init__(self, target: int, order: Iterable[int]) -> None:
        self.target = target
        self.found: dict[str, None] = {}
        """The distinct entries found so far."""
        self._order = iter(order)

    def next_server(self) -> int | None:
        """Return the number of the next server to query; None if enough entries are found or no server is left."""
        return next(self._order, None) if len(self.found) < self.target else None

    @property
    def missing(self) -> int:
        """The number of entries that the lookup still needs."""
        return max(self.target - len(self.found), 0)

    def on_answer(self, entries: Iterable[str]) -> None:
        """Add the entries of a server's answer to ``found``."""
        self.found |= dict.fromkeys(entries)
