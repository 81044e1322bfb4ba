"""Sizes keep their bounds and cannot be improved, and neither can sites' shares."""

from itertools import permutations
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.corona.optimizer.allocation_solver import (
    UNBOUNDED_SCALE,
    AllocationProblem,
    apply_site_scales,
    load,
    scale_for_budget,
    scale_for_delay,
    sizes,
    solve_clipped_sum,
)
from tests.support.allocation_problems import delay, problems, select

ROUNDING = 1e-9
TAU_S = 1800.0


def _floor(problem: AllocationProblem) -> float:
    return load(problem, np.minimum(problem.least, problem.most))


def _budgets(problem: AllocationProblem) -> st.SearchStrategy[float]:
    """From nothing to more than can be used up."""
    finite = np.where(np.isfinite(problem.most), problem.most, 100.0)
    top = 2 * load(problem, np.maximum(finite, problem.least)) + 1
    return st.one_of(st.just(0.0), st.floats(1e-9, top))


@given(problems(), st.data())
def test_a_budget_is_kept_and_used_as_far_as_bounds_allow(problem: AllocationProblem, data: st.DataObject) -> None:
    budget = data.draw(_budgets(problem))
    found = sizes(problem, scale_for_budget(problem, budget))
    rounding = ROUNDING * max(budget, _floor(problem))
    left = budget - load(problem, found)
    assert left >= -rounding
    full = (found >= problem.most * (1 - ROUNDING)) | (problem.weights == 0)
    assert left <= rounding or full.all()


@given(problems(), st.floats(-2, 1e4))
def test_sizes_exceed_no_maximum_and_only_budgets_reduce_them_below_the_minimum(
    problem: AllocationProblem, scale: float
) -> None:
    found = sizes(problem, scale)
    assert (found <= problem.most).all()
    assert (found >= 0).all()
    if scale >= 0:
        assert (found >= np.minimum(problem.least, problem.most)).all()


@given(problems(), st.floats(-1, 1e4), st.floats(-1, 1e4))
def test_sizes_grow_with_the_scale(problem: AllocationProblem, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert (sizes(problem, low) <= sizes(problem, high)).all()


@given(problems(), st.data())
def test_no_exchange_between_two_channels_improves_the_optimum(problem: AllocationProblem, data: st.DataObject) -> None:
    """Σ w/n is convex, so a solution that no small exchange of cost improves is the optimum."""
    problem = select(problem, problem.most > 0)
    budget = _floor(problem) + data.draw(_budgets(problem)) + 1e-6
    found = sizes(problem, scale_for_budget(problem, budget))
    spare = (found - np.minimum(problem.least, problem.most)) * problem.costs
    room = (problem.most - found) * problem.costs
    for giver, taker in permutations(range(len(found)), 2):
        moved = min(spare[giver], room[taker], 1e-3 * budget)
        if moved > 0:
            other = found.copy()
            other[giver] = max(other[giver] - moved / problem.costs[giver], 0)
            other[taker] += moved / problem.costs[taker]
            assert delay(problem, other) >= delay(problem, found) * (1 - ROUNDING)


@given(problems(), st.floats(1e-3, 1e6))
def test_a_delay_costs_no_more_than_the_budget_that_gives_it(problem: AllocationProblem, delay_s: float) -> None:
    scale = scale_for_delay(problem, delay_s, TAU_S)
    found = sizes(problem, scale)
    counted = select(problem, (problem.weights > 0) & (problem.most > 0))
    sized = sizes(counted, scale)
    allowed = counted.weights.sum() * 2 * delay_s / TAU_S
    reached = delay(counted, sized)
    full = (sized >= counted.most * (1 - ROUNDING)) | np.isinf(counted.most)
    assert reached <= allowed * (1 + ROUNDING) or full.all()
    slack = reached < allowed * (1 - ROUNDING)
    assert not slack or (sized <= np.minimum(counted.least, counted.most) * (1 + ROUNDING)).all()
    if load(problem, found) > _floor(problem):
        same = sizes(problem, scale_for_budget(problem, load(problem, found)))
        assert same * problem.costs == pytest.approx(found * problem.costs, rel=1e-6, abs=1e-9 * load(problem, found))


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=30),
    st.floats(0, 1e9),
)
def test_the_clipped_sum_is_solved(lines: list[tuple[float, float, float]], target: float) -> None:
    rises, starts, ends = np.array(lines).T

    def total(x: float) -> float:
        return float((rises * np.minimum(np.maximum(starts, x), ends)).sum())

    x = solve_clipped_sum(rises, starts, ends, target)
    assert total(x) == pytest.approx(min(max(target, total(0)), total(1e7)), rel=1e-9, abs=1e-9)


@given(problems(), st.data())
def test_site_budgets_are_kept_at_any_scale(problem: AllocationProblem, data: st.DataObject) -> None:
    count = len(problem.weights)
    alike = AllocationProblem.of(problem.weights, least=problem.least, most=np.minimum(problem.most, 1e4))
    sites = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), dtype=np.intp)
    budgets = [*data.draw(st.lists(st.floats(0, 200), min_size=2, max_size=2)), inf]
    own = [scale_for_budget(_only(alike, sites == site), budget) for site, budget in enumerate(budgets[:2])]
    polite = apply_site_scales(alike, np.array([*own, UNBOUNDED_SCALE])[sites])
    found = sizes(polite, data.draw(st.floats(-1, 1e6)))
    for site, budget in enumerate(budgets):
        assert found[sites == site].sum() <= budget * (1 + ROUNDING) + ROUNDING
    alone = sites == 2
    assert (polite.most[alone] == alike.most[alone]).all()
    assert (polite.most <= alike.most).all()


@given(problems(), st.floats(0.1, 500))
def test_a_tight_site_uses_its_budget_up(problem: AllocationProblem, budget: float) -> None:
    """At the site's scale, its channels have the sizes that they would have without other channels."""
    alike = AllocationProblem.of(problem.weights + 1e-3, least=problem.least, most=np.minimum(problem.most, 1e4))
    scale = scale_for_budget(alike, budget)
    polite = apply_site_scales(alike, np.full(len(alike.weights), scale))
    assert sizes(polite, 1e12) == pytest.approx(sizes(alike, scale), rel=1e-6)


def _only(problem: AllocationProblem, chosen: NDArray[np.bool_]) -> AllocationProblem:
    return AllocationProblem(*(part[chosen] for part in (problem.weights, problem.costs, problem.least, problem.most)))
