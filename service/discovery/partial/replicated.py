"""Full replication and Fixed-x (§3.1, §3.2, §5.1, §5.2): all servers have the same."""

from collections.abc import Collection

from service.discovery.partial.messages import Add, Delete, Drop, Keep, Message, Place, Request, Store
from service.discovery.partial.server import Sends, Server, unknown


class FullServer(Server):
    """Has everything; every update is a broadcast."""

    def __init__(self, me: int, servers: int) -> None:
        super().__init__(me, servers)
        self._kept: dict[str, None] = {}

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._kept.keys()

    def requested(self, request: Request) -> Sends:  # noqa: D102 - same
        match request:
            case Place(entries):
                return self.all(Keep(entries))
            case Add(entry):
                return self.all(Store(entry))
            case Delete(entry):
                return self.all(Drop(entry))

    def told(self, message: Message, draw: float) -> Sends:  # noqa: ARG002, D102 - same
        match message:
            case Keep(entries):
                self._kept = dict.fromkeys(entries)
            case Store(entry):
                self._kept[entry] = None
            case Drop(entry):
                self._kept.pop(entry, None)
            case _:
                raise unknown(self, message)
        return []


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
