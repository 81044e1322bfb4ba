"""Polling levels: wedges of the ring, the level of a number of nodes, and the size that a channel takes."""

import numpy as np

from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.polling_levels import LevelChoices, RingLevels, highest_level, level_of
from tests.support.ring_strategies import ring

NODES = [f"{digit}" + "0" * 39 for digit in "02468ace"]
EIGHT = LevelChoices(np.array([[8.0, 4.0, 2.0, 1.0]]), np.ones(1))


def test_wedges_of_a_balanced_ring_halve_from_level_to_level() -> None:
    assert RingLevels(ring(NODES), 2).choices(["3" + "0" * 39]).sizes.tolist() == [[8, 4, 2, 1]]
    assert RingLevels(ring(NODES), 4).choices(["3" + "0" * 39]).sizes.tolist() == [[8, 2, 1]]


def test_an_empty_wedge_is_polled_by_the_owner() -> None:
    assert RingLevels(ring(["0" * 40, "1" * 40]), 2).choices(["f" * 40]).sizes.tolist() == [[2, 1]]


def test_the_level_counts_how_often_the_ring_is_divided() -> None:
    assert level_of(60, 60, 2) == 0
    assert level_of(15, 60, 2) == 2
    assert round(level_of(20, 60, 2), 2) == 1.58
    assert level_of(0.1, 8, 2) == level_of(1, 8, 2) == 3


def test_the_highest_level_is_that_of_one_node() -> None:
    assert [highest_level(nodes, 2) for nodes in (1, 2, 3, 8, 60)] == [0, 1, 2, 3, 6]
    assert highest_level(1024, 16) == 3


def _rate(wanted: float, least: float = 0.0, most: float = 100.0) -> float:
    problem = AllocationProblem.of([1.0], least=least, most=most)
    return float(EIGHT.rates(problem, np.array([wanted]))[0])


def test_wanted_sizes_are_rounded_to_wedges_by_their_geometric_means() -> None:
    assert [_rate(wanted) for wanted in (1.41, 1.42, 2.82, 2.83, 5.65, 5.66, 11.3)] == [1, 2, 2, 4, 4, 8, 8]


def test_all_nodes_may_poll_twice_or_four_times_per_interval() -> None:
    assert [_rate(11.4), _rate(1e9, most=31.9), _rate(1e9, most=32)] == [16, 16, 32]


def test_below_one_poll_per_interval_sizes_are_real_numbers() -> None:
    assert [_rate(0.3), _rate(0.3, least=0.5), _rate(3, most=0.7)] == [0.3, 0.5, 0.7]


def test_sizes_are_limited_to_the_largest_wedge_within_the_maximum() -> None:
    assert [_rate(9, most=3), _rate(9, most=7.9), _rate(9, most=8)] == [2, 4, 8]


def test_the_minimum_size_need_not_be_a_wedge() -> None:
    assert [_rate(0, least=3), _rate(3.4, least=3), _rate(3.5, least=3), _rate(1, least=20)] == [3, 3, 4, 20]


def test_the_smallest_wedge_polls_in_which_no_node_polls_more_than_once_per_interval() -> None:
    rates = np.array([0.2, 1.0, 1.5, 4.0, 20.0])
    choices = LevelChoices(np.repeat(EIGHT.sizes, len(rates), axis=0), np.ones(len(rates)))
    assert choices.set_sizes(rates).tolist() == [1, 1, 2, 4, 8]
    assert choices.levels(2).tolist() == [2] * len(rates)
