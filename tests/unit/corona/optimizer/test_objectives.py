"""Weights of the goals, and the optimum that the paper's fleet reaches with them."""

from math import log, sqrt

import numpy as np
import pytest

from service.corona.fleet_policy import Goal
from service.corona.optimizer.allocation_solver import AllocationProblem, load, scale_for_budget, scale_for_delay, sizes
from service.corona.optimizer.objectives import detection_s, mean_delay_s, size_for_wait, weights
from service.simulate.corona.paper_levels import level_sizes, levels_for_budget
from tests.support.allocation_problems import BUDGET_PER_CHANNEL, NODES, POLL_INTERVAL_S, corona_fleet

TAU_S = POLL_INTERVAL_S


@pytest.mark.parametrize(
    ("goal", "weight"),
    [
        (Goal.LITE, 8),
        (Goal.FAST, 8),
        (Goal.FAIR, 8 * TAU_S / 7200),
        (Goal.FAIR_SQRT, 8 * sqrt(TAU_S / 7200)),
        (Goal.FAIR_LOG, 8 * log(TAU_S) / log(7200)),
    ],
)
def test_each_goal_weighs_as_in_table_1(goal: Goal, weight: float) -> None:
    assert weights(goal, [8], [7200.0], TAU_S) == pytest.approx([weight])


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("unknown_s", [0.0, -5.0, float("nan")])
def test_an_unknown_update_interval_is_neutral(goal: Goal, unknown_s: float) -> None:
    assert weights(goal, [3], [unknown_s], TAU_S) == pytest.approx([3])


@pytest.mark.parametrize("goal", Goal)
def test_weights_are_finite_for_all_update_intervals(goal: Goal) -> None:
    found = weights(goal, 2, [1e-300, 0.5, 1.0, 2.7, 1e12, float("inf")], poll_interval_s=1.0)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (np.diff(found) <= 0).all()


def test_a_channel_without_subscribers_weighs_nothing() -> None:
    assert weights(Goal.FAIR, [0], [60.0], TAU_S) == [0]


def test_detection_delay_is_half_the_time_between_polls() -> None:
    assert detection_s([1, 50, 0.5, 0], TAU_S) == pytest.approx([900, 18, 1800, float("inf")])


def test_size_for_wait_is_the_inverse_of_the_detection_delay() -> None:
    assert detection_s(size_for_wait(120, TAU_S), TAU_S) == pytest.approx(120)
    assert size_for_wait(float("inf"), TAU_S) == 0


def test_the_mean_delay_ignores_weightless_channels() -> None:
    assert mean_delay_s(np.array([3.0, 1.0, 0.0]), np.array([1.0, 2.0, 0.0]), TAU_S) == pytest.approx(787.5)
    assert mean_delay_s(np.zeros(2), np.ones(2), TAU_S) == 0


@pytest.mark.parametrize(
    ("goal", "subscription_s", "notification_s"),
    [
        (Goal.LITE, 16.03, 15.9),
        (Goal.FAIR, 46.3, 5.41),
        (Goal.FAIR_SQRT, 21.2, 7.17),
        (Goal.FAIR_LOG, 16.2, 13.0),
    ],
)
def test_the_papers_fleet_reaches_the_expected_delay_at_fifty_polls(
    goal: Goal, subscription_s: float, notification_s: float
) -> None:
    subscribers, update_interval_s = corona_fleet()
    problem = AllocationProblem.of(weights(goal, subscribers, update_interval_s, TAU_S), most=NODES)
    budget = BUDGET_PER_CHANNEL * len(subscribers)
    found = sizes(problem, scale_for_budget(problem, budget))
    assert load(problem, found) == pytest.approx(budget, rel=1e-9)
    assert mean_delay_s(subscribers, found, TAU_S) == pytest.approx(subscription_s, rel=0.01)
    assert mean_delay_s(subscribers / update_interval_s, found, TAU_S) == pytest.approx(notification_s, rel=0.02)


def test_the_papers_fleet_needs_the_expected_polls_for_30_s() -> None:
    subscribers, update_interval_s = corona_fleet()
    problem = AllocationProblem.of(weights(Goal.FAST, subscribers, update_interval_s, TAU_S), most=NODES)
    found = sizes(problem, scale_for_delay(problem, 30, TAU_S))
    assert mean_delay_s(subscribers, found, TAU_S) == pytest.approx(30, rel=1e-9)
    assert load(problem, found) / len(subscribers) == pytest.approx(26.7, rel=0.002)


def test_a_longest_wait_of_two_minutes_hardly_delays_notifications() -> None:
    subscribers, update_interval_s = corona_fleet()
    weight = weights(Goal.FAIR, subscribers, update_interval_s, TAU_S)
    problem = AllocationProblem.of(weight, least=size_for_wait(120, TAU_S), most=NODES)
    found = sizes(problem, scale_for_budget(problem, BUDGET_PER_CHANNEL * len(subscribers)))
    assert mean_delay_s(subscribers / update_interval_s, found, TAU_S) == pytest.approx(5.4, rel=0.02)
    assert detection_s(found, TAU_S).max() <= 120


def test_the_papers_levels_have_two_and_a_half_times_the_delay() -> None:
    """The paper's 53 s include orphans, which only one node polls; here there are none."""
    subscribers, _ = corona_fleet()
    budget = BUDGET_PER_CHANNEL * len(subscribers)
    found = levels_for_budget(AllocationProblem.of(subscribers, most=NODES), level_sizes(NODES, 16), budget)
    assert mean_delay_s(subscribers, found.sizes, TAU_S) == pytest.approx(40.4, rel=0.01)
    assert load(AllocationProblem.of(subscribers), found.sizes) <= budget
