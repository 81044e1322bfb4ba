"""The servers of a directory, one class per strategy of storing its entries (§3, §5), and the messages between them.

A server is a state machine. Its inputs are requests of clients and messages of other servers; its outputs are messages.
A client sends each update to one server, the coordinator of the update. For a lookup, a client queries servers one
after another until it has enough entries.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from hashlib import blake2b
from heapq import nsmallest
from struct import pack, unpack
from typing import TypeAlias

import msgspec

from service.discovery.partial_lookup.strategies import Fixed, FullReplication, Hash, RandomServer, RoundRobin, Strategy
from service.errors import BadStrategy


class Place(msgspec.Struct, frozen=True, tag=True):
    """Client request place(v1, …, vh): the directory has exactly these entries from now on."""

    entries: tuple[str, ...]


class Add(msgspec.Struct, frozen=True, tag=True):
    """Client request add(v): the directory has one more entry."""

    entry: str


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Client request delete(v): the entry is removed from the directory."""

    entry: str


Request: TypeAlias = Place | Add | Delete


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Message to a server: replace all stored entries by those of ``entries`` that the server's strategy selects.

    ``total`` is 0 if ``entries`` has all entries of the directory. Otherwise it is the number of all entries.
    """

    entries: tuple[str, ...]
    total: int = 0


class StoreEntry(msgspec.Struct, frozen=True, tag="Store"):
    """Message to a server: an entry has been added to the directory; store it if the server's strategy selects it."""

    entry: str


class Remove(msgspec.Struct, frozen=True, tag="Drop"):
    """Message to a server: an entry has been deleted from the directory; remove it if it is stored."""

    entry: str


class KeepAt(msgspec.Struct, frozen=True, tag=True):
    """Message to a server of the strategy Round-Robin: replace all stored entries.

    ``entries`` are pairs (position, entry). The position is the index of the entry in the sequence of all entries.
    """

    entries: tuple[tuple[int, str], ...]


class StoreAt(msgspec.Struct, frozen=True, tag=True):
    """Message to a server of Round-Robin: store ``entry``, which has this position in the sequence of all entries."""

    position: int
    entry: str


class Hole(msgspec.Struct, frozen=True, tag=True):
    """Message to the coordinator of Round-Robin: this position in the sequence of all entries has become empty."""

    position: int


class FillHole(msgspec.Struct, frozen=True, tag="Fetch"):
    """Message to a server of Round-Robin: move the entry at the position ``first`` to the empty position ``hole``."""

    first: int
    hole: int


Message: TypeAlias = Keep | StoreEntry | Remove | KeepAt | StoreAt | Hole | FillHole


class SendToServer(msgspec.Struct, frozen=True):
    """Instruction to the caller: deliver ``message`` to server number ``to``, which may be the sender itself."""

    to: int
    message: Message


Sends = list[SendToServer]


class DirectoryServer(ABC):
    """One server of a directory. It stores a part of the directory's entries; at first, it stores none.

    Each strategy of storing entries has a subclass.
    """

    def __init__(self, number: int, servers: int) -> None:
        """Create server ``number`` of ``servers``, counted from 0."""
        self.number = number
        self.servers = servers

    @property
    @abstractmethod
    def entries(self) -> Collection[str]:
        """The stored entries, without duplicates."""

    @abstractmethod
    def on_request(self, request: Request) -> Sends:
        """Process a client's request as the coordinator of the request.

        Clients choose the coordinator by :func:`choose_coordinator`. Return the messages to the servers that have to
        carry out the request.
        """

    @abstractmethod
    def on_message(self, message: Message, draw: float) -> Sends:
        """Process another server's message; return the messages to send to other servers.

        ``draw`` is a random number in [0, 1), which only RandomServer-x uses.
        """

    def lookup(self, target: int, excluded: Collection[str], draw: float) -> list[str]:
        """Return up to ``target`` stored entries that the client does not have yet.

        ``excluded`` are the entries that the client has. All others are equally likely to be returned. The random
        number ``draw`` in [0, 1) selects among them.
        """
        fresh = [entry for entry in self.entries if entry not in excluded] if excluded else list(self.entries)
        begin = int(draw * len(fresh))
        return (fresh[begin:] + fresh[:begin])[: max(target, 0)]

    def broadcast(self, message: Message) -> Sends:
        """Return the instructions to send ``message`` to all servers, including this one."""
        return [SendToServer(to, message) for to in range(self.servers)]


