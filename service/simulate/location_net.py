"""A network of production's nodes: messages take the time that latency and bandwidth ask for, and are counted.

Updates (§II.D) are sent by the paper's three algorithms, or by those of the product, which lose nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import NamedTuple

from service.location.bloom import Shape, mask
from service.location.links import Query
from service.location.protocol import Filtering, Node
from service.location.wire import Message, Send, size
from service.model import NodeId
from service.simulate.location_graph import Ways


class Updates(StrEnum):
    """The algorithms of Figure 8 as published, and the product's. Without filtering, both are the same."""

    NONE = "none"
    DESTINATION = "destination"
    SOURCE = "source"
    PRODUCT_DESTINATION = "our destination"
    PRODUCT_SOURCE = "our source"

    def node(self, me: NodeId, shape: Shape) -> Node:
        """Return a node that sends such updates."""
        product = {
            Updates.PRODUCT_DESTINATION: Filtering.DESTINATION,
            Updates.PRODUCT_SOURCE: Filtering.SOURCE,
        }
        return Node(me, shape, product[self]) if self in product else Published(me, shape, Filtering(self))


class Published(Node):
    """A node that tells a neighbour only what it has not told it yet (the paper's Figure 16, line 18).

    It believes that a neighbour still has what that one has dropped, and then documents that share these bits are lost.
    """

    def __init__(self, me: NodeId, shape: Shape, filtering: Filtering) -> None:
        """Begin without documents and neighbours."""
        super().__init__(me, shape, filtering)
        self._changes_only = True


HEADER_BYTES = 40
"""Of TCP and IP, for each message."""
QUERY_BYTES = 100


class Walk(NamedTuple):
    """What became of a query: the last server it came to, whether the document is there, and what that took."""

    at: int
    found: bool
    hops: int
    time_s: float
    crossed_bytes: int


def name(server: int) -> str:
    """Return a server's id in the product."""
    return f"{server:040x}"


class Network:
    """Servers with the product's nodes. ``crossed_bytes`` are counted once for each interdomain edge they go along."""

    def __init__(self, ways: Ways, edges: Iterable[tuple[int, int]], shape: Shape, updates: Updates) -> None:
        """Link all, without documents."""
        self.nodes = [updates.node(name(server), shape) for server in range(ways.servers)]
        self.crossed_bytes = 0
        self.messages = 0
        self._latency_s, self._per_byte, self._crossings = ways.lists
        self._now_s = 0.0
        self._arrived_s: list[dict[int, float]] = [{} for _ in self.nodes]
        self._under_way: list[tuple[float, int, int, int, Message]] = []
        self._number = count()
        self._names = [node.me for node in self.nodes]
        self._server = {each: server for server, each in enumerate(self._names)}
        for one, other in edges:
            rtt_s = 2 * self._latency_s[one][other]
            self._send(one, self.nodes[one].linked(name(other), rtt_s))
            self._send(other, self.nodes[other].linked(name(one), rtt_s))
        self.quiet()

    def change(self, server: int, added: Iterable[str], removed: Iterable[str] = ()) -> None:
        """Have documents come to a server, or go."""
        self._send(server, self.nodes[server].change(added, removed))

    def quiet(self) -> None:
        """Deliver all there is and will be."""
        under_way, nodes, names = self._under_way, self.nodes, self._names
        while under_way:
            self._now_s, _, sender, receiver, message = heappop(under_way)
            sends = nodes[receiver].received(names[sender], message)
            if sends:
                self._send(receiver, sends)

    def walk(self, start: int, document: str, holders: Collection[int]) -> Walk:
        """Send a query from a server, which does not have the document; these have it."""
        query: Query = self.nodes[start].query(document)
        here, hops, time_s, crossed = start, 0, 0.0, 0
        while True:
            onward = self.nodes[here].next_hop(query)
            if onward is None:
                return Walk(here, False, hops, time_s, crossed)
            there, query = self._server[onward[0]], onward[1]
            time_s += self._latency_s[here][there] + QUERY_BYTES * self._per_byte[here][there]
            crossed += QUERY_BYTES * self._crossings[here][there]
            here, hops = there, hops + 1
            if here in holders:
                return Walk(here, True, hops, time_s, crossed)

    def missing(self, around: Sequence[Sequence[int]], documents: Sequence[str]) -> float:
        """Return of how many pairs of servers one has not the other's document in the row of its distance.

        ``around`` says, by hops and by server, whom it reaches (as bits); there is one document of each server.
        """
        masks = [mask(document, self.nodes[0].shape) for document in documents]
        pairs = missed = 0
        for row, (nearer, there) in enumerate(pairwise(around), start=1):
            for node, before, within in zip(self.nodes, nearer, there, strict=True):
                heard = [link.heard[row] for link in node.links.values()]
                others = within & ~before
                while others:
                    other = others & -others
                    wanted = masks[other.bit_length() - 1]
                    missed += all(bits & wanted != wanted for bits in heard)
                    pairs += 1
                    others ^= other
        return missed / pairs

    def _send(self, sender: int, sends: list[Send]) -> None:
        latency_s, per_byte, crossings = self._latency_s[sender], self._per_byte[sender], self._crossings[sender]
        arrived_s, under_way, numbers, now_s = self._arrived_s[sender], self._under_way, self._number, self._now_s
        message: Message | None = None
        length = 0
        for send in sends:
            if send.message is not message:
                message = send.message
                length = size(message) + HEADER_BYTES
            receiver = self._server[send.to]
            self.crossed_bytes += length * crossings[receiver]
            at_s = now_s + latency_s[receiver] + length * per_byte[receiver]
            arrived_s[receiver] = at_s = max(at_s, arrived_s.get(receiver, 0.0))
            heappush(under_way, (at_s, next(numbers), sender, receiver, message))
        self.messages += len(sends)
