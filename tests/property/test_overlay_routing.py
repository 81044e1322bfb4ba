"""Routing rows reach every node, and any point's owner, digit by digit."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from service.model import NodeId
from service.overlay.ids import digit, distance, from_hex, shared_digits
from service.overlay.ring import RingView
from service.overlay.routing import next_hop, routing_rows
from tests.support.points import joined, points, ring, rings

bases = st.sampled_from((2, 4, 16, 256))


def _route(view: RingView, start: NodeId, point: NodeId, base: int) -> Iterator[NodeId]:
    hop: NodeId | None = start
    while hop is not None:
        yield hop
        hop = next_hop(routing_rows(view, hop, base), hop, point, base)


@given(rings.filter(lambda view: bool(view.nodes)), points, bases, st.data())
def test_a_route_ends_at_the_owner_and_visits_no_node_twice(
    view: RingView, point: NodeId, base: int, data: st.DataObject
) -> None:
    start = data.draw(st.sampled_from(view.nodes)).id
    route = list(_route(view, start, point, base))
    assert route[-1] == view.owner(point)
    assert len(set(route)) == len(route)


@given(st.integers(1, 150), points, bases, st.data())
def test_on_even_ids_a_route_takes_at_most_as_many_hops_as_node_numbers_have_digits(
    count: int, point: NodeId, base: int, data: st.DataObject
) -> None:
    ids = joined(count)
    start = data.draw(st.sampled_from(ids))
    most = next(hops for hops in range(9) if base**hops >= count)
    assert len(list(_route(ring(ids), start, point, base))) - 1 <= most


@given(rings.filter(lambda view: bool(view.nodes)), bases, st.data())
def test_rows_hold_the_nearest_node_below_each_sibling_digit(view: RingView, base: int, data: st.DataObject) -> None:
    me = data.draw(st.sampled_from(view.nodes)).id
    siblings: dict[tuple[int, int], list[int]] = {}
    for other in {from_hex(node.id) for node in view.nodes} - {from_hex(me)}:
        index = shared_digits(from_hex(me), other, base)
        siblings.setdefault((index, digit(other, index, base)), []).append(distance(from_hex(me), other))
    found = {
        (index, sibling): distance(from_hex(me), from_hex(contact))
        for index, row in enumerate(routing_rows(view, me, base))
        for sibling, contact in row.items()
    }
    assert found == {place: min(distances) for place, distances in siblings.items()}
