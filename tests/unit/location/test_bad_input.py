"""Invalid messages of neighbours are refused with their reason and change nothing."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import PeerProtocolError
from service.location import messages
from service.location.bloom_filters import MAX_WIDTH, FilterShape
from service.location.location_node import MAX_SOURCES, LocationNode
from service.location.messages import FilterUpdate, Hello, Ignore, Message, RefreshRequest, SourcesLost
from tests.support.overlay_network import name

SHAPE = FilterShape(1, 64, 2, 3)
NODES = st.integers(0, 2**160 - 1).map(name)
SHAPES = st.builds(
    FilterShape, st.integers(0, 2**32 - 1), st.sampled_from([1, 64, 500, 70_000]), st.integers(1, 16), st.integers(1, 8)
)


@st.composite
def updates(draw: st.DrawFn) -> FilterUpdate:
    shape = draw(SHAPES)
    bits = st.one_of(
        st.integers(0, (1 << shape.width) - 1), st.integers(0, shape.width - 1).map(lambda place: 1 << place)
    )
    return FilterUpdate(shape, draw(NODES), draw(st.integers(0, 255)), draw(bits), draw(bits))


MESSAGES = st.one_of(
    updates(),
    st.builds(Hello, SHAPES),
    st.builds(Ignore, NODES, st.integers(0, 255)),
    st.builds(SourcesLost, st.lists(NODES, max_size=5).map(tuple)),
    st.builds(RefreshRequest, NODES),
)


def decode_or_reason(data: bytes) -> Message | str:
    try:
        return messages.decode(data)
    except PeerProtocolError as refused:
        return refused.reason


@given(MESSAGES)
def test_messages_survive_encoding(message: Message) -> None:
    data = messages.encode(message)
    assert messages.decode(data) == message
    assert messages.encoded_size(message) == len(data)


@given(MESSAGES, st.data())
def test_a_damaged_message_decodes_to_another_one_or_raises(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(messages.encode(message))
    place = data.draw(st.integers(0, len(damaged) - 1))
    if data.draw(st.booleans()):
        damaged[place] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[place:]
    assert decode_or_reason(bytes(damaged)) not in (message, "size")


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise(data: bytes) -> None:
    assert decode_or_reason(data) != "size"


def test_a_message_beyond_the_maximum_size_raises() -> None:
    with pytest.raises(PeerProtocolError, match="none has more than"):
        messages.decode(b"\x01" * (messages.MAX_MESSAGE_BYTES + 1))


def test_the_largest_update_is_within_the_maximum_size() -> None:
    full = (1 << MAX_WIDTH) - 1
    assert (
        len(messages.encode(FilterUpdate(FilterShape(1, MAX_WIDTH, 1, 1), name(1), 1, full, full)))
        <= messages.MAX_MESSAGE_BYTES
    )


def node() -> LocationNode:
    """Return a node whose neighbour has sent an update of a document of its own."""
    here = LocationNode(name(0), SHAPE)
    here.add_link(name(1), 0.01)
    here.on_message(name(1), Hello(SHAPE))
    here.on_message(name(1), FilterUpdate(SHAPE, name(1), 1, 0b11, 0))
    return here


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Hello(SHAPE), "shape"),
        (FilterUpdate(FilterShape(1, 128, 2, 3), name(1), 1, 1, 0), "shape"),
        (FilterUpdate(FilterShape(0, 64, 2, 3), name(1), 1, 1, 0), "shape"),
        (FilterUpdate(SHAPE, name(1), 1, 1 << 64, 0), "bits"),
        (FilterUpdate(SHAPE, name(1), 1, 0, 1 << 64), "bits"),
        (FilterUpdate(SHAPE, name(1), 1, 0b100, 0b100), "bits"),
        (FilterUpdate(SHAPE, name(2), 1, 0b100, 0), "bits"),
        (FilterUpdate(SHAPE, name(1), 0, 0b100, 0), "bits"),
        (FilterUpdate(SHAPE, name(2), 4, 0b100, 0), "bits"),
    ],
)
def test_invalid_messages_raise_and_change_nothing(message: Message, reason: str) -> None:
    here = node()
    with pytest.raises(PeerProtocolError) as refused:
        here.on_message(name(1), message)
    assert refused.value.reason == reason
    assert here.links[name(1)].received == [0, 0b11, 0, 0]
    assert here.links[name(1)].is_open


def test_messages_of_unlinked_or_unopened_neighbours_raise() -> None:
    here = LocationNode(name(0), SHAPE)
    with pytest.raises(PeerProtocolError) as refused:
        here.on_message(name(1), Hello(SHAPE))
    assert refused.value.reason == "stranger"
    here.add_link(name(1), 0.01)
    with pytest.raises(PeerProtocolError) as refused:
        here.on_message(name(1), FilterUpdate(SHAPE, name(1), 1, 1, 0))
    assert refused.value.reason == "shape"


@pytest.mark.parametrize(
    "about",
    [lambda source: FilterUpdate(SHAPE, source, 2, 1, 0), lambda source: Ignore(source, 1)],
    ids=["Update", "Ignore"],
)
def test_the_number_of_sources_is_bounded(about: Callable[[str], Message]) -> None:
    here = node()
    for number in range(1, MAX_SOURCES + 1):
        here.on_message(name(1), about(name(number)))
    one_more = about(name(MAX_SOURCES + 1))
    with pytest.raises(PeerProtocolError) as refused:
        here.on_message(name(1), one_more)
    assert refused.value.reason == "sources"


def test_an_older_shape_is_ignored() -> None:
    """A neighbour with an older shape receives the newer one and sends another Hello."""
    here = LocationNode(name(0), SHAPE)
    here.add_link(name(1), 0.01)
    assert here.on_message(name(1), Hello(FilterShape(0, 64, 2, 3))) == []
    assert not here.links[name(1)].is_open


@pytest.mark.parametrize("sizes", [(0, 1, 1), (MAX_WIDTH + 1, 1, 1), (64, 0, 1), (64, 17, 1), (64, 1, 0), (64, 1, 9)])
def test_a_shape_out_of_range_raises(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="A filter's"):
        FilterShape(1, *sizes)
