"""The servers of a directory, one class per strategy for storing its entries, and their messages (§3, §5).

A server is a state machine. Its inputs are requests from clients and messages from other servers. Its outputs are
messages. A client sends each update to one server, the update's *coordinator*. For a lookup, a client queries servers
one after another until it has enough entries.

The sections are those of Sun & Garcia-Molina's paper on partial lookup.
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
    """Asks a coordinator to replace all entries of the directory with ``entries``: the paper's place(v1, …, vh)."""

    entries: tuple[str, ...]


class Add(msgspec.Struct, frozen=True, tag=True):
    """Asks a coordinator to add an entry to the directory: the paper's add(v)."""

    entry: str


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Asks a coordinator to delete an entry from the directory: the paper's delete(v)."""

    entry: str


Request: TypeAlias = Place | Add | Delete


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Tells a server to replace all stored entries with the entries in ``entries`` that the server's strategy selects.

    ``total`` is the number of all entries of the directory, or 0 if ``entries`` contains all of them.
    """

    entries: tuple[str, ...]
    total: int = 0


class StoreEntry(msgspec.Struct, frozen=True, tag="Store"):
    """Tells a server that an entry has been added, so that the server stores it if its strategy selects the entry."""

    entry: str


class Remove(msgspec.Struct, frozen=True, tag="Drop"):
    """Tells a server that an entry has been deleted from the directory, so that the server removes it if stored."""

    entry: str


class KeepAt(msgspec.Struct, frozen=True, tag=True):
    """Tells a Round-Robin server to replace all stored entries with ``entries``.

    ``entries`` contains tuples (position, entry). The position is the entry's index in the sequence of all entries.
    """

    entries: tuple[tuple[int, str], ...]


class StoreAt(msgspec.Struct, frozen=True, tag=True):
    """Tells a Round-Robin server to store ``entry`` at ``position`` in the sequence of all entries."""

    position: int
    entry: str


class Hole(msgspec.Struct, frozen=True, tag=True):
    """Tells the Round-Robin coordinator that ``position`` in the sequence of all entries has become empty."""

    position: int


class FillHole(msgspec.Struct, frozen=True, tag="Fetch"):
    """Tells a Round-Robin server to move the entry at position ``first`` to the empty position ``hole``."""

    first: int
    hole: int


Message: TypeAlias = Keep | StoreEntry | Remove | KeepAt | StoreAt | Hole | FillHole


class SendToServer(msgspec.Struct, frozen=True):
    """Instruction to the caller: deliver ``message`` to the server with index ``to``, possibly the sender itself."""

    to: int
    message: Message


Sends = list[SendToServer]


class DirectoryServer(ABC):
    """One server of a directory, which stores a part of the directory's entries. A new server is empty.

    There is one subclass per strategy for storing entries.
    """

    def __init__(self, number: int, servers: int) -> None:
        """Create the server with index ``number`` (from 0) out of ``servers``."""
        self.number = number
        self.servers = servers

    @property
    @abstractmethod
    def entries(self) -> Collection[str]:
        """The entries that this server stores, without duplicates."""

    @abstractmethod
    def on_request(self, request: Request) -> Sends:
        """Process a client's request as coordinator; return the messages that make the servers carry it out.

        Clients choose the coordinator with :func:`choose_coordinator`.
        """

    @abstractmethod
    def on_message(self, message: Message, draw: float) -> Sends:
        """Process a message from another server; return the messages to send to other servers.

        ``draw`` is a random number in [0, 1), which only RandomServer-x uses.
        """

    def lookup(self, target: int, excluded: Collection[str], draw: float) -> list[str]:
        """Return up to ``target`` stored entries that the client does not have yet.

        ``excluded`` contains the entries that the client already has. All other entries are equally likely to be
        returned. ``draw``, a random number in [0, 1), determines the choice.
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
    """Return a sort key that puts entries into a pseudo-random order; ``salt``, in [0, 1), selects the order."""
    return blake2b(entry.encode(), digest_size=8, salt=pack("<d", salt)).digest()


class BroadcastServer(DirectoryServer):
    """Base class of servers that pass on the update requests of clients to all servers, including themselves."""

    def on_request(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                return self.broadcast(Keep(entries))
            case Add(entry):
                return self.broadcast(StoreEntry(entry))
            case Delete(entry):
                return self.broadcast(Remove(entry))


class StoringServer(BroadcastServer):
    """Base class of servers that store every entry that other servers send to them, until it is deleted."""

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
    """A server of the strategy "full replication", which stores all entries."""


class FixedServer(StoringServer):
    """A server of the strategy Fixed-x, which stores the same x entries as all other servers.

    As a coordinator, it forwards only the updates that change these entries.

    As in the paper, there is no concurrency control. If two additions are processed concurrently at servers with x - 1
    entries, both entries are stored. All servers then still have the same entries.
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
    """A server of the strategy RandomServer-x, which stores x randomly drawn entries of the directory.

    As long as no entry is deleted, all subsets of x entries are equally likely (Vitter's reservoir sampling). A deleted
    entry is replaced by the next added entry, so newer entries become more likely (Sun & Garcia-Molina §6.3).
    """

    def __init__(self, number: int, servers: int, x: int) -> None:
        super().__init__(number, servers)
        self._x = x
        self._stored: list[str] = []
        self._total = 0
        """h, the number of entries of the directory, according to the messages that this server has received."""

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._stored

    def on_message(self, message: Message, draw: float) -> Sends:
        """Process a message from another server; return the messages to send to other servers.

        ``draw`` is a random number in [0, 1). For a :class:`Keep` message, it determines which x entries are kept. For
        a :class:`StoreEntry` message to a full server, it determines whether the new entry is stored, and which stored
        entry is replaced.
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
    """A server of the strategy Round-Robin-y, which stores the entries at certain positions.

    The position of an entry is its index in the sequence of all entries. The entry at position p is on the servers p to
    p + y - 1, modulo the number of servers. Server 0 is the coordinator of all updates.
    """

    def __init__(self, number: int, servers: int, y: int) -> None:
        super().__init__(number, servers)
        self._copies = min(y, servers)
        self._at: dict[int, str] = {}
        self._positions: dict[str, set[int]] = {}
        self._first = 0
        self._end = 0
        """Coordinator only: the position after the last entry of the sequence, whose first entry is at ``_first``."""

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

        If ``hole`` is at or before the position of the first entry, no entry has to be moved, and the result is
        empty.
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
    """Return the indices of the servers that store an entry, as selected by ``y`` hash functions.

    There are ``servers`` servers, with indices from 0. The result has no duplicates.
    """
    found: dict[int, None] = {}
    for first in range(0, y, _HASHES):
        count = min(y - first, _HASHES)
        digest = blake2b(entry.encode(), digest_size=4 * count, salt=first.to_bytes(8)).digest()
        found |= dict.fromkeys(value % servers for value in unpack(f">{count}I", digest))
    return list(found)


class HashServer(StoringServer):
    """A server of the strategy Hash-y, which stores an entry if one of y hash functions selects this server."""

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
    """Return an empty server for a directory with the strategy ``strategy``.

    The server has the index ``number`` (from 0) out of ``servers``.
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
