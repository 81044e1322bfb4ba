"""RandomServer-x (§3.3, §5.3): each server decides by itself what to keep."""

from collections.abc import Collection
from heapq import nsmallest

from service.discovery.partial.messages import Add, Delete, Drop, Keep, Message, Place, Request, Store
from service.discovery.partial.server import Sends, Server, rank, unknown


class SampledServer(Server):
    """Has a random x of all entries; every update is a broadcast.

    While nothing is deleted, all subsets stay equally likely (Vitter's reservoir). What is deleted is replaced by what
    comes next, so that the newest are kept more often (§6.3).
    """

    def __init__(self, me: int, servers: int, x: int) -> None:
        super().__init__(me, servers)
        self._x = x
        self._kept: list[str] = []
        self._total = 0
        """h, as far as we were told."""

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._kept

    def requested(self, request: Request) -> Sends:  # noqa: D102 - same
        match request:
            case Place(entries):
                return self.all(Keep(entries))
            case Add(entry):
                return self.all(Store(entry))
            case Delete(entry):
                return self.all(Drop(entry))

    def told(self, message: Message, draw: float) -> Sends:
        """Take in what a server sends. One number draws whole subsets: it stands for an order of all entries."""
        match message:
            case Keep(entries):
                self._kept = nsmallest(self._x, dict.fromkeys(entries), key=lambda entry: rank(entry, draw))
                self._total = len(entries)
            case Store(entry):
                self._store(entry, draw)
                self._total += 1
            case Drop(entry):
                if entry in self._kept:
                    self._kept.remove(entry)
                self._total = max(self._total - 1, len(self._kept))
            case _:
                raise unknown(self, message)
        return []

    def _store(self, entry: str, draw: float) -> None:
        if entry in self._kept:
            return
        if len(self._kept) < self._x:
            self._kept.append(entry)
        elif (place := int(draw * (self._total + 1))) < self._x:
            # With probability x / (h + 1), and then any of the x is as likely to go.
            self._kept[place] = entry
