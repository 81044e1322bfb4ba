"""The client of a directory that is stored on several servers: which servers to query, and in what order (§3).

The sections are those of Sun & Garcia-Molina's paper on partial lookup.
"""

from collections.abc import Iterable

from service.discovery.partial_lookup.servers import COORDINATOR, random_sort_key
from service.discovery.partial_lookup.strategies import RoundRobin, Strategy


def choose_coordinator(strategy: Strategy, servers: int, draw: float) -> int:
    """Return the index of the *coordinator* of an update: the server to which the client sends the update (§5).

    For Round-Robin-y, this is always server 0. For other strategies, ``draw``, a random number in [0, 1), selects a
    server. ``servers`` is the number of servers.
    """
    return COORDINATOR if isinstance(strategy, RoundRobin) else int(draw * servers)


def lookup_order(strategy: Strategy, servers: int, draw: float) -> list[int]:
    """Return the indices of all servers in the order in which a client queries them.

    ``draw``, a random number in [0, 1), determines the order. For Round-Robin-y, the order begins with servers that
    have no entries in common. ``servers`` is the number of servers.
    """
    if isinstance(strategy, RoundRobin):
        return strided_order(int(draw * servers), strategy.y, servers)
    return sorted(range(servers), key=lambda server: random_sort_key(str(server), draw))


def strided_order(begin: int, stride: int, servers: int) -> list[int]:
    """Return the indices of all servers, beginning with every ``stride``-th one (Sun & Garcia-Molina §3.4).

    1. First come the servers ``begin``, ``begin + stride``, ``begin + 2 * stride`` and so on, once around the ring.
    2. Then come all other servers, starting from ``begin``.

    The servers form a ring: server 0 follows the last server.
    """
    once_around = [(begin + step) % servers for step in range(0, servers, stride)]
    return list(dict.fromkeys([*once_around, *((begin + step) % servers for step in range(servers))]))


class PartialLookup:
    """A client's search for ``target`` entries of a directory: the paper's partial_lookup(t).

    A directory is a set of entries that is distributed over several servers. ``found`` contains the entries that have
    been found so far. The class does no I/O. The caller repeats these steps:

    1. Call :meth:`next_server`, and stop if it returns None.
    2. Request from this server entries that are not in ``found``. Skip a server that does not answer.
    3. Pass the answer to :meth:`on_answer`.
    """

    def __init__(self, target: int, order: Iterable[int]) -> None:
        self.target = target
        self.found: dict[str, None] = {}
        """The distinct entries found so far."""
        self._order = iter(order)

    def next_server(self) -> int | None:
        """Return the index of the next server to query; None if the lookup has enough entries or no server is left."""
        return next(self._order, None) if len(self.found) < self.target else None

    @property
    def missing(self) -> int:
        """How many more entries the lookup needs."""
        return max(self.target - len(self.found), 0)

    def on_answer(self, entries: Iterable[str]) -> None:
        """Add the entries in a server's answer to ``found``."""
        self.found |= dict.fromkeys(entries)
