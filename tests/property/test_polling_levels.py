"""Whole polling levels: wedges are nearest sets, sizes keep bounds, and one scale keeps budgets and delays.

The optimum is compared with the exact discrete one, which takes the same steps one by one in the order of the savings
that each brings for its cost.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.corona.aggregation import combine
from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal, Levels
from service.corona.messages import MIXED, Aggregate
from service.corona.optimizer.allocation_solver import AllocationProblem, load, scale_for_budget, sizes
from service.corona.optimizer.node_allocation import (
    ChannelFactors,
    FactorTable,
    allocation_problem,
    channel_sizes,
    factor_table,
    own_aggregate,
    solve_scale,
)
from service.corona.optimizer.objectives import Floats, mean_delay_s
from service.corona.optimizer.polling_levels import (
    MAX_BINS,
    LevelChoices,
    LevelSteps,
    RingLevels,
    below_first_step,
    decode_steps,
    highest_level,
    level_of,
)
from service.model import ChannelId
from service.overlay.ring import RingView, from_hex, shared_digits
from tests.support.allocation_problems import problems
from tests.support.ring_strategies import joined_ids, points, ring, rings

TAU_S = 900.0
bases = st.sampled_from([levels.base for levels in Levels if levels.are_whole])


@given(rings.filter(lambda view: view.nodes), st.lists(points, min_size=1, max_size=5), bases)
def test_a_wedge_is_the_set_of_the_nearest_nodes(view: RingView, channels: list[ChannelId], base: int) -> None:
    choices = RingLevels(view, base).choices(channels)
    for channel, sizes_of_one in zip(channels, choices.sizes, strict=True):
        for level, size in enumerate(sizes_of_one[:-1]):
            nodes = [n for n in view.ids if shared_digits(from_hex(n), from_hex(channel), base) >= level]
            assert set(view.nearest(channel, int(size))) == set(nodes or view.nearest(channel, 1))
        assert sizes_of_one[0] == len(view.nodes)
        assert sizes_of_one[-1] == 1
        assert (np.diff(sizes_of_one) <= 0).all()


@given(st.floats(0, 1e6), st.integers(1, 2000), bases)
def test_a_level_is_between_that_of_all_nodes_and_that_of_one(size: float, nodes: int, base: int) -> None:
    assert 0 <= level_of(size, nodes, base) <= highest_level(nodes, base) + 1e-9


def _choices(problem: AllocationProblem, base: int) -> LevelChoices:
    view = ring(joined_ids(7))
    return RingLevels(view, base).choices([f"{7919 * number:040x}" for number in range(len(problem.weights))])


@given(problems(), st.floats(0, 1e4), st.floats(0, 1e4), bases)
def test_sizes_keep_bounds_and_grow_with_the_scale(
    problem: AllocationProblem, one: float, other: float, base: int
) -> None:
    choices, (low, high) = _choices(problem, base), sorted((one, other))
    fewer, more = (choices.rates(problem, scale * problem.slopes()) for scale in (low, high))
    assert (fewer <= more).all()
    assert (more <= problem.most * (1 + 1e-6)).all()
    assert (fewer >= np.minimum(problem.least, problem.most)).all()


@given(problems(), st.floats(0, 1e4), bases)
def test_sizes_above_one_are_multiples_of_wedges_or_the_minimum(
    problem: AllocationProblem, scale: float, base: int
) -> None:
    choices = _choices(problem, base)
    found = choices.rates(problem, scale * problem.slopes())
    sets = choices.set_sizes(found)
    assert (sets[:, None] == choices.sizes).any(axis=1).all()
    multiples = np.log2(np.maximum(found, 1) / sets)
    is_whole = (multiples >= 0) & np.isclose(multiples, np.round(multiples))
    assert (is_whole | (found <= 1) | (found == np.minimum(problem.least, problem.most))).all()


@given(problems(), bases, st.integers(1, 4))
def test_merged_summaries_of_parts_equal_the_summary_of_the_whole(
    problem: AllocationProblem, base: int, parts: int
) -> None:
    choices, places = _choices(problem, base), np.arange(len(problem.weights)) % parts
    summaries = []
    for part in range(parts):
        own = places == part
        members = AllocationProblem(problem.weights[own], problem.costs[own], problem.least[own], problem.most[own])
        wedges = LevelChoices(choices.sizes[own], choices.factors[own])
        found = decode_steps(LevelSteps.of(members, wedges).encode())
        assert found is not None
        summaries.append(found)
    whole, together = LevelSteps.of(problem, choices), LevelSteps.merge(summaries)
    assert together.steps.sum() == whole.steps.sum()
    assert together.cost.sum() == pytest.approx(whole.cost.sum(), rel=1e-5)
    assert together.saving.sum() == pytest.approx(whole.saving.sum(), rel=1e-5)
    assert (np.diff(together.threshold) >= 0).all()
    assert len(together.steps) <= MAX_BINS


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(raw: bytes) -> None:
    found = decode_steps(raw)
    assert found is None or np.isfinite(found.threshold).all()


class _Fleet:
    """Channels with random popularities and update intervals, owned by the nodes of a ring."""

    def __init__(self, seed: int, count: int, nodes: int, objective: FleetObjective) -> None:
        random, self.view, self.nodes = np.random.default_rng(seed), ring(joined_ids(nodes)), nodes
        self.policy = policy = FleetPolicy(TAU_S, 1e6, 60.0, objective, most_polls_per_node=4.0)
        self.channels = [random.bytes(20).hex() for _ in range(count)]
        popularity = np.arange(1, count + 1) ** -random.choice([0.0, 0.5, 1.0])
        self._subscribers = random.multinomial(count * random.choice([2, 30]), popularity / popularity.sum())
        self._updates_s = np.exp(random.uniform(np.log(600), np.log(604_800), count))
        self._owners = np.array([self.view.ids.index(str(self.view.owner(channel))) for channel in self.channels])
        table = self._table(np.arange(count))
        self.problem = allocation_problem(policy, nodes, table)

    def _table(self, places: NDArray[np.intp]) -> FactorTable:
        rated = self.policy.objective.goal.depends_on_updates
        return factor_table(
            (
                ChannelFactors(int(self._subscribers[at]), float(self._updates_s[at]) if rated else 0.0, private=True)
                for at in places
            ),
            len(places),
        )

    def solve(self) -> tuple[float, Floats]:
        """Return the fleet's budget in polls per τ, and the sizes that owners find by the aggregate of all nodes."""
        levels = RingLevels(self.view, self.policy.objective.levels.base)
        parts, owned = [], []
        for owner in range(self.nodes):
            places = np.flatnonzero(self._owners == owner)
            table, choices = self._table(places), levels.choices([self.channels[at] for at in places])
            parts.append(own_aggregate(self.policy, self.nodes, table, choices))
            owned.append((places, table, choices))
        rows = [combine(tuple(parts[start : start + 8])) for start in range(0, len(parts), 8)]
        fleet = combine(tuple(rows))
        scale = solve_scale(self.policy, self.nodes, fleet)
        found = np.zeros(len(self.channels))
        for places, table, choices in owned:
            found[places] = channel_sizes(self.policy, self.nodes, table, scale, choices)
        objective = self.policy.objective
        budget = fleet.demand * objective.demand_factor
        if objective.budget_polls_per_minute is not None:
            budget = min(budget, objective.budget_polls_per_minute * TAU_S / 60)
        return budget, found

    def optimum(self, budget: float) -> float:
        """Return Σ w/n of the exact optimum at this budget in polls per τ."""
        choices = RingLevels(self.view, self.policy.objective.levels.base).choices(self.channels)
        lines = below_first_step(self.problem)
        before, after, _ = choices.steps(self.problem)
        taken = after > before
        cost, saving = (after - before)[taken], (self.problem.weights[:, None] * (1 / before - 1 / after))[taken]
        order = np.argsort(-saving / cost, kind="stable")
        scales = np.sqrt(cost / saving)[order]
        used, saved = np.cumsum(cost[order]), np.cumsum(saving[order])
        count = sum(
            load(lines, sizes(lines, float(scale))) + float(polls) <= budget
            for scale, polls in zip(scales, used, strict=True)
        )
        polls, gain = (float(used[count - 1]), float(saved[count - 1])) if count else (0.0, 0.0)
        rest = sizes(lines, scale_for_budget(lines, budget - polls))
        return float((self.problem.weights / rest).sum()) - gain


