"""Where a node looks for its channels: nowhere too few places, and hardly too many."""

from hypothesis import given
from hypothesis import strategies as st

from service.model import NodeInfo
from service.overlay.ids import BITS, to_hex
from service.overlay.regions import owned_prefixes
from service.overlay.ring import RingView

ids = st.integers(min_value=0, max_value=(1 << BITS) - 1).map(to_hex)


@given(nodes=st.sets(ids, min_size=1, max_size=20), point=ids)
def test_a_points_owner_looks_under_the_points_prefix(nodes: set[str], point: str) -> None:
    view = RingView(1, tuple(NodeInfo(node, 1, "", 0.0) for node in sorted(nodes)))
    owner = view.owner(point)
    assert owner is not None
    assert point[:2] in owned_prefixes(view, owner)


@given(nodes=st.sets(st.sampled_from([to_hex(i << (BITS - 4)) for i in range(16)]), min_size=1))
def test_nodes_that_differ_within_the_prefix_share_no_prefix(nodes: set[str]) -> None:
    view = RingView(1, tuple(NodeInfo(node, 1, "", 0.0) for node in sorted(nodes)))
    shares = [owned_prefixes(view, node) for node in nodes]
    assert sum(map(len, shares)) == len({prefix for share in shares for prefix in share}) == 256
