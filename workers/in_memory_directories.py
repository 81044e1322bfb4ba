"""A node's in-memory directories, which find channels that have a popular attribute-value pair (partial lookup).

A directory lists the names of the channels with one attribute-value pair. Each node of the ring is a server of every
directory and holds a *share* of it: a part of the names. The node nearest to the hash of the pair is server 0, the
coordinator.

In each maintenance interval, the coordinator takes these steps:

1. It reads the names from the store if they have changed.
2. It sends the changes to the other servers (:mod:`service.discovery.partial_lookup`).
3. It announces the directory in the store.

Bots and the console read the announcements and send their lookups to one or a few servers
(:mod:`service.store.directory.lookup_directory_client`). They report to the coordinators how many lookups they make.

After the ring has changed, the new coordinators distribute their directories at the next maintenance. Until then, nodes
answer lookups from their old shares. Shares are soft state: messages about them may be lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from hashlib import sha1
from random import Random

import msgspec
import structlog
from cachetools import LRUCache

from service.discovery.discover_listings import MAX_CANDIDATES, NEW, WORKING
from service.discovery.partial_lookup.node_shares import (
    DirectoryAnnouncement,
    DirectoryMessage,
    LookupCount,
    MessagePart,
    NamesOfPair,
    NodeShares,
    PlacementTerm,
    ShareLost,
    ShareMatches,
    ShareUpdate,
    decode_message,
    encode_entry,
)
from service.discovery.partial_lookup.servers import Keep, Message, Place, SendToServer
from service.discovery.partial_lookup.strategies import Fixed, RandomServer, Strategy
from service.discovery.partial_lookup.strategy_choice import MIN_ENTRIES, Coordinator, DirectoryChoice
from service.errors import CellsUnavailable, StoreUnavailable
from service.model import NodeId
from service.overlay.ring import RingView
from service.store.directory.lookup_directory_client import DirectoryAnnouncements
from service.store.directory.matrix_directory import MatrixNameReader

DISCOVER_PAIRS = (WORKING, NEW)
"""The AV-pairs of all working and of all new channels. Their directories always exist, because users browse in these
lists without a query. They contain only the names with the greatest weights."""
MIN_LOOKUPS = 20.0
"""Minimum number of recent lookups of an AV-pair for its directory to be created. The number is halved at each
maintenance. With fewer lookups, a directory costs more than it saves: a maintenance reads all its names, which costs as
much as a search without the directory."""
_MIN_LOOKUPS_TO_STAY = MIN_LOOKUPS / 4
MAX_ENTRIES = 50_000
"""Maximum number of names in a directory. If more names have the AV-pair, the directory contains those with the
greatest weights."""
NAMES_PER_READING = 10_000
"""Maximum number of a directory's names that are read per maintenance, on average. To keep to this maximum, a directory
of n names is read only at every k-th maintenance, where k is n / ``NAMES_PER_READING``, rounded up."""
TARGET_DECAY = 0.98
"""Factor by which a pair's target decreases at each maintenance. The target is the greatest number of entries that one
lookup has requested."""
_MAX_COUNTED_PAIRS = 1000
_CACHED_COORDINATORS = 1_000
_MAX_DESCRIBED = 2_000
"""Maximum number of names whose AV-pairs are read in one request."""

log = structlog.get_logger(__name__)


SendMessages = Callable[[Sequence[tuple[NodeId, DirectoryMessage]]], Awaitable[None]]
"""Sends messages to nodes. May raise :class:`StoreUnavailable`."""


class _Demand(msgspec.Struct):
    lookups: float = 0.0
    """Number of lookups of an AV-pair before the last maintenance. Each maintenance halves this number, so that older
    lookups count less."""
    recent: int = 0
    """Number of lookups since the last maintenance."""
    former: int = 0
    """Number of lookups between the last two maintenances."""
    target: float = 0.0
    """The greatest number of entries that one lookup has requested; multiplied by ``TARGET_DECAY`` at each
    maintenance."""


class _Directory(msgspec.Struct):
    """The state of one directory that this node coordinates.

    A directory lists the names of the channels with one attribute-value pair. From time to time, the node reads these
    names from the store; this is called a reading.
    """

    coordinator: Coordinator
    mark: Hashable = None
    """A hash of the names and weights at the last reading, by which a change is recognised; None before the first
    reading."""
    total: int = 0
    """Number of all names with the pair at the last reading."""
    rounds: int = 0
    """Maintenance rounds since the last reading."""
    number: int = 0
    """Sequence number of the next update. The first update after the directory was distributed anew has the number 0.
    All servers get the same numbers, and a gap in the numbers shows that an update was lost."""


class InMemoryDirectories:
    """One node's shares of all directories, and the directories that this node coordinates.

    A directory lists the channels that have one attribute-value pair. A share is the part of a directory that one node
    holds.
    """

    def __init__(
        self,
        node_id: NodeId,
        names: MatrixNameReader,
        announcements: DirectoryAnnouncements,
        send: SendMessages,
        *,
        random: Random,
        interval_s: float,
    ) -> None:
        """Create the directories of the node ``node_id``, initially without any names.

        - ``names``: reads the names with an attribute-value pair from the store.
        - ``announcements``: announces directories in the store.
        - ``send``: sends messages to other nodes.
        - ``random``: draws random numbers.
        - ``interval_s``: interval in seconds at which the caller calls :meth:`maintain`.
        """
        self._node_id = node_id
        self._names = names
        self._announcements = announcements
        self._send = send
        self._random = random
        self._lifetime_s = 3 * interval_s
        self._ring = RingView(-1, ())
        self._coordinators: LRUCache[str, NodeId | None] = LRUCache(_CACHED_COORDINATORS)
        self._shares = NodeShares()
        self._demand: dict[str, _Demand] = {}
        """Lookups of all clients for the pairs that this node coordinates."""
        self._directories: dict[str, _Directory] = {}

    @property
    def coordinated(self) -> tuple[DirectoryChoice, ...]:
        """The directories that this node coordinates and has already measured.

        Each item contains the measurements of a directory, such as its number of entries. It also contains the
        strategy that determines which node holds which entries, and the reasons for choosing this strategy.
        """
        return tuple(
            DirectoryChoice(pair, own.coordinator.measured, own.coordinator.choice)
            for pair, own in self._directories.items()
            if own.coordinator.measured is not None and own.coordinator.choice is not None
        )

    def share(self, pair: str) -> tuple[str, ...]:
        """Return the names that this node holds in the directory of the attribute-value pair ``pair``."""
        return self._shares.names(pair)

    def on_ring_changed(self, ring: RingView) -> None:
        """Use the nodes of ``ring`` as the servers of all directories from now on."""
        # This node keeps its share of a directory until the directory's coordinator sends a new one.
        self._ring = ring
        self._coordinators.clear()
        self._directories = {}
        self._demand = {pair: demand for pair, demand in self._demand.items() if self.is_coordinator(pair)}

    def is_coordinator(self, pair: str) -> bool:
        """Return whether this node coordinates the directory of the attribute-value pair ``pair``."""
        # The coordinator is the nearest node to the pair's hash.
        return self._coordinator_of(pair) == self._node_id

    def find(self, directory: str, pairs: Collection[str], limit: int) -> ShareMatches:
        """Return up to ``limit`` names from this node's share of a directory that have all of the given pairs.

        - ``directory``: the attribute-value pair of the directory.
        - ``pairs``: the attribute-value pairs that each returned name must have.
        """
        return self._shares.find(directory, pairs, limit)

    async def on_message(self, payload: bytes) -> None:
        """Process a message from another process.

        The message updates names that this node holds, or reports on a directory that this node coordinates. If an
        update is lost, the coordinator repairs this at a later maintenance. Raises :class:`StoreUnavailable`.
        """
        outgoing: list[tuple[NodeId, MessagePart]] = []
        for part in decode_message(payload):
            match part:
                case LookupCount():
                    self._count(part)
                case ShareLost():
                    self._place_again(part)
                case ShareUpdate() if part.term.ring == self._ring.version and self._node_id in self._ring:
                    outgoing += self._apply(part)
        await self._send_all(outgoing)
        await self._read_pairs(reread=False)

    async def maintain(self, fleet_s: float) -> None:
        """Update and announce the directories that this node coordinates. Call this once per maintenance interval.

        Also read all attribute-value pairs of the names that this node holds. ``fleet_s`` is the time of Redis's clock
        (Unix s), which all nodes share. Raises :class:`StoreUnavailable`; the next call repeats any lost updates.
        """
        self._shares.expire()
        if self._node_id not in self._ring:
            return
        outgoing: list[tuple[NodeId, MessagePart]] = []
        for pair in self._needed_pairs():
            if pair in self._demand:  # else another node coordinates the pair since the ring has just changed
                outgoing += await self._update(pair)
        await self._send_all(outgoing)
        await asyncio.gather(self._read_pairs(reread=True), self._announce(fleet_s))

    def _needed_pairs(self) -> list[str]:
        """Return the attribute-value pairs whose directories this node must coordinate.

        A pair needs a directory if it is looked up often, or if it is one of ``DISCOVER_PAIRS``. Directories that are
        no longer needed are discarded.
        """
        # The numbers of lookups are halved here, and those since the last call are added.
        for demand in self._demand.values():
            demand.lookups = demand.lookups / 2 + demand.recent
            demand.former, demand.recent = demand.recent, 0
        for pair in DISCOVER_PAIRS:
            if self.is_coordinator(pair):
                self._demand.setdefault(pair, _Demand())
        self._demand = {
            pair: demand for pair, demand in self._demand.items() if pair in DISCOVER_PAIRS or demand.lookups >= 1
        }
        needed = [
            pair
            for pair, demand in self._demand.items()
            if pair in DISCOVER_PAIRS
            or demand.lookups >= (_MIN_LOOKUPS_TO_STAY if pair in self._directories else MIN_LOOKUPS)
        ]
        self._directories = {pair: own for pair, own in self._directories.items() if pair in needed}
        return needed

    async def _update(self, pair: str) -> list[tuple[NodeId, MessagePart]]:
        """Read the names in the directory of ``pair`` from the store; return an update for each other node.

        Each item is a pair (node of the ring, update). A node gets an update even if nothing has changed. The result
        is empty if too few names have ``pair``, if the names cannot be read, or if the ring changes during the call.
        """
        ring, demand = self._ring, self._demand[pair]
        own = self._directories.get(pair)
        try:
            found = await self._read(pair, own)
        except (StoreUnavailable, CellsUnavailable) as error:
            log.warning("reading names for in-memory directory failed", pair=pair, error=str(error))
            return []
        if ring is not self._ring:
            return []
        if found is not None and found.total < (1 if pair in DISCOVER_PAIRS else MIN_ENTRIES):
            self._directories.pop(pair, None)
            return []
        if own is None:
            own = self._directories[pair] = _Directory(Coordinator(len(ring.ids)))
        coordinator = own.coordinator
        entries: Collection[str] = coordinator.entries
        if found is not None:
            own.mark, own.total, own.rounds = found.mark, found.total, 0
            entries = [encode_entry(name, weight) for name, weight in found.best]
        target = MAX_CANDIDATES if pair in DISCOVER_PAIRS else max(int(demand.target), 1)
        demand.target *= TARGET_DECAY
        if self._is_short(pair, min(target, len(entries))):
            coordinator.is_placement_due = True
        choice, requests = coordinator.update(entries, demand.former, target)
        strategy, term = choice.strategy, PlacementTerm(ring.version, coordinator.placed)
        if any(isinstance(request, Place) for request in requests):
            self._shares.start(pair, term, strategy, 0, len(ring.ids))
            own.number = 0
        messages: dict[int, list[Message]] = {number: [] for number in range(1, len(ring.ids))}
        for send in self._shares.on_requests(pair, requests, self._random.random()):
            messages[send.to].append(self._sample(send.message, strategy))
        number, own.number = own.number, own.number + 1
        return [
            (self._server_node(pair, server), ShareUpdate(pair, term, strategy, tuple(parts), number))
            for server, parts in messages.items()
        ]

    async def _read(self, pair: str, own: _Directory | None) -> NamesOfPair | None:
        """Return the names in the directory of ``pair``; None if they have not changed, or are not due to be read.

        ``own`` is the directory that this node already has for this attribute-value pair; None if there is none yet.

        Raises :class:`StoreUnavailable` if the store cannot be read, or :class:`CellsUnavailable` if parts of the
        search directory change or disappear too often while they are read.
        """
        if own is not None:
            own.rounds += 1
            if own.rounds * NAMES_PER_READING < own.total:
                return None
        most = MAX_CANDIDATES if pair in DISCOVER_PAIRS else MAX_ENTRIES
        return await self._names.names_of(pair, most, own.mark if own else None)

    def _is_short(self, pair: str, target: int) -> bool:
        """Return whether this node's own share of the directory of ``pair`` is missing or too small.

        If so, the directory must be distributed anew. When names are deleted, a share can become too small: with
        strategies that limit a share to a fixed number of names, it must contain at least ``target`` names. With the
        other strategies, a share of any size is large enough.
        """
        # A share becomes too small when names are deleted. This is possible only with Fixed-x and RandomServer-x,
        # because they limit the entries of a share to x.
        server, own = self._shares.server(pair), self._directories[pair].coordinator
        sized = own.choice is not None and isinstance(own.choice.strategy, Fixed | RandomServer)
        return own.choice is not None and (server is None or (sized and len(server.entries) < target))

    def _sample(self, message: Message, strategy: Strategy) -> Message:
        """Reduce ``message`` to x random entries if ``strategy`` is RandomServer-x; otherwise return it unchanged.

        RandomServer-x is a strategy of partial lookup in which each server keeps x random entries.
        """
        # This keeps the message small.
        if isinstance(strategy, RandomServer) and isinstance(message, Keep) and len(message.entries) > strategy.x:
            return Keep(tuple(self._random.sample(message.entries, strategy.x)), len(message.entries))
        return message

    def _apply(self, update: ShareUpdate) -> list[tuple[NodeId, MessagePart]]:
        """Update this node's share of a directory; return the messages that must then be sent to other nodes."""
        ids = self._ring.ids
        first = self._coordinator_of(update.pair) or self._node_id
        number = (ids.index(self._node_id) - ids.index(first)) % len(ids)
        sends: Iterable[SendToServer]
        sends, lost = self._shares.on_update(update, number, len(ids), self._random.random())
        outgoing: list[tuple[NodeId, MessagePart]] = [
            (
                self._server_node(update.pair, send.to),
                ShareUpdate(update.pair, update.term, update.strategy, (send.message,)),
            )
            for send in sends
        ]
        if lost is not None and first != self._node_id:
            outgoing.append((first, lost))
        return outgoing

    def _place_again(self, lost: ShareLost) -> None:
        """Schedule a directory to be distributed anew at the next maintenance.

        ``lost`` is the report of a server that has missed an update.
        """
        own = self._directories.get(lost.pair)
        if own is not None and lost.term == PlacementTerm(self._ring.version, own.coordinator.placed):
            own.coordinator.is_placement_due = True

    def _count(self, count: LookupCount) -> None:
        """Record how many lookups of an attribute-value pair a client has made.

        Pairs with many lookups get a directory. The count is ignored if this node does not coordinate the directory of
        the pair.
        """
        if not self.is_coordinator(count.pair):
            return
        if count.pair in self._demand or len(self._demand) < _MAX_COUNTED_PAIRS:
            demand = self._demand.setdefault(count.pair, _Demand())
            demand.recent += count.lookups
            demand.target = max(demand.target, count.target)

    async def _read_pairs(self, *, reread: bool) -> None:
        """Read from the store all attribute-value pairs of the names that this node holds.

        They are needed for lookups that require several pairs. Names whose pairs are already known are skipped. If
        ``reread``, the pairs that were read longest ago are read again.
        """
        wanted = self._shares.unread_names(reread=reread)
        for first in range(0, len(wanted), _MAX_DESCRIBED):
            names = wanted[first : first + _MAX_DESCRIBED]
            self._shares.set_pairs(dict(zip(names, await self._names.pairs_of(names), strict=True)))

    async def _announce(self, fleet_s: float) -> None:
        announced = [
            DirectoryAnnouncement(
                choice.pair, choice.choice.strategy, choice.measured, own.total <= len(own.coordinator.entries)
            )
            for choice in self.coordinated
            if (own := self._directories[choice.pair]).number > 0
        ]
        if announced:
            await self._announcements.announce(announced, fleet_s, fleet_s + self._lifetime_s)

    def _coordinator_of(self, pair: str) -> NodeId | None:
        if pair not in self._coordinators:
            self._coordinators[pair] = self._ring.owner(sha1(pair.encode(), usedforsecurity=False).hexdigest())
        return self._coordinators[pair]

    def _server_node(self, pair: str, number: int) -> NodeId:
        """Return the node that is server ``number`` of the directory of ``pair``; server 0 is the coordinator."""
        ids = self._ring.ids
        return ids[(ids.index(self._coordinator_of(pair) or self._node_id) + number) % len(ids)]

    async def _send_all(self, outgoing: Iterable[tuple[NodeId, MessagePart]]) -> None:
        """Send the pairs (node, update or report) in ``outgoing``, combined into one message for each node."""
        messages: dict[NodeId, DirectoryMessage] = {}
        for node, part in outgoing:
            messages.setdefault(node, []).append(part)
        if messages:
            await self._send(list(messages.items()))
