"""Round-Robin-y (§3.4, §5.4): the entries are a sequence, dealt out to the servers in turn.

Position p is on the servers p, p + 1, …, p + y - 1, modulo n. The coordinator is always server 0: it alone knows where
the sequence begins and ends. New entries go to its end; a hole is filled with what is first in the sequence, which
then begins one later. So positions stay without gaps, and shares differ by at most y entries.
The paper leaves updates to its extended version; this is our way. Requests come one after another: the next when all
messages of the last have arrived. The first server of a position reports its hole, so that deleting what is not there
moves nothing.
"""

from collections.abc import Collection

from service.discovery.partial.messages import (
    Add,
    Delete,
    Drop,
    Fetch,
    Hole,
    KeepAt,
    Message,
    Place,
    Request,
    Send,
    StoreAt,
)
from service.discovery.partial.server import Sends, Server, to_each, unknown

COORDINATOR = 0


class RoundRobinServer(Server):
    """Has each entry whose position, or one of the y - 1 positions before it, is its own in turn."""

    def __init__(self, me: int, servers: int, y: int) -> None:
        super().__init__(me, servers)
        self._copies = min(y, servers)
        self._at: dict[int, str] = {}
        self._positions: dict[str, set[int]] = {}
        self._first = 0
        self._end = 0
        """Of the coordinator: the sequence is at the positions from ``_first`` up to here."""

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._positions.keys()

    def requested(self, request: Request) -> Sends:  # noqa: D102 - same
        match request:
            case Place(entries):
                self._first, self._end = 0, len(entries)
                shares: list[list[tuple[int, str]]] = [[] for _ in range(self.servers)]
                for position, entry in enumerate(entries):
                    for server in self._servers_of(position):
                        shares[server].append((position, entry))
                return [Send(server, KeepAt(tuple(share))) for server, share in enumerate(shares)]
            case Add(entry):
                self._end += 1
                return to_each(self._servers_of(self._end - 1), StoreAt(self._end - 1, entry))
            case Delete(entry):
                return self.all(Drop(entry))

    def told(self, message: Message, draw: float) -> Sends:  # noqa: ARG002, D102 - same
        match message:
            case KeepAt(entries):
                self._at, self._positions = {}, {}
                for position, entry in entries:
                    self._put(position, entry)
            case StoreAt(position, entry):
                self._put(position, entry)
            case Drop(entry):
                positions = sorted(self._positions.get(entry, ()))
                for position in positions:
                    self._take(position)
                return [Send(COORDINATOR, Hole(at)) for at in positions if at % self.servers == self.me]
            case Hole(position):
                return self._filled(position)
            case Fetch(first, hole):
                moved = self._take(first)
                server = (hole + (self.me - first)) % self.servers
                return [] if moved is None else [Send(server, StoreAt(hole, moved))]
            case _:
                raise unknown(self, message)
        return []

    def _filled(self, hole: int) -> Sends:
        """Have the first of the sequence moved to a hole, unless it is the hole, or has left it behind."""
        first = self._first
        self._first = max(first, min(first, hole) + 1)
        return to_each(self._servers_of(first), Fetch(first, hole)) if hole > first else []

    def _servers_of(self, position: int) -> list[int]:
        return [(position + copy) % self.servers for copy in range(self._copies)]

    def _put(self, position: int, entry: str) -> None:
        self._take(position)
        self._at[position] = entry
        self._positions.setdefault(entry, set()).add(position)

    def _take(self, position: int) -> str | None:
        entry = self._at.pop(position, None)
        if entry is not None:
            places = self._positions[entry]
            places.discard(position)
            if not places:
                del self._positions[entry]
        return entry
