"""Explanations of poll rates: numbers agree with the optimiser's, and the binding constraint is named."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal, Levels
from service.corona.optimizer.node_allocation import ChannelFactors, allocation_problem, channel_sizes, factor_table
from service.corona.optimizer.poll_explanation import (
    BindingConstraint,
    PollExplanation,
    binding_constraints,
    explain_polling,
)
from service.corona.optimizer.polling_levels import RingLevels
from service.corona.polling_limits import NO_LIMITS, LimitReason, PollingLimits
from service.corona.polling_schedule import PollingSchedule, new_schedule
from service.corona.update_rates import UpdateEstimate, UpdateHistory
from service.model import NodeInfo
from service.overlay.ring import BITS, RingView, to_hex

TAU_S = 1800.0
CHANNEL = "4000004" + "0" * 33
NODES = ("a" * 40, "b" * 40, "c" * 40)
POLICY = FleetPolicy(
    TAU_S, 12.0, 10.0, FleetObjective(Goal.LITE, longest_wait_s=900.0), polls_per_hour_for_one_subscriber=8.0
)
"""At most 4 polls per τ of a channel of one subscriber, and 6 of any public channel; at least one of each."""

CHANNELS = st.builds(
    ChannelFactors,
    subscribers=st.integers(0, 5_000),
    update_interval_s=st.sampled_from([60.0, 3_600.0, 1e6]),
    private=st.booleans(),
    site_scale=st.sampled_from([inf, -0.5, 0.01, 1.0]),
    longest_wait_s=st.sampled_from([0.0, 30.0, 10_000.0]),
    shortest_interval_s=st.sampled_from([0.0, 100.0, 86_400.0]),
    publisher_interval_s=st.sampled_from([0.0, 100.0, 3_600.0]),
    weight_factor=st.sampled_from([0.5, 1.0]),
    present_speed=st.sampled_from([1.0, 2.0]),
)


def explain(
    factors: ChannelFactors,
    scale: float,
    *,
    schedule: PollingSchedule | None = None,
    nodes: int = len(NODES),
    now_s: float = 0.0,
    policy: FleetPolicy = POLICY,
    limits: PollingLimits = NO_LIMITS,
) -> PollExplanation:
    return explain_polling(
        CHANNEL,
        policy,
        nodes,
        factor_table([factors], 1),
        scale,
        updates=UpdateHistory(UpdateEstimate(1.0, 86_400.0)),
        limits=limits,
        polling_set=NODES,
        schedule=schedule or PollingSchedule(0.0, TAU_S, 1),
        now_s=now_s,
    )


PRIVATE = ChannelFactors(100, 86_400.0, private=True)
PUBLIC = PRIVATE._replace(private=False)


@pytest.mark.parametrize(
    ("scale", "factors", "expected"),
    [
        (2.0, PRIVATE, (20, BindingConstraint.NONE)),
        (2.0, PRIVATE._replace(longest_wait_s=36.0), (25, BindingConstraint.CHANNEL_WAIT)),
        (0.05, PRIVATE, (1, BindingConstraint.LONGEST_WAIT)),
        (4.0, PRIVATE, (30, BindingConstraint.NODES)),
        (3.0, PRIVATE, (30, BindingConstraint.NODES)),
        (2.9, PRIVATE, (29, BindingConstraint.NONE)),
        (4.0, PUBLIC, (6, BindingConstraint.CHANNEL_BUDGET)),
        (4.0, PUBLIC._replace(site_scale=0.2), (2, BindingConstraint.HOST_BUDGET)),
        (0.1, PUBLIC._replace(longest_wait_s=120.0), (6, BindingConstraint.CHANNEL_BUDGET)),
        (-0.25, PRIVATE, (0.75, BindingConstraint.FLEET_BUDGET)),
        (
            2.0,
            PRIVATE._replace(longest_wait_s=9.0, shortest_interval_s=360.0),
            (5, BindingConstraint.CHANNEL_INTERVAL),
        ),
        (4.0, PUBLIC._replace(shortest_interval_s=300.0), (6, BindingConstraint.CHANNEL_INTERVAL)),
        (4.0, PUBLIC._replace(publisher_interval_s=900.0), (2, BindingConstraint.PUBLISHER)),
    ],
)
def test_the_binding_constraint_is_named(
    scale: float, factors: ChannelFactors, expected: tuple[float, BindingConstraint]
) -> None:
    reason = explain(factors, scale, nodes=30)
    assert reason.size == pytest.approx(expected[0])
    assert reason.bound is expected[1]
    assert reason.least <= reason.size <= reason.most or reason.bound not in {
        BindingConstraint.NONE,
        BindingConstraint.LONGEST_WAIT,
        BindingConstraint.CHANNEL_WAIT,
    }


def test_a_pause_and_failures_are_named_in_place_of_the_publisher() -> None:
    factors = PRIVATE._replace(publisher_interval_s=900.0)
    assert explain(factors, 4.0, limits=PollingLimits(failure_s=900)).bound is BindingConstraint.FAILURE
    assert explain(factors, 4.0, limits=PollingLimits(paused_until_s=900)).bound is BindingConstraint.PAUSE


@given(
    st.lists(CHANNELS, max_size=20),
    st.sampled_from([(goal, levels) for goal in Goal for levels in Levels]),
    st.integers(1, 50),
    st.floats(-1, 1) | st.floats(0, 1e3),
    st.data(),
)
def test_the_constraints_are_those_of_the_sizes(
    channels: list[ChannelFactors], aims: tuple[Goal, Levels], nodes: int, scale: float, data: st.DataObject
) -> None:
    """A channel at its weight has another size at another scale, unless a step is missing; one at its bound has not."""
    goal, levels = aims
    policy = FleetPolicy(
        900.0, 120.0, 10.0, FleetObjective(goal), polls_per_hour_for_one_subscriber=4.0, most_polls_per_node=4.0
    )
    ring = RingView(1, tuple(NodeInfo(to_hex(number * (1 << BITS) // nodes), 1, "", 0.0) for number in range(nodes)))
    ids = [data.draw(st.integers(0, (1 << BITS) - 1).map(to_hex)) for _ in channels]
    table = factor_table(channels, len(channels))
    choices = RingLevels(ring, levels.base).choices(ids) if levels.are_whole and ids else None
    found = binding_constraints(policy, nodes, table, scale, choices, reason=lambda _: LimitReason.PAUSE)
    assert len(found) == len(channels)
    assert BindingConstraint.PUBLISHER not in found
    problem, size = allocation_problem(policy, nodes, table), channel_sizes(policy, nodes, table, scale, choices)
    waits = {BindingConstraint.LONGEST_WAIT, BindingConstraint.CHANNEL_WAIT}
    for row, constraint in enumerate(found):
        if scale < 0:
            assert constraint is BindingConstraint.FLEET_BUDGET
        elif constraint in waits:
            assert scale * problem.slopes()[row] < problem.least[row] <= size[row] * (1 + 1e-5)
        elif choices is None:
            expected = scale * problem.slopes()[row] if constraint is BindingConstraint.NONE else problem.most[row]
            assert size[row] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_an_explanation_has_weights_waits_and_turns() -> None:
    schedule = new_schedule(CHANNEL, 2.5, len(NODES), TAU_S, now_s=90_000.0)
    reason = explain(PRIVATE._replace(subscribers=25), 0.5, schedule=schedule, now_s=90_000.0)
    assert (reason.weight, reason.cost, reason.subscribers) == (25.0, 1.0, 25)
    assert (reason.wanted, reason.least, reason.most, reason.size) == (2.5, 1.0, 3.0, 2.5)
    assert reason.bound is BindingConstraint.NONE
    assert (reason.wait_s, reason.update_interval_s, reason.interval_s) == (360.0, 86_400.0, 2160.0)
    assert [(turn.node, turn.rank) for turn in reason.turns] == [(node, rank) for rank, node in enumerate(NODES)]
    assert [turn.phase_s for turn in reason.turns] == pytest.approx([0, 720, 1440])
    assert [turn.next_poll_s for turn in reason.turns] == pytest.approx([90_180, 90_900, 91_620])


def test_a_channel_below_its_minimum_size_is_bound_by_the_fleet_budget() -> None:
    reason = explain(PRIVATE, -0.5, schedule=new_schedule(CHANNEL, 0.5, 1, TAU_S, now_s=0.0))
    assert (reason.wanted, reason.size, reason.bound) == (0.0, 0.5, BindingConstraint.FLEET_BUDGET)
    assert [turn.node for turn in reason.turns] == [NODES[0]]


@given(st.floats(1.0, 1e5), st.integers(1, 3), st.floats(1e5, 1e6), st.floats(0, 2e6))
def test_the_next_poll_is_the_first_after_a_pause(gap_s: float, nodes: int, now_s: float, pause_s: float) -> None:
    schedule = PollingSchedule(1e5, gap_s, nodes)
    reason = explain(PRIVATE, 1.0, schedule=schedule, now_s=now_s)
    assert reason.gap_s == pytest.approx(gap_s)
    expected_s = schedule.next_channel_poll_s(max(now_s, pause_s))
    assert reason.next_poll_s(pause_s) == pytest.approx(expected_s) or reason.next_poll_s(pause_s) == pytest.approx(
        expected_s - gap_s, abs=1e-3
    )
    assert reason.next_poll_s(pause_s) >= max(now_s, pause_s)
    assert reason.next_poll_s(inf) == inf


@given(st.integers(0, 3), st.floats(-0.9, 100))
def test_few_channels_are_explained_like_many(count: int, scale: float) -> None:
    table = factor_table([PUBLIC] * count, count)
    together = binding_constraints(POLICY, 3, table, scale)
    assert together == [explain(PUBLIC, scale).bound] * count
    assert channel_sizes(POLICY, 3, table, scale) == pytest.approx(np.full(count, explain(PUBLIC, scale).size))
