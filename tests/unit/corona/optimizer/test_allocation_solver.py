"""The continuous optimum on channels that can be computed by hand, and invalid input."""

import numpy as np
import pytest

from service.corona.optimizer.allocation_solver import (
    UNBOUNDED_SCALE,
    AllocationProblem,
    apply_site_scales,
    load,
    scale_for_budget,
    scale_for_delay,
    sizes,
)

INF = float("inf")
NAN = float("nan")
TAU_S = 1800.0


def test_sizes_are_proportional_to_the_root_of_weight_over_cost() -> None:
    problem = AllocationProblem.of([1.0, 4.0, 4.0], [1.0, 1.0, 4.0])
    scale = scale_for_budget(problem, 70)
    assert scale == pytest.approx(10)
    assert sizes(problem, scale) == pytest.approx([10, 20, 10])


def test_bounded_channels_leave_the_rest_of_the_budget_to_others() -> None:
    problem = AllocationProblem.of([1.0, 4.0, 9.0], least=[5.0, 0.0, 0.0], most=[INF, INF, 6.0])
    assert sizes(problem, scale_for_budget(problem, 15)) == pytest.approx([5, 4, 6])


def test_a_channel_may_be_polled_less_than_once_per_interval() -> None:
    problem = AllocationProblem.of([1.0, 100.0])
    assert sizes(problem, scale_for_budget(problem, 1.1)) == pytest.approx([0.1, 1])


def test_the_maximum_size_takes_precedence_over_the_minimum() -> None:
    problem = AllocationProblem.of([1.0], least=8.0, most=3.0)
    assert sizes(problem, scale_for_budget(problem, 100)).tolist() == [3]


def test_a_budget_below_the_minimum_sizes_reduces_all_in_proportion() -> None:
    problem = AllocationProblem.of([1.0, 50.0], least=[2.0, 6.0])
    scale = scale_for_budget(problem, 6)
    assert scale == pytest.approx(-0.25)
    assert sizes(problem, scale) == pytest.approx([1.5, 4.5])
    assert sizes(problem, scale_for_budget(problem, 0)).tolist() == [0, 0]


def test_an_excess_budget_is_not_used() -> None:
    problem = AllocationProblem.of([1.0, 4.0], most=[3.0, 8.0])
    scale = scale_for_budget(problem, 1e9)
    assert scale == pytest.approx(4)
    assert sizes(problem, scale).tolist() == [3, 8]


def test_a_weightless_channel_gets_its_minimum_size() -> None:
    problem = AllocationProblem.of([0.0, 1.0], least=[2.0, 0.0])
    assert sizes(problem, scale_for_budget(problem, 10)) == pytest.approx([2, 8])


def test_a_delay_is_kept_at_the_least_load() -> None:
    problem = AllocationProblem.of([1.0, 4.0])
    scale = scale_for_delay(problem, 90, TAU_S)
    assert sizes(problem, scale) == pytest.approx([6, 12])
    assert scale_for_delay(problem, 45, TAU_S) == pytest.approx(2 * scale)


def test_an_unattainable_delay_raises_all_channels_to_their_maximum_sizes() -> None:
    problem = AllocationProblem.of([1.0, 4.0], most=[2.0, 3.0])
    assert sizes(problem, scale_for_delay(problem, 1, TAU_S)).tolist() == [2, 3]


def test_a_delay_kept_by_the_minimum_sizes_needs_no_larger_ones() -> None:
    problem = AllocationProblem.of([1.0, 4.0], least=[3.0, 3.0])
    assert sizes(problem, scale_for_delay(problem, 1e6, TAU_S)).tolist() == [3, 3]
    fixed = AllocationProblem.of([1.0], least=2.0, most=2.0)
    assert sizes(fixed, scale_for_delay(fixed, 451, TAU_S)).tolist() == [2]


def test_no_channels_have_no_sizes() -> None:
    nothing = AllocationProblem.of(np.zeros(0))
    assert scale_for_budget(nothing, 10) == 0
    assert scale_for_delay(nothing, 10, TAU_S) == 0
    assert sizes(nothing, 1.0).tolist() == []


@pytest.mark.parametrize(
    ("weight", "cost", "least", "most"),
    [
        (-1.0, 1.0, 0.0, 1.0),
        (NAN, 1.0, 0.0, 1.0),
        (INF, 1.0, 0.0, 1.0),
        (1.0, 0.0, 0.0, 1.0),
        (1.0, NAN, 0.0, 1.0),
        (1.0, 1.0, -1.0, 1.0),
        (1.0, 1.0, INF, INF),
        (1.0, 1.0, 0.0, -1.0),
        (1.0, 1.0, 0.0, NAN),
    ],
)
def test_numbers_out_of_range_raise(weight: float, cost: float, least: float, most: float) -> None:
    with pytest.raises(ValueError, match="negative"):
        AllocationProblem.of([weight], cost, least=least, most=most)


@pytest.mark.parametrize("budget", [-1.0, NAN])
def test_a_negative_budget_raises(budget: float) -> None:
    with pytest.raises(ValueError, match="budget"):
        scale_for_budget(AllocationProblem.of([1.0]), budget)


@pytest.mark.parametrize(("delay_s", "poll_interval_s"), [(0.0, 1.0), (NAN, 1.0), (1.0, 0.0)])
def test_a_delay_or_interval_of_zero_raises(delay_s: float, poll_interval_s: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        scale_for_delay(AllocationProblem.of([1.0]), delay_s, poll_interval_s)


def test_channels_of_a_site_share_its_budget_and_leave_the_rest_to_others() -> None:
    problem = AllocationProblem.of([1.0, 4.0, 9.0, 1.0])
    polite = apply_site_scales(problem, np.array([2.0, 2.0, UNBOUNDED_SCALE, UNBOUNDED_SCALE]))
    assert polite.most.tolist()[:2] == pytest.approx([2, 4])
    found = sizes(polite, scale_for_budget(polite, 46))
    assert found == pytest.approx([2, 4, 30, 10])
    assert load(polite, found) == pytest.approx(46)


def test_a_site_budget_takes_precedence_over_longest_waits() -> None:
    problem = AllocationProblem.of([1.0, 4.0], least=[4.0, 8.0])
    polite = apply_site_scales(problem, np.full(2, scale_for_budget(problem, 6.0)))
    assert sizes(polite, 100.0) == pytest.approx([2, 4])
