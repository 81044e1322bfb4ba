"""Loads: deliveries are counted once, however groups split, move and merge."""

from hypothesis import given
from hypothesis import strategies as st

from service.clash.key_groups import KeyGroup, Keyspaces
from service.clash.split_merge_policy import (
    SUBSCRIPTIONS_PER_DELIVERY_S,
    DeliveryRate,
    HalfLives,
    LoadLimits,
    leaf_loads,
    split_rates,
)

BITS = 6
KEYS = st.integers(0, (1 << BITS) - 1)
GROUPS = st.builds(KeyGroup.containing, KEYS, st.integers(0, BITS), st.just(BITS))
RATES = st.dictionaries(GROUPS, st.integers(1, 1_000).map(float), max_size=8)


def close(one: float, other: float) -> bool:
    return abs(one - other) < 1e-6


@st.composite
def partitions(draw: st.DrawFn) -> list[KeyGroup]:
    """Return leaves that contain each key exactly once."""
    leaves = [KeyGroup(0, 0, BITS)]
    for key in draw(st.lists(KEYS, max_size=10)):
        leaf = next(group for group in leaves if key in group)
        if leaf.depth < BITS:
            leaves.remove(leaf)
            leaves += [leaf.left, leaf.right]
    return leaves


@given(partitions(), RATES)
def test_leaf_loads_add_up_to_deliveries_and_storage(leaves: list[KeyGroup], rates: dict[KeyGroup, float]) -> None:
    found = leaf_loads(dict.fromkeys(leaves, 10), rates)
    assert found.keys() == set(leaves)
    assert close(sum(found.values()), sum(rates.values()) + 10 * len(leaves) / SUBSCRIPTIONS_PER_DELIVERY_S)


@given(GROUPS, RATES)
def test_split_rates_preserve_the_total(group: KeyGroup, rates: dict[KeyGroup, float]) -> None:
    going, staying = split_rates(rates, group)
    kept = {prefix: rate for prefix, rate in (rates | staying).items() if rate}
    assert close(sum(going.values()) + sum(kept.values()), sum(rates.values()))
    assert all(prefix.intersection(group) == prefix for prefix in going)
    assert all(prefix.intersection(group) is None for prefix in kept)
    there = leaf_loads({group: 0}, rates)[group]
    assert close(leaf_loads({group: 0}, going)[group], there)


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(1, 1e3))
def test_a_rate_decays_by_half_per_half_life(per_s: float, age_s: float, half_life_s: float) -> None:
    rate, memory = DeliveryRate(per_s, per_s), HalfLives(half_life_s, 2 * half_life_s)
    assert rate.after(-age_s, memory) == rate
    later = rate.after(age_s, memory)
    assert later.current <= later.long_term <= per_s
    assert close(rate.after(age_s + half_life_s, memory).current, later.current / 2)
    assert close(rate.after(age_s + 2 * half_life_s, memory).long_term, later.long_term / 2)


@given(st.floats(1e-6, 1e6), st.integers(1, 300), st.floats(0.5, 2))
def test_a_constant_rate_is_measured_without_overshoot(per_s: float, looks: int, interval_s: float) -> None:
    memory, rate = HalfLives.for_interval(interval_s), DeliveryRate()
    for _ in range(looks):
        rate = rate.after(interval_s, memory).with_measured(per_s, interval_s, memory)
    assert rate.long_term <= rate.current <= per_s * 1.000_001
    assert rate.long_term >= per_s * (1 - 0.5 ** (looks / 15)) * 0.999_999


@given(st.floats(1, 1e6))
def test_alternating_measurements_fluctuate_less_than_the_hysteresis(per_s: float) -> None:
    memory, rate, seen = HalfLives.for_interval(1.0), DeliveryRate(), []
    for look in range(200):
        rate = rate.after(1.0, memory).with_measured(2 * per_s * (look % 2), 1.0, memory)
        seen.append(rate)
    most, limits = max(rate.current for rate in seen[100:]), LoadLimits(1.0)
    held = min(max(rate.current, rate.long_term) for rate in seen[100:])
    assert most / held < limits.overload / limits.merge_limit


@given(GROUPS.filter(lambda group: group.depth < BITS), st.floats(1, 1e3))
def test_deliveries_of_former_prefixes_are_not_counted_twice(group: KeyGroup, per_s: float) -> None:
    """Half an hour by the whole group, then by its halves, then by the whole again: the load stays the same."""
    memory, rates = HalfLives.for_interval(1.0), dict[KeyGroup, DeliveryRate]()
    for look in range(180):
        halves = 60 <= look < 120
        told = {group.left: per_s / 2, group.right: per_s / 2} if halves else {group: per_s}
        rates = {prefix: rate.after(1.0, memory) for prefix, rate in rates.items()}
        rates |= {
            prefix: rates.get(prefix, DeliveryRate()).with_measured(deliveries, 1.0, memory)
            for prefix, deliveries in told.items()
        }
        if look > 50:
            now = leaf_loads({group: 0}, {prefix: rate.current for prefix, rate in rates.items()})[group]
            assert abs(now - per_s) < per_s * 0.01


@given(st.integers(1, 1_000))
def test_the_points_of_keyspaces_are_the_first_hashes_of_their_shares(count: int) -> None:
    keyspaces = Keyspaces(count)
    points = [int(keyspaces.point(keyspace), 16) for keyspace in range(count)]
    assert points == sorted(set(points))
    assert all(point * count >> 160 == keyspace for keyspace, point in enumerate(points))
    assert all((point - 1) * count >> 160 == keyspace - 1 for keyspace, point in enumerate(points))
