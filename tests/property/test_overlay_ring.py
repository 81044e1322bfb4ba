"""The ring's queries agree with sorting all nodes by XOR distance."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.model import NodeId
from service.overlay.id_space import BITS, distance, from_hex, to_hex
from service.overlay.ring import RingView, owned_prefixes
from tests.support.ring_strategies import points, ring, rings


def _by_distance(view: RingView, point: NodeId) -> tuple[NodeId, ...]:
    ids = (node.id for node in view.nodes)
    return tuple(sorted(ids, key=lambda node: distance(from_hex(node), from_hex(point))))


@given(rings, points, st.integers(0, 45))
def test_the_nearest_are_the_first_by_xor_distance(view: RingView, point: NodeId, count: int) -> None:
    assert view.nearest(point, count) == _by_distance(view, point)[:count]


@given(rings, points)
def test_a_smaller_polling_set_lies_within_every_larger_one(view: RingView, point: NodeId) -> None:
    sets = [view.nearest(point, size) for size in range(len(view.nodes) + 1)]
    assert all(larger[:-1] == smaller for smaller, larger in pairwise(sets))


@given(rings)
def test_a_node_owns_its_own_id(view: RingView) -> None:
    assert all(view.owner(node.id) == node.id and node.id in view for node in view.nodes)


@given(rings, points, st.integers(0, 40), st.data())
def test_is_among_nearest_agrees_with_nearest(view: RingView, point: NodeId, count: int, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(view.ids) if view.ids else points)
    assert view.is_among_nearest(point, node, count) == (node in view.nearest(point, count))
    stranger = data.draw(points.filter(lambda drawn: drawn not in view))
    assert not view.is_among_nearest(point, stranger, count)


def test_an_empty_ring_has_no_owner() -> None:
    assert ring([]).owner("0" * 40) is None
    assert "0" * 40 not in ring([])


@given(nodes=st.sets(points, min_size=1, max_size=20), point=points)
def test_a_points_owner_owns_the_points_prefix(nodes: set[str], point: str) -> None:
    view = ring(nodes)
    owner = view.owner(point)
    assert owner is not None
    assert point[:2] in owned_prefixes(view, owner)


@given(nodes=st.sets(st.sampled_from([to_hex(i << (BITS - 4)) for i in range(16)]), min_size=1))
def test_nodes_that_differ_within_the_prefix_share_no_prefix(nodes: set[str]) -> None:
    view = ring(nodes)
    shares = [owned_prefixes(view, node) for node in nodes]
    assert sum(map(len, shares)) == len({prefix for share in shares for prefix in share}) == 256
