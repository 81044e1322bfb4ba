"""The paper's levels: at most one channel off the exact optimum, and as good as a linear program on many."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.corona.optimizer.allocation_solver import AllocationProblem, load
from service.corona.optimizer.objectives import Floats
from service.simulate.corona.paper_levels import (
    NO_CHANNEL,
    LevelSolution,
    level_sizes,
    levels_for_budget,
    levels_for_delay,
    sizes_at,
)
from tests.support.allocation_problems import delay, heterogeneous

ROUNDING = 1e-9
TAU_S = 1800.0

options = st.tuples(st.integers(1, 2000), st.sampled_from([2, 4, 16])).map(lambda given: level_sizes(*given)[-4:])
few = st.sampled_from([1.0, 2.0, 3.0, 7.5, 40.0, 1e4])
channels = st.lists(st.tuples(few, few, st.booleans()), min_size=1, max_size=5)


def _problem(rows: list[tuple[float, float, bool]], sizes: Floats) -> AllocationProblem:
    """Return channels many of which are alike; some are orphans, which only one node can poll."""
    weights, costs, orphan = np.array(rows).T
    return AllocationProblem.of(weights, costs, most=np.where(orphan, sizes.min(), sizes.max()))


def _choices(problem: AllocationProblem, sizes: Floats) -> list[Floats]:
    each = [sizes[(sizes >= low) & (sizes <= high)] for low, high in zip(problem.least, problem.most, strict=True)]
    return [np.array(choice) for choice in product(*each)]


def _one_more(problem: AllocationProblem, sizes: Floats, solution: LevelSolution, step: int = 1) -> Floats:
    """Return the other side of the bracket: the undecided channel's next (or last) step taken as well (or back).

    A channel of which no share is undecided has not taken the step that could be taken back.
    """
    other = solution.sizes.copy()
    if solution.undecided != NO_CHANNEL and (step > 0 or solution.share > 0):
        ordered = np.unique(sizes)
        place = int(np.searchsorted(ordered, other[solution.undecided])) + step
        other[solution.undecided] = ordered[place]
    assert len(other) == len(problem.weights)
    return other


@given(channels, options, st.floats(0, 1.2))
def test_a_solution_for_a_budget_is_at_most_one_channel_off_the_optimum(
    rows: list[tuple[float, float, bool]], sizes: Floats, share: float
) -> None:
    problem = _problem(rows, sizes)
    low, high = load(problem, np.full(len(rows), sizes.min())), load(problem, problem.most)
    budget = low + share * (high - low)
    solution = levels_for_budget(problem, sizes, budget)
    assert load(problem, solution.sizes) <= budget * (1 + ROUNDING)
    best = min(delay(problem, n) for n in _choices(problem, sizes) if load(problem, n) <= budget * (1 + ROUNDING))
    beyond = _one_more(problem, sizes, solution)
    assert delay(problem, beyond) <= best * (1 + ROUNDING)
    assert best <= delay(problem, solution.sizes) * (1 + ROUNDING)
    assert solution.undecided == NO_CHANNEL or load(problem, beyond) > budget * (1 - ROUNDING)


@given(channels, options, st.floats(0.01, 1.2))
@example([(1.0, 1.0, False)] * 2, np.array([1.0, 2.0]), 0.5)
def test_a_solution_for_a_delay_is_at_most_one_channel_off_the_optimum(
    rows: list[tuple[float, float, bool]], sizes: Floats, share: float
) -> None:
    problem = _problem(rows, sizes)
    low, high = delay(problem, problem.most), delay(problem, np.full(len(rows), sizes.min()))
    allowed = low + share * (high - low)
    delay_s = allowed / float(problem.weights.sum()) * TAU_S / 2
    solution = levels_for_delay(problem, sizes, delay_s, TAU_S)
    assert delay(problem, solution.sizes) <= allowed * (1 + ROUNDING)
    best = min(load(problem, n) for n in _choices(problem, sizes) if delay(problem, n) <= allowed * (1 + ROUNDING))
    short = _one_more(problem, sizes, solution, step=-1)
    assert load(problem, short) <= best * (1 + ROUNDING)
    assert best <= load(problem, solution.sizes) * (1 + ROUNDING)


@given(channels, options, st.floats(0.01, 0.99))
def test_a_share_of_the_undecided_step_meets_budget_and_delay_exactly(
    rows: list[tuple[float, float, bool]], sizes: Floats, share: float
) -> None:
    problem = _problem(rows, sizes)
    smallest = np.full(len(rows), sizes.min())
    low, high = load(problem, smallest), load(problem, problem.most)
    solution = levels_for_budget(problem, sizes, low + share * (high - low))
    if solution.undecided != NO_CHANNEL:
        assert 0 <= solution.share <= 1 + ROUNDING
        before, after = (_with_step(solution, place) for place in range(2))
        met = (1 - solution.share) * load(problem, before) + solution.share * load(problem, after)
        assert met == pytest.approx(low + share * (high - low))
    slow, fast = delay(problem, smallest), delay(problem, problem.most)
    wanted = fast + share * (slow - fast)
    solution = levels_for_delay(problem, sizes, wanted / float(problem.weights.sum()) * TAU_S / 2, TAU_S)
    if solution.undecided != NO_CHANNEL:
        before, after = (_with_step(solution, place) for place in range(2))
        met = (1 - solution.share) * delay(problem, before) + solution.share * delay(problem, after)
        assert met == pytest.approx(wanted)


def _with_step(solution: LevelSolution, place: int) -> Floats:
    """Return the sizes before the undecided channel's step, or after it."""
    found = solution.sizes.copy()
    found[solution.undecided] = solution.step[place]
    return found


