"""Invariants of the overlay: it is connected, links are mutual and few, and form a stable matching."""

from collections import deque
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from service.location.neighbour_choice import LinkAdded, LinkRemoved, Neighbourhood, NeighbourLimits, Offer, SendOffer
from tests.support.overlay_network import name

LIMITS = NeighbourLimits(near_s=0.010, near=3, far=2, gateways=2)


class Overlay:
    """Nodes whose offers arrive in any order, except those between the same two nodes."""

    def __init__(self, rtts_s: list[list[float]], limits: NeighbourLimits, seed: int) -> None:
        self.rtts_s = rtts_s
        self.nodes = {name(number): Neighbourhood(name(number), limits) for number in range(len(rtts_s))}
        self.alive = set(self.nodes)
        self.links: set[tuple[str, str]] = set()
        self._random = Random(seed)  # noqa: S311 - no secret
        self.under_way: dict[tuple[str, str], deque[Offer]] = {}
        self.known: dict[str, set[str]] = {node: set() for node in self.nodes}

    def rtt_s(self, one: str, other: str) -> float:
        return self.rtts_s[int(one, 16)][int(other, 16)]

    def join(self, node: str, known: set[str]) -> None:
        self.known[node] |= known
        self._apply(node, self.nodes[node].on_measurements((peer, self.rtt_s(node, peer)) for peer in sorted(known)))

    def leave(self, node: str) -> None:
        self.alive.discard(node)
        self.under_way = {way: offers for way, offers in self.under_way.items() if node not in way}
        self.links = {link for link in self.links if link[0] != node}
        for other in sorted(self.alive):
            self._apply(other, self.nodes[other].on_peer_left(node))

    def deliver(self, most: int) -> None:
        while most and self.under_way:
            most -= 1
            way = self._random.choice(sorted(self.under_way))
            offer = self.under_way[way].popleft()
            if not self.under_way[way]:
                del self.under_way[way]
            self._apply(way[1], self.nodes[way[1]].on_offer(way[0], offer))

    def anchor(self, node: str) -> str | None:
        """Return the nearest of the live peers with a lesser id that the node has measured."""
        known = [peer for peer in self.alive & self.known[node] if peer < node]
        return min(known, key=lambda peer: (self.rtt_s(node, peer), peer), default=None)

    def has_room(self, node: str, peer: str) -> bool:
        """Return whether fewer neighbours of this kind than wanted are nearer than the peer."""
        near = self.rtt_s(node, peer) <= LIMITS.near_s
        most = LIMITS.near if near else LIMITS.far if self.nodes[node].is_gateway else 0
        links = [other for other in self.nodes[node].links if (self.rtt_s(node, other) <= LIMITS.near_s) is near]
        return sum((self.rtt_s(node, other), other) < (self.rtt_s(node, peer), peer) for other in links) < most

    def is_anchored(self, one: str, other: str) -> bool:
        return other == self.anchor(one) or one == self.anchor(other)

    def reached(self, node: str) -> set[str]:
        """Return the nodes that are reachable by links from this one."""
        found, ahead = {node}, [node]
        while ahead:
            here = ahead.pop()
            onward = {other for one, other in self.links if one == here} - found
            found |= onward
            ahead += sorted(onward)
        return found

    def settle(self) -> None:
        """Deliver all offers, and reset refusals, until nothing changes."""
        for _ in range(3 * len(self.nodes)):
            self.deliver(100_000)
            assert not self.under_way, "Offers go to and fro for ever."
            before = set(self.links)
            for node in sorted(self.alive):
                self._apply(node, self.nodes[node].reset_declined())
            self.deliver(100_000)
            if self.links == before:
                return
        raise AssertionError("Links change for ever.")

    def _apply(self, node: str, effects: list[SendOffer | LinkAdded | LinkRemoved]) -> None:
        for effect in effects:
            match effect:
                case SendOffer(to, offer):
                    if to in self.alive:
                        self.under_way.setdefault((node, to), deque()).append(offer)
                case LinkAdded(neighbour, rtt_s):
                    assert rtt_s == self.rtt_s(node, neighbour)
                    assert (node, neighbour) not in self.links
                    self.links.add((node, neighbour))
                case LinkRemoved(neighbour):
                    self.links.remove((node, neighbour))


