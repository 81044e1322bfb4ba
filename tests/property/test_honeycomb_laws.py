"""The sizes of a scale keep what they must and cannot be improved; and so do hosts' shares."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.crossing import crossing
from service.corona.honeycomb import Problem, load, scale_for_budget, scale_for_delay, sizes
from service.corona.hosts import NO_HOST, within_host_budgets
from tests.support.tradeoffs import delay, part, problems

ROUNDING = 1e-9
TAU_S = 1800.0


def _floor(problem: Problem) -> float:
    return load(problem, np.minimum(problem.least, problem.most))


def _budgets(problem: Problem) -> st.SearchStrategy[float]:
    """From nothing to more than can be used up."""
    finite = np.where(np.isfinite(problem.most), problem.most, 100.0)
    top = 2 * load(problem, np.maximum(finite, problem.least)) + 1
    return st.one_of(st.just(0.0), st.floats(1e-9, top))


@given(problems(), st.data())
def test_a_budget_is_kept_and_used_up_as_far_as_bounds_allow(problem: Problem, data: st.DataObject) -> None:
    budget = data.draw(_budgets(problem))
    found = sizes(problem, scale_for_budget(problem, budget))
    rounding = ROUNDING * max(budget, _floor(problem))
    left = budget - load(problem, found)
    assert left >= -rounding
    full = (found >= problem.most * (1 - ROUNDING)) | (problem.weights == 0)
    assert left <= rounding or full.all()


@given(problems(), st.floats(-2, 1e4))
def test_most_is_never_exceeded_and_least_only_by_budgets(problem: Problem, scale: float) -> None:
    found = sizes(problem, scale)
    assert (found <= problem.most).all()
    assert (found >= 0).all()
    if scale >= 0:
        assert (found >= np.minimum(problem.least, problem.most)).all()


@given(problems(), st.floats(-1, 1e4), st.floats(-1, 1e4))
def test_sizes_grow_with_the_scale(problem: Problem, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert (sizes(problem, low) <= sizes(problem, high)).all()


@given(problems(), st.data())
def test_no_exchange_between_two_channels_improves_the_optimum(problem: Problem, data: st.DataObject) -> None:
    """Σ w/n is convex, so that an optimum which no small exchange of cost improves is the optimum."""
    problem = part(problem, problem.most > 0)
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
def test_a_delay_is_kept_at_no_more_cost_than_a_budget_needs_for_it(problem: Problem, delay_s: float) -> None:
    scale = scale_for_delay(problem, delay_s, TAU_S)
    found = sizes(problem, scale)
    counted = part(problem, (problem.weights > 0) & (problem.most > 0))
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
def test_a_crossing_is_where_the_sum_reaches_the_target(lines: list[tuple[float, float, float]], target: float) -> None:
    rises, starts, ends = np.array(lines).T

    def total(x: float) -> float:
        return float((rises * np.minimum(np.maximum(starts, x), ends)).sum())

    x = crossing(rises, starts, ends, target)
    assert total(x) == pytest.approx(min(max(target, total(0)), total(1e7)), rel=1e-9, abs=1e-9)


@given(problems(), st.data())
def test_host_budgets_are_kept_at_any_scale(problem: Problem, data: st.DataObject) -> None:
    count = len(problem.weights)
    hosts = np.array(data.draw(st.lists(st.integers(NO_HOST, 2), min_size=count, max_size=count)), dtype=np.intp)
    budgets = np.array(data.draw(st.lists(st.floats(0, 200), min_size=3, max_size=3)))
    polite = within_host_budgets(problem, hosts, budgets)
    found = sizes(polite, data.draw(st.floats(0, 1e6)))
    for host, budget in enumerate(budgets):
        assert found[hosts == host].sum() <= budget * (1 + ROUNDING)
    alone = hosts == NO_HOST
    assert (polite.most[alone] == problem.most[alone]).all()
    assert (polite.most <= problem.most).all()


@given(problems(), st.floats(0.1, 500))
def test_a_tight_host_uses_its_budget_up(problem: Problem, budget: float) -> None:
    """Given the scale, its channels have what they would have if there were no others."""
    alike = Problem.of(problem.weights + 1e-3, least=problem.least, most=np.minimum(problem.most, 1e4))
    polite = within_host_budgets(alike, np.zeros(len(alike.weights), dtype=np.intp), np.array([budget]))
    alone = sizes(alike, scale_for_budget(alike, budget))
    assert sizes(polite, 1e12) == pytest.approx(alone, rel=1e-6)
