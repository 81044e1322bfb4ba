"""One node's part in the search for documents with Bloom filters (Rhea and Kubiatowicz §II.C, §II.D, appendix).

The inputs of a node are messages, and changes to its documents and links. Its outputs are messages. Each neighbour has
sent a filter with several rows; row i contains the documents at a distance of i hops. The *source* of an update is the
node whose documents have changed.

Invariant (from the appendix): a bit is set in row r + 1 of the filter sent to a neighbour only while it is set in row r
of *another* neighbour's filter. A bit is set in row 1 only while it is set in this node's own filter. A bit is cleared
as soon as its condition no longer holds.

The node deviates from the paper in several ways, to ensure that a document at distance i is in row i regardless of the
order in which messages arrive:

- A node accepts a source's bits from only one neighbour, the source's *parent*. The parent is replaced only by a
  neighbour with a shorter path to the source. In the paper, a node instead drops each update whose sequence number it
  already knows. Two neighbours can then each rely on the path through the other.
- Bits from a parent are forwarded even if the same bits have been sent before. In the paper, only changes are
  forwarded. If two sources share a bit, a node that drops or ignores the updates of one of them may then miss the bit.
- Paths are not discarded periodically but corrected when they become invalid. A node that loses a parent sends
  ``SourcesLost``. A neighbour that has another path sends ``RefreshRequest`` along it to the source, which sends all
  its bits once more (:meth:`LocationNode.refresh`). After a new link is added, both ends request the bits of all
  sources that they know.
- Row r determines whether a bit of row r + 1 is cleared. Line 11 of the appendix consults row r + 1 instead.
"""

from collections.abc import Iterable
from enum import StrEnum

from service.errors import PeerProtocolError
from service.location.bloom_filters import (
    FilterShape,
    Link,
    LocalFilter,
    document_mask,
    estimate_documents,
    union_of_received,
)
from service.location.messages import FilterUpdate, Hello, Ignore, Message, RefreshRequest, SendToNeighbour, SourcesLost
from service.location.query_routing import LocationQuery, next_hop
from service.model import NodeId

NO_ROW = 1 << 30
MAX_SOURCES = 4096
"""Maximum number of sources (nodes whose documents cause updates) that a node stores. Messages about further sources
are rejected."""


class Filtering(StrEnum):
    """Where redundant updates of Bloom filters are dropped (Rhea and Kubiatowicz §II.D).

    - ``NONE``: nowhere.
    - ``DESTINATION``: at the node that receives them.
    - ``SOURCE``: at the node that would send them.

    Each update concerns the documents of one node, its source. The update is redundant if the receiver has another path
    to the source that is at most as long as the path through the sender.
    """

    NONE = "none"
    DESTINATION = "destination"
    SOURCE = "source"


