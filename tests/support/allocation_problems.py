"""Allocation problems: small ones of every kind, and the workload of Corona's evaluation (§5)."""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.objectives import Floats

POLL_INTERVAL_S = 1800.0
NODES = 1024
BUDGET_PER_CHANNEL = 50.0


def problems(max_channels: int = 8) -> st.SearchStrategy[AllocationProblem]:
    """Return a strategy for problems with weightless, expensive, unbounded and contradictorily bounded channels."""
    channel = st.tuples(
        st.one_of(st.just(0.0), st.floats(1e-3, 1e6)),
        st.floats(1e-2, 1e4),
        st.one_of(st.just(0.0), st.floats(1e-3, 50)),
        st.one_of(st.just(float("inf")), st.just(0.0), st.floats(1e-3, 1e4)),
    )
    return st.lists(channel, min_size=1, max_size=max_channels).map(
        lambda rows: AllocationProblem.of(*np.array(rows).T[:2], least=np.array(rows).T[2], most=np.array(rows).T[3])
    )


def heterogeneous(channels: int, seed: int) -> AllocationProblem:
    """Return channels whose weights and costs differ over orders of magnitude, with distinct costs and some bounds."""
    random = np.random.default_rng(seed)
    return AllocationProblem.of(
        random.pareto(1.0, channels) + 1,
        random.lognormal(3, 1, channels),
        least=random.choice([0.0, 0.05, 2.0], channels),
        most=random.choice([3.0, 6.0, 12.0, 200.0, NODES], channels),
    )


def corona_fleet(channels: int = 100_000, subscriptions: float = 5e6, seed: int = 1) -> tuple[Floats, Floats]:
    """Return the subscribers and the update interval (s) of each channel in the simulation of Corona's paper.

    Popularity is Zipf-distributed with exponent 0.5. Update intervals are independent of it: 10 % are log-uniform
    from 10 minutes to an hour, 40 % from an hour to 120 hours, and 50 % are a week.
    """
    random = np.random.default_rng(seed)
    popularity = np.arange(1, channels + 1) ** -0.5
    kind = random.permutation(channels) / channels
    fast = np.exp(random.uniform(np.log(600), np.log(3600), channels))
    slow = np.exp(random.uniform(np.log(3600), np.log(120 * 3600), channels))
    update_interval_s = np.where(kind < 0.1, fast, np.where(kind < 0.5, slow, 7 * 86_400.0))
    return popularity * subscriptions / popularity.sum(), update_interval_s


def select(problem: AllocationProblem, chosen: NDArray[np.bool_]) -> AllocationProblem:
    return AllocationProblem(
        problem.weights[chosen], problem.costs[chosen], problem.least[chosen], problem.most[chosen]
    )


def delay(problem: AllocationProblem, size: Floats) -> float:
    """Return Σ weight/size over the channels with positive weight: the mean detection delay up to a factor."""
    heavy = problem.weights > 0
    with np.errstate(divide="ignore", over="ignore"):
        return float((problem.weights[heavy] / size[heavy]).sum())
