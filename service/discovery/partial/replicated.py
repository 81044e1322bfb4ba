"""Full replication and Fixed-x (§3.1, §3.2, §5.1, §5.2): all servers have the same."""

from service.discovery.partial.keeping import KeepingServer
from service.discovery.partial.messages import Add, Delete, Drop, Keep, Place, Request, Store
from service.discovery.partial.server import Sends


class FullServer(KeepingServer):
    """Has everything; every update is a broadcast."""

    def requested(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                return self.all(Keep(entries))
            case Add(entry):
                return self.all(Store(entry))
            case Delete(entry):
                return self.all(Drop(entry))


class FixedServer(FullServer):
    """Has the same x entries as all others, and is silent about updates of the rest.

    There is no concurrency control, as in the paper: two adds at two servers with x - 1 entries are both kept, so that
    all servers still have the same.
    """

    def __init__(self, me: int, servers: int, x: int) -> None:
        super().__init__(me, servers)
        self._x = x

    def requested(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                return self.all(Keep(entries[: self._x]))
            case Add(entry) if len(self._kept) < self._x and entry not in self._kept:
                return self.all(Store(entry))
            case Delete(entry) if entry in self._kept:
                return self.all(Drop(entry))
        return []
