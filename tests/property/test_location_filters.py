"""Invariants of attenuated Bloom filters, for any order of messages."""

from hypothesis import given, settings
from hypothesis import strategies as st

from service.location.bloom_filters import FilterShape, document_mask
from service.location.location_node import Filtering
from service.location.query_routing import first_row
from tests.support.overlay_network import Network, name

NODES = 8
NARROW = FilterShape(1, 40, 2, 3)
"""So narrow that sources often share bits."""
WIDE = FilterShape(2, 1 << 14, 8, 3)
FILTERINGS = st.sampled_from(Filtering)
DEPTHS = st.integers(1, 4)
NUMBERS = st.integers(0, NODES - 1)
DOCUMENTS = st.integers(0, 15).map("document {}".format)
STEPS = st.one_of(
    st.tuples(st.just("add"), NUMBERS, DOCUMENTS),
    st.tuples(st.just("add"), NUMBERS, DOCUMENTS),
    st.tuples(st.just("remove"), NUMBERS, st.integers(0, 1)),
    st.tuples(st.just("link"), NUMBERS, NUMBERS),
    st.tuples(st.just("link"), NUMBERS, NUMBERS),
    st.tuples(st.just("link"), NUMBERS, NUMBERS),
    st.tuples(st.just("unlink"), NUMBERS, NUMBERS),
    st.tuples(st.just("deliver"), st.integers(1, 60), st.none()),
    st.tuples(st.just("refresh"), NUMBERS, st.none()),
)
HISTORIES = st.lists(STEPS, max_size=70)


def network_after(
    history: list[tuple[str, int, object]], shape: FilterShape, filtering: Filtering, seed: int
) -> Network:
    network = Network(NODES, shape, filtering, seed)
    for number in range(NODES):
        network.link(number, (number + 1) % NODES)
        network.change(number, [f"document {number + extra}" for extra in range(seed % 3)])
    for kind, number, more in history:
        if kind == "add":
            network.change(number, [str(more)])
        elif kind == "remove" and isinstance(more, int):
            network.change(number, removed=sorted(network.nodes[number].own.documents)[more:][:1])
        elif kind == "link" and isinstance(more, int):
            network.link(number, more)
        elif kind == "unlink" and isinstance(more, int) and network.neighbours(number):
            network.unlink(number, network.neighbours(number)[more % len(network.neighbours(number))])
        elif kind == "refresh":
            network.refresh(number)
        else:
            network.deliver(number)
    network.quiet()
    assert not network.refused
    return network


def walks(network: Network, start: int, first: int, hops: int) -> set[int]:
    """Return the ends of paths of ``hops`` hops that begin with this neighbour and never reverse on a link."""
    ways = {(start, first)}
    for _ in range(hops - 1):
        ways = {(at, onward) for back, at in ways for onward in network.neighbours(at) if onward != back}
    return {at for _, at in ways}


def assert_nothing_is_missing(network: Network, shape: FilterShape) -> None:
    for number, node in enumerate(network.nodes):
        for other, distance in network.distances(number).items():
            if 0 < distance <= shape.depth:
                for document in network.nodes[other].own.documents:
                    bits = document_mask(document, shape)
                    assert any(link.received[distance] & bits == bits for link in node.links.values())


@settings(max_examples=150, deadline=None)
@given(HISTORIES, DEPTHS, FILTERINGS, st.integers(0, 1000))
def test_a_document_at_distance_i_is_in_row_i_of_a_link(
    history: list[tuple[str, int, object]], depth: int, filtering: Filtering, seed: int
) -> None:
    """No false negatives once the network is quiet, after documents and links came and went in any order."""
    shape = FilterShape(1, NARROW.width, NARROW.hashes, depth)
    assert_nothing_is_missing(network_after(history, shape, filtering, seed), shape)


@settings(max_examples=150, deadline=None)
@given(HISTORIES, DEPTHS, FILTERINGS, st.integers(0, 1000))
def test_rows_contain_no_unreachable_documents(
    history: list[tuple[str, int, object]], depth: int, filtering: Filtering, seed: int
) -> None:
    """Nothing of the past stays; without filtering, a row is exactly what paths of its length lead to."""
    shape = FilterShape(1, NARROW.width, NARROW.hashes, depth)
    network = network_after(history, shape, filtering, seed)
    for number, node in enumerate(network.nodes):
        for neighbour, link in node.links.items():
            assert link.is_open
            for row in range(1, depth + 1):
                there = 0
                for other in walks(network, number, int(neighbour, 16), row):
                    there |= network.nodes[other].own.bits
                assert link.received[row] & ~there == 0
                if row == 1 or filtering is Filtering.NONE:
                    assert link.received[row] == there


