"""Rings and ids for tests of the overlay, and hypothesis strategies for them."""

from collections.abc import Iterable

from hypothesis import strategies as st

from service.model import NodeId, NodeInfo
from service.overlay.ring import RingView, balanced_id, to_hex

points = st.one_of(
    st.integers(0, (1 << 160) - 1),
    st.integers(0, 255),  # crowded: many shared digits
    st.integers(0, 255).map(lambda small: small << 152),
).map(to_hex)
"""Ids from the whole space and from two small regions, so that some are close together."""


def ring(ids: Iterable[NodeId], version: int = 1) -> RingView:
    return RingView(version, tuple(NodeInfo(node, 1, "", 0.0) for node in sorted(ids)))


def joined_ids(count: int) -> list[NodeId]:
    """Return the ids of ``count`` nodes that joined one after another, in that order."""
    ids: list[NodeId] = []
    for _ in range(count):
        ids.append(balanced_id(ids))
    return ids


rings = st.lists(points, max_size=40, unique=True).map(ring)