@st.composite
def overlays(draw: st.DrawFn, *, alike: bool = True, all_known: bool = True) -> Overlay:
    """Return nodes that joined, and some of which left, while offers were in transit.

    With ``alike``, both ends measure the same round-trip time. Without ``all_known``, each node knows only some peers,
    but one with a lesser id.
    """
    count = draw(st.integers(2, 10))
    random = Random(draw(st.integers(0, 10_000)))  # noqa: S311 - no secret
    rtts = [[random.choice([0.001, 0.1]) * random.uniform(1, 5) for _ in range(count)] for _ in range(count)]
    if alike:
        rtts = [[rtts[min(one, other)][max(one, other)] for other in range(count)] for one in range(count)]
    overlay = Overlay(rtts, LIMITS, draw(st.integers(0, 1000)))
    everybody = set(overlay.nodes)
    leaving = draw(st.lists(st.integers(0, count - 1), max_size=count // 2, unique=True))
    least = min(everybody - {name(number) for number in leaving})
    for node in random.sample(sorted(everybody), count):
        some = {least, *random.sample(sorted(everybody), random.randrange(count))}
        overlay.join(node, everybody if all_known else some)
        overlay.deliver(draw(st.integers(0, 20)))
    for node in random.sample(sorted(everybody), count):
        overlay.join(node, {peer for peer in everybody if node in overlay.known[peer]})
        overlay.deliver(draw(st.integers(0, 20)))
    for number in leaving:
        overlay.leave(name(number))
        overlay.deliver(draw(st.integers(0, 20)))
    overlay.deliver(100_000)
    assert not overlay.under_way
    return overlay


@settings(max_examples=150, deadline=None)
@given(st.booleans().flatmap(lambda alike: overlays(alike=alike, all_known=False)))
def test_the_overlay_is_connected(overlay: Overlay) -> None:
    """For any measurements and departures, without any call of ``reset_declined``."""
    for node in overlay.alive:
        assert overlay.reached(node) == overlay.alive


@settings(max_examples=100, deadline=None)
@given(overlays())
def test_links_are_mutual_and_within_the_limits(overlay: Overlay) -> None:
    overlay.settle()
    assert overlay.links == {(other, one) for one, other in overlay.links}
    for node in overlay.alive:
        assert overlay.nodes[node].links == {other for one, other in overlay.links if one == node}
        rtts = [overlay.rtt_s(node, peer) for peer in overlay.nodes[node].links if not overlay.is_anchored(node, peer)]
        assert sum(rtt <= LIMITS.near_s for rtt in rtts) <= LIMITS.near
        assert sum(rtt > LIMITS.near_s for rtt in rtts) <= (LIMITS.far if overlay.nodes[node].is_gateway else 0)


@settings(max_examples=100, deadline=None)
@given(overlays())
def test_links_are_a_stable_matching(overlay: Overlay) -> None:
    overlay.settle()
    for one in overlay.alive:
        for other in overlay.alive - {one}:
            if (one, other) not in overlay.links:
                both = overlay.has_room(one, other) and overlay.has_room(other, one)
                assert not both, f"{one} and {other} would take each other"


@settings(max_examples=100, deadline=None)
@given(overlays(alike=False))
def test_offers_end_with_asymmetric_measurements(overlay: Overlay) -> None:
    assert overlay.links == {(other, one) for one, other in overlay.links}


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(2, 8), st.integers(0, 1000))
def test_a_group_has_few_far_links_however_large_it_is(groups: int, size: int, seed: int) -> None:
    """At most as many as its gateways want, plus one less than the number of groups for all of them together."""
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
        wanted = [one for one, other in far if group[int(one, 16)] == here and not overlay.is_anchored(one, other)]
        assert len(wanted) <= LIMITS.gateways * LIMITS.far
    assert sum(overlay.is_anchored(one, other) for one, other in far) == 2 * (groups - 1)
    assert overlay.reached(name(0)) == overlay.alive


def test_unmeasured_peers_and_unexpected_answers_are_declined() -> None:
    node = Neighbourhood(name(0), LIMITS)
    assert node.on_offer(name(1), Offer.REQUEST) == [SendOffer(name(1), Offer.DECLINE)]
    assert node.on_offer(name(1), Offer.ACCEPT) == [SendOffer(name(1), Offer.DECLINE)]
    assert node.on_offer(name(1), Offer.DECLINE) == []
    assert not node.links


def test_an_unmeasured_dependent_is_linked_once_measured() -> None:
    node = Neighbourhood(name(0), LIMITS)
    assert node.on_offer(name(1), Offer.ANCHOR) == []
    assert node.on_measurements([(name(1), 0.5)]) == [SendOffer(name(1), Offer.ACCEPT), LinkAdded(name(1), 0.5)]


def test_only_peers_with_greater_ids_can_be_dependents() -> None:
    node = Neighbourhood(name(1), NeighbourLimits(near_s=0.010, near=0, far=0))
    node.on_measurements([(name(2), 0.001)])
    assert node.on_offer(name(0), Offer.ANCHOR) == [SendOffer(name(0), Offer.DECLINE)]
    assert node.on_offer(name(2), Offer.ANCHOR) == [SendOffer(name(2), Offer.ACCEPT), LinkAdded(name(2), 0.001)]
    assert node.on_offer(name(2), Offer.REQUEST)[-1] == LinkRemoved(name(2))


def test_a_nearer_anchor_replaces_the_former_one() -> None:
    """The former anchor may stay a neighbour, if both ends want that."""
    node = Neighbourhood(name(5), LIMITS)
    assert node.on_measurements([(name(1), 0.005)])[0] == SendOffer(name(1), Offer.ANCHOR)
    node.on_offer(name(1), Offer.ACCEPT)
    effects = node.on_measurements([(name(2), 0.004)])
    assert effects == [SendOffer(name(1), Offer.REQUEST), SendOffer(name(2), Offer.ANCHOR)]


def test_an_anchor_that_declined_is_asked_again() -> None:
    node = Neighbourhood(name(5), LIMITS)
    node.on_measurements([(name(1), 0.005)])
    node.on_offer(name(1), Offer.ACCEPT)
    assert node.on_offer(name(1), Offer.DECLINE) == [LinkRemoved(name(1)), SendOffer(name(1), Offer.ANCHOR)]


def test_a_peer_that_returns_starts_from_scratch() -> None:
    node = Neighbourhood(name(5), LIMITS)
    node.on_measurements([(name(1), 0.005)])
    node.on_offer(name(9), Offer.ANCHOR)
    node.on_peer_left(name(1))
    node.on_peer_left(name(9))
    assert node.on_measurements([(name(1), 0.005)])[0] == SendOffer(name(1), Offer.ANCHOR)
    assert node.on_measurements([(name(9), 0.005)]) == [SendOffer(name(9), Offer.REQUEST)]


def test_a_peer_that_ends_a_link_is_no_dependent_any_more() -> None:
    node = Neighbourhood(name(0), NeighbourLimits(near_s=0.010, near=0, far=0))
    node.on_measurements([(name(9), 0.005)])
    node.on_offer(name(9), Offer.ANCHOR)
    assert node.on_offer(name(9), Offer.DECLINE) == [LinkRemoved(name(9))]
    assert node.on_measurements([(name(9), 0.005)]) == []


def test_unanswered_offers_are_repeated() -> None:
    node = Neighbourhood(name(5), LIMITS)
    asked = node.on_measurements([(name(1), 0.005), (name(9), 0.005)])
    assert asked == [SendOffer(name(1), Offer.ANCHOR), SendOffer(name(9), Offer.REQUEST)]
    assert node.on_measurements([(name(9), 0.005)]) == []
    assert node.reset_declined() == asked
