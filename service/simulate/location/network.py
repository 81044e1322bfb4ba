"""A simulated network of production's nodes. If a query through filters fails, Tapestry answers it (§III.A).

The delay of a message depends on latency and bandwidth. Bytes are counted on edges between domains. Filters are updated
(§II.D) by the paper's three algorithms, or by the product's algorithms, which lose no information.

In Tapestry, servers have ids and documents have GUIDs, both written as hexadecimal digits. A query is routed as
follows:

1. Each hop goes to the nearest server whose id shares one more digit with the GUID, beginning with the last digit.
2. If no server has the next digit, the next higher digit that exists is used.
3. All paths for a GUID end at one server, its root, because all servers make the same choices.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from service.location.bloom_filters import FilterShape, document_mask, estimate_documents
from service.location.location_node import Filtering, LocationNode
from service.location.messages import Message, SendToNeighbour, encoded_size
from service.location.query_routing import LocationQuery
from service.model import NodeId
from service.simulate.location.graph import ServerDistances


class UpdateAlgorithm(StrEnum):
    """The algorithms that update filters: the paper's three (Figure 8), and two of the product ("lossless").

    They differ in where redundant updates are dropped: nowhere, at the destination, or at the source. The product
    has no variant for "nowhere", because it would be the same as the paper's.
    """

    NONE = "none"
    DESTINATION = "destination"
    SOURCE = "source"
    PRODUCT_DESTINATION = "lossless destination"
    PRODUCT_SOURCE = "lossless source"

    def node(self, me: NodeId, shape: FilterShape) -> LocationNode:
        """Create a node that uses this algorithm.

        ``me`` is the node's id, and ``shape`` the width and depth of its filters.
        """
        filtering = Filtering(self.removeprefix("lossless "))
        return (LocationNode if self.startswith("lossless") else PaperNode)(me, shape, filtering)


class PaperNode(LocationNode):
    """A node that sends a neighbour only filter bits that it has not sent before (Figure 16 of the paper, line 18).

    The node relies on the neighbour to keep all bits. If the neighbour has dropped some of them, documents with these
    bits are no longer found through the neighbour.
    """

    def __init__(self, me: NodeId, shape: FilterShape, filtering: Filtering) -> None:
        """Create a node without documents or neighbours."""
        super().__init__(me, shape, filtering)
        self._changes_only = True


HEADER_BYTES = 40
"""TCP and IP headers of a message."""
QUERY_BYTES = 100


class QueryWalk(NamedTuple):
    """The path that a query for a document takes when servers forward it according to their filters.

    - ``at`` is the last server on the path.
    - ``found`` states whether this server has the document.
    - ``hops`` is the number of hops on the path.
    - ``time_s`` is the time in seconds that these hops take.
    - ``crossed_bytes`` is the query's size in bytes, counted once for each edge between domains that the query
      crosses.
    """

    at: int
    found: bool
    hops: int
    time_s: float
    crossed_bytes: int


def node_id_of(server: int) -> str:
    """Return the node id of the server with the index ``server``."""
    return f"{server:040x}"


class SimulatedOverlay:
    """A network of linked servers that locate documents with filters, using the product's code.

    ``crossed_bytes`` counts the bytes of all messages, once for each edge between domains that a message crosses.
    """

    def __init__(
        self, distances: ServerDistances, edges: Iterable[tuple[int, int]], shape: FilterShape, updates: UpdateAlgorithm
    ) -> None:
        """Create servers without documents, and link the pairs of servers in ``edges``.

        ``shape`` is the width and depth of the servers' filters. ``updates`` is the algorithm that updates filters.
        """
        self.nodes = [updates.node(node_id_of(server), shape) for server in range(distances.servers)]
        self.crossed_bytes = 0
        self.messages = 0
        self._latency_s, self._per_byte, self._crossings = distances.lists
        self._now_s = 0.0
        self._arrived_s: list[dict[int, float]] = [{} for _ in self.nodes]
        self._under_way: list[tuple[float, int, int, int, Message]] = []
        self._number = count()
        self._names = [node.node_id for node in self.nodes]
        self._server = {each: server for server, each in enumerate(self._names)}
        for one, other in edges:
            rtt_s = 2 * self._latency_s[one][other]
            self._send(one, self.nodes[one].add_link(node_id_of(other), rtt_s))
            self._send(other, self.nodes[other].add_link(node_id_of(one), rtt_s))
        self.deliver_all()

    def change_documents(self, server: int, added: Iterable[str], removed: Iterable[str] = ()) -> None:
        """Add documents to a server and remove others.

        This sends messages to the server's neighbours, but does not deliver them yet.
        """
        self._send(server, self.nodes[server].change(added, removed))

    def deliver_all(self) -> None:
        """Deliver all messages that have been sent, and all messages that are sent in response to them."""
        under_way, nodes, names = self._under_way, self.nodes, self._names
        while under_way:
            self._now_s, _, sender, receiver, message = heappop(under_way)
            sends = nodes[receiver].on_message(names[sender], message)
            if sends:
                self._send(receiver, sends)

    def walk(self, start: int, document: str, holders: Collection[int]) -> QueryWalk:
        """Send a query for a document through the filters, starting at the server ``start``; return the query's path.

        ``holders`` contains the servers that have the document; ``start`` is not one of them.
        """
        query: LocationQuery = self.nodes[start].start_query(document)
        here, hops, time_s, crossed = start, 0, 0.0, 0
        while True:
            onward = self.nodes[here].next_hop(query)
            if onward is None:
                return QueryWalk(here, False, hops, time_s, crossed)
            there, query = self._server[onward[0]], onward[1]
            time_s += self._latency_s[here][there] + QUERY_BYTES * self._per_byte[here][there]
            crossed += QUERY_BYTES * self._crossings[here][there]
            here, hops = there, hops + 1
            if here in holders:
                return QueryWalk(here, True, hops, time_s, crossed)

    def missing_share(self, around: Sequence[Sequence[int]], documents: Sequence[str]) -> float:
        """Return the fraction of pairs (server, near document) for which the server's filters lack the document.

        A document is near if the server that has it can be reached within the depth of the filters. A filter has a row
        for each distance in hops. The document must be in the row for the distance to the server that has it.

        - ``around`` is the result of :func:`service.simulate.location.graph.servers_within`.
        - ``documents`` contains one document per server.
        """
        masks = [document_mask(document, self.nodes[0].shape) for document in documents]
        pairs = missed = 0
        for row, (nearer, there) in enumerate(pairwise(around), start=1):
            for node, before, within in zip(self.nodes, nearer, there, strict=True):
                heard = [link.received[row] for link in node.links.values()]
                others = within & ~before
                while others:
                    other = others & -others
                    required = masks[other.bit_length() - 1]
                    missed += all(bits & required != required for bits in heard)
                    pairs += 1
                    others ^= other
        return missed / pairs

    def row_documents(self) -> list[list[float]]:
        """Return, for each server, the estimated number of documents in each row of the filters it has received.

        A filter has a row for each distance in hops.
        """
        rows = ([bits for link in node.links.values() for bits in link.received[1:]] for node in self.nodes)
        return [[estimate_documents(self.nodes[0].shape, bits.bit_count()) for bits in of_node] for of_node in rows]

    def _send(self, sender: int, sends: list[SendToNeighbour]) -> None:
        latency_s, per_byte, crossings = self._latency_s[sender], self._per_byte[sender], self._crossings[sender]
        arrived_s, under_way, numbers, now_s = self._arrived_s[sender], self._under_way, self._number, self._now_s
        message: Message | None = None
        length = 0
        for send in sends:
            if send.message is not message:
                message = send.message
                length = encoded_size(message) + HEADER_BYTES
            receiver = self._server[send.to]
            self.crossed_bytes += length * crossings[receiver]
            at_s = now_s + latency_s[receiver] + length * per_byte[receiver]
            arrived_s[receiver] = at_s = max(at_s, arrived_s.get(receiver, 0.0))
            heappush(under_way, (at_s, next(numbers), sender, receiver, message))
        self.messages += len(sends)


DIGITS = 8
"""Number of hexadecimal digits of ids in Tapestry, enough to distinguish a thousand servers."""
POINTER_BYTES = 60


class TapestryResult(NamedTuple):
    """The result of a query through Tapestry, a routing network.

    - ``holder`` is a server that has the document.
    - ``time_s`` is the time in seconds that the query takes to reach this server.
    - ``crossed_bytes`` is the query's size in bytes, counted once for each edge between domains that the query crosses.
    """

    holder: int
    time_s: float
    crossed_bytes: int


@cache
def guid(document: str) -> int:
    """Return the document's identifier in Tapestry, a routing network: a hash of its name."""
    return int.from_bytes(blake2b(document.encode(), digest_size=8, person=b"guid").digest(), "big")