def to_each(servers: Iterable[int], message: Message) -> Sends:
    """Return the instructions to send ``message`` to ``servers``."""
    return [SendToServer(to, message) for to in servers]


def foreign_message_error(server: DirectoryServer, message: Message) -> BadStrategy:
    """Return the error that ``server`` raises for a message that belongs to another strategy."""
    what, whose = type(message).__name__, type(server).__name__
    return BadStrategy(f"A {whose} received {what}, a message of another strategy. Place the entries again.")


def random_sort_key(entry: str, salt: float) -> bytes:
    """Return the sort key of ``entry`` in a pseudo-random order, which ``salt`` in [0, 1) determines."""
    return blake2b(entry.encode(), digest_size=8, salt=pack("<d", salt)).digest()


class BroadcastServer(DirectoryServer):
    """A server that, as coordinator, sends every update to all servers."""

    def on_request(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                return self.broadcast(Keep(entries))
            case Add(entry):
                return self.broadcast(StoreEntry(entry))
            case Delete(entry):
                return self.broadcast(Remove(entry))


class StoringServer(BroadcastServer):
    """A server that stores every entry that other servers send to it, until the entry is deleted."""

    def __init__(self, number: int, servers: int) -> None:
        super().__init__(number, servers)
        self._stored: dict[str, None] = {}

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._stored.keys()

    def on_message(self, message: Message, draw: float) -> Sends:  # noqa: ARG002, D102 - same
        match message:
            case Keep(entries):
                self._stored = dict.fromkeys(entries)
            case StoreEntry(entry):
                self._stored[entry] = None
            case Remove(entry):
                self._stored.pop(entry, None)
            case _:
                raise foreign_message_error(self, message)
        return []


class FullReplicationServer(StoringServer):
    """A server of the strategy full replication: it stores all entries."""


class FixedServer(StoringServer):
    """A server of the strategy Fixed-x: it stores the same x entries as all other servers.

    It forwards only the updates that change these entries.

    As in the paper, there is no concurrency control. If two adds are processed concurrently at servers with x - 1
    entries, both entries are stored, so that all servers still have the same entries.
    """

    def __init__(self, number: int, servers: int, x: int) -> None:
        super().__init__(number, servers)
        self._x = x

    def on_request(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                return self.broadcast(Keep(entries[: self._x]))
            case Add(entry) if len(self._stored) < self._x and entry not in self._stored:
                return self.broadcast(StoreEntry(entry))
            case Delete(entry) if entry in self._stored:
                return self.broadcast(Remove(entry))
        return []


class ReservoirServer(BroadcastServer):
    """A server of the strategy RandomServer-x: it stores x entries of the directory, drawn at random.

    Without deletes, all subsets of x entries stay equally likely (Vitter's reservoir sampling). A deleted entry is
    replaced by the next added entry, so newer entries become more likely (Sun & Garcia-Molina §6.3).
    """

    def __init__(self, number: int, servers: int, x: int) -> None:
        super().__init__(number, servers)
        self._x = x
        self._stored: list[str] = []
        self._total = 0
        """h, the number of entries of the directory, by the messages that this server has received."""

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._stored

    def on_message(self, message: Message, draw: float) -> Sends:
        """Process another server's message; return the messages to send to other servers.

        For a :class:`Keep` (replace all entries), the random number ``draw`` in [0, 1) determines an order of the
        entries. The first x are stored.
        """
        match message:
            case Keep(entries, total):
                distinct = dict.fromkeys(entries)
                self._stored = nsmallest(self._x, distinct, key=lambda entry: random_sort_key(entry, draw))
                self._total = total or len(entries)
            case StoreEntry(entry):
                self._store(entry, draw)
                self._total += 1
            case Remove(entry):
                if entry in self._stored:
                    self._stored.remove(entry)
                self._total = max(self._total - 1, len(self._stored))
            case _:
                raise foreign_message_error(self, message)
        return []

    def _store(self, entry: str, draw: float) -> None:
        if entry in self._stored:
            return
        if len(self._stored) < self._x:
            self._stored.append(entry)
        elif (place := int(draw * (self._total + 1))) < self._x:
            # With probability x / (h + 1); each of the x entries is then equally likely to be replaced.
            self._stored[place] = entry


COORDINATOR = 0


class RoundRobinServer(DirectoryServer):
    """A server of the strategy Round-Robin-y: it stores the entries at certain positions.

    The position of an entry is its index in the sequence of all entries. The entry at position p is on the servers p to
    p + y - 1, modulo the number of servers. Server 0 is the coordinator.
    """

    def __init__(self, number: int, servers: int, y: int) -> None:
        super().__init__(number, servers)
        self._copies = min(y, servers)
        self._at: dict[int, str] = {}
        self._positions: dict[str, set[int]] = {}
        self._first = 0
        self._end = 0
        """Coordinator only: the sequence occupies the positions from ``_first`` to before this one."""

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._positions.keys()

    def on_request(self, request: Request) -> Sends:  # noqa: D102 - same
        match request:
            case Place(entries):
                self._first, self._end = 0, len(entries)
                shares: list[list[tuple[int, str]]] = [[] for _ in range(self.servers)]
                for position, entry in enumerate(entries):
                    for server in self._servers_of(position):
                        shares[server].append((position, entry))
                return [SendToServer(server, KeepAt(tuple(share))) for server, share in enumerate(shares)]
            case Add(entry):
                self._end += 1
                return to_each(self._servers_of(self._end - 1), StoreAt(self._end - 1, entry))
            case Delete(entry):
                return self.broadcast(Remove(entry))

    def on_message(self, message: Message, draw: float) -> Sends:  # noqa: ARG002, D102 - same
        match message:
            case KeepAt(entries):
                self._at, self._positions = {}, {}
                for position, entry in entries:
                    self._put(position, entry)
            case StoreAt(position, entry):
                self._put(position, entry)
            case Remove(entry):
                positions = sorted(self._positions.get(entry, ()))
                for position in positions:
                    self._take(position)
                return [SendToServer(COORDINATOR, Hole(at)) for at in positions if at % self.servers == self.number]
            case Hole(position):
                return self._on_hole(position)
            case FillHole(first, hole):
                moved = self._take(first)
                server = (hole + (self.number - first)) % self.servers
                return [] if moved is None else [SendToServer(server, StoreAt(hole, moved))]
            case _:
                raise foreign_message_error(self, message)
        return []

    def _on_hole(self, hole: int) -> Sends:
        """Return the messages that move the first entry of the sequence to the empty position ``hole``.

        The result is empty if ``hole`` is not after the position of the first entry, because the sequence then has no
        gap.
        """
        first = self._first
        self._first = max(first, min(first, hole) + 1)
        return to_each(self._servers_of(first), FillHole(first, hole)) if hole > first else []

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


_HASHES = 16
"""Number of 32-bit hashes in one digest."""


def hash_servers(entry: str, y: int, servers: int) -> list[int]:
    """Return the numbers of the servers that store an entry: those that ``y`` hash functions select.

    There are ``servers`` servers, numbered from 0. The result has no duplicates.
    """
    found: dict[int, None] = {}
    for first in range(0, y, _HASHES):
        count = min(y - first, _HASHES)
        digest = blake2b(entry.encode(), digest_size=4 * count, salt=first.to_bytes(8)).digest()
        found |= dict.fromkeys(value % servers for value in unpack(f">{count}I", digest))
    return list(found)


class HashServer(StoringServer):
    """A server of the strategy Hash-y: it stores each entry for which one of y hash functions selects this server."""

    def __init__(self, number: int, servers: int, y: int) -> None:
        super().__init__(number, servers)
        self._y = y

    def on_request(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                shares: list[list[str]] = [[] for _ in range(self.servers)]
                for entry in entries:
                    for server in self._servers_of(entry):
                        shares[server].append(entry)
                return [SendToServer(server, Keep(tuple(share))) for server, share in enumerate(shares)]
            case Add(entry):
                return to_each(self._servers_of(entry), StoreEntry(entry))
            case Delete(entry):
                return to_each(self._servers_of(entry), Remove(entry))

    def _servers_of(self, entry: str) -> list[int]:
        return hash_servers(entry, self._y, self.servers)


def make_server(strategy: Strategy, number: int, servers: int) -> DirectoryServer:
    """Return server ``number`` of ``servers`` (counted from 0) for a directory with this strategy.

    The server has no entries yet.
    """
    match strategy:
        case FullReplication():
            return FullReplicationServer(number, servers)
        case Fixed(x):
            return FixedServer(number, servers, x)
        case RandomServer(x):
            return ReservoirServer(number, servers, x)
        case RoundRobin(y):
            return RoundRobinServer(number, servers, y)
        case Hash(y):
            return HashServer(number, servers, y)
