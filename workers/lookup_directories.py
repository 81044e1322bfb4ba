"""The workers' directories in memory: partial lookup of channels, per AV-pair that people ask for much.

All nodes of the ring are a directory's servers. The node nearest to its pair is number 0 and coordinates it: it reads
the pair's matrix each maintenance interval, and tells the others what changes (``service.discovery.partial``). A find
asks any one node; what that has not got, the matrices answer. With another ring there are other servers: all shares
are forgotten, and placed anew at the next upkeep. All of this is soft state, in letters that may be lost.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
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
"""The pair of the directory that is always kept: channels that work, for whoever just looks around."""
POPULAR = 100.0
"""Lookups, faded by half each upkeep, from which on a pair has a directory: to read one costs as much as so many do."""
LEAST_TARGET = 100
"""t at least: those that ask for several pairs want as many of which some match."""
MOST_NAMES = 2000
"""Of one directory; what is beyond that, the matrices have."""
MOST_PAIRS = 64
"""That a node tells of at once, those that were asked for most."""
_MOST_COUNTED = 1000

log = structlog.get_logger(__name__)


class Matrices(Protocol):
    """The source of directories. Every method may raise :class:`StoreUnavailable` or :class:`CellsUnavailable`."""

    def key(self, pair: str) -> str:
        """Return what stands for an AV-pair in the names that are listed."""
        ...

    async def names(self, pair: str, most: int) -> Sequence[NameRecord]:
        """Return the records of names that have this AV-pair, unexpired ones, up to so many."""
        ...


Post = Callable[[Sequence[tuple[NodeId, bytes]]], Awaitable[None]]
"""Sends letters to nodes. May raise :class:`StoreUnavailable`."""


class _Demand(msgspec.Struct):
    lookups: float = 0.0
    """Faded by half each upkeep."""
    latest: int = 0
    """Since the last upkeep."""
    target: int = 0


class LookupDirectories:
    """One node's shares of all directories, and the directories that it coordinates."""

    def __init__(self, me: NodeId, matrices: Matrices, send: Post, draw: Callable[[], float]) -> None:
        """Take random numbers in [0, 1) from ``draw``."""
        self._me = me
        self._matrices = matrices
        self._send = send
        self._draw = draw
        self._ring = RingView(-1, ())
        self._shares = NodeShares()
        self._asked: dict[str, _Demand] = {}
        """What this node was asked for since the last upkeep."""
        self._demand: dict[str, _Demand] = {}
        """Of the pairs that it coordinates, by all nodes."""
        self._kept: dict[str, Coordinator] = {}

    @property
    def chosen(self) -> tuple[DirectoryChoice, ...]:
        """Which strategy each directory that this node coordinates has, and why."""
        return tuple(
            DirectoryChoice(pair, kept.measured, kept.choice)
            for pair, kept in self._kept.items()
            if kept.measured is not None and kept.choice is not None
        )

    def share(self, pair: str) -> tuple[str, ...]:
        """Return the names that this node keeps of a directory; none if it has no share of it."""
        return self._shares.names(pair)

    def ring_changed(self, view: RingView) -> None:
        """Forget all shares: there are other servers now."""
        self._ring = view
        self._shares, self._kept = NodeShares(), {}
        self._demand = {pair: demand for pair, demand in self._demand.items() if self._coordinator(pair) == self._me}

    def find(self, pairs: Collection[str], limit: int) -> list[str]:
        """Return names that have all these AV-pairs, as far as we have any, up to ``limit``."""
        for pair in pairs:
            if pair in self._asked or len(self._asked) < _MOST_COUNTED:
                counted = self._asked.setdefault(pair, _Demand())
                counted.latest, counted.target = counted.latest + 1, max(counted.target, limit)
        return self._shares.find(pairs, frozenset(map(self._matrices.key, pairs)), limit, self._draw())

    async def received(self, payload: bytes) -> None:
        """Take in a letter of another node."""
        onward: list[tuple[NodeId, ShareUpdate | LookupCount]] = []
        for said in decode_letter(payload):
            if isinstance(said, LookupCount):
                self._count(said)
            elif said.term.ring == self._ring.version and self._me in self._ring:
                onward += self._take(said)
        await self._post(onward)

    async def keep_up(self) -> None:
        """Tell coordinators what was asked for, and bring the directories that are ours up to date."""
        self._shares.expire()
        if self._me not in self._ring:
            return
        asked, self._asked = self._asked, {}
        most = sorted(asked, key=lambda pair: -asked[pair].latest)[:MOST_PAIRS]
        onward: list[tuple[NodeId, ShareUpdate | LookupCount]] = []
        for pair in most:
            said = LookupCount(pair, asked[pair].latest, asked[pair].target)
            coordinator = self._coordinator(pair)
            if coordinator == self._me:
                self._count(said)
            elif coordinator is not None:
                onward.append((coordinator, said))
        for pair in self._wanted():
            onward += await self._refreshed(pair)
        await self._post(onward)

    def _wanted(self) -> list[str]:
        """Return the pairs that we are to keep directories of."""
        for demand in self._demand.values():
            demand.lookups, demand.latest = demand.lookups / 2 + demand.latest, 0
        if self._coordinator(DISCOVER) == self._me:
            self._demand.setdefault(DISCOVER, _Demand())
        wanted = [pair for pair, demand in self._demand.items() if pair == DISCOVER or demand.lookups >= POPULAR]
        self._demand = {pair: demand for pair, demand in self._demand.items() if pair in wanted or demand.lookups >= 1}
        self._kept = {pair: kept for pair, kept in self._kept.items() if pair in wanted}
        return wanted

    async def _refreshed(self, pair: str) -> list[tuple[NodeId, ShareUpdate | LookupCount]]:
        """Read a directory anew, and return what its servers are to be told: each something, as a sign of life."""
        ring, demand = self._ring, self._demand[pair]
        try:
            names = await self._matrices.names(pair, MOST_NAMES)
        except (StoreUnavailable, CellsUnavailable) as error:
            log.warning("directory not read", pair=pair, error=str(error))
            return []
        if ring is not self._ring:
            return []
        kept = self._kept.setdefault(pair, Coordinator(len(ring.ids)))
        entries = sorted(encode_entry(name.name, name.version, name.pairs) for name in names)
        requests = kept.update(entries, demand.lookups, max(demand.target, LEAST_TARGET))
        if kept.choice is None:
            return []
        strategy, term = kept.choice.strategy, PlacementTerm(ring.version, kept.placed)
        server = self._shares.server(pair)
        if server is None or any(isinstance(request, Place) for request in requests):
            server = self._shares.start(pair, term, strategy, 0, len(ring.ids))
        sends = [send for request in requests for send in server.on_request(request)]
        told: dict[int, list[Message]] = {number: [] for number in range(len(ring.ids))}
        for send in sends:
            told[send.to].append(send.message)
        saying = [(number, ShareUpdate(pair, term, strategy, tuple(messages))) for number, messages in told.items()]
        own = [onward for number, said in saying if number == 0 for onward in self._take(said)]
        return own + [(self._node(pair, number), said) for number, said in saying if number]

    def _take(self, said: ShareUpdate) -> list[tuple[NodeId, ShareUpdate | LookupCount]]:
        """Take in what is said of our share; return what others are to be told."""
        ids = self._ring.ids
        first = ids.index(self._coordinator(said.pair) or self._me)
        me = (ids.index(self._me) - first) % len(ids)
        sends: Iterable[SendToServer] = self._shares.on_update(said, me, len(ids), self._draw())
        return [
            (self._node(said.pair, send.to), ShareUpdate(said.pair, said.term, said.strategy, (send.message,)))
            for send in sends
        ]

    def _count(self, said: LookupCount) -> None:
        if said.pair in self._demand or len(self._demand) < _MOST_COUNTED:
            demand = self._demand.setdefault(said.pair, _Demand())
            demand.latest += said.lookups
            demand.target = max(demand.target, said.target)

    def _coordinator(self, pair: str) -> NodeId | None:
        return self._ring.owner(sha1(pair.encode(), usedforsecurity=False).hexdigest())

    def _node(self, pair: str, number: int) -> NodeId:
        ids = self._ring.ids
        return ids[(ids.index(self._coordinator(pair) or self._me) + number) % len(ids)]

    async def _post(self, onward: Iterable[tuple[NodeId, ShareUpdate | LookupCount]]) -> None:
        letters: dict[NodeId, Letter] = {}
        for node, said in onward:
            letters.setdefault(node, []).append(said)
        if letters:
            try:
                await self._send([(node, encode_letter(letter)) for node, letter in letters.items()])
            except StoreUnavailable as error:
                log.warning("directories not told", nodes=len(letters), error=str(error))