class TapestryMesh:
    """The routing network Tapestry. Its servers store pointers to the servers that have documents."""

    def __init__(self, distances: ServerDistances, rng: np.random.Generator) -> None:
        """Create the network of all servers, and draw a random id for each of them."""
        self.servers = distances.servers
        self._ways = distances
        self._latency_s, self._per_byte, self._crossings = distances.lists
        ids: list[int] = rng.integers(0, 16**DIGITS, distances.servers).tolist()
        self._members: dict[tuple[int, int], list[int]] = {}
        for level in range(DIGITS + 1):
            for server, number in enumerate(ids):
                self._members.setdefault((level, number % 16**level), []).append(server)
        self._nearest: dict[tuple[int, int, int], int] = {}
        self._pointers: dict[str, dict[int, set[int]]] = {}

    def path(self, start: int, document: str) -> list[int]:
        """Return the servers on the path from ``start`` to the document's root, including both ends.

        The root is the one server at which all paths for this document end.
        """
        here, suffix, target = start, 0, guid(document)
        found = [start]
        for level in range(DIGITS):
            if len(self._members[level, suffix]) == 1:
                break
            digit = target >> 4 * level & 15
            while (level + 1, suffix + (digit << 4 * level)) not in self._members:
                digit = (digit + 1) & 15
            suffix += digit << 4 * level
            key = (here, level, suffix)
            there = self._nearest.get(key)
            if there is None:
                members = self._members[level + 1, suffix]
                there = self._nearest[key] = members[int(np.argmin(self._ways.latency_s[here, members]))]
            if there != here:
                found.append(there)
                here = there
        return found

    def publish(self, holder: int, document: str) -> int:
        """Announce that ``holder`` has the document: store pointers to ``holder`` on the path to the document's root.

        Return the total size of the messages in bytes, counted once for each edge between domains that a message
        crosses. The root is the one server at which all paths for this document end.
        """
        path = self.path(holder, document)
        pointers = self._pointers.setdefault(document, {})
        for server in path:
            pointers.setdefault(server, set()).add(holder)
        return self._crossed(path, POINTER_BYTES + HEADER_BYTES)

    def withdraw(self, holder: int, document: str) -> int:
        """Remove the pointers to the server ``holder`` that :meth:`publish` has stored for the document.

        Return the total size of the messages in bytes, counted once for each edge between domains that a message
        crosses.
        """
        path = self.path(holder, document)
        for server in path:
            self._pointers[document][server].discard(holder)
        return self._crossed(path, POINTER_BYTES + HEADER_BYTES)

    def locate(self, start: int, document: str) -> TapestryResult:
        """Send a query for a document from the server ``start``; return the server that it finds, and the query's cost.

        The query follows the path to the document's root, the server at which all paths for this document end. At the
        first server that has pointers to the document, the query leaves this path and goes to the nearest server with
        the document.
        """
        pointers = self._pointers[document]
        path = self.path(start, document)
        time_s = 0.0
        for place, server in enumerate(path):
            if place:
                time_s += self.hop_s(path[place - 1], server)
            if pointers.get(server):
                latency_s = self._latency_s[server]
                holder = min(pointers[server], key=lambda each: (latency_s[each], each))
                way = [*path[: place + 1], holder]
                return TapestryResult(holder, time_s + self.hop_s(server, holder), self._crossed(way, QUERY_BYTES))
        raise AssertionError(f"The root of {document} has no pointer to it.")

    def hop_s(self, one: int, other: int) -> float:
        """Return the time in seconds that a query takes from the server ``one`` to the server ``other``."""
        return self._latency_s[one][other] + (QUERY_BYTES * self._per_byte[one][other] if one != other else 0.0)

    def _crossed(self, way: list[int], size: int) -> int:
        return size * sum(self._crossings[one][other] for one, other in pairwise(way))


def home_query_s(tapestry: TapestryMesh, start: int, document: str, holder: int) -> float:
    """Return the time in seconds that a query for a document takes if it goes through the document's home node.

    The query begins at the server ``start``. The home node is a server determined by a hash of the document. It
    forwards the query to ``holder``, a server that has the document.
    """
    home = guid(document) % tapestry.servers
    return tapestry.hop_s(start, home) + tapestry.hop_s(home, holder)
