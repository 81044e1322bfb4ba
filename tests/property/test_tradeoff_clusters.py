"""Tradeoff clusters preserve what the scale depends on through any merges, and are small on the wire."""

from functools import partial
from struct import pack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.corona.fleet_policy import Goal
from service.corona.optimizer.allocation_solver import AllocationProblem, load, scale_for_budget, scale_for_delay, sizes
from service.corona.optimizer.objectives import weights
from service.corona.optimizer.tradeoff_clusters import (
    MAX_CLUSTERS,
    TradeoffClusters,
    decode,
    encode,
    merge,
    summarise,
)
from service.simulate.corona.paper_levels import level_sizes, levels_for_budget, sizes_at
from tests.support.allocation_problems import POLL_INTERVAL_S, corona_fleet, delay, heterogeneous, problems, select

NEAR = 0.002
SINGLE = 1e-6
"""Tolerance for single-precision numbers."""
ROUNDED = 5e-6
"""Tolerance for the budget margin of forty exact clusters, and for single-precision numbers."""
SUMS = ("weight", "rise", "least_cost", "most_cost")


def _over_the_wire(problem: AllocationProblem, owners: int, seed: int, log_bins: int = 0) -> TradeoffClusters:
    """Return a node's clusters of a fleet's channels: each owner's summary, sent and merged in two rounds."""
    owner = np.random.default_rng(seed).integers(0, owners, len(problem.weights))
    summaries = [summarise(select(problem, owner == one), log_bins=log_bins) for one in range(owners)]
    halves = [merge(summaries[start::2], log_bins=log_bins) for start in range(2)]
    received = [decode(encode(half)) for half in halves]
    return merge([half for half in received if half is not None], log_bins=log_bins)


def _assert_near(problem: AllocationProblem, clusters: TradeoffClusters, near: float = NEAR) -> None:
    budget = 20 * float(problem.costs.sum())
    exact = sizes(problem, scale_for_budget(problem, budget))
    found = sizes(problem, clusters.scale_for_budget(budget))
    assert delay(problem, found) == pytest.approx(delay(problem, exact), rel=near)
    assert load(problem, found) == pytest.approx(load(problem, exact), rel=near)
    delay_s = 1.5 * delay(problem, exact) / float(problem.weights.sum()) * POLL_INTERVAL_S / 2
    exact = sizes(problem, scale_for_delay(problem, delay_s, POLL_INTERVAL_S))
    found = sizes(problem, clusters.scale_for_delay(delay_s, POLL_INTERVAL_S))
    assert delay(problem, found) == pytest.approx(delay(problem, exact), rel=near)
    assert load(problem, found) == pytest.approx(load(problem, exact), rel=near)


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("least", [0.0, 7.5])
def test_the_papers_fleet_is_within_a_fifth_of_a_percent_of_the_optimum(goal: Goal, least: float) -> None:
    subscribers, update_interval_s = corona_fleet(20_000, 1e6)
    weight = weights(goal, subscribers, update_interval_s, POLL_INTERVAL_S)
    problem = AllocationProblem.of(weight, least=least, most=1024.0)
    _assert_near(problem, _over_the_wire(problem, 16, seed=3))


@pytest.mark.parametrize("seed", range(4))
def test_channels_with_individual_bounds_are_within_a_fifth_of_a_percent(seed: int) -> None:
    problem = heterogeneous(20_000, seed)
    _assert_near(problem, summarise(problem))
    _assert_near(problem, _over_the_wire(problem, 16, seed))


def test_even_bounds_over_five_orders_of_magnitude_are_within_a_percent() -> None:
    random = np.random.default_rng(5)
    bounds = {"least": random.lognormal(0, 2, 20_000), "most": random.lognormal(4, 2, 20_000)}
    problem = AllocationProblem.of(random.pareto(1, 20_000) + 1, random.lognormal(0, 2, 20_000), **bounds)
    _assert_near(problem, _over_the_wire(problem, 16, seed=5), near=0.02)


def _fleet(*, goal: Goal, least: float, nodes: int, private: float, popularity: float, seed: int) -> AllocationProblem:
    """Return channels as policies create them: one longest wait, and different upper bounds for private channels."""
    subscribers, update_interval_s = corona_fleet(5000, 1e5, seed)
    weight = weights(goal, np.ceil(subscribers**popularity), update_interval_s, POLL_INTERVAL_S)
    most = np.where(np.random.default_rng(seed).random(5000) < private, nodes, min(nodes, 30.0))
    return AllocationProblem.of(weight, least=least, most=most)


fleets = st.builds(
    _fleet,
    goal=st.sampled_from(Goal),
    least=st.sampled_from([0.0, 0.5, 7.5]),
    nodes=st.integers(3, 1200),
    private=st.floats(0, 1),
    popularity=st.floats(0.3, 2),
    seed=st.integers(0, 99),
)


@settings(deadline=None, max_examples=40)
@given(fleets, st.floats(0.02, 0.98))
def test_the_budget_is_kept_and_used_up_to_a_thousandth(problem: AllocationProblem, share: float) -> None:
    budget = share * load(problem, problem.most)
    exact = load(problem, sizes(problem, scale_for_budget(problem, budget)))
    found = load(problem, sizes(problem, _over_the_wire(problem, 16, seed=1).scale_for_budget(budget)))
    assert 0.999 * exact <= found <= budget * (1 + 1e-12)  # sums of doubles