class LocationNode:
    """A node that takes part in the search for documents. Its methods return the messages to send to its neighbours.

    If a message is rejected with :class:`PeerProtocolError`, the node's state does not change.
    """

    def __init__(self, node_id: NodeId, shape: FilterShape, filtering: Filtering = Filtering.SOURCE) -> None:
        """Create a node without documents or neighbours.

        - ``shape``: the parameters of its Bloom filters.
        - ``filtering``: where redundant updates are dropped.
        """
        self.node_id = node_id
        self.own = LocalFilter(shape)
        self._filtering = filtering
        self._changes_only = filtering is Filtering.NONE
        self._links: dict[NodeId, Link] = {}
        self._parents: dict[NodeId, tuple[NodeId, int]] = {}
        self._refresh_due = False

    @property
    def shape(self) -> FilterShape:
        """The parameters of all Bloom filters of this node."""
        return self.own.shape

    @property
    def links(self) -> dict[NodeId, Link]:
        """Maps each neighbour to its link. The nearest neighbour comes first."""
        return self._links

    def fullest_row(self) -> float:
        """Return the estimated number of documents in the fullest row of this node's Bloom filters.

        The caller uses it to choose the width of the filters.
        """
        rows = [self.own.bits, *(row for link in self._links.values() for row in link.received)]
        return estimate_documents(self.shape, max(row.bit_count() for row in rows))

    # Local events

    def change(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> list[SendToNeighbour]:
        """Add documents to this node and remove documents from it; return the updates to send to its neighbours."""
        sets, clears = self.own.change(added, removed)
        return self._pass_on(self.node_id, 0, self.node_id, sets, clears) if sets or clears else []

    def add_link(self, neighbour: NodeId, rtt_s: float) -> list[SendToNeighbour]:
        """Add a link to ``neighbour``; return the messages to send to it.

        ``rtt_s`` is the round-trip time in seconds. If there is a link already, only its round-trip time is updated,
        and no messages are returned.
        """
        if neighbour in self._links:
            self._links[neighbour].rtt_s = rtt_s
            sends = []
        else:
            self._links[neighbour] = Link(rtt_s, self.shape)
            sends = [SendToNeighbour(neighbour, Hello(self.shape))]
        self._links = dict(sorted(self._links.items(), key=lambda item: (item[1].rtt_s, item[0])))
        return sends

    def remove_link(self, neighbour: NodeId) -> list[SendToNeighbour]:
        """Remove a neighbour, if present; return the messages to send to the other neighbours.

        These messages tell them which documents can no longer be reached through this node.
        """
        link = self._links.pop(neighbour, None)
        return [] if link is None else self._retract(neighbour, link.received)

    def reshape(self, shape: FilterShape) -> list[SendToNeighbour]:
        """Adopt ``shape`` for all Bloom filters; return the messages that announce it to all neighbours.

        If the shape is not greater than the current one, it is ignored and no messages are returned. Shapes are ordered
        by their generation first.
        """
        if shape <= self.shape:
            return []
        self.own = LocalFilter(shape, self.own.documents)
        self._parents.clear()
        for link in self._links.values():
            link.reset(shape)
        return [SendToNeighbour(neighbour, Hello(shape)) for neighbour in self._links]

    def refresh(self) -> list[SendToNeighbour]:
        """Return messages that send all bits of this node's own filter again, if another node has requested them.

        The messages go to all neighbours. The result is empty if there was no request since the last call. The
        caller must call this method periodically.
        """
        if not self._refresh_due:
            return []
        self._refresh_due = False
        return self._pass_on(self.node_id, 0, self.node_id, self.own.bits, 0)

    # Messages of neighbours

    def on_message(self, neighbour: NodeId, message: Message) -> list[SendToNeighbour]:
        """Process a neighbour's message; return the messages to send in response.

        Raises :class:`PeerProtocolError` if the message is invalid or unexpected.
        """
        link = self._links.get(neighbour)
        if link is None:
            raise PeerProtocolError(f"{neighbour} is no neighbour.", reason="stranger")
        if isinstance(message, Hello):
            return self._on_hello(neighbour, link, message.shape)
        if not link.is_open:
            raise PeerProtocolError(f"{neighbour} has not the shape {self.shape} yet.", reason="shape")
        if isinstance(message, FilterUpdate):
            return self._on_update(neighbour, link, message)
        if isinstance(message, SourcesLost):
            return self._on_sources_lost(neighbour, link, message.sources)
        if isinstance(message, Ignore):
            if len(link.ignored_from_row) >= MAX_SOURCES:
                raise PeerProtocolError(f"{neighbour} ignores more than {MAX_SOURCES} sources.", reason="sources")
            link.ignored_from_row[message.source] = min(message.row, link.ignored_from_row.get(message.source, NO_ROW))
            return []
        return self._on_refresh_request(neighbour, message)

    def next_hop(self, query: LocationQuery) -> tuple[NodeId, LocationQuery] | None:
        """Return (neighbour, query): the neighbour to which a query goes next, and the query to send to it.

        The result is None if the query fails at this node. The caller must search the node's own documents first.
        """
        found = next_hop(query, document_mask(query.document, self.shape), self._links.items())
        if found is None:
            return None
        neighbour, row = found
        return neighbour, LocationQuery(query.document, (*query.visited, neighbour), row - 1)

    def start_query(self, document: str) -> LocationQuery:
        """Return a new query that searches for a node with a copy of ``document``. The query starts at this node."""
        return LocationQuery(document, (self.node_id,), self.shape.depth)

    # Implementation

    def _on_hello(self, neighbour: NodeId, link: Link, shape: FilterShape) -> list[SendToNeighbour]:
        if link.is_open and shape <= self.shape:
            raise PeerProtocolError(f"{neighbour} has greeted already.", reason="shape")
        sends = self.reshape(shape)
        if shape != self.shape:
            return sends
        link.is_open = True
        if self._filtering is Filtering.NONE:
            return sends + self._send_all_rows(neighbour, link)
        if self.own.bits:
            sends.append(SendToNeighbour(neighbour, self._set_row(link, 1, self.own.bits)))
        return sends + [
            SendToNeighbour(parent, RefreshRequest(source))
            for source, (parent, row) in self._parents.items()
            if row < self.shape.depth
        ]

    def _on_update(self, neighbour: NodeId, link: Link, update: FilterUpdate) -> list[SendToNeighbour]:
        row, source, shape = update.row, update.source, self.shape
        if update.shape != shape:
            raise PeerProtocolError(f"{neighbour} sends bits of {update.shape}; here they are {shape}.", reason="shape")
        if not 1 <= row <= shape.depth or (update.sets | update.clears) >> shape.width:
            raise PeerProtocolError(f"{neighbour} sends bits of row {row} that no filter here has.", reason="bits")
        if update.sets & update.clears or (row == 1) > (source == neighbour):
            raise PeerProtocolError(f"{neighbour} contradicts itself about row {row}.", reason="bits")
        sends: list[SendToNeighbour] = []
        accepted = update.sets
        if accepted and self._filtering is not Filtering.NONE:
            sends = self._choose_parent(neighbour, source, row)
            if self._parents.get(source, ("", 0))[0] != neighbour:
                accepted = 0
        before = link.received[row]
        link.received[row] = before & ~update.clears | accepted
        if self._filtering is Filtering.NONE:
            accepted &= ~before
        cleared = before & update.clears
        if row < shape.depth and (accepted or cleared):
            sends += self._pass_on(neighbour, row, source, accepted, cleared)
        return sends

    def _choose_parent(self, neighbour: NodeId, source: NodeId, row: int) -> list[SendToNeighbour]:
        """Decide whether ``neighbour`` becomes the *parent* of ``source``; return the resulting messages.

        The parent is the only neighbour from which this node accepts updates about the documents of ``source``. It is
        the neighbour with the shortest path to ``source``. ``row`` is the length in hops of the path through
        ``neighbour``.

        The messages may ask a neighbour to stop sending updates that have become redundant.
        """
        parent, shortest = (
            (self.node_id, 0) if source == self.node_id else self._parents.get(source, (neighbour, NO_ROW))
        )
        if parent == neighbour and shortest < row:
            return self._on_sources_lost(neighbour, self._links[neighbour], [source]) + self._choose_parent(
                neighbour, source, row
            )
        if parent == neighbour or row < shortest:
            if shortest == NO_ROW and len(self._parents) >= MAX_SOURCES:
                raise PeerProtocolError(f"{neighbour} names more than {MAX_SOURCES} sources.", reason="sources")
            self._parents[source] = (neighbour, row)
            redundant = None if parent == neighbour else parent
        else:
            redundant, row = neighbour, shortest
        if redundant is None or self._filtering is not Filtering.SOURCE:
            return []
        return [SendToNeighbour(redundant, Ignore(source, row))]

    def _pass_on(self, origin: NodeId, row: int, source: NodeId, sets: int, clears: int) -> list[SendToNeighbour]:
        """Return messages that forward changes of one row of a Bloom filter to all other neighbours.

        Row i contains the documents at a distance of i hops. For the other neighbours, the distance is greater by one,
        so the changes apply to the next row.

        - ``origin``: the neighbour that sent the changes, or this node for changes of its own filter.
        - ``row``: the row that has changed; 0 for this node's own filter.
        - ``source``: the node with the documents that caused the changes.
        - ``sets``, ``clears``: the bits to set and to clear.
        """
        sends: list[SendToNeighbour] = []
        common: FilterUpdate | None = None
        for neighbour, link in self._links.items():
            if neighbour == origin or not link.is_open:
                continue
            sent = link.sent[row + 1]
            new = sets if link.ignored_from_row.get(source, NO_ROW) > row + 1 else 0
            if self._changes_only:
                new &= ~sent
            gone = clears & sent
            if gone and row:
                gone &= ~union_of_received((other for other in self._links.values() if other is not link), row)
            if new or gone:
                if common is None or common.sets != new or common.clears != gone:
                    common = FilterUpdate(self.shape, source, row + 1, new, gone)
                link.sent[row + 1] = sent & ~gone | new
                sends.append(SendToNeighbour(neighbour, common))
        return sends

    def _set_row(self, link: Link, row: int, bits: int) -> FilterUpdate:
        link.sent[row] = bits
        return FilterUpdate(self.shape, self.node_id, row, bits, 0)

    def _send_all_rows(self, neighbour: NodeId, link: Link) -> list[SendToNeighbour]:
        rows = [self.own.bits, *(union_of_received(self._links.values(), row) for row in range(1, self.shape.depth))]
        return [
            SendToNeighbour(neighbour, self._set_row(link, row, bits)) for row, bits in enumerate(rows, start=1) if bits
        ]

    def _retract(self, neighbour: NodeId, received: list[int]) -> list[SendToNeighbour]:
        """Return messages that tell the other neighbours what was reachable only through a removed neighbour.

        ``neighbour`` is the removed neighbour. ``received`` are the rows of the filter that it had sent.
        """
        sends: list[SendToNeighbour] = []
        for row in range(1, self.shape.depth):
            if received[row]:
                sends += self._pass_on(neighbour, row, self.node_id, 0, received[row])
        return sends + self._announce_lost(
            [source for source, (parent, _) in self._parents.items() if parent == neighbour]
        )

    def _on_sources_lost(self, neighbour: NodeId, link: Link, sources: Iterable[NodeId]) -> list[SendToNeighbour]:
        """Process a neighbour's :class:`SourcesLost` message; return the messages to send.

        ``sources`` are the nodes in the message. The neighbour no longer gets updates about their documents. For
        each source:

        - If this node gets its own updates about the source from ``neighbour``, it now gets none either. It then
          sends :class:`SourcesLost` to all its neighbours.
        - Otherwise, this node asks the source to send all its bits again. They then also reach ``neighbour``.
        """
        lost: list[NodeId] = []
        sends: list[SendToNeighbour] = []
        for source in sources:
            link.ignored_from_row.pop(source, None)
            if self._parents.get(source, ("", 0))[0] == neighbour:
                lost.append(source)
            else:
                sends += self._on_refresh_request(neighbour, RefreshRequest(source))
        return sends + self._announce_lost(lost)

    def _announce_lost(self, sources: list[NodeId]) -> list[SendToNeighbour]:
        for source in sources:
            del self._parents[source]
        if not sources:
            return []
        lost = SourcesLost(tuple(sources))
        return [SendToNeighbour(neighbour, lost) for neighbour, link in self._links.items() if link.is_open]

    def _on_refresh_request(self, neighbour: NodeId, request: RefreshRequest) -> list[SendToNeighbour]:
        if request.source == self.node_id:
            self._refresh_due = True
            return []
        parent, _ = self._parents.get(request.source, (neighbour, 0))
        return [] if parent == neighbour else [SendToNeighbour(parent, request)]
