"""Completeness of search results."""

import pytest

from service.discovery.cell import NameRecord
from service.discovery.matrix import MatrixLimits
from service.discovery.registration_and_search import register, search
from tests.support.memory_cells import MemoryCells

PAIR = "a=1"
LIMITS = MatrixLimits()


@pytest.mark.parametrize(("limit", "found", "complete"), [(2, 2, False), (5, 5, False), (6, 5, True), (99, 5, True)])
def test_a_query_that_reaches_its_limit_is_not_complete(limit: int, found: int, *, complete: bool) -> None:
    """A cell returns at most as many names as requested, so there may be others."""
    cells = MemoryCells()
    for number in range(5):
        cells.run(register(PAIR, NameRecord(f"n{number}", 1, frozenset({PAIR}), 1000), number, LIMITS))
    told = cells.run(search(frozenset({PAIR}), limit, 0, LIMITS))
    assert (len(told.matches), told.complete) == (found, complete)
