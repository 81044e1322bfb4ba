"""In the paper's mode owners that see clusters of 16 bins together do what was solved for these."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.corona.optimizer.allocation_solver import AllocationProblem, load
from service.corona.optimizer.objectives import Floats
from service.corona.optimizer.tradeoff_clusters import TradeoffClusters
from service.simulate.corona.paper_levels import (
    encode_levels,
    level_sizes,
    levels_for_budget,
    levels_for_delay,
    merge_by_level,
    owner_sizes,
    summarise_by_level,
)
from service.simulate.corona.workload import Points
from tests.support.allocation_problems import POLL_INTERVAL_S, delay, select

CHANNELS, OWNERS, NODES, BINS = 6400, 64, 1024, 16
OPTIONS = level_sizes(NODES, 16)


class _Fleet:
    """OwnerDecisions of a hundred channels each, some of which are orphans; all know the whole fleet."""

    def __init__(self, exponent: float, *, whole: bool, seed: int) -> None:
        random = np.random.default_rng(seed)
        weights = random.permutation(np.arange(1, CHANNELS + 1) ** -exponent) * 1000
        self._weights = np.ceil(weights) if whole else weights
        self._points: Points = random.integers(0, np.iinfo(np.uint64).max, CHANNELS, dtype=np.uint64)
        self._owner = random.integers(0, OWNERS, CHANNELS)
        self._orphaned = random.random(CHANNELS) < 0.01
        self._levels = np.full(CHANNELS, len(OPTIONS) - 1)

    @property
    def problem(self) -> AllocationProblem:
        return AllocationProblem.of(self._weights, least=1.0, most=encode_levels(NODES, self._levels, self._orphaned))

    def clusters(self) -> TradeoffClusters:
        problem = self.problem
        return merge_by_level(
            [summarise_by_level(select(problem, self._owner == one), BINS) for one in range(OWNERS)], BINS
        )

    def round(self, *, budget: float | None = None, delay_s: float = 30.0) -> Floats:
        """Let every owner decide once; return all sizes."""
        told, problem, found = self.clusters().to_level_problem(), self.problem, np.empty(CHANNELS)
        solution = (
            levels_for_delay(told, OPTIONS, delay_s, POLL_INTERVAL_S)
            if budget is None
            else levels_for_budget(told, OPTIONS, budget)
        )
        for one in range(OWNERS):
            mine = self._owner == one
            found[mine] = owner_sizes(select(problem, mine), self._points[mine], told, OPTIONS, solution)
        self._levels = np.searchsorted(-OPTIONS, -found)
        return found


fleets = st.builds(_Fleet, st.floats(0.2, 1.2), whole=st.booleans(), seed=st.integers(0, 999))


@settings(deadline=None, max_examples=20)
@given(fleets, st.floats(5, 60))
def test_a_budget_is_met_after_three_rounds(fleet: _Fleet, polls: float) -> None:
    for _ in range(3):
        found = fleet.round(budget=polls * CHANNELS)
    assert load(fleet.problem, found) == pytest.approx(polls * CHANNELS, rel=0.02)


@settings(deadline=None, max_examples=20)
@given(fleets, st.floats(10, 60))
def test_a_delay_attainable_despite_orphans_is_met_after_three_rounds(fleet: _Fleet, more_s: float) -> None:
    problem = fleet.problem
    seconds = POLL_INTERVAL_S / 2 / float(problem.weights.sum())
    wanted_s = delay(problem, np.minimum(problem.most, NODES)) * seconds + more_s
    for _ in range(3):
        found = fleet.round(delay_s=wanted_s)
    assert delay(problem, found) * seconds == pytest.approx(wanted_s, rel=0.03)
