"""Choice of a source's parent: cases that random histories of correct nodes rarely reach."""

from service.location.bloom_filters import FilterShape
from service.location.location_node import LocationNode
from service.location.messages import FilterUpdate, Hello, Ignore, SendToNeighbour, SourcesLost
from tests.support.overlay_network import name

SHAPE = FilterShape(1, 64, 2, 3)
ME, ONE, OTHER, SOURCE = map(name, range(4))


def update_of(row: int, bits: int) -> FilterUpdate:
    return FilterUpdate(SHAPE, SOURCE, row, bits, 0)


def node() -> LocationNode:
    """Return a node with two neighbours, one of which has sent an update of a source two hops away."""
    here = LocationNode(ME, SHAPE)
    for neighbour in (ONE, OTHER):
        here.add_link(neighbour, 0.01)
        here.on_message(neighbour, Hello(SHAPE))
    assert here.on_message(ONE, update_of(2, 0b11)) == [SendToNeighbour(OTHER, update_of(3, 0b11))]
    return here


def test_a_path_that_is_not_shorter_is_ignored() -> None:
    here = node()
    assert here.on_message(OTHER, update_of(2, 0b11)) == [SendToNeighbour(OTHER, Ignore(SOURCE, 2))]
    assert here.on_message(OTHER, update_of(3, 0b11)) == [SendToNeighbour(OTHER, Ignore(SOURCE, 2))]
    assert here.links[OTHER].received == [0, 0, 0, 0]
    assert here.on_message(ONE, update_of(2, 0b100)) == [SendToNeighbour(OTHER, update_of(3, 0b100))]


def test_a_shorter_path_replaces_the_parent() -> None:
    here = LocationNode(ME, SHAPE)
    for neighbour in (ONE, OTHER):
        here.add_link(neighbour, 0.01)
        here.on_message(neighbour, Hello(SHAPE))
    here.on_message(ONE, update_of(3, 0b11))
    assert here.on_message(OTHER, update_of(2, 0b11)) == [
        SendToNeighbour(ONE, Ignore(SOURCE, 2)),
        SendToNeighbour(ONE, update_of(3, 0b11)),
    ]
    assert here.links[OTHER].received[2] == 0b11


def test_a_parent_whose_path_grows_is_dropped() -> None:
    """Neighbours that have a shorter path are asked for it."""
    here = node()
    assert SendToNeighbour(OTHER, SourcesLost((SOURCE,))) in here.on_message(ONE, update_of(3, 0b11))


def test_a_new_shape_resets_parents() -> None:
    here, wider = node(), FilterShape(2, 128, 2, 3)
    here.reshape(wider)
    for neighbour in (ONE, OTHER):
        here.on_message(neighbour, Hello(wider))
    here.on_message(OTHER, FilterUpdate(wider, SOURCE, 2, 0b11, 0))
    assert here.links[OTHER].received[2] == 0b11


def test_ignored_rows_of_a_source_are_not_sent() -> None:
    here = node()
    here.on_message(OTHER, Ignore(SOURCE, 4))
    assert here.on_message(ONE, update_of(2, 0b100)) == [SendToNeighbour(OTHER, update_of(3, 0b100))]
    here.on_message(OTHER, Ignore(SOURCE, 3))
    here.on_message(OTHER, Ignore(SOURCE, 4))
    assert here.on_message(ONE, update_of(2, 0b1000)) == []


def test_bits_that_were_not_sent_are_not_cleared() -> None:
    here = node()
    here.on_message(OTHER, Ignore(SOURCE, 3))
    here.on_message(ONE, update_of(2, 0b1100))
    assert here.on_message(ONE, FilterUpdate(SHAPE, SOURCE, 2, 0, 0b111)) == [
        SendToNeighbour(OTHER, FilterUpdate(SHAPE, SOURCE, 3, 0, 0b11))
    ]


def test_no_update_is_sent_before_the_neighbours_hello() -> None:
    here = LocationNode(ME, SHAPE)
    here.add_link(ONE, 0.01)
    assert here.change(["a document"]) == []
    assert len(here.on_message(ONE, Hello(SHAPE))) == 1