@settings(max_examples=100, deadline=None)
@given(HISTORIES, DEPTHS, FILTERINGS, st.integers(0, 1000))
def test_both_ends_of_a_link_agree_on_its_filters(
    history: list[tuple[str, int, object]], depth: int, filtering: Filtering, seed: int
) -> None:
    """What was sent covers what was stored; without filtering, both are equal."""
    network = network_after(history, FilterShape(1, NARROW.width, NARROW.hashes, depth), filtering, seed)
    for one, other in network.edges:
        for sender, receiver in ((one, other), (other, one)):
            told = network.nodes[sender].links[name(receiver)].sent
            heard = network.nodes[receiver].links[name(sender)].received
            assert all(has & ~said == 0 for has, said in zip(heard, told, strict=True))
            if filtering is Filtering.NONE:
                assert heard == told


@settings(max_examples=60, deadline=None)
@given(HISTORIES, DEPTHS, FILTERINGS, st.integers(0, 1000))
def test_without_documents_all_filters_are_empty(
    history: list[tuple[str, int, object]], depth: int, filtering: Filtering, seed: int
) -> None:
    network = network_after(history, FilterShape(1, NARROW.width, NARROW.hashes, depth), filtering, seed)
    for number, node in enumerate(network.nodes):
        network.change(number, removed=list(node.own.documents))
    network.quiet()
    assert not any(bits for node in network.nodes for link in node.links.values() for bits in link.received + link.sent)


@settings(max_examples=80, deadline=None)
@given(HISTORIES, FILTERINGS, st.integers(0, 1000))
def test_a_query_finds_a_nearest_copy_without_visiting_a_node_twice(
    history: list[tuple[str, int, object]], filtering: Filtering, seed: int
) -> None:
    """With filters so wide that there are no false positives."""
    network = network_after(history, WIDE, filtering, seed)
    for start in range(NODES):
        distances = network.distances(start)
        for document in map("document {}".format, range(16)):
            near = [distances[n] for n in distances if document in network.nodes[n].own.documents]
            found, way = network.walk(start, document)
            assert found == (min(near, default=NODES) <= WIDE.depth)
            assert len(way) == (min(near) + 1 if found else 1)


@settings(max_examples=60, deadline=None)
@given(HISTORIES, st.integers(0, 1000))
def test_the_next_hop_is_the_nearest_match_of_the_first_matching_row(
    history: list[tuple[str, int, object]], seed: int
) -> None:
    """Also after round-trip times were measured again."""
    network = network_after(history, WIDE, Filtering.SOURCE, seed)
    for number, node in enumerate(network.nodes):
        for neighbour in network.neighbours(number)[::2]:
            assert node.add_link(name(neighbour), (7 * neighbour + seed) % 5 / 10) == []
        for document in map("document {}".format, range(16)):
            matching = [
                (row, link.rtt_s, neighbour)
                for neighbour, link in node.links.items()
                if (row := first_row(link.received, document_mask(document, WIDE), WIDE.depth))
            ]
            found = node.next_hop(node.start_query(document))
            assert (found and found[0]) == min(matching, default=(0, 0.0, None))[2]


@settings(max_examples=80, deadline=None)
@given(HISTORIES, DEPTHS, st.integers(0, 1000))
def test_a_query_ends_within_as_many_hops_as_rows(
    history: list[tuple[str, int, object]], depth: int, seed: int
) -> None:
    """With filters so narrow that false positives are frequent."""
    network = network_after(history, FilterShape(1, 8, 2, depth), Filtering.SOURCE, seed)
    for start in range(NODES):
        for number in range(20):
            _, way = network.walk(start, f"document {number}")
            assert len(way) <= depth + 1
            assert len(set(way)) == len(way)


@settings(max_examples=60, deadline=None)
@given(HISTORIES, st.lists(st.tuples(NUMBERS, st.integers(1, 4), st.integers(60, 200)), max_size=6))
def test_all_nodes_adopt_the_greatest_shape(
    before: list[tuple[str, int, object]], taken: list[tuple[int, int, int]]
) -> None:
    """In a connected network, also when several nodes adopt one at once."""
    network = network_after(before, NARROW, Filtering.SOURCE, 1)
    for number in range(NODES - 1):
        network.link(number, number + 1)
    network.quiet()
    shapes = [FilterShape(generation, width, 3, 3) for _, generation, width in taken]
    for (number, _, _), shape in zip(taken, shapes, strict=True):
        network.reshape(number, shape)
        network.deliver(3)
    network.quiet()
    greatest = max([NARROW, *shapes])
    assert {node.shape for node in network.nodes} == {greatest}
    for number, node in enumerate(network.nodes):
        for neighbour in network.neighbours(number):
            assert node.links[name(neighbour)].received[1] == network.nodes[neighbour].own.bits
    assert_nothing_is_missing(network, greatest)