@given(channels, options, st.floats(0, 1e6))
def test_at_a_multiplier_each_channel_has_its_own_best_size(
    rows: list[tuple[float, float, bool]], sizes: Floats, multiplier: float
) -> None:
    problem = _problem(rows, sizes)
    for channel, size in enumerate(sizes_at(problem, sizes, multiplier)):
        weight, cost = problem.weights[channel], problem.costs[channel]
        allowed = sizes[sizes <= problem.most[channel]]
        assert size in allowed
        best = (weight / allowed + multiplier * cost * allowed).min()
        assert weight / size + multiplier * cost * size == pytest.approx(best)


def _linear_bound(problem: AllocationProblem, sizes: Floats, budget: float) -> float:
    """Return the least Σ w/n if a channel might be between two sizes.

    That linear program is solved exactly by taking steps on the convex hulls, best first, the last in part.
    """
    ordered = np.unique(sizes)
    index = np.clip(np.searchsorted(ordered, problem.most, side="right") - 1, 0, None)
    gains, costs = [], []
    for step in range(len(ordered) - 1):
        able = index > step
        gains.append(problem.weights[able] * (1 / ordered[step] - 1 / ordered[step + 1]))
        costs.append(problem.costs[able] * (ordered[step + 1] - ordered[step]))
    gain, cost = np.concatenate(gains), np.concatenate(costs)
    best = np.argsort(-gain / cost)
    left = budget - load(problem, np.full(len(problem.costs), ordered[0]))
    taken = np.clip((left - (np.cumsum(cost[best]) - cost[best])) / cost[best], 0, 1)
    return float((problem.weights / ordered[0]).sum() - (gain[best] * taken).sum())


@pytest.mark.parametrize("seed", range(5))
def test_many_channels_are_within_a_thousandth_of_the_linear_program(seed: int) -> None:
    plain = heterogeneous(20_000, seed)
    problem = AllocationProblem.of(plain.weights, plain.costs, most=plain.most)
    sizes = level_sizes(1024, 16)
    budget = 20 * float(problem.costs.sum())
    bound = _linear_bound(problem, sizes, budget)
    found = levels_for_budget(problem, sizes, budget)
    assert bound * (1 - ROUNDING) <= delay(problem, found.sizes) <= bound * 1.001
    assert load(problem, found.sizes) <= budget


def test_a_thousand_nodes_have_four_levels_to_base_16() -> None:
    assert level_sizes(1024, 16).tolist() == [1024, 64, 4, 1]
    assert level_sizes(1, 2).tolist() == [1]


@pytest.mark.parametrize(("nodes", "base"), [(0, 16), (10, 1)])
def test_zero_nodes_or_base_1_raise(nodes: int, base: int) -> None:
    with pytest.raises(ValueError, match="no levels"):
        level_sizes(nodes, base)


def test_the_budget_takes_precedence_over_minimum_sizes() -> None:
    problem = AllocationProblem.of([5.0, 1.0], least=4.0)
    assert levels_for_budget(problem, level_sizes(1024, 16), 8).sizes.tolist() == [4, 4]
    assert levels_for_budget(problem, level_sizes(1024, 16), 7).sizes.tolist() == [4, 1]


def test_each_channel_is_polled_by_at_least_one_node_with_any_budget() -> None:
    assert levels_for_budget(AllocationProblem.of([5.0, 1.0]), level_sizes(1024, 16), 1).sizes.tolist() == [1, 1]