@given(problems(40), st.integers(4, 20))
def test_clusters_preserve_sums_and_the_limit(problem: AllocationProblem, limit: int) -> None:
    clusters, each = summarise(problem, limit=limit), summarise(problem)
    assert len(clusters.rise) <= limit
    for name in SUMS:
        assert getattr(clusters, name).sum() == pytest.approx(getattr(each, name).sum())
    both = merge([clusters, each], limit=limit)
    assert len(both.rise) <= limit
    for name in SUMS:
        assert getattr(both, name).sum() == pytest.approx(2 * getattr(each, name).sum())


@given(problems(40), st.floats(0, 1e5))
def test_few_channels_are_summarised_exactly(problem: AllocationProblem, budget: float) -> None:
    """Including channels that weigh nothing, may not be polled, or have equal bounds."""
    finite = AllocationProblem.of(
        problem.weights, problem.costs, least=problem.least, most=np.minimum(problem.most, 1e5)
    )
    lonely = merge(
        [summarise(select(finite, np.arange(len(finite.weights)) == one)) for one in range(len(finite.weights))]
    )
    exact = sizes(finite, scale_for_budget(finite, budget))
    found = sizes(finite, lonely.scale_for_budget(budget))
    assert load(finite, found) == pytest.approx(load(finite, exact), rel=ROUNDED, abs=1e-6)


@given(problems(40), st.integers(1, 200), st.floats(0, 1e5))
def test_identical_channels_share_an_exact_cluster(problem: AllocationProblem, times: int, budget: float) -> None:
    finite = AllocationProblem.of(
        problem.weights, problem.costs, least=problem.least, most=np.minimum(problem.most, 1e5)
    )
    many = AllocationProblem.of(
        np.tile(finite.weights, times),
        np.tile(finite.costs, times),
        least=np.tile(finite.least, times),
        most=np.tile(finite.most, times),
    )
    told = _over_the_wire(many, 3, seed=times)
    assert len(told.rise) <= 4 * len(finite.weights)  # a start or an end may lie between two roundings
    exact = sizes(many, scale_for_budget(many, budget))
    found = sizes(many, told.scale_for_budget(budget))
    assert load(many, found) == pytest.approx(load(many, exact), rel=ROUNDED, abs=1e-6)


@given(problems(40), st.booleans())
def test_clusters_survive_encoding(problem: AllocationProblem, paper: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
    clusters = summarise(problem, log_bins=16 if paper else 0)
    raw = encode(clusters)
    assert len(raw) == 20 * len(clusters.rise)
    found = decode(raw)
    assert found is not None
    for name in SUMS:
        assert getattr(found, name) == pytest.approx(getattr(clusters, name), rel=SINGLE)


numbers = st.one_of(st.floats(width=32), st.floats(0, 2.0**127, width=32))
rows = st.builds(partial(pack, "<I4f"), st.integers(0, (1 << 32) - 1), numbers, numbers, numbers, numbers)


@given(st.one_of(st.binary(max_size=200), st.lists(rows, max_size=20).map(b"".join)))
def test_any_bytes_decode_to_usable_clusters_or_none(raw: bytes) -> None:
    found = decode(raw)
    if found is not None:
        assert np.isfinite(found.scale_for_budget(1000.0))
        assert found.scale_for_delay(30, POLL_INTERVAL_S) >= 0
        assert len(merge([found, found], limit=8).rise) <= 8


def _tampered(name: str, value: float) -> bytes:
    clusters = summarise(heterogeneous(50, 1))
    getattr(clusters, name)[3] = value
    return encode(clusters)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_invalid_numbers_decode_to_none(name: str, value: float) -> None:
    assert decode(_tampered(name, value)) is None


def test_other_invalid_data_decodes_to_none() -> None:
    sound = encode(summarise(heterogeneous(50, 1)))
    assert decode(sound) is not None
    assert decode(sound[:-1]) is None
    assert decode(sound[:20] * (MAX_CLUSTERS + 1)) is None
    assert decode(_tampered("lines", 0)) is None
    assert decode(_tampered("least_cost", 1e9)) is None


def test_no_channels_have_no_clusters() -> None:
    assert merge([]).scale_for_budget(10) == 0
    assert encode(TradeoffClusters.empty()) == b""
    assert len(summarise(AllocationProblem.of(np.zeros(0))).rise) == 0


def test_orphans_are_one_slack_cluster_in_the_papers_bins() -> None:
    problem = AllocationProblem.of([1.0, 5.0, 9.0, 100.0], least=1.0, most=[1.0, 1.0, 64.0, 64.0])
    clusters = summarise(problem, log_bins=16)
    slack = clusters.least_cost == clusters.most_cost
    assert clusters.lines[slack].tolist() == [2]
    assert clusters.weight[slack].tolist() == [6]
    assert clusters.lines[~slack].tolist() == [1, 1]


def test_sixteen_log_bins_increase_the_delay_and_the_default_bins_hardly_do() -> None:
    subscribers, _ = corona_fleet(20_000, 1e6)
    problem = AllocationProblem.of(subscribers, least=1.0, most=1024.0)
    options, budget = level_sizes(1024, 16), 50.0 * 20_000
    exact = levels_for_budget(problem, options, budget)

    def loss(log_bins: int) -> float:
        clusters = _over_the_wire(problem, 16, 1, log_bins)
        agreed = levels_for_budget(clusters.to_level_problem(), options, budget)
        found = sizes_at(problem, options, agreed.multiplier)
        assert load(problem, found) <= budget * 1.002
        return delay(problem, found) / delay(problem, exact.sizes) - 1

    assert 0.02 < loss(16) < 0.25
    assert abs(loss(0)) < 0.003
