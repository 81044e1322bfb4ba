"""Servers of one directory and the messages between them, which arrive in order and at once."""

from collections import deque
from collections.abc import Callable, Collection, Sequence

from service.discovery.partial.servers import PartialLookup, Request, Send, asking_order, coordinator, make_server
from service.discovery.partial.strategies import Strategy


class Servers:
    """All servers of one directory, driven as the product drives its workers', and what that took."""

    def __init__(self, strategy: Strategy, servers: int, draw: Callable[[], float]) -> None:
        """Take random numbers in [0, 1) from ``draw``."""
        self.strategy = strategy
        self.servers = [make_server(strategy, me, servers) for me in range(servers)]
        self.processed = 0
        """Messages that servers have processed: clients' requests, and each server's part of a broadcast (§6.4)."""
        self._draw = draw

    @property
    def shares(self) -> list[Collection[str]]:
        """What each server keeps."""
        return [server.entries for server in self.servers]

    def request(self, request: Request) -> None:
        """Carry a client's request through."""
        entered = coordinator(self.strategy, len(self.servers), self._draw())
        self.processed += 1
        under_way: deque[Send] = deque(self.servers[entered].requested(request))
        while under_way:
            sent = under_way.popleft()
            self.processed += 1
            under_way.extend(self.servers[sent.to].told(sent.message, self._draw()))

    def lookup(self, target: int, failed: Collection[int] = ()) -> tuple[Sequence[str], int]:
        """Return what a client finds, and how many servers it asked; those that failed do not answer."""
        lookup = PartialLookup(target, asking_order(self.strategy, len(self.servers), self._draw()))
        asked = 0
        while (server := lookup.asks()) is not None:
            asked += 1
            if server not in failed:
                lookup.answered(self.servers[server].answer(lookup.wanted, lookup.found, self._draw()))
        return list(lookup.found), asked
