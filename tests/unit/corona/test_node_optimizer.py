"""A node's part in the optimisation: budgets, bounds and c. τ is one minute, so polls per τ are per minute."""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.aggregation import combine
from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal
from service.corona.honeycomb import UNBOUNDED_SCALE
from service.corona.messages import Aggregate
from service.corona.node_optimizer import (
    ChannelFactors,
    FactorTable,
    channel_sizes,
    channel_weight,
    factor_table,
    limits_with_site,
    limits_without_site,
    own_aggregate,
    solve_scale,
)
from service.corona.poll_explanation import limited_size
from service.corona.polling_schedule import size_for_wait

DAY_S = 86_400.0
NODES = 40


def _policy(objective: FleetObjective | None = None) -> FleetPolicy:
    return FleetPolicy(
        60.0, max_polls_per_hour=120.0, maintenance_interval_s=10.0, objective=objective or FleetObjective()
    )


def _channel(subscribers: int, update_interval_s: float = DAY_S, *, private: bool = True) -> ChannelFactors:
    return ChannelFactors(subscribers, update_interval_s, private)


def _table(channels: Sequence[ChannelFactors]) -> FactorTable:
    return factor_table(channels, len(channels))


def _sizes(policy: FleetPolicy, *channels: ChannelFactors) -> list[float]:
    """Return the channels' sizes in a fleet in which another node has the same channels."""
    table = _table(channels)
    fleet = combine((own_aggregate(policy, NODES, table), own_aggregate(policy, NODES, table)))
    found: list[float] = channel_sizes(policy, NODES, table, solve_scale(policy, fleet.nodes, fleet)).tolist()
    return found


def test_the_load_that_subscribers_would_impose_is_distributed() -> None:
    found = _sizes(_policy(), _channel(4), _channel(16))
    assert sum(found) == pytest.approx(20, rel=1e-4)
    assert found[1] / found[0] == pytest.approx(2, rel=1e-4)


def test_a_channel_of_few_subscribers_contributes_the_minimum_load() -> None:
    assert _sizes(_policy(), _channel(1)) == pytest.approx([3.0], rel=1e-4)
    assert sum(_sizes(_policy(), _channel(0), _channel(1))) == pytest.approx(6, rel=1e-4)


def test_a_fleet_budget_is_distributed_by_weight() -> None:
    found = _sizes(_policy(FleetObjective(budget_polls_per_minute=6.0)), _channel(4), _channel(16))
    assert found == pytest.approx([1, 2], rel=1e-4)


def test_a_fleet_budget_is_reduced_to_the_share_of_the_known_nodes() -> None:
    policy = _policy(FleetObjective(budget_polls_per_minute=8.0))
    known = own_aggregate(policy, NODES, _table([_channel(100)] * 2))
    half = solve_scale(policy, 2, known)
    assert channel_sizes(policy, 2, _table([_channel(100)] * 2), half).sum() == pytest.approx(4, rel=1e-4)


def test_fair_polls_frequent_publishers_more_often() -> None:
    seldom, often = _sizes(_policy(FleetObjective(goal=Goal.FAIR)), _channel(9, DAY_S), _channel(9, DAY_S / 100))
    assert often == pytest.approx(10 * seldom, rel=1e-4)


def test_fast_keeps_its_delay_with_the_fewest_polls() -> None:
    assert _sizes(_policy(FleetObjective(goal=Goal.FAST, delay_s=10.0)), _channel(9), _channel(9)) == pytest.approx(
        [3, 3], rel=1e-4
    )


def test_fast_keeps_the_fleet_budget() -> None:
    policy = _policy(FleetObjective(goal=Goal.FAST, delay_s=1.0, budget_polls_per_minute=12.0))
    assert _sizes(policy, _channel(9), _channel(9)) == pytest.approx([3, 3], rel=1e-4)


def test_a_node_polls_once_per_interval_unless_the_longest_wait_requires_more() -> None:
    assert channel_sizes(_policy(), 2, _table([_channel(500)]), 100.0).tolist() == [2.0]
    assert channel_sizes(_policy(FleetObjective(longest_wait_s=6.0)), 2, _table([_channel(1)]), 0.1).tolist() == [5.0]


def test_a_public_channel_keeps_its_maximum_rate() -> None:
    policy = _policy(FleetObjective(longest_wait_s=1.0))
    assert limits_without_site(policy, NODES, _channel(1, private=False)).channel_budget == 2.0
    assert limits_without_site(policy, NODES, _channel(1, private=True)).channel_budget == inf
    assert channel_sizes(policy, NODES, _table([_channel(500, private=False)]), 100.0).tolist() == [2.0]


def test_without_a_scale_channels_get_the_load_their_subscribers_would_impose() -> None:
    found = channel_sizes(
        _policy(), 5, _table([_channel(1), _channel(4), _channel(50), _channel(50, private=False)]), None
    )
    assert found.tolist() == [3, 4, 5, 2]


def test_a_fleet_without_channels_has_no_scale() -> None:
    assert own_aggregate(_policy(), NODES, _table([])) == Aggregate(1, 0.0, b"")
    assert solve_scale(_policy(), NODES, Aggregate(2, 0.0, b"")) is None


def test_rounding_does_not_add_a_node() -> None:
    policy = _policy()
    assert np.ceil(channel_sizes(policy, NODES, _table([_channel(1)]), 3.0000000001)).tolist() == [3.0]


@given(
    st.builds(
        ChannelFactors,
        *(st.integers(0, 1000), st.floats(1, 1e8), st.booleans(), st.just(UNBOUNDED_SCALE) | st.floats(-1, 1e9)),
        *[st.just(0.0) | st.floats(1e-3, 1e9)] * 3,
        *(st.floats(0.1, 1), st.floats(0.1, 10)),
    ),
    st.floats(-0.9, 100),
    st.builds(FleetObjective, goal=st.sampled_from(Goal), longest_wait_s=st.floats(0.5, 1e6)),
)
def test_the_explained_size_is_the_computed_size(
    channel: ChannelFactors, scale: float, objective: FleetObjective
) -> None:
    policy = _policy(objective)
    (size,) = channel_sizes(policy, NODES, _table([channel]), scale).tolist()
    bounds = limits_with_site(policy, NODES, channel)
    least = size_for_wait(bounds.longest_wait_s, policy.poll_interval_s)
    said, _ = limited_size(sqrt(channel_weight(policy, channel)), scale, least, bounds)
    assert size == pytest.approx(said)
