"""The client of a directory that is stored on several servers: which servers it queries, and in what order (§3)."""

from collections.abc import Iterable

from service.discovery.partial_lookup.servers import COORDINATOR, random_sort_key
from service.discovery.partial_lookup.strategies import RoundRobin, Strategy


def choose_coordinator(strategy: Strategy, servers: int, draw: float) -> int:
    """Return the number of the server to which a client sends an update, the update's coordinator (§5).

    For Round-Robin-y, this is always server 0. Otherwise ``draw``, a random number in [0, 1), selects a server.
    """
    return COORDINATOR if isinstance(strategy, RoundRobin) else int(draw * servers)


def lookup_order(strategy: Strategy, servers: int, draw: float) -> list[int]:
    """Return the numbers of all servers in the order in which a client queries them.

    ``draw``, a random number in [0, 1), determines the order. For Round-Robin-y, the order begins with servers that
    have no entries in common.
    """
    if isinstance(strategy, RoundRobin):
        return strided_order(int(draw * servers), strategy.y, servers)
    return sorted(range(servers), key=lambda server: random_sort_key(str(server), draw))


def strided_order(begin: int, stride: int, servers: int) -> list[int]:
    """Return the numbers of all servers, beginning with every ``stride``-th one (Sun & Garcia-Molina §3.4).

    1. First come the servers ``begin``, ``begin + stride``, ``begin + 2 * stride`` and so on, once around.
    2. Then come all others, from ``begin`` on.

    Server 0 follows the last server.
    """
    once_around = [(begin + step) % servers for step in range(0, servers, stride)]
    return list(dict.fromkeys([*once_around, *((begin + step) % servers for step in range(servers))]))


class PartialLookup:
    """A client's lookup of ``target`` entries in a directory, the paper's partial_lookup(t).

    ``found`` has the entries that have been found so far. The class does no I/O. The caller repeats these steps:

    1. Call :meth:`next_server`, and stop if it returns None.
    2. Request entries that are not in ``found`` from this server. Skip a server that does not answer.
    3. Pass the answer to :meth:`on_answer`.
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
