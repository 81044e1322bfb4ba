"""Hash-y (§3.5, §5.5): an entry's hashes say where it is, so that updates reach those servers alone."""

from hashlib import blake2b
from struct import unpack

from service.discovery.partial.keeping import KeepingServer
from service.discovery.partial.messages import Add, Delete, Drop, Keep, Place, Request, Send, Store
from service.discovery.partial.server import Sends, to_each

_HASHES = 16
"""So many of 32 bits are in one digest."""


def places_of(entry: str, y: int, servers: int) -> list[int]:
    """Return the servers f_1(v), …, f_y(v), each once."""
    found: dict[int, None] = {}
    for first in range(0, y, _HASHES):
        count = min(y - first, _HASHES)
        digest = blake2b(entry.encode(), digest_size=4 * count, salt=first.to_bytes(8)).digest()
        found |= dict.fromkeys(value % servers for value in unpack(f">{count}I", digest))
    return list(found)


class HashedServer(KeepingServer):
    """Has the entries of which a hash says so."""

    def __init__(self, me: int, servers: int, y: int) -> None:
        super().__init__(me, servers)
        self._y = y

    def requested(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                shares: list[list[str]] = [[] for _ in range(self.servers)]
                for entry in entries:
                    for server in self._servers_of(entry):
                        shares[server].append(entry)
                return [Send(server, Keep(tuple(share))) for server, share in enumerate(shares)]
            case Add(entry):
                return to_each(self._servers_of(entry), Store(entry))
            case Delete(entry):
                return to_each(self._servers_of(entry), Drop(entry))

    def _servers_of(self, entry: str) -> list[int]:
        return places_of(entry, self._y, self.servers)
