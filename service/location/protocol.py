"""A node of probabilistic location: documents, links and messages in, messages out (§II.C, §II.D, appendix).

The invariant is that of the appendix: a bit of row r + 1 is told to a neighbour only while *another* neighbour says it
of row r (for row 1: while it is our own). So a bit is cleared as soon as nobody backs it, and none stays for ever.

We deviate, so that what is at distance i is always in row i, in whatever order messages come:

- A node takes a *source*'s bits from one neighbour, the source's *parent* here, and only a shorter way replaces it.
  The paper drops each update by its number; then two neighbours can each be told that the other one suffices.
- What comes from a parent is passed on even where we have told these bits already. The paper passes on changes only;
  then a bit that two sources share is missing where one of them was redundant, or behind a neighbour that ignores it.
- Instead of being flushed from time to time, what was learnt about ways is corrected where it stops to be true: who
  loses a parent says ``Lost``, and a neighbour that has another way sends ``Want`` along it to the source, which tells
  all it has once more (:meth:`Node.refresh`). A new link makes both ends want all they know of.
- The clearing rule asks row r, which backs row r + 1; line 11 of the appendix asks row r + 1.
"""

from collections.abc import Iterable
from enum import StrEnum

from service.errors import PeerProtocolError
from service.location.bloom import Link, Own, Query, Shape, documents_in, heard_of, mask, next_hop
from service.location.wire import Hello, Ignore, Lost, Message, Send, Update, Want
from service.model import NodeId

NEVER = 1 << 30
MOST_SOURCES = 4096
"""So many are remembered with their parents; a neighbour that names more is not believed."""


class Filtering(StrEnum):
    """Which updates are dropped (§II.D): none, those that come by a second way, or those before they are sent."""

    NONE = "none"
    DESTINATION = "destination"
    SOURCE = "source"


