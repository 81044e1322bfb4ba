"""Polling levels: wedges of the ring, and the level of a number of nodes."""

from service.corona.polling_levels import highest_level, level_of, wedge_sizes
from tests.support.ring_strategies import ring

NODES = [f"{digit}" + "0" * 39 for digit in "02468ace"]


def test_wedges_of_a_balanced_ring_halve_from_level_to_level() -> None:
    assert wedge_sizes(ring(NODES), ["3" + "0" * 39], 2).tolist() == [[8, 4, 2, 1, 1]]
    assert wedge_sizes(ring(NODES), ["3" + "0" * 39], 4).tolist() == [[8, 2, 1, 1]]


def test_an_empty_wedge_is_polled_by_the_owner() -> None:
    assert wedge_sizes(ring(["0" * 40, "1" * 40]), ["f" * 40], 2).tolist() == [[2, 1, 1]]


def test_the_level_counts_how_often_the_ring_is_divided() -> None:
    assert level_of(60, 60, 2) == 0
    assert level_of(15, 60, 2) == 2
    assert round(level_of(20, 60, 2), 2) == 1.58
    assert level_of(0.1, 8, 2) == level_of(1, 8, 2) == 3


def test_the_highest_level_is_that_of_one_node() -> None:
    assert [highest_level(nodes, 2) for nodes in (1, 2, 3, 8, 60)] == [0, 1, 2, 3, 6]
    assert highest_level(1024, 16) == 3
