"""The client of a partial lookup service: makes servers, sends updates, asks until it has enough."""

from collections.abc import Iterable

from service.discovery.partial.servers import (
    COORDINATOR,
    FixedServer,
    FullServer,
    HashedServer,
    RoundRobinServer,
    SampledServer,
    Server,
    rank,
)
from service.discovery.partial.strategies import Fixed, FullReplication, Hash, RandomServer, RoundRobin, Strategy


def make_server(strategy: Strategy, me: int, servers: int) -> Server:
    """Return an empty server of a strategy, number ``me`` of so many."""
    match strategy:
        case FullReplication():
            return FullServer(me, servers)
        case Fixed(x):
            return FixedServer(me, servers, x)
        case RandomServer(x):
            return SampledServer(me, servers, x)
        case RoundRobin(y):
            return RoundRobinServer(me, servers, y)
        case Hash(y):
            return HashedServer(me, servers, y)


def coordinator(strategy: Strategy, servers: int, draw: float) -> int:
    """Return the server that an update is sent to: any, but for Round-Robin-y (§5)."""
    return COORDINATOR if isinstance(strategy, RoundRobin) else int(draw * servers)


def asking_order(strategy: Strategy, servers: int, draw: float) -> list[int]:
    """Return all servers in the order in which a client asks them: random, or those without common entries first."""
    if isinstance(strategy, RoundRobin):
        return in_strides(int(draw * servers), strategy.y, servers)
    return sorted(range(servers), key=lambda server: rank(str(server), draw))


def in_strides(begin: int, stride: int, servers: int) -> list[int]:
    """Return all servers, once around from ``begin`` in strides, and then the rest in turn (§3.4)."""
    once_around = [(begin + step) % servers for step in range(0, servers, stride)]
    return list(dict.fromkeys([*once_around, *((begin + step) % servers for step in range(servers))]))


class PartialLookup:
    """One lookup of ``target`` entries, sans I/O.

    While :meth:`asks` names a server, send it ``found`` and the target, and hand its answer to :meth:`answered`, or
    nothing if there is none.
    """

    def __init__(self, target: int, order: Iterable[int]) -> None:
        self.target = target
        self.found: dict[str, None] = {}
        """What has been found, each once."""
        self._order = iter(order)

    def asks(self) -> int | None:
        """Return the next server to ask; None: there are enough entries, or no more servers."""
        return next(self._order, None) if len(self.found) < self.target else None

    @property
    def wanted(self) -> int:
        """How many entries are missing."""
        return max(self.target - len(self.found), 0)

    def answered(self, entries: Iterable[str]) -> None:
        """Take in what a server answered."""
        self.found |= dict.fromkeys(entries)
