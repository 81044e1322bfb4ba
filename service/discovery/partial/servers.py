"""The servers of a directory, one class for each strategy (§3, §5), and the messages that they receive and send.

A server is a state machine: requests of clients and messages of other servers in, messages out.

The client of a lookup sends its updates to the coordinator, and asks servers in an order until it has enough.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from hashlib import blake2b
from heapq import nsmallest
from struct import pack, unpack
from typing import TypeAlias

import msgspec

from service.discovery.partial.strategies import Fixed, FullReplication, Hash, RandomServer, RoundRobin, Strategy
from service.errors import BadStrategy


class Place(msgspec.Struct, frozen=True, tag=True):
    """From now on the directory has these entries, and no others."""

    entries: tuple[str, ...]


class Add(msgspec.Struct, frozen=True, tag=True):
    """The directory has one entry more."""

    entry: str


class Delete(msgspec.Struct, frozen=True, tag=True):
    """The directory has this entry no more."""

    entry: str


Request: TypeAlias = Place | Add | Delete


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Forget all there was; of these entries keep those that are yours."""

    entries: tuple[str, ...]


class Store(msgspec.Struct, frozen=True, tag=True):
    """There is a new entry: keep it, if it is one of yours."""

    entry: str


class Remove(msgspec.Struct, frozen=True, tag="Drop"):
    """An entry is gone."""

    entry: str


class KeepAt(msgspec.Struct, frozen=True, tag=True):
    """Round-Robin: forget all there was; keep these, at these positions of the sequence."""

    entries: tuple[tuple[int, str], ...]


class StoreAt(msgspec.Struct, frozen=True, tag=True):
    """Round-Robin: keep this entry at this position."""

    position: int
    entry: str


class Hole(msgspec.Struct, frozen=True, tag=True):
    """Round-Robin, to the coordinator: nothing is at this position any more."""

    position: int


class FillHole(msgspec.Struct, frozen=True, tag="Fetch"):
    """Round-Robin: what you have at the first position goes to ``hole``."""

    first: int
    hole: int


Message: TypeAlias = Keep | Store | Remove | KeepAt | StoreAt | Hole | FillHole


class Send(msgspec.Struct, frozen=True):
    """What a server wants told to another, or to itself."""

    to: int
    message: Message


Sends = list[Send]


class DirectoryServer(ABC):
    """One server's share of one directory. It starts empty."""

    def __init__(self, me: int, servers: int) -> None:
        """Be the server number ``me`` of so many, counted from 0."""
        self.me = me
        self.servers = servers

    @property
    @abstractmethod
    def entries(self) -> Collection[str]:
        """What it keeps, each once."""

    @abstractmethod
    def requested(self, request: Request) -> Sends:
        """Coordinate what a client asks for. Send it where :func:`choose_coordinator` says."""

    @abstractmethod
    def told(self, message: Message, draw: float) -> Sends:
        """Take in what a server sends. Only RandomServer-x uses ``draw``."""

    def answer(self, target: int, known: Collection[str], draw: float) -> list[str]:
        """Return so many entries that the client does not know, or all there are; each is as likely as any other."""
        fresh = [entry for entry in self.entries if entry not in known] if known else list(self.entries)
        begin = int(draw * len(fresh))
        return (fresh[begin:] + fresh[:begin])[: max(target, 0)]

    def all(self, message: Message) -> Sends:
        """Return a broadcast."""
        return [Send(to, message) for to in range(self.servers)]


def to_each(servers: Iterable[int], message: Message) -> Sends:
    """Return the same message to several servers."""
    return [Send(to, message) for to in servers]


def foreign_message_error(server: DirectoryServer, message: Message) -> BadStrategy:
    """Return the error for a message of another strategy; nothing has changed."""
    what, whose = type(message).__name__, type(server).__name__
    return BadStrategy(f"A {whose} was told {what}, which is another strategy's. Place the entries anew.")


def rank(entry: str, salt: float) -> bytes:
    """Return where an entry stands in the random order that a number in [0, 1) stands for."""
    return blake2b(entry.encode(), digest_size=8, salt=pack("<d", salt)).digest()


class BroadcastServer(DirectoryServer):
    """Broadcasts every update."""

    def requested(self, request: Request) -> Sends:  # noqa: D102 - the base class says it
        match request:
            case Place(entries):
                return self.all(Keep(entries))
            case Add(entry):
                return self.all(Store(entry))
            case Delete(entry):
                return self.all(Remove(entry))


