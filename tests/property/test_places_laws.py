"""Whoever stays in a polling set stays in place, and the gaps are filled by the others."""

from hypothesis import given
from hypothesis import strategies as st

from service.corona.places import refilled
from service.overlay.ring import RingView
from tests.support.points import points, ring, rings


@given(rings, points, st.integers(0, 45), st.data())
def test_when_the_ring_changes_whoever_stays_in_a_set_keeps_their_place(
    view: RingView, point: str, size: int, drawn: st.DataObject
) -> None:
    places = tuple(drawn.draw(st.permutations(view.nearest(point, size))))
    left = drawn.draw(st.sets(st.sampled_from(view.ids))) if view.ids else set()
    joined = drawn.draw(st.sets(points, max_size=5)) - left
    nearest = ring({*view.ids, *joined} - left, version=2).nearest(point, size)
    then = refilled(places, nearest)
    assert sorted(then) == sorted(nearest)
    if len(places) == len(nearest):
        assert all(now == before for now, before in zip(then, places, strict=True) if before in nearest)
    if set(places) == set(nearest):
        assert then is places
