"""The lookup directories in memory: partial lookup of channels, with one directory per frequently looked-up AV-pair.

An AV-pair is an attribute with its value. A directory lists names that have the pair. All nodes of the ring are the
servers of each directory, and each holds a *share*, which is a part of the names. The node nearest to the pair is
server 0 and coordinates the directory: in each maintenance interval it reads the names from the pair's matrix, if they
have changed, and sends the changes to the other servers (:mod:`service.discovery.partial`). A lookup asks any one node;
names that are missing there are read from the matrices. When the ring changes, the servers change: all shares are
discarded, and placed again at the next maintenance. Shares are soft state, and messages about them may be lost.
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from hashlib import sha1
from typing import Protocol

import msgspec
import structlog

from service.discovery.cell import NameRecord
from service.discovery.partial.node_share import (
    Letter,
    LookupCount,
    NodeShares,
    PlacementTerm,
    ShareUpdate,
    decode_letter,
    encode_entry,
    encode_letter,
)
from service.discovery.partial.servers import Message, Place, SendToServer
from service.discovery.partial.strategy_choice import Coordinator, DirectoryChoice
from service.errors import CellsUnavailable, StoreUnavailable
from service.model import NodeId
from service.overlay.ring import RingView

DISCOVER = "status=ok"
"""The pair whose directory always exists: channels that work, for searches without a query."""
MIN_LOOKUPS = 100.0
"""Lookups, halved at each maintenance, from which on a pair has a directory: reading one costs about as much."""
MIN_TARGET = 100
"""The least t of a partial lookup. A search for several pairs needs more names of one pair than it returns."""
MAX_NAMES = 2000
"""Names of one directory; the matrices have the others."""
MAX_REPORTED_PAIRS = 64
"""Pairs with the most lookups, which a node reports to their coordinators in one maintenance interval."""
_MAX_COUNTED_PAIRS = 1000

log = structlog.get_logger(__name__)


class NameSource(Protocol):
    """The source of the names in directories.

    Reading may raise :class:`StoreUnavailable` or :class:`CellsUnavailable`.
    """

    def key(self, pair: str) -> str:
        """Return the key by which names refer to an AV-pair (attribute and value)."""
        ...

    async def names(self, pair: str, max_count: int, /) -> Sequence[NameRecord]:
        """Return up to ``max_count`` unexpired records of names that have the AV-pair ``pair``."""
        ...

    async def content_mark(self, pair: str) -> Hashable:
        """Return a value that changes whenever names with this AV-pair are registered or withdrawn.

        The expiry of names does not change it.
        """
        ...


SendMessages = Callable[[Sequence[tuple[NodeId, bytes]]], Awaitable[None]]
"""Sends messages to nodes. May raise :class:`StoreUnavailable`."""


class _Demand(msgspec.Struct):
    lookups: float = 0.0
    """Halved at each maintenance."""
    recent: int = 0
    """Lookups since the last maintenance."""
    target: int = 0


class LookupDirectories:
    """One node's shares of all directories, and the directories that this node coordinates.

    The share of a node is the part of a directory's names that the node holds.
    """

    def __init__(self, node_id: NodeId, matrices: NameSource, send: SendMessages, draw: Callable[[], float]) -> None:
        """Create the directories of the node ``node_id``, whose names come from ``matrices``.

        ``send`` sends messages to other nodes, and ``draw`` returns random numbers in [0, 1).
        """
        self._node_id = node_id
        self._matrices = matrices
        self._send = send
        self._draw = draw
        self._ring = RingView(-1, ())
        self._shares = NodeShares()
        self._lookups: dict[str, _Demand] = {}
        """Lookups at this node since the last maintenance, by pair."""
        self._demand: dict[str, _Demand] = {}
        """Lookups at all nodes for the pairs that this node coordinates."""
        self._coordinators: dict[str, Coordinator] = {}
        self._marks: dict[str, Hashable] = {}
        """The content mark of each coordinated pair before its names were last read."""

    @property
    def coordinated(self) -> tuple[DirectoryChoice, ...]:
        """The directories that this node coordinates: their measurements, strategies, and the reasons for these."""
        return tuple(
            DirectoryChoice(pair, coordinator.measured, coordinator.choice)
            for pair, coordinator in self._coordinators.items()
            if coordinator.measured is not None and coordinator.choice is not None
        )

    def share(self, pair: str) -> tuple[str, ...]:
        """Return the names that this node stores of an AV-pair's directory; empty if this node has no share of it."""
        return self._shares.names(pair)

    def on_ring_changed(self, ring: RingView) -> None:
        """Use the nodes of ``ring`` as servers, and discard all shares, because the servers have changed."""
        self._ring = ring
        self._shares, self._coordinators, self._marks = NodeShares(), {}, {}
        self._demand = {
            pair: demand for pair, demand in self._demand.items() if self._coordinator_of(pair) == self._node_id
        }

    def find(self, pairs: Collection[str], limit: int) -> list[str]:
        """Return up to ``limit`` names that this node stores and that have all these AV-pairs.

        The lookup is counted for each pair, because the demand for a pair decides whether it has a directory.
        """
        for pair in pairs:
            if pair in self._lookups or len(self._lookups) < _MAX_COUNTED_PAIRS:
                demand = self._lookups.setdefault(pair, _Demand())
                demand.recent, demand.target = demand.recent + 1, max(demand.target, limit)
        return self._shares.find(pairs, frozenset(map(self._matrices.key, pairs)), limit, self._draw())

    async def on_message(self, payload: bytes) -> None:
        """Apply a message of another node: changes to this node's shares, or counts of lookups."""
        outgoing: list[tuple[NodeId, ShareUpdate | LookupCount]] = []
        for part in decode_letter(payload):
            if isinstance(part, LookupCount):
                self._count(part)
            elif part.term.ring == self._ring.version and self._node_id in self._ring:
                outgoing += self._apply(part)
        await self._send_all(outgoing)

    async def maintain(self) -> None:
        """Report lookups to the coordinators of the pairs, and update the directories that this node coordinates."""
        self._shares.expire()
        if self._node_id not in self._ring:
            return
        lookups, self._lookups = self._lookups, {}
        most_frequent = sorted(lookups, key=lambda pair: -lookups[pair].recent)[:MAX_REPORTED_PAIRS]
        outgoing: list[tuple[NodeId, ShareUpdate | LookupCount]] = []
        for pair in most_frequent:
            count = LookupCount(pair, lookups[pair].recent, lookups[pair].target)
            coordinator = self._coordinator_of(pair)
            if coordinator == self._node_id:
                self._count(count)
            elif coordinator is not None:
                outgoing.append((coordinator, count))
        for pair in self._needed_pairs():
            outgoing += await self._update(pair)
        await self._send_all(outgoing)

    def _needed_pairs(self) -> list[str]:
        """Return the AV-pairs whose directories this node has to coordinate.

        Remove all other coordinated directories.
        """
        for demand in self._demand.values():
            demand.lookups, demand.recent = demand.lookups / 2 + demand.recent, 0
        if self._coordinator_of(DISCOVER) == self._node_id:
            self._demand.setdefault(DISCOVER, _Demand())
        needed = [pair for pair, demand in self._demand.items() if pair == DISCOVER or demand.lookups >= MIN_LOOKUPS]
        self._demand = {pair: demand for pair, demand in self._demand.items() if pair in needed or demand.lookups >= 1}
        self._coordinators = {pair: own for pair, own in self._coordinators.items() if pair in needed}
        self._marks = {pair: mark for pair, mark in self._marks.items() if pair in needed}
        return needed

    async def _update(self, pair: str) -> list[tuple[NodeId, ShareUpdate | LookupCount]]:
        """Read the names of a directory from its matrix, and return one update for each other server.

        Unchanged names are not read, except when they are placed again, because some may have expired. A server gets an
        update even if nothing has changed. The result is empty if the names cannot be read or the ring has changed in
        the meantime.
        """
        ring, demand = self._ring, self._demand[pair]
        known = self._coordinators.get(pair)
        try:
            mark = await self._matrices.content_mark(pair)
            if known is not None and not known.is_placement_due and mark == self._marks.get(pair):
                entries = known.entries
            else:
                names = await self._matrices.names(pair, MAX_NAMES)
                entries = sorted(encode_entry(name.name, name.version, name.pairs) for name in names)
        except (StoreUnavailable, CellsUnavailable) as error:
            log.warning("reading directory failed", pair=pair, error=str(error))
            return []
        if ring is not self._ring:
            return []
        self._marks[pair] = mark
        coordinator = self._coordinators.setdefault(pair, Coordinator(len(ring.ids)))
        requests = coordinator.update(entries, demand.lookups, max(demand.target, MIN_TARGET))
        if coordinator.choice is None:
            return []
        strategy, term = coordinator.choice.strategy, PlacementTerm(ring.version, coordinator.placed)
        server = self._shares.server(pair)
        if server is None or any(isinstance(request, Place) for request in requests):
            server = self._shares.start(pair, term, strategy, 0, len(ring.ids))
        sends = [send for request in requests for send in server.on_request(request)]
        messages: dict[int, list[Message]] = {number: [] for number in range(len(ring.ids))}
        for send in sends:
            messages[send.to].append(send.message)
        updates = [(number, ShareUpdate(pair, term, strategy, tuple(own))) for number, own in messages.items()]
        outgoing = [each for number, update in updates if number == 0 for each in self._apply(update)]
        return outgoing + [(self._server_node(pair, number), update) for number, update in updates if number]

    def _apply(self, update: ShareUpdate) -> list[tuple[NodeId, ShareUpdate | LookupCount]]:
        """Apply an update to this node's share of a directory; return the resulting updates for other servers."""
        ids = self._ring.ids
        first = ids.index(self._coordinator_of(update.pair) or self._node_id)
        number = (ids.index(self._node_id) - first) % len(ids)
        sends: Iterable[SendToServer] = self._shares.on_update(update, number, len(ids), self._draw())
        return [
            (
                self._server_node(update.pair, send.to),
                ShareUpdate(update.pair, update.term, update.strategy, (send.message,)),
            )
            for send in sends
        ]

    def _count(self, count: LookupCount) -> None:
        """Add the lookups of an AV-pair, which a node has reported, to the demand for the pair's directory."""
        if count.pair in self._demand or len(self._demand) < _MAX_COUNTED_PAIRS:
            demand = self._demand.setdefault(count.pair, _Demand())
            demand.recent += count.lookups
            demand.target = max(demand.target, count.target)

    def _coordinator_of(self, pair: str) -> NodeId | None:
        return self._ring.owner(sha1(pair.encode(), usedforsecurity=False).hexdigest())

    def _server_node(self, pair: str, number: int) -> NodeId:
        """Return the node that is server ``number`` of an AV-pair's directory; server 0 is the coordinator."""
        ids = self._ring.ids
        return ids[(ids.index(self._coordinator_of(pair) or self._node_id) + number) % len(ids)]

    async def _send_all(self, outgoing: Iterable[tuple[NodeId, ShareUpdate | LookupCount]]) -> None:
        """Send updates and counts to their nodes, with one message for each node."""
        messages: dict[NodeId, Letter] = {}
        for node, part in outgoing:
            messages.setdefault(node, []).append(part)
        if messages:
            try:
                await self._send([(node, encode_letter(message)) for node, message in messages.items()])
            except StoreUnavailable as error:
                log.warning("directory messages lost", nodes=len(messages), error=str(error))