class StoringServer(BroadcastServer):
    """Keeps every entry that it is told of, until it is told that it is gone."""

    def __init__(self, me: int, servers: int) -> None:
        super().__init__(me, servers)
        self._kept: dict[str, None] = {}

    @property
    def entries(self) -> Collection[str]:  # noqa: D102 - the base class says it
        return self._kept.keys()

    def told(self, message: Message, draw: float) -> Sends:  # noqa: ARG002, D102 - same
        match message:
            case Keep(entries):
                self._kept = dict.fromkeys(entries)
            case Store(entry):
                self._kept[entry] = None
            case Remove(entry):
                self._kept.pop(entry, None)
            case _:
                raise foreign_message_error(self, message)
        return []


class FullReplicationServer(StoringServer):
    """Has everything."""


class FixedServer(StoringServer):
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
                return self.all(Remove(entry))
        return []


class ReservoirServer(BroadcastServer):
    """Has a random x of all entries.

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

    def told(self, message: Message, draw: float) -> Sends:
        """Take in what a server sends. One number draws whole subsets: it stands for an order of all entries."""
        match message:
            case Keep(entries):
                self._kept = nsmallest(self._x, dict.fromkeys(entries), key=lambda entry: rank(entry, draw))
                self._total = len(entries)
            case Store(entry):
                self._store(entry, draw)
                self._total += 1
            case Remove(entry):
                if entry in self._kept:
                    self._kept.remove(entry)
                self._total = max(self._total - 1, len(self._kept))
            case _:
                raise foreign_message_error(self, message)
        return []

    def _store(self, entry: str, draw: float) -> None:
        if entry in self._kept:
            return
        if len(self._kept) < self._x:
            self._kept.append(entry)
        elif (place := int(draw * (self._total + 1))) < self._x:
            # With probability x / (h + 1), and then any of the x is as likely to go.
            self._kept[place] = entry


COORDINATOR = 0


class RoundRobinServer(DirectoryServer):
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
                return self.all(Remove(entry))

    def told(self, message: Message, draw: float) -> Sends:  # noqa: ARG002, D102 - same
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
                return [Send(COORDINATOR, Hole(at)) for at in positions if at % self.servers == self.me]
            case Hole(position):
                return self._filled(position)
            case FillHole(first, hole):
                moved = self._take(first)
                server = (hole + (self.me - first)) % self.servers
                return [] if moved is None else [Send(server, StoreAt(hole, moved))]
            case _:
                raise foreign_message_error(self, message)
        return []

    def _filled(self, hole: int) -> Sends:
        """Have the first of the sequence moved to a hole, unless it is the hole, or has left it behind."""
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
"""So many of 32 bits are in one digest."""


def hash_servers(entry: str, y: int, servers: int) -> list[int]:
    """Return the servers f_1(v), …, f_y(v), each once."""
    found: dict[int, None] = {}
    for first in range(0, y, _HASHES):
        count = min(y - first, _HASHES)
        digest = blake2b(entry.encode(), digest_size=4 * count, salt=first.to_bytes(8)).digest()
        found |= dict.fromkeys(value % servers for value in unpack(f">{count}I", digest))
    return list(found)


class HashServer(StoringServer):
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
                return to_each(self._servers_of(entry), Remove(entry))

    def _servers_of(self, entry: str) -> list[int]:
        return hash_servers(entry, self._y, self.servers)


def make_server(strategy: Strategy, me: int, servers: int) -> DirectoryServer:
    """Return an empty server of a strategy, number ``me`` of so many."""
    match strategy:
        case FullReplication():
            return FullReplicationServer(me, servers)
        case Fixed(x):
            return FixedServer(me, servers, x)
        case RandomServer(x):
            return ReservoirServer(me, servers, x)
        case RoundRobin(y):
            return RoundRobinServer(me, servers, y)
        case Hash(y):
            return HashServer(me, servers, y)


def choose_coordinator(strategy: Strategy, servers: int, draw: float) -> int:
    """Return the server that an update is sent to: any, but for Round-Robin-y (§5)."""
    return COORDINATOR if isinstance(strategy, RoundRobin) else int(draw * servers)


def lookup_order(strategy: Strategy, servers: int, draw: float) -> list[int]:
    """Return all servers in the order in which a client asks them: random, or those without common entries first."""
    if isinstance(strategy, RoundRobin):
        return strided_order(int(draw * servers), strategy.y, servers)
    return sorted(range(servers), key=lambda server: rank(str(server), draw))


def strided_order(begin: int, stride: int, servers: int) -> list[int]:
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
