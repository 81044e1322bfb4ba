"""Laws of the overlay: links are mutual and few, and no two would rather have each other."""

from collections import deque
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from service.location.neighbours import Limits, Linked, Neighbourhood, Offer, Offered, Unlinked
from tests.support.location import name

LIMITS = Limits(near_s=0.010, near=3, far=2, gateways=2)


class Overlay:
    """Nodes whose offers come in any order, but for those of one to another."""

    def __init__(self, rtts_s: list[list[float]], limits: Limits, seed: int) -> None:
        self.rtts_s = rtts_s
        self.nodes = {name(number): Neighbourhood(name(number), limits) for number in range(len(rtts_s))}
        self.alive = set(self.nodes)
        self.links: set[tuple[str, str]] = set()
        self._random = Random(seed)  # noqa: S311 - no secret
        self.under_way: dict[tuple[str, str], deque[Offer]] = {}

    def rtt_s(self, one: str, other: str) -> float:
        return self.rtts_s[int(one, 16)][int(other, 16)]

    def join(self, node: str, known: set[str]) -> None:
        self._done(node, self.nodes[node].measured((peer, self.rtt_s(node, peer)) for peer in sorted(known)))

    def leave(self, node: str) -> None:
        self.alive.discard(node)
        self.under_way = {way: offers for way, offers in self.under_way.items() if node not in way}
        self.links = {link for link in self.links if link[0] != node}
        for other in sorted(self.alive):
            self._done(other, self.nodes[other].gone(node))

    def deliver(self, most: int) -> None:
        while most and self.under_way:
            most -= 1
            way = self._random.choice(sorted(self.under_way))
            offer = self.under_way[way].popleft()
            if not self.under_way[way]:
                del self.under_way[way]
            self._done(way[1], self.nodes[way[1]].received(way[0], offer))

    def settle(self) -> None:
        """Deliver everything, and have all forget, until nothing changes."""
        for _ in range(3 * len(self.nodes)):
            self.deliver(100_000)
            assert not self.under_way, "Offers go to and fro for ever."
            before = set(self.links)
            for node in sorted(self.alive):
                self._done(node, self.nodes[node].forget())
            self.deliver(100_000)
            if self.links == before:
                return
        raise AssertionError("Links change for ever.")

    def _done(self, node: str, effects: list[Offered | Linked | Unlinked]) -> None:
        for effect in effects:
            match effect:
                case Offered(to, offer):
                    if to in self.alive:
                        self.under_way.setdefault((node, to), deque()).append(offer)
                case Linked(neighbour, rtt_s):
                    assert rtt_s == self.rtt_s(node, neighbour)
                    assert (node, neighbour) not in self.links
                    self.links.add((node, neighbour))
                case Unlinked(neighbour):
                    self.links.remove((node, neighbour))


@st.composite
def overlays(draw: st.DrawFn, *, alike: bool = True) -> Overlay:
    """Return nodes that joined, and in part left, while offers were under way."""
    count = draw(st.integers(2, 10))
    random = Random(draw(st.integers(0, 10_000)))  # noqa: S311 - no secret
    rtts = [[random.choice([0.001, 0.1]) * random.uniform(1, 5) for _ in range(count)] for _ in range(count)]
    if alike:
        rtts = [[rtts[min(one, other)][max(one, other)] for other in range(count)] for one in range(count)]
    overlay = Overlay(rtts, LIMITS, draw(st.integers(0, 1000)))
    everybody = set(overlay.nodes)
    for node in random.sample(sorted(everybody), count):
        overlay.join(node, everybody)
        overlay.deliver(draw(st.integers(0, 20)))
    for number in draw(st.lists(st.integers(0, count - 1), max_size=count // 2, unique=True)):
        overlay.leave(name(number))
        overlay.deliver(draw(st.integers(0, 20)))
    overlay.deliver(100_000)
    assert not overlay.under_way
    return overlay


@settings(max_examples=100, deadline=None)
@given(overlays())
def test_links_are_mutual_and_as_few_as_wanted(overlay: Overlay) -> None:
    overlay.settle()
    assert overlay.links == {(other, one) for one, other in overlay.links}
    for node in overlay.alive:
        assert overlay.nodes[node].links == {other for one, other in overlay.links if one == node}
        rtts = [overlay.rtt_s(node, peer) for peer in overlay.nodes[node].links]
        assert sum(rtt <= LIMITS.near_s for rtt in rtts) <= LIMITS.near
        assert sum(rtt > LIMITS.near_s for rtt in rtts) <= (LIMITS.far if overlay.nodes[node].gateway else 0)


@settings(max_examples=100, deadline=None)
@given(overlays())
def test_no_two_would_rather_have_each_other(overlay: Overlay) -> None:
    overlay.settle()
    for one in overlay.alive:
        for other in overlay.alive - {one}:
            if (one, other) not in overlay.links:
                both = overlay.nodes[one]._wanted(other) and overlay.nodes[other]._wanted(one)
                assert not both, f"{one} and {other} would take each other"


@settings(max_examples=100, deadline=None)
@given(overlays(alike=False))
def test_offers_end_where_two_measure_differently(overlay: Overlay) -> None:
    assert overlay.links == {(other, one) for one, other in overlay.links}


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(2, 8), st.integers(0, 1000))
def test_a_group_has_few_far_links_however_large_it_is(groups: int, size: int, seed: int) -> None:
    """At most as many as its gateways want."""
    random = Random(seed)  # noqa: S311 - no secret
    order = random.sample(range(groups * size), groups * size)
    group = {node: place // size for place, node in enumerate(order)}
    rtts = [[0.0] * len(order) for _ in order]
    for one in range(len(order)):
        for other in range(one):
            low = 0.002 if group[one] == group[other] else 0.020
            rtts[one][other] = rtts[other][one] = low * random.uniform(1, 3)
    overlay = Overlay(rtts, LIMITS, seed)
    for node in sorted(overlay.nodes):
        overlay.join(node, set(overlay.nodes))
    overlay.settle()
    far = [link for link in overlay.links if overlay.rtt_s(*link) > LIMITS.near_s]
    for here in range(groups):
        assert sum(group[int(one, 16)] == here for one, _ in far) <= LIMITS.gateways * LIMITS.far


def test_a_stranger_is_declined_and_an_answer_to_nothing_too() -> None:
    node = Neighbourhood(name(0), LIMITS)
    assert node.received(name(1), Offer.ASK) == [Offered(name(1), Offer.DECLINE)]
    assert node.received(name(1), Offer.ACCEPT) == [Offered(name(1), Offer.DECLINE)]
    assert node.received(name(1), Offer.DECLINE) == []
    assert not node.links
