"""Explanations of poll rates: numbers agree with the optimiser's, and the binding constraint is named."""

from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.optimizer.honeycomb import AllocationProblem, sizes
from service.corona.optimizer.poll_explanation import BindingConstraint, SizeLimits, explain_polling, limited_size
from service.corona.polling_schedule import PollingSchedule, new_schedule

TAU_S = 1800.0
CHANNEL = "4000004" + "0" * 33
NODES = ("a" * 40, "b" * 40, "c" * 40)
bounds = st.one_of(st.just(inf), st.floats(0, 100))
every_limits = st.builds(
    SizeLimits, own_wait=st.booleans(), channel_interval=bounds, nodes=bounds, channel_budget=bounds, host_budget=bounds
)


@pytest.mark.parametrize(
    ("scale", "least", "limits", "expected"),
    [
        (2.0, 1.0, SizeLimits(nodes=30), (20, BindingConstraint.NONE)),
        (2.0, 25.0, SizeLimits(nodes=30), (25, BindingConstraint.LONGEST_WAIT)),
        (4.0, 1.0, SizeLimits(nodes=30), (30, BindingConstraint.NODES)),
        (4.0, 1.0, SizeLimits(nodes=30, channel_budget=6), (6, BindingConstraint.CHANNEL_BUDGET)),
        (4.0, 1.0, SizeLimits(nodes=30, channel_budget=6, host_budget=2), (2, BindingConstraint.HOST_BUDGET)),
        (0.1, 7.5, SizeLimits(nodes=30, channel_budget=6), (6, BindingConstraint.CHANNEL_BUDGET)),
        (-0.25, 8.0, SizeLimits(nodes=30), (6, BindingConstraint.FLEET_BUDGET)),
        (3.0, 0.0, SizeLimits(nodes=30), (30, BindingConstraint.NODES)),
        (2.9, 0.0, SizeLimits(nodes=30), (29, BindingConstraint.NONE)),
        (5.0, 0.0, SizeLimits(), (50, BindingConstraint.NONE)),
        (2.0, 25.0, SizeLimits(nodes=30, own_wait=True), (25, BindingConstraint.CHANNEL_WAIT)),
        (2.0, 25.0, SizeLimits(nodes=30, own_wait=True, channel_interval=5), (5, BindingConstraint.CHANNEL_INTERVAL)),
        (
            4.0,
            1.0,
            SizeLimits(channel_budget=6, channel_interval=6, host_budget=6),
            (6, BindingConstraint.CHANNEL_INTERVAL),
        ),
    ],
)
def test_the_binding_constraint_is_named(
    scale: float, least: float, limits: SizeLimits, expected: tuple[float, BindingConstraint]
) -> None:
    assert limited_size(10.0, scale, least, limits) == expected


@given(st.floats(0, 1e3), st.floats(-1.5, 1e3), st.floats(0, 100), every_limits)
def test_the_explained_size_is_the_optimisers(weight: float, scale: float, least: float, limits: SizeLimits) -> None:
    problem = AllocationProblem.of([weight], least=least, most=limits.most()[0])
    found, _ = limited_size(sqrt(weight), scale, least, limits)
    assert sizes(problem, scale) == pytest.approx(np.array([found]))


def test_an_explanation_has_weights_waits_and_turns() -> None:
    schedule = new_schedule(CHANNEL, 2.5, len(NODES), TAU_S, now_s=90_000.0)
    reason = explain_polling(
        CHANNEL,
        weight=25.0,
        cost=4.0,
        scale=1.0,
        limits=SizeLimits(longest_wait_s=900, nodes=3),
        poll_interval_s=TAU_S,
        update_interval_s=86_400.0,
        polling_set=NODES,
        schedule=schedule,
        now_s=90_000.0,
    )
    assert (reason.wanted, reason.least, reason.most, reason.size) == (2.5, 1.0, 3.0, 2.5)
    assert reason.bound is BindingConstraint.NONE
    assert (reason.wait_s, reason.update_interval_s, reason.interval_s) == (360.0, 86_400.0, 2160.0)
    assert [(turn.node, turn.rank) for turn in reason.turns] == [(node, rank) for rank, node in enumerate(NODES)]
    assert [turn.phase_s for turn in reason.turns] == pytest.approx([0, 720, 1440])
    assert [turn.next_poll_s for turn in reason.turns] == pytest.approx([90_180, 90_900, 91_620])


def test_below_its_least_a_channel_is_bound_by_the_fleet_budget() -> None:
    schedule = new_schedule(CHANNEL, 0.5, 1, TAU_S, now_s=0.0)
    reason = explain_polling(
        CHANNEL,
        weight=25.0,
        cost=4.0,
        scale=-0.5,
        limits=SizeLimits(longest_wait_s=900),
        poll_interval_s=TAU_S,
        update_interval_s=86_400.0,
        polling_set=NODES,
        schedule=schedule,
        now_s=0.0,
    )
    assert (reason.wanted, reason.size, reason.bound) == (0.0, 0.5, BindingConstraint.FLEET_BUDGET)
    assert [turn.node for turn in reason.turns] == [NODES[0]]


@given(st.floats(1.0, 1e5), st.integers(1, 3), st.floats(0, 1e6), st.floats(0, 2e6))
def test_the_next_poll_is_the_first_after_a_pause(gap_s: float, nodes: int, now_s: float, pause_s: float) -> None:
    schedule = PollingSchedule(1e5, gap_s, nodes)
    reason = explain_polling(
        CHANNEL,
        weight=1.0,
        cost=1.0,
        scale=1.0,
        limits=SizeLimits(),
        poll_interval_s=gap_s * nodes,
        update_interval_s=86_400.0,
        polling_set=NODES,
        schedule=schedule,
        now_s=now_s,
    )
    assert reason.gap_s == pytest.approx(gap_s)
    expected_s = schedule.next_channel_poll_s(max(now_s, pause_s))
    assert reason.next_poll_s(pause_s) == pytest.approx(expected_s) or reason.next_poll_s(pause_s) == pytest.approx(
        expected_s - gap_s, abs=1e-3
    )
    assert reason.next_poll_s(pause_s) >= max(now_s, pause_s)
    assert reason.next_poll_s(inf) == inf