def _objective(seed: int, levels: Levels, goal: Goal, polls_per_channel: float, count: int) -> FleetObjective:
    return FleetObjective(
        goal=goal,
        demand_factor=1e3,
        budget_polls_per_minute=polls_per_channel * count * 60 / TAU_S,
        longest_wait_s=[43_200.0, 3_600.0, 300.0][seed % 3],
        levels=levels,
    )


@pytest.mark.parametrize("levels", [levels for levels in Levels if levels.are_whole])
@pytest.mark.parametrize("seed", range(12))
def test_the_budget_is_kept_and_used_as_well_as_by_the_exact_optimum(levels: Levels, seed: int) -> None:
    count, nodes = [400, 1500][seed % 2], [1, 3, 8, 13, 60][seed % 5]
    goal, polls = [Goal.LITE, Goal.FAIR, Goal.FAIR_SQRT][seed % 3], [1.6, 2.0, 3.0, 6.0][seed % 4]
    fleet = _Fleet(seed, count, nodes, _objective(seed, levels, goal, polls, count))
    budget, found = fleet.solve()
    steps = nodes * 4.0
    assert found.sum() <= budget * 1.003
    assert found.sum() >= min(0.98 * budget - steps, float(fleet.problem.most.sum()) * 0.999)
    optimum = fleet.optimum(budget)
    assert float((fleet.problem.weights / found).sum()) <= optimum * 1.04


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 10), st.floats(0.3, 12), bases)
def test_no_budget_is_exceeded_by_a_small_fleet(seed: int, count: int, nodes: int, polls: float, base: int) -> None:
    """With at most ``MAX_BINS`` steps, all are known exactly; only the next one would exceed the budget."""
    objective = _objective(seed, Levels(str(base)), Goal.LITE, polls, count)
    fleet = _Fleet(seed, count, nodes, objective)
    budget, found = fleet.solve()
    assert found.sum() <= budget * (1 + 1e-6)
    largest_step = 4.0 * nodes
    assert found.sum() >= min(0.999 * budget - largest_step, float(fleet.problem.most.sum()) * 0.999 - largest_step)


