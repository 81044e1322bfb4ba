"""A network of production's nodes: messages take the time that latency and bandwidth ask for, and are counted.

Updates (§II.D) are sent by the paper's three algorithms, or by those of the product, which lose nothing.

What the hybrid falls back on is Tapestry's mesh with home nodes (§III.A). Ids and GUIDs are hexadecimal, and resolved
from the last digit on: each hop goes to the nearest server that agrees with the GUID in one digit more. Where no server
has the digit, the next higher one that a server has is taken, the same for all who come that far: so each GUID has one
root.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from service.location.bloom import FilterShape, LocationQuery, document_mask
from service.location.protocol import Filtering, LocationNode
from service.location.wire import Message, SendToNeighbour, encoded_size
from service.model import NodeId
from service.simulate.location.graph import Ways


class Updates(StrEnum):
    """The algorithms of Figure 8 as published, and the product's. Without filtering, both are the same."""

    NONE = "none"
    DESTINATION = "destination"
    SOURCE = "source"
    PRODUCT_DESTINATION = "our destination"
    PRODUCT_SOURCE = "our source"

    def node(self, me: NodeId, shape: FilterShape) -> LocationNode:
        """Return a node that sends such updates."""
        product = {
            Updates.PRODUCT_DESTINATION: Filtering.DESTINATION,
            Updates.PRODUCT_SOURCE: Filtering.SOURCE,
        }
        return LocationNode(me, shape, product[self]) if self in product else Published(me, shape, Filtering(self))


class Published(LocationNode):
    """A node that tells a neighbour only what it has not told it yet (the paper's Figure 16, line 18).

    It believes that a neighbour still has what that one has dropped, and then documents that share these bits are lost.
    """

    def __init__(self, me: NodeId, shape: FilterShape, filtering: Filtering) -> None:
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

    def __init__(self, ways: Ways, edges: Iterable[tuple[int, int]], shape: FilterShape, updates: Updates) -> None:
        """Link all, without documents."""
        self.nodes = [updates.node(name(server), shape) for server in range(ways.servers)]
        self.crossed_bytes = 0
        self.messages = 0
        self._latency_s, self._per_byte, self._crossings = ways.lists
        self._now_s = 0.0
        self._arrived_s: list[dict[int, float]] = [{} for _ in self.nodes]
        self._under_way: list[tuple[float, int, int, int, Message]] = []
        self._number = count()
        self._names = [node.node_id for node in self.nodes]
        self._server = {each: server for server, each in enumerate(self._names)}
        for one, other in edges:
            rtt_s = 2 * self._latency_s[one][other]
            self._send(one, self.nodes[one].add_link(name(other), rtt_s))
            self._send(other, self.nodes[other].add_link(name(one), rtt_s))
        self.quiet()

    def change(self, server: int, added: Iterable[str], removed: Iterable[str] = ()) -> None:
        """Have documents come to a server, or go."""
        self._send(server, self.nodes[server].change(added, removed))

    def quiet(self) -> None:
        """Deliver all there is and will be."""
        under_way, nodes, names = self._under_way, self.nodes, self._names
        while under_way:
            self._now_s, _, sender, receiver, message = heappop(under_way)
            sends = nodes[receiver].on_message(names[sender], message)
            if sends:
                self._send(receiver, sends)

    def walk(self, start: int, document: str, holders: Collection[int]) -> Walk:
        """Send a query from a server, which does not have the document; these have it."""
        query: LocationQuery = self.nodes[start].start_query(document)
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
        masks = [document_mask(document, self.nodes[0].shape) for document in documents]
        pairs = missed = 0
        for row, (nearer, there) in enumerate(pairwise(around), start=1):
            for node, before, within in zip(self.nodes, nearer, there, strict=True):
                heard = [link.received[row] for link in node.links.values()]
                others = within & ~before
                while others:
                    other = others & -others
                    wanted = masks[other.bit_length() - 1]
                    missed += all(bits & wanted != wanted for bits in heard)
                    pairs += 1
                    others ^= other
        return missed / pairs

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
"""So many resolve a thousand servers."""
POINTER_BYTES = 60


class Found(NamedTuple):
    """Where a query ended, how long that took, and what went along interdomain edges."""

    holder: int
    time_s: float
    crossed_bytes: int


@cache
def guid(document: str) -> int:
    """Return the document's GUID."""
    return int.from_bytes(blake2b(document.encode(), digest_size=8, person=b"guid").digest(), "big")


class Tapestry:
    """The mesh, and the pointers to documents that servers along it keep."""

    def __init__(self, ways: Ways, rng: np.random.Generator) -> None:
        """Draw ids for all servers."""
        self.servers = ways.servers
        self._ways = ways
        self._latency_s, self._per_byte, self._crossings = ways.lists
        ids: list[int] = rng.integers(0, 16**DIGITS, ways.servers).tolist()
        self._members: dict[tuple[int, int], list[int]] = {}
        for level in range(DIGITS + 1):
            for server, number in enumerate(ids):
                self._members.setdefault((level, number % 16**level), []).append(server)
        self._nearest: dict[tuple[int, int, int], int] = {}
        self._pointers: dict[str, dict[int, set[int]]] = {}

    def path(self, start: int, document: str) -> list[int]:
        """Return the servers on the way from one to the document's root, itself first."""
        here, suffix, wanted = start, 0, guid(document)
        found = [start]
        for level in range(DIGITS):
            if len(self._members[level, suffix]) == 1:
                break
            digit = wanted >> 4 * level & 15
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
        """Leave a pointer at each hop to the root; return what went along interdomain edges."""
        path = self.path(holder, document)
        pointers = self._pointers.setdefault(document, {})
        for server in path:
            pointers.setdefault(server, set()).add(holder)
        return self._crossed(path, POINTER_BYTES + HEADER_BYTES)

    def withdraw(self, holder: int, document: str) -> int:
        """Take these pointers away again."""
        path = self.path(holder, document)
        for server in path:
            self._pointers[document][server].discard(holder)
        return self._crossed(path, POINTER_BYTES + HEADER_BYTES)

    def locate(self, start: int, document: str) -> Found:
        """Go towards the root until there is a pointer, then to the nearest holder from there."""
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
                return Found(holder, time_s + self.hop_s(server, holder), self._crossed(way, QUERY_BYTES))
        raise AssertionError(f"The root of {document} has no pointer to it.")

    def hop_s(self, one: int, other: int) -> float:
        """Return how long a query takes from one server to another."""
        return self._latency_s[one][other] + (QUERY_BYTES * self._per_byte[one][other] if one != other else 0.0)

    def _crossed(self, way: list[int], size: int) -> int:
        return size * sum(self._crossings[one][other] for one, other in pairwise(way))


def home_s(tapestry: Tapestry, start: int, document: str, holder: int) -> float:
    """Return how long a query takes by the document's home node, which knows the holder nearest to the client."""
    home = guid(document) % tapestry.servers
    return tapestry.hop_s(start, home) + tapestry.hop_s(home, holder)
