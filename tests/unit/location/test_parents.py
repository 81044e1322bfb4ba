"""From whom a node takes a source's bits: the paths that random histories of honest nodes hardly go."""

from service.location.bloom import Shape
from service.location.protocol import Node
from service.location.wire import Hello, Ignore, Lost, Send, Update
from tests.support.overlay_network import name

SHAPE = Shape(1, 64, 2, 3)
ME, ONE, OTHER, SOURCE = map(name, range(4))


def told(row: int, bits: int) -> Update:
    return Update(SHAPE, SOURCE, row, bits, 0)


def node() -> Node:
    """Return a node with two neighbours, of whom one has told it of a source two hops away."""
    here = Node(ME, SHAPE)
    for neighbour in (ONE, OTHER):
        here.linked(neighbour, 0.01)
        here.received(neighbour, Hello(SHAPE))
    assert here.received(ONE, told(2, 0b11)) == [Send(OTHER, told(3, 0b11))]
    return here


def test_a_way_that_is_no_shorter_is_not_taken_and_not_wanted() -> None:
    here = node()
    assert here.received(OTHER, told(2, 0b11)) == [Send(OTHER, Ignore(SOURCE, 2))]
    assert here.received(OTHER, told(3, 0b11)) == [Send(OTHER, Ignore(SOURCE, 2))]
    assert here.links[OTHER].heard == [0, 0, 0, 0]
    assert here.received(ONE, told(2, 0b100)) == [Send(OTHER, told(3, 0b100))]


def test_a_shorter_way_is_taken_instead() -> None:
    here = Node(ME, SHAPE)
    for neighbour in (ONE, OTHER):
        here.linked(neighbour, 0.01)
        here.received(neighbour, Hello(SHAPE))
    here.received(ONE, told(3, 0b11))
    assert here.received(OTHER, told(2, 0b11)) == [Send(ONE, Ignore(SOURCE, 2)), Send(ONE, told(3, 0b11))]
    assert here.links[OTHER].heard[2] == 0b11


def test_a_parent_whose_way_grows_without_a_word_is_as_good_as_lost() -> None:
    """Neighbours that have a shorter one are to say so."""
    here = node()
    assert Send(OTHER, Lost((SOURCE,))) in here.received(ONE, told(3, 0b11))


def test_with_another_shape_whoever_is_first_is_the_parent() -> None:
    here, wider = node(), Shape(2, 128, 2, 3)
    here.reshape(wider)
    for neighbour in (ONE, OTHER):
        here.received(neighbour, Hello(wider))
    here.received(OTHER, Update(wider, SOURCE, 2, 0b11, 0))
    assert here.links[OTHER].heard[2] == 0b11


def test_a_source_is_not_told_from_the_row_on_from_which_it_is_ignored() -> None:
    here = node()
    here.received(OTHER, Ignore(SOURCE, 4))
    assert here.received(ONE, told(2, 0b100)) == [Send(OTHER, told(3, 0b100))]
    here.received(OTHER, Ignore(SOURCE, 3))
    here.received(OTHER, Ignore(SOURCE, 4))
    assert here.received(ONE, told(2, 0b1000)) == []


def test_what_was_not_told_is_not_taken_back() -> None:
    here = node()
    here.received(OTHER, Ignore(SOURCE, 3))
    here.received(ONE, told(2, 0b1100))
    assert here.received(ONE, Update(SHAPE, SOURCE, 2, 0, 0b111)) == [Send(OTHER, Update(SHAPE, SOURCE, 3, 0, 0b11))]


def test_nobody_is_told_anything_before_it_has_greeted() -> None:
    here = Node(ME, SHAPE)
    here.linked(ONE, 0.01)
    assert here.change(["a document"]) == []
    assert len(here.received(ONE, Hello(SHAPE))) == 1
