"""In a fleet of any size, the number of neighbours, the width of filters and the messages of a change are bounded."""

from collections import Counter, deque
from itertools import product
from random import Random

import pytest

from service.location.bloom_filters import FilterShape, width_for
from service.location.neighbour_choice import (
    Effect,
    LinkAdded,
    LinkRemoved,
    Neighbourhood,
    NeighbourLimits,
    Offer,
    SendOffer,
)
from tests.support.overlay_network import Network, name
from workers.peers.neighbour_overlay import (
    DEPTH,
    FALSE_POSITIVES,
    MAX_FILTER_BITS,
    MAX_ROW_DOCUMENTS,
    MAX_ROW_WORKERS,
)

LIMITS = NeighbourLimits(near_s=0.005)
DOCUMENTS = 2


class Workers:
    """Workers at several sites, who know all others and negotiate their links."""

    def __init__(self, count: int, sites: int) -> None:
        self._random = Random(3)  # noqa: S311 - no secret
        self._places = [(self._random.randrange(sites), self._random.random()) for _ in range(count)]
        self._nodes = [Neighbourhood(name(number), LIMITS) for number in range(count)]
        self._offers: deque[tuple[int, int, Offer]] = deque()
        self.links: set[tuple[int, int]] = set()
        for number, node in enumerate(self._nodes):
            others = ((name(other), self._rtt_s(number, other)) for other in range(count) if other != number)
            self._apply(number, node.on_measurements(others))
        for _ in range(3):
            while self._offers:
                sender, receiver, offer = self._offers.popleft()
                self._apply(receiver, self._nodes[receiver].on_offer(name(sender), offer))
            for number, node in enumerate(self._nodes):
                self._apply(number, node.reset_declined())

    def _rtt_s(self, one: int, other: int) -> float:
        (site, here), (other_site, there) = self._places[one], self._places[other]
        if site == other_site:
            return 0.0005 + 0.001 * abs(here - there)
        return 0.03 + 0.01 * abs(site - other_site) + 0.001 * here * there

    def _apply(self, number: int, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendOffer(to, offer):
                    self._offers.append((number, int(to, 16), offer))
                case LinkAdded(neighbour):
                    self.links.add((number, int(neighbour, 16)))
                case LinkRemoved(neighbour):
                    self.links.discard((number, int(neighbour, 16)))


@pytest.mark.parametrize(
    ("count", "sites"), [(60, 4), *(pytest.param(500, sites, marks=pytest.mark.storms) for sites in (1, 5, 20, 100))]
)
def test_filters_and_messages_are_bounded(count: int, sites: int) -> None:
    links = {(one, other) for one, other in Workers(count, sites).links if one < other}
    degrees = Counter(end for link in links for end in link)
    assert max(degrees.values()) <= 20
    network = Network(count, FilterShape(0, 1 << 13, 4, DEPTH))
    for one, other in sorted(links):
        network.link(one, other)
    for number, document in product(range(count), range(DOCUMENTS)):
        network.change(number, [f"{number} {document}"])
    network.quiet(10_000_000)
    assert max(node.fullest_row() for node in network.nodes) <= 1.05 * MAX_ROW_WORKERS * DOCUMENTS
    before, changes = network.delivered, range(0, count, count // 20)
    for number in changes:
        network.change(number, ["new"])
    network.quiet(10_000_000)
    assert network.delivered - before <= 64 * len(changes)


def test_a_row_is_wide_enough_for_the_documents_that_it_can_have() -> None:
    assert width_for(MAX_ROW_DOCUMENTS, FALSE_POSITIVES) <= MAX_FILTER_BITS