@pytest.mark.parametrize("levels", [levels for levels in Levels if levels.are_whole])
@pytest.mark.parametrize("seed", range(6))
def test_fast_keeps_the_delay_with_few_polls(levels: Levels, seed: int) -> None:
    nodes, delay_s = [3, 8, 60][seed % 3], [60.0, 200.0][seed % 2]
    objective = FleetObjective(goal=Goal.FAST, delay_s=delay_s, longest_wait_s=43_200.0, levels=levels)
    fleet = _Fleet(seed, 800, nodes, objective)
    _, found = fleet.solve()
    assert mean_delay_s(fleet.problem.weights, found, TAU_S) <= delay_s * 1.01
    optimum = fleet.optimum(float(found.sum()) * 0.95)
    assert optimum >= float(fleet.problem.weights.sum()) * 2 * delay_s / TAU_S * 0.99


def test_aggregates_of_different_levels_are_mixed() -> None:
    two, continuous = Aggregate(1, 0.0, b"", 2), Aggregate(1, 0.0, b"")
    assert combine((two, two)).base == 2
    assert combine((two, continuous)).base == combine((two, combine((two, continuous)))).base == MIXED


def test_a_single_channel_with_ample_demand_is_polled_by_all_nodes() -> None:
    objective = FleetObjective(goal=Goal.LITE, demand_factor=1e6, levels=Levels.BASE_2)
    fleet = _Fleet(1, 1, 8, objective)
    _, found = fleet.solve()
    assert found.tolist() == [32.0]
