"""A node's part in the optimisation: budgets, bounds and c. τ is one minute, so polls per τ are per minute."""

from collections.abc import Sequence
from math import sqrt

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.aggregation import combine
from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal
from service.corona.messages import Aggregate
from service.corona.optimizer.node_allocation import (
    ChannelFactors,
    FactorTable,
    affordable_policy,
    channel_demands,
    channel_sizes,
    factor_table,
    own_aggregate,
    size_bounds,
    solve_scale,
)
from service.corona.optimizer.poll_explanation import BindingConstraint, binding_constraints

DAY_S = 86_400.0
NODES = 40
LITE = FleetObjective(Goal.LITE, demand_factor=1.0)


def _policy(objective: FleetObjective = LITE) -> FleetPolicy:
    """Return a policy whose public channels are polled 120 times per hour from 4 subscribers on."""
    return FleetPolicy(
        60.0,
        max_polls_per_hour=120.0,
        maintenance_interval_s=10.0,
        objective=objective,
        polls_per_hour_for_one_subscriber=60.0,
        most_polls_per_node=3.0,
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


def test_a_private_channel_of_few_subscribers_has_the_demand_of_one_node() -> None:
    assert _sizes(_policy(), _channel(1)) == pytest.approx([3.0], rel=1e-4)
    assert sum(_sizes(_policy(), _channel(0), _channel(1))) == pytest.approx(6, rel=1e-4)


def test_the_demand_of_a_public_channel_is_limited_by_politeness_and_nodes() -> None:
    loads = channel_demands(_policy(), 1, _table([_channel(count, private=False) for count in (0, 1, 3, 4, 500)]))
    assert loads.tolist() == pytest.approx([1, 1, sqrt(3), 2, 2])
    loads = channel_demands(_policy(), 1, _table([_channel(count) for count in (0, 5, 500)]))
    assert loads.tolist() == [3, 5, 500]
    alone = msgspec.structs.replace(_policy(), most_polls_per_node=1.5)
    assert channel_demands(alone, 1, _table([_channel(500, private=False)])).tolist() == [1.5]
    slow = msgspec.structs.replace(_policy(), polls_per_hour_for_one_subscriber=600.0, max_polls_per_hour=600.0)
    assert channel_demands(slow, 9, _table([_channel(4, private=False)])).tolist() == [4]


def test_the_demand_factor_scales_the_polls() -> None:
    found = _sizes(_policy(FleetObjective(Goal.LITE, demand_factor=0.25)), _channel(4), _channel(16))
    assert sum(found) == pytest.approx(5, rel=1e-4)


def test_longest_waits_are_kept_beyond_the_demand_but_not_beyond_the_fleet_budget() -> None:
    objective = FleetObjective(demand_factor=0.001, longest_wait_s=120.0)
    assert _sizes(_policy(objective), _channel(1), _channel(9)) == pytest.approx([0.25, 0.25], rel=1e-4)
    scarce = msgspec.structs.replace(objective, budget_polls_per_minute=0.5)
    assert _sizes(_policy(scarce), _channel(1), _channel(9)) == pytest.approx([0.125, 0.125], rel=1e-4)


def test_longest_waits_take_at_most_a_quarter_of_the_fleet_budget() -> None:
    def longest_wait_s(budget: float | None) -> float:
        objective = FleetObjective(longest_wait_s=60.0, budget_polls_per_minute=budget)
        return affordable_policy(_policy(objective), 100).longest_wait_s

    assert [longest_wait_s(budget) for budget in (None, 1000.0, 200.0)] == [60.0] * 3
    assert longest_wait_s(100.0) == pytest.approx(120.0)
    scarce = affordable_policy(_policy(FleetObjective(longest_wait_s=60.0, budget_polls_per_minute=100.0)), 100)
    own = _channel(1)._replace(longest_wait_s=30.0)
    least, _ = size_bounds(scarce, NODES, _table([_channel(1), own]))
    assert least.tolist() == [0.25, 1.0]
    assert binding_constraints(scarce, NODES, _table([_channel(1), own]), 0.01) == [
        BindingConstraint.FLEET_BUDGET,
        BindingConstraint.CHANNEL_WAIT,
    ]


def test_a_goal_acts_among_public_channels_of_one_subscriber_unless_all_demand_is_met() -> None:
    seldom, often = (_channel(1, interval_s, private=False) for interval_s in (DAY_S, DAY_S / 10))
    slow, fast = _sizes(_policy(FleetObjective(demand_factor=0.45)), seldom, often)
    assert slow == pytest.approx(fast / sqrt(10), rel=1e-4)
    assert slow + fast == pytest.approx(0.9, rel=1e-4)
    assert _sizes(_policy(FleetObjective(demand_factor=1.0)), seldom, often) == pytest.approx([1, 1], rel=1e-4)


def test_a_fleet_budget_is_distributed_by_weight() -> None:
    found = _sizes(
        _policy(FleetObjective(Goal.LITE, budget_polls_per_minute=6.0, demand_factor=1.0)), _channel(4), _channel(16)
    )
    assert found == pytest.approx([1, 2], rel=1e-4)


def test_a_fleet_budget_is_reduced_to_the_share_of_the_known_nodes() -> None:
    policy = _policy(msgspec.structs.replace(LITE, budget_polls_per_minute=8.0))
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


def test_a_node_polls_a_few_times_per_interval_unless_the_longest_wait_requires_more() -> None:
    assert channel_sizes(_policy(), 2, _table([_channel(500)]), 100.0).tolist() == [6.0]
    assert channel_sizes(_policy(FleetObjective(longest_wait_s=3.0)), 2, _table([_channel(1)]), 0.1).tolist() == [10.0]


def test_a_public_channel_keeps_its_maximum_rate() -> None:
    policy = _policy(FleetObjective(longest_wait_s=1.0))
    for subscribers, size in ((0, 1.0), (1, 1.0), (2, sqrt(2)), (4, 2.0), (500, 2.0)):
        channel = _channel(subscribers, private=False)
        assert channel_sizes(policy, NODES, _table([channel]), 100.0).tolist() == pytest.approx([size])
    assert channel_sizes(policy, NODES, _table([_channel(1)]), 3.5).tolist() == [30.0]


@given(st.integers(0, 10**9), st.integers(2, 1000), st.floats(0.01, 1e3), st.floats(0.01, 1e4))
def test_the_maximum_poll_rate_per_subscriber_never_grows_with_subscribers(
    subscribers: int, times: int, for_one: float, most: float
) -> None:
    policy = FleetPolicy(900.0, most, 10.0, polls_per_hour_for_one_subscriber=for_one)
    few, many = (policy.most_polls_per_hour(count) for count in (max(1, subscribers), times * max(1, subscribers)))
    assert few <= many <= times * few
    assert many <= min(most, for_one * times * max(1, subscribers))


def test_without_a_scale_channels_get_the_share_of_their_demand() -> None:
    channels = _table([_channel(1), _channel(4), _channel(50), _channel(50, private=False)])
    assert channel_sizes(_policy(), 5, channels, None).tolist() == [3, 4, 15, 2]
    half = _policy(FleetObjective(Goal.LITE, demand_factor=0.5))
    assert channel_sizes(half, 5, channels, None).tolist() == [1.5, 2, 15, 1]


def test_a_fleet_without_channels_has_no_scale() -> None:
    assert own_aggregate(_policy(), NODES, _table([])) == Aggregate(1, 0.0, b"")
    assert solve_scale(_policy(), NODES, Aggregate(2, 0.0, b"")) is None


def test_rounding_does_not_add_a_node() -> None:
    policy = _policy()
    assert np.ceil(channel_sizes(policy, NODES, _table([_channel(1)]), 3.0000000001)).tolist() == [3.0]
