"""Networks of content location nodes, in which only messages of the same link keep their order."""

from collections import deque
from collections.abc import Iterable
from random import Random

from service.errors import PeerProtocolError
from service.location import messages
from service.location.bloom_filters import FilterShape
from service.location.location_node import Filtering, LocationNode
from service.location.messages import SendToNeighbour
from service.location.query_routing import LocationQuery


def name(number: int) -> str:
    return f"{number:040x}"


class Network:
    """The nodes 0 to ``count`` - 1, and their messages in transit, which :meth:`deliver` and :meth:`quiet` deliver."""

    def __init__(self, count: int, shape: FilterShape, filtering: Filtering = Filtering.SOURCE, seed: int = 0) -> None:
        self.nodes = [LocationNode(name(number), shape, filtering) for number in range(count)]
        self.edges: set[tuple[int, int]] = set()
        self.delivered = 0
        self.refused: list[str] = []
        self._in_transit: dict[tuple[int, int], deque[bytes]] = {}
        self._random = Random(seed)  # noqa: S311 - no secret

    def change(self, node: int, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        self._enqueue(node, self.nodes[node].change(added, removed))

    def link(self, one: int, other: int) -> None:
        edge = (min(one, other), max(one, other))
        if one != other and edge not in self.edges:
            self.edges.add(edge)
            rtt_s = self._random.random()
            self._enqueue(one, self.nodes[one].add_link(name(other), rtt_s))
            self._enqueue(other, self.nodes[other].add_link(name(one), rtt_s))

    def unlink(self, one: int, other: int) -> None:
        """Remove a link, and drop its messages in transit."""
        edge = (min(one, other), max(one, other))
        if edge in self.edges:
            self.edges.remove(edge)
            for way in (edge, edge[::-1]):
                self._in_transit.pop(way, None)
            self._enqueue(one, self.nodes[one].remove_link(name(other)))
            self._enqueue(other, self.nodes[other].remove_link(name(one)))

    def reshape(self, node: int, shape: FilterShape) -> None:
        self._enqueue(node, self.nodes[node].reshape(shape))

    def refresh(self, node: int) -> None:
        self._enqueue(node, self.nodes[node].refresh())

    def deliver(self, most: int) -> None:
        """Deliver up to ``most`` messages in transit, each of a random link."""
        while most and self._in_transit:
            most -= 1
            self.delivered += 1
            way = self._random.choice(list(self._in_transit))
            data = self._in_transit[way].popleft()
            if not self._in_transit[way]:
                del self._in_transit[way]
            sender, receiver = way
            try:
                self._enqueue(receiver, self.nodes[receiver].on_message(name(sender), messages.decode(data)))
            except PeerProtocolError as refused:
                self.refused.append(refused.reason)

    def quiet(self, most: int = 100_000) -> None:
        """Deliver messages and refresh all nodes until none are left; fail if ``most`` deliveries are not enough."""
        while True:
            self.deliver(most)
            assert not self._in_transit, f"There are updates after {most} messages."
            for number, node in enumerate(self.nodes):
                self._enqueue(number, node.refresh())
            if not self._in_transit:
                return

    def distances(self, start: int) -> dict[int, int]:
        """Return the number of hops from the node ``start`` to each reachable node."""
        found = {start: 0}
        border = [start]
        for number in border:
            for other in self.neighbours(number):
                if other not in found:
                    found[other] = found[number] + 1
                    border.append(other)
        return found

    def neighbours(self, node: int) -> list[int]:
        return [one if other == node else other for one, other in sorted(self.edges) if node in (one, other)]

    def walk(self, start: int, document: str) -> tuple[bool, list[int]]:
        """Query ``document`` from the node ``start``; return whether it is found, and the visited nodes."""
        query: LocationQuery = self.nodes[start].start_query(document)
        here = start
        while document not in self.nodes[here].own.documents:
            found = self.nodes[here].next_hop(query)
            if found is None:
                return False, [int(node, 16) for node in query.visited]
            here, query = int(found[0], 16), found[1]
        return True, [int(node, 16) for node in query.visited]

    def _enqueue(self, sender: int, sends: list[SendToNeighbour]) -> None:
        for send in sends:
            data = messages.encode(send.message)
            assert len(data) == messages.encoded_size(send.message)
            self._in_transit.setdefault((sender, int(send.to, 16)), deque()).append(data)
