"""The ring's queries agree with sorting all nodes by XOR distance."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.model import NodeId, NodeInfo
from service.overlay.ring import BITS, RingView, from_hex, owned_prefixes, to_hex
from tests.support.ring_strategies import points, ring, rings


def _by_distance(view: RingView, point: NodeId) -> tuple[NodeId, ...]:
    ids = (node.id for node in view.nodes)
    return tuple(sorted(ids, key=lambda node: from_hex(node) ^ from_hex(point)))


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


@given(
    nodes=st.dictionaries(points, st.integers(1, 3), max_size=30),
    changes=st.lists(st.dictionaries(points, st.integers(0, 3), max_size=6), max_size=4),
    data=st.data(),
)
def test_a_changed_ring_equals_one_made_from_its_nodes(
    nodes: dict[NodeId, int], changes: list[dict[NodeId, int]], data: st.DataObject
) -> None:
    """Nodes join, leave and are replaced, several at once; an epoch of 0 stands for a node that has left."""
    view = _ring_of(nodes, 0)
    for version, joined in enumerate(changes, 1):
        known = data.draw(st.sets(st.sampled_from(sorted(nodes)))) if nodes else set()
        change = joined | {node: data.draw(st.integers(0, 3)) for node in known}
        nodes = {node: epoch for node, epoch in (nodes | change).items() if epoch}
        present = [NodeInfo(node, epoch, "", 0.0) for node, epoch in change.items() if epoch]
        view = view.with_changes(version, present, [node for node, epoch in change.items() if not epoch])
        whole = _ring_of(nodes, version)
        assert view == whole
        assert (view.ids, view.points) == (whole.ids, whole.points)
        point = data.draw(points)
        assert view.nearest(point, 5) == whole.nearest(point, 5)
        assert all(view.is_among_nearest(point, n, 3) == whole.is_among_nearest(point, n, 3) for n in view.ids)


@given(
    former=rings,
    joined=st.sets(points, max_size=4),
    data=st.data(),
    point=points,
    count=st.integers(1, 20),
)
def test_a_change_concerns_all_points_whose_nearest_nodes_it_changes(
    former: RingView, joined: set[NodeId], data: st.DataObject, point: NodeId, count: int
) -> None:
    left = data.draw(st.sets(st.sampled_from(former.ids), max_size=4)) if former.ids else set()
    view = ring(({*former.ids} - left) | joined, version=former.version + 1)
    change, nearest = view.change_since(former), former.nearest(point, count)
    assert (change.joined, change.left) == (frozenset(joined - {*former.ids}), frozenset(left - joined))
    if set(view.nearest(point, count)) != set(nearest):
        assert change.concerns(point, count)
    for node in former.ids:
        is_same = view.is_among_nearest(point, node, 1) == former.is_among_nearest(point, node, 1)
        assert is_same or view.branchings(node) != former.branchings(node)
    applied = former.with_changes(view.version, [view.nodes[view.ids.index(node)] for node in joined], left - joined)
    assert applied.change_since(former) == change


@given(rings, points, points)
def test_nodes_are_found_by_masked_bits_of_their_ids(view: RingView, mask: NodeId, bits: NodeId) -> None:
    agreeing = [node for node in view.ids if not (from_hex(node) ^ from_hex(bits)) & from_hex(mask)]
    assert list(view.nodes_with_bits(from_hex(mask), from_hex(bits))) == agreeing


@given(rings.filter(lambda view: len(view.ids) > 0), points)
def test_a_node_owns_the_points_that_share_the_bits_at_which_its_path_branches(view: RingView, point: NodeId) -> None:
    for node in view.ids:
        branchings = view.branchings(node)
        assert branchings is not None
        agrees = not (from_hex(node) ^ from_hex(point)) & branchings
        assert agrees == view.is_among_nearest(point, node, 1)


def _ring_of(nodes: dict[NodeId, int], version: int) -> RingView:
    return RingView(version, tuple(NodeInfo(node, nodes[node], "", 0.0) for node in sorted(nodes)))


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
