"""Metrics of a directory in memory, computed from the shares of its workers."""

import pytest

from service.console.resources.fleet.directory import compute_metrics
from service.discovery.partial_lookup.strategies import Fixed, FullReplication, RoundRobin
from service.discovery.partial_lookup.strategy_choice import DirectoryChoice, DirectoryMeasurements, StrategyChoice


def test_full_replication_tolerates_all_failures_but_one_and_is_fair() -> None:
    chosen = DirectoryChoice("tag=a", DirectoryMeasurements(2, 4, 3, 0.0), StrategyChoice(FullReplication(), ()))
    metrics = compute_metrics(chosen, [("a", "b", "c", "d")] * 3)
    assert (metrics.stored, metrics.coverage, metrics.lookup_cost, metrics.fault_tolerance) == (12, 4, 1.0, 2)
    assert metrics.unfairness == pytest.approx(0)


def test_entries_without_a_copy_count_as_never_returned() -> None:
    """Formula 1 by hand: lookups of two out of four entries always return the same two."""
    metrics = compute_metrics(
        DirectoryChoice("tag=a", DirectoryMeasurements(2, 4, 2, 1.0), StrategyChoice(Fixed(2), ())),
        [("a", "b"), ("a", "b")],
    )
    assert (metrics.stored, metrics.coverage, metrics.entries, metrics.fault_tolerance) == (4, 2, 4, 1)
    assert metrics.unfairness == pytest.approx(1.0)


def test_a_worker_that_does_not_answer_counts_as_empty() -> None:
    chosen = DirectoryChoice("tag=a", DirectoryMeasurements(3, 4, 2, 0.0), StrategyChoice(RoundRobin(1), ()))
    metrics = compute_metrics(chosen, [("a", "b"), None])
    assert (metrics.answered, metrics.servers, metrics.coverage, metrics.fault_tolerance) == (1, 2, 2, -1)


def test_metrics_over_subsets_are_omitted_for_many_workers() -> None:
    metrics = compute_metrics(
        DirectoryChoice("tag=a", DirectoryMeasurements(2, 1, 40, 0.0), StrategyChoice(FullReplication(), ())),
        [("a",)] * 40,
    )
    assert (metrics.coverage, metrics.stored, metrics.lookup_cost, metrics.fault_tolerance) == (1, 40, None, None)


def test_an_empty_directory_has_metrics() -> None:
    metrics = compute_metrics(
        DirectoryChoice("tag=a", DirectoryMeasurements(2, 0, 1, 0.0), StrategyChoice(FullReplication(), ())), [()]
    )
    assert (metrics.coverage, metrics.entries, metrics.unfairness) == (0, 0, None)
