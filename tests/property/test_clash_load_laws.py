"""Laws of loads: what was told weighs what it weighs, however groups split, move and merge."""

from hypothesis import given
from hypothesis import strategies as st

from service.clash.groups import KeyGroup
from service.clash.load import SUBSCRIPTIONS_PER_DELIVERY_S, faded, loads, parted
from service.clash.mapping import Keyspaces

BITS = 6
KEYS = st.integers(0, (1 << BITS) - 1)
GROUPS = st.builds(KeyGroup.around, KEYS, st.integers(0, BITS), st.just(BITS))
RATES = st.dictionaries(GROUPS, st.integers(1, 1_000).map(float), max_size=8)


def close(one: float, other: float) -> bool:
    return abs(one - other) < 1e-6


@st.composite
def partitions(draw: st.DrawFn) -> list[KeyGroup]:
    """Return leaves that have each key once."""
    leaves = [KeyGroup(0, 0, BITS)]
    for key in draw(st.lists(KEYS, max_size=10)):
        leaf = next(group for group in leaves if key in group)
        if leaf.depth < BITS:
            leaves.remove(leaf)
            leaves += [leaf.left, leaf.right]
    return leaves


@given(partitions(), RATES)
def test_all_leaves_together_weigh_what_was_told_and_what_they_hold(
    leaves: list[KeyGroup], rates: dict[KeyGroup, float]
) -> None:
    found = loads(dict.fromkeys(leaves, 10), rates)
    assert found.keys() == set(leaves)
    assert close(sum(found.values()), sum(rates.values()) + 10 * len(leaves) / SUBSCRIPTIONS_PER_DELIVERY_S)


@given(GROUPS, RATES)
def test_what_leaves_with_a_group_and_what_stays_is_what_there_was(
    group: KeyGroup, rates: dict[KeyGroup, float]
) -> None:
    going, staying = parted(rates, group)
    kept = {prefix: rate for prefix, rate in (rates | staying).items() if rate}
    assert close(sum(going.values()) + sum(kept.values()), sum(rates.values()))
    assert all(prefix.shared(group) == prefix for prefix in going)
    assert all(prefix.shared(group) is None for prefix in kept)
    there = loads({group: 0}, rates)[group]
    assert close(loads({group: 0}, going)[group], there)


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(1, 1e3))
def test_a_rate_fades_by_half_in_each_half_life_and_never_grows(rate: float, age_s: float, half_life_s: float) -> None:
    assert faded(rate, -age_s, half_life_s) == rate
    assert faded(rate, age_s, half_life_s) <= rate
    assert close(faded(rate, age_s + half_life_s, half_life_s), faded(rate, age_s, half_life_s) / 2)


@given(st.integers(1, 1_000))
def test_the_points_of_keyspaces_are_the_first_hashes_of_their_shares(count: int) -> None:
    keyspaces = Keyspaces(count)
    points = [int(keyspaces.point(keyspace), 16) for keyspace in range(count)]
    assert points == sorted(set(points))
    assert all(point * count >> 160 == keyspace for keyspace, point in enumerate(points))
    assert all((point - 1) * count >> 160 == keyspace - 1 for keyspace, point in enumerate(points))
