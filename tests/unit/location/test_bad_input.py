"""What neighbours must not send is refused, by its reason, and has changed nothing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import PeerProtocolError
from service.location import wire
from service.location.bloom import MOST_WIDTH, Shape
from service.location.protocol import MOST_SOURCES, Node
from service.location.wire import Hello, Ignore, Lost, Message, Update, Want
from tests.support.overlay_network import name

SHAPE = Shape(1, 64, 2, 3)
NODES = st.integers(0, 2**160 - 1).map(name)
SHAPES = st.builds(
    Shape, st.integers(0, 2**32 - 1), st.sampled_from([1, 64, 500, 70_000]), st.integers(1, 16), st.integers(1, 8)
)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    shape = draw(SHAPES)
    bits = st.one_of(
        st.integers(0, (1 << shape.width) - 1), st.integers(0, shape.width - 1).map(lambda place: 1 << place)
    )
    return Update(shape, draw(NODES), draw(st.integers(0, 255)), draw(bits), draw(bits))


MESSAGES = st.one_of(
    updates(),
    st.builds(Hello, SHAPES),
    st.builds(Ignore, NODES, st.integers(0, 255)),
    st.builds(Lost, st.lists(NODES, max_size=5).map(tuple)),
    st.builds(Want, NODES),
)


def read_or_refused(data: bytes) -> Message | str:
    try:
        return wire.decode(data)
    except PeerProtocolError as refused:
        return refused.reason


@given(MESSAGES)
def test_bytes_say_what_the_message_says(message: Message) -> None:
    data = wire.encode(message)
    assert wire.decode(data) == message
    assert wire.size(message) == len(data)


@given(MESSAGES, st.data())
def test_a_damaged_message_is_another_one_or_refused(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(wire.encode(message))
    place = data.draw(st.integers(0, len(damaged) - 1))
    if data.draw(st.booleans()):
        damaged[place] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[place:]
    assert read_or_refused(bytes(damaged)) not in (message, "size")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert read_or_refused(data) != "size"


def test_what_is_too_long_is_not_read() -> None:
    with pytest.raises(PeerProtocolError, match="none has more than"):
        wire.decode(b"\x01" * (wire.MOST_BYTES + 1))


def test_the_largest_update_may_be_sent() -> None:
    full = (1 << MOST_WIDTH) - 1
    assert len(wire.encode(Update(Shape(1, MOST_WIDTH, 1, 1), name(1), 1, full, full))) <= wire.MOST_BYTES


def node() -> Node:
    """Return a node whose neighbour has told it of a document of its own."""
    here = Node(name(0), SHAPE)
    here.linked(name(1), 0.01)
    here.received(name(1), Hello(SHAPE))
    here.received(name(1), Update(SHAPE, name(1), 1, 0b11, 0))
    return here


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Hello(SHAPE), "shape"),
        (Update(Shape(1, 128, 2, 3), name(1), 1, 1, 0), "shape"),
        (Update(Shape(0, 64, 2, 3), name(1), 1, 1, 0), "shape"),
        (Update(SHAPE, name(1), 1, 1 << 64, 0), "bits"),
        (Update(SHAPE, name(1), 1, 0, 1 << 64), "bits"),
        (Update(SHAPE, name(1), 1, 0b100, 0b100), "bits"),
        (Update(SHAPE, name(2), 1, 0b100, 0), "bits"),
        (Update(SHAPE, name(1), 0, 0b100, 0), "bits"),
        (Update(SHAPE, name(2), 4, 0b100, 0), "bits"),
    ],
)
def test_what_makes_no_sense_is_refused(message: Message, reason: str) -> None:
    here = node()
    with pytest.raises(PeerProtocolError) as refused:
        here.received(name(1), message)
    assert refused.value.reason == reason
    assert here.links[name(1)].heard == [0, 0b11, 0, 0]
    assert here.links[name(1)].open


def test_strangers_and_those_who_have_not_greeted_are_refused() -> None:
    here = Node(name(0), SHAPE)
    with pytest.raises(PeerProtocolError) as refused:
        here.received(name(1), Hello(SHAPE))
    assert refused.value.reason == "stranger"
    here.linked(name(1), 0.01)
    with pytest.raises(PeerProtocolError) as refused:
        here.received(name(1), Update(SHAPE, name(1), 1, 1, 0))
    assert refused.value.reason == "shape"


@pytest.mark.parametrize(
    "about", [lambda source: Update(SHAPE, source, 2, 1, 0), lambda source: Ignore(source, 1)], ids=["Update", "Ignore"]
)
def test_who_names_sources_without_end_is_refused(about: Callable[[str], Message]) -> None:
    here = node()
    for number in range(1, MOST_SOURCES + 1):
        here.received(name(1), about(name(number)))
    one_more = about(name(MOST_SOURCES + 1))
    with pytest.raises(PeerProtocolError) as refused:
        here.received(name(1), one_more)
    assert refused.value.reason == "sources"


def test_an_older_shape_is_not_taken_and_not_refused() -> None:
    """Whoever has it hears of ours, and greets again."""
    here = Node(name(0), SHAPE)
    here.linked(name(1), 0.01)
    assert here.received(name(1), Hello(Shape(0, 64, 2, 3))) == []
    assert not here.links[name(1)].open


@pytest.mark.parametrize("sizes", [(0, 1, 1), (MOST_WIDTH + 1, 1, 1), (64, 0, 1), (64, 17, 1), (64, 1, 0), (64, 1, 9)])
def test_no_filter_has_such_a_shape(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="A filter's"):
        Shape(1, *sizes)
