"""From whom a node takes a source's bits: the paths that random histories of honest nodes hardly go."""

from service.location.bloom import FilterShape
from service.location.protocol import LocationNode
from service.location.wire import FilterUpdate, Hello, Ignore, SendToNeighbour, SourcesLost
from tests.support.overlay_network import name

SHAPE = FilterShape(1, 64, 2, 3)
ME, ONE, OTHER, SOURCE = map(name, range(4))


def told(row: int, bits: int) -> FilterUpdate:
    return FilterUpdate(SHAPE, SOURCE, row, bits, 0)


def node() -> LocationNode:
    """Return a node with two neighbours, of whom one has told it of a source two hops away."""
    here = LocationNode(ME, SHAPE)
    for neighbour in (ONE, OTHER):
        here.add_link(neighbour, 0.01)
        here.on_message(neighbour, Hello(SHAPE))
    assert here.on_message(ONE, told(2, 0b11)) == [SendToNeighbour(OTHER, told(3, 0b11))]
    return here


def test_a_way_that_is_no_shorter_is_not_taken_and_not_wanted() -> None:
    here = node()
    assert here.on_message(OTHER, told(2, 0b11)) == [SendToNeighbour(OTHER, Ignore(SOURCE, 2))]
    assert here.on_message(OTHER, told(3, 0b11)) == [SendToNeighbour(OTHER, Ignore(SOURCE, 2))]
    assert here.links[OTHER].received == [0, 0, 0, 0]
    assert here.on_message(ONE, told(2, 0b100)) == [SendToNeighbour(OTHER, told(3, 0b100))]


def test_a_shorter_way_is_taken_instead() -> None:
    here = LocationNode(ME, SHAPE)
    for neighbour in (ONE, OTHER):
        here.add_link(neighbour, 0.01)
        here.on_message(neighbour, Hello(SHAPE))
    here.on_message(ONE, told(3, 0b11))
    assert here.on_message(OTHER, told(2, 0b11)) == [
        SendToNeighbour(ONE, Ignore(SOURCE, 2)),
        SendToNeighbour(ONE, told(3, 0b11)),
    ]
    assert here.links[OTHER].received[2] == 0b11


def test_a_parent_whose_way_grows_without_a_word_is_as_good_as_lost() -> None:
    """Neighbours that have a shorter one are to say so."""
    here = node()
    assert SendToNeighbour(OTHER, SourcesLost((SOURCE,))) in here.on_message(ONE, told(3, 0b11))


def test_with_another_shape_whoever_is_first_is_the_parent() -> None:
    here, wider = node(), FilterShape(2, 128, 2, 3)
    here.reshape(wider)
    for neighbour in (ONE, OTHER):
        here.on_message(neighbour, Hello(wider))
    here.on_message(OTHER, FilterUpdate(wider, SOURCE, 2, 0b11, 0))
    assert here.links[OTHER].received[2] == 0b11


def test_a_source_is_not_told_from_the_row_on_from_which_it_is_ignored() -> None:
    here = node()
    here.on_message(OTHER, Ignore(SOURCE, 4))
    assert here.on_message(ONE, told(2, 0b100)) == [SendToNeighbour(OTHER, told(3, 0b100))]
    here.on_message(OTHER, Ignore(SOURCE, 3))
    here.on_message(OTHER, Ignore(SOURCE, 4))
    assert here.on_message(ONE, told(2, 0b1000)) == []


def test_what_was_not_told_is_not_taken_back() -> None:
    here = node()
    here.on_message(OTHER, Ignore(SOURCE, 3))
    here.on_message(ONE, told(2, 0b1100))
    assert here.on_message(ONE, FilterUpdate(SHAPE, SOURCE, 2, 0, 0b111)) == [
        SendToNeighbour(OTHER, FilterUpdate(SHAPE, SOURCE, 3, 0, 0b11))
    ]


def test_nobody_is_told_anything_before_it_has_greeted() -> None:
    here = LocationNode(ME, SHAPE)
    here.add_link(ONE, 0.01)
    assert here.change(["a document"]) == []
    assert len(here.on_message(ONE, Hello(SHAPE))) == 1
