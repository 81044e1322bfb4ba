"""Ids of joining nodes divide the id space evenly."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from service.model import NodeId
from service.overlay.ring import BITS, balanced_id, from_hex
from tests.support.ring_strategies import joined_ids, points


def _shares(ids: list[int], bit: int = BITS - 1) -> list[Fraction]:
    """Return the part of the id space that each node is nearest to."""
    if len(ids) == 1:
        return [Fraction(1)]
    sides = [[point for point in ids if point >> bit & 1 == side] for side in (0, 1)]
    held = [side for side in sides if side]
    return [share / len(held) for side in held for share in _shares(side, bit - 1)]


@given(st.integers(1, 120))
def test_shares_differ_at_most_by_a_factor_of_two(count: int) -> None:
    shares = _shares([from_hex(node) for node in joined_ids(count)])
    assert sum(shares) == 1
    assert max(shares) <= 2 * min(shares)


@given(st.integers(0, 8))
def test_shares_are_equal_at_powers_of_two(power: int) -> None:
    assert set(_shares([from_hex(node) for node in joined_ids(1 << power)])) == {Fraction(1, 1 << power)}


@given(st.lists(points, max_size=60, unique=True))
def test_a_balanced_id_is_new_and_independent_of_order(existing: list[NodeId]) -> None:
    taken = balanced_id(existing)
    assert taken not in existing
    assert taken == balanced_id(existing[::-1])


@given(st.integers(0, 6), st.data())
def test_gaps_are_filled_before_further_splits(power: int, data: st.DataObject) -> None:
    full = joined_ids(1 << power)
    ids = data.draw(st.lists(st.sampled_from(full), unique=True))
    while len(ids) < len(full):
        ids.append(balanced_id(ids))
    assert set(ids) == set(full)