class Node:
    """One node. What :class:`PeerProtocolError` refuses has changed nothing."""

    def __init__(self, me: NodeId, shape: Shape, filtering: Filtering = Filtering.SOURCE) -> None:
        """Begin without documents and neighbours."""
        self.me = me
        self.own = Own(shape)
        self._filtering = filtering
        self._changes_only = filtering is Filtering.NONE
        self._links: dict[NodeId, Link] = {}
        self._parents: dict[NodeId, tuple[NodeId, int]] = {}
        self._wanted = False

    @property
    def shape(self) -> Shape:
        """The shape of all filters here."""
        return self.own.shape

    @property
    def links(self) -> dict[NodeId, Link]:
        """By neighbour, the nearest first."""
        return self._links

    def fullest_row(self) -> float:
        """Return how many documents the fullest filter here has, as its bits tell: what filters are sized by."""
        rows = [self.own.bits, *(row for link in self._links.values() for row in link.heard)]
        return documents_in(self.shape, max(row.bit_count() for row in rows))

    # What happens here

    def change(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> list[Send]:
        """Take documents in, and others out."""
        sets, clears = self.own.change(added, removed)
        return self._pass_on(self.me, 0, self.me, sets, clears) if sets or clears else []

    def linked(self, neighbour: NodeId, rtt_s: float) -> list[Send]:
        """Have a new neighbour, or measure an old one again: then nothing is sent."""
        if neighbour in self._links:
            self._links[neighbour].rtt_s = rtt_s
            sends = []
        else:
            self._links[neighbour] = Link(rtt_s, self.shape)
            sends = [Send(neighbour, Hello(self.shape))]
        self._links = dict(sorted(self._links.items(), key=lambda item: (item[1].rtt_s, item[0])))
        return sends

    def unlinked(self, neighbour: NodeId) -> list[Send]:
        """Have a neighbour no more, whoever wanted that."""
        link = self._links.pop(neighbour, None)
        return [] if link is None else self._withdrawn(neighbour, link.heard)

    def reshape(self, shape: Shape) -> list[Send]:
        """Take a greater shape, and make all neighbours take it; a smaller one changes nothing."""
        if shape <= self.shape:
            return []
        self.own = Own(shape, self.own.documents)
        self._parents.clear()
        for link in self._links.values():
            link.emptied(shape)
        return [Send(neighbour, Hello(shape)) for neighbour in self._links]

    def refresh(self) -> list[Send]:
        """Tell everybody all there is here, if somebody wanted it since the last time; to be called now and then."""
        if not self._wanted:
            return []
        self._wanted = False
        return self._pass_on(self.me, 0, self.me, self.own.bits, 0)

    # What neighbours say

    def received(self, neighbour: NodeId, message: Message) -> list[Send]:
        """Return what is to be sent; raises :class:`PeerProtocolError` for what makes no sense here, or not now."""
        link = self._links.get(neighbour)
        if link is None:
            raise PeerProtocolError(f"{neighbour} is no neighbour.", reason="stranger")
        if isinstance(message, Hello):
            return self._greeted(neighbour, link, message.shape)
        if not link.open:
            raise PeerProtocolError(f"{neighbour} has not the shape {self.shape} yet.", reason="shape")
        if isinstance(message, Update):
            return self._updated(neighbour, link, message)
        if isinstance(message, Lost):
            return self._without(neighbour, link, message.sources)
        if isinstance(message, Ignore):
            if len(link.ignores) >= MOST_SOURCES:
                raise PeerProtocolError(f"{neighbour} ignores more than {MOST_SOURCES} sources.", reason="sources")
            link.ignores[message.source] = min(message.row, link.ignores.get(message.source, NEVER))
            return []
        return self._asked_for(neighbour, message)

    def next_hop(self, query: Query) -> tuple[NodeId, Query] | None:
        """Return where a query goes on to, and how; None if it fails here. It is not asked for what is here."""
        found = next_hop(query, mask(query.document, self.shape), self._links.items())
        if found is None:
            return None
        neighbour, row = found
        return neighbour, Query(query.document, (*query.visited, neighbour), row - 1)

    def query(self, document: str) -> Query:
        """Return the query that begins here."""
        return Query(document, (self.me,), self.shape.depth)

    # How it is done

    def _greeted(self, neighbour: NodeId, link: Link, shape: Shape) -> list[Send]:
        if link.open and shape <= self.shape:
            raise PeerProtocolError(f"{neighbour} has greeted already.", reason="shape")
        sends = self.reshape(shape)
        if shape != self.shape:
            return sends
        link.open = True
        if self._filtering is Filtering.NONE:
            return sends + self._all_told(neighbour, link)
        if self.own.bits:
            sends.append(Send(neighbour, self._tell(link, 1, self.own.bits)))
        return sends + [
            Send(parent, Want(source)) for source, (parent, row) in self._parents.items() if row < self.shape.depth
        ]

    def _updated(self, neighbour: NodeId, link: Link, update: Update) -> list[Send]:
        row, source, shape = update.row, update.source, self.shape
        if update.shape != shape:
            raise PeerProtocolError(f"{neighbour} sends bits of {update.shape}; here they are {shape}.", reason="shape")
        if not 1 <= row <= shape.depth or (update.sets | update.clears) >> shape.width:
            raise PeerProtocolError(f"{neighbour} sends bits of row {row} that no filter here has.", reason="bits")
        if update.sets & update.clears or (row == 1) > (source == neighbour):
            raise PeerProtocolError(f"{neighbour} contradicts itself about row {row}.", reason="bits")
        sends: list[Send] = []
        accepted = update.sets
        if accepted and self._filtering is not Filtering.NONE:
            sends = self._by(neighbour, source, row)
            if self._parents.get(source, ("", 0))[0] != neighbour:
                accepted = 0
        before = link.heard[row]
        link.heard[row] = before & ~update.clears | accepted
        if self._filtering is Filtering.NONE:
            accepted &= ~before
        cleared = before & update.clears
        if row < shape.depth and (accepted or cleared):
            sends += self._pass_on(neighbour, row, source, accepted, cleared)
        return sends

    def _by(self, neighbour: NodeId, source: NodeId, row: int) -> list[Send]:
        """Decide whether the source's parent is this neighbour; say so to whom it is not."""
        parent, shortest = (self.me, 0) if source == self.me else self._parents.get(source, (neighbour, NEVER))
        if parent == neighbour and shortest < row:
            return self._without(neighbour, self._links[neighbour], [source]) + self._by(neighbour, source, row)
        if parent == neighbour or row < shortest:
            if shortest == NEVER and len(self._parents) >= MOST_SOURCES:
                raise PeerProtocolError(f"{neighbour} names more than {MOST_SOURCES} sources.", reason="sources")
            self._parents[source] = (neighbour, row)
            redundant = None if parent == neighbour else parent
        else:
            redundant, row = neighbour, shortest
        if redundant is None or self._filtering is not Filtering.SOURCE:
            return []
        return [Send(redundant, Ignore(source, row))]

    def _pass_on(self, origin: NodeId, row: int, source: NodeId, sets: int, clears: int) -> list[Send]:
        """Make of bits of ``row`` what neighbours other than ``origin`` are to know of the next row."""
        sends: list[Send] = []
        common: Update | None = None
        for neighbour, link in self._links.items():
            if neighbour == origin or not link.open:
                continue
            told = link.told[row + 1]
            new = sets if link.ignores.get(source, NEVER) > row + 1 else 0
            if self._changes_only:
                new &= ~told
            gone = clears & told
            if gone and row:
                gone &= ~heard_of((other for other in self._links.values() if other is not link), row)
            if new or gone:
                if common is None or common.sets != new or common.clears != gone:
                    common = Update(self.shape, source, row + 1, new, gone)
                link.told[row + 1] = told & ~gone | new
                sends.append(Send(neighbour, common))
        return sends

    def _tell(self, link: Link, row: int, bits: int) -> Update:
        link.told[row] = bits
        return Update(self.shape, self.me, row, bits, 0)

    def _all_told(self, neighbour: NodeId, link: Link) -> list[Send]:
        rows = [self.own.bits, *(heard_of(self._links.values(), row) for row in range(1, self.shape.depth))]
        return [Send(neighbour, self._tell(link, row, bits)) for row, bits in enumerate(rows, start=1) if bits]

    def _withdrawn(self, neighbour: NodeId, heard: list[int]) -> list[Send]:
        """Be without what a link that is gone has said."""
        sends: list[Send] = []
        for row in range(1, self.shape.depth):
            if heard[row]:
                sends += self._pass_on(neighbour, row, self.me, 0, heard[row])
        return sends + self._lost([source for source, (parent, _) in self._parents.items() if parent == neighbour])

    def _without(self, neighbour: NodeId, link: Link, sources: Iterable[NodeId]) -> list[Send]:
        """Be told that a neighbour has lost sources, and so ignores them no more."""
        lost: list[NodeId] = []
        sends: list[Send] = []
        for source in sources:
            link.ignores.pop(source, None)
            if self._parents.get(source, ("", 0))[0] == neighbour:
                lost.append(source)
            else:
                sends += self._asked_for(neighbour, Want(source))
        return sends + self._lost(lost)

    def _lost(self, sources: list[NodeId]) -> list[Send]:
        for source in sources:
            del self._parents[source]
        if not sources:
            return []
        lost = Lost(tuple(sources))
        return [Send(neighbour, lost) for neighbour, link in self._links.items() if link.open]

    def _asked_for(self, neighbour: NodeId, want: Want) -> list[Send]:
        if want.source == self.me:
            self._wanted = True
            return []
        parent, _ = self._parents.get(want.source, (neighbour, 0))
        return [] if parent == neighbour else [Send(parent, want)]
