"""How good a directory is, by what its workers keep."""

import pytest

from service.console.pages.directory import measured
from service.discovery.partial.strategies import Fixed, FullReplication, RoundRobin
from service.discovery.partial.strategy_choice import DirectoryChoice, DirectoryMeasurements, StrategyChoice


def test_of_full_replication_all_workers_but_one_may_die_and_lookups_are_fair() -> None:
    chosen = DirectoryChoice("tag=a", DirectoryMeasurements(2, 4, 3, 0.0), StrategyChoice(FullReplication(), ()))
    good = measured(chosen, [("a", "b", "c", "d")] * 3)
    assert (good.stored, good.coverage, good.lookup_cost, good.fault_tolerance) == (12, 4, 1.0, 2)
    assert good.unfairness == pytest.approx(0)


def test_what_nobody_keeps_counts_as_never_returned() -> None:
    """Formula 1 by hand: of four entries, lookups of two always return the same two."""
    good = measured(
        DirectoryChoice("tag=a", DirectoryMeasurements(2, 4, 2, 1.0), StrategyChoice(Fixed(2), ())),
        [("a", "b"), ("a", "b")],
    )
    assert (good.stored, good.coverage, good.entries, good.fault_tolerance) == (4, 2, 4, 1)
    assert good.unfairness == pytest.approx(1.0)


def test_a_worker_that_does_not_answer_keeps_nothing() -> None:
    chosen = DirectoryChoice("tag=a", DirectoryMeasurements(3, 4, 2, 0.0), StrategyChoice(RoundRobin(1), ()))
    good = measured(chosen, [("a", "b"), None])
    assert (good.answered, good.servers, good.coverage, good.fault_tolerance) == (1, 2, 2, -1)


def test_of_many_workers_only_what_needs_no_sets_of_them_is_said() -> None:
    good = measured(
        DirectoryChoice("tag=a", DirectoryMeasurements(2, 1, 40, 0.0), StrategyChoice(FullReplication(), ())),
        [("a",)] * 40,
    )
    assert (good.coverage, good.stored, good.lookup_cost, good.fault_tolerance) == (1, 40, None, None)


def test_a_directory_of_nothing_is_measured_too() -> None:
    good = measured(
        DirectoryChoice("tag=a", DirectoryMeasurements(2, 0, 1, 0.0), StrategyChoice(FullReplication(), ())), [()]
    )
    assert (good.coverage, good.entries, good.unfairness) == (0, 0, None)
