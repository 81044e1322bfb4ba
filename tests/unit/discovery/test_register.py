"""Registration of names: the partition, and all of its replicas."""

import pytest

from service.discovery.cell import FindNames, NameRecord, UpdateMatrix
from service.discovery.cell_rounds import find_or_create_matrix
from service.discovery.matrix import (
    CellAddress,
    MatrixLimits,
    MatrixSize,
    ResizeKind,
    ResizeRequest,
    after_request,
    head_address,
)
from service.discovery.matrix_resizing import reconcile_matrix
from service.discovery.registration_and_search import register, replace, search
from tests.support.memory_cells import MemoryCells

PAIR = "a=1"
LIMITS = MatrixLimits(partitions=8, replicas=4)
NAME = NameRecord("n", 1, frozenset({PAIR}), 1000)
DRAW = 5
"""At home in partition 5 of eight; before, in 1 of four and of two."""


def cells_after_growth(*kinds: ResizeKind) -> MemoryCells:
    """Return cells in which a matrix has grown in these ways."""
    cells = MemoryCells()
    grow(cells, *kinds)
    return cells


def grow(cells: MemoryCells, *kinds: ResizeKind) -> None:
    for kind in kinds:
        matrix = cells.run(find_or_create_matrix(PAIR, LIMITS))
        last = CellAddress(PAIR, matrix.size.partitions - 1, matrix.size.rows[-1])
        cells.carry_out(
            UpdateMatrix(head_address(PAIR), matrix, after_request(matrix, ResizeRequest(kind, last), LIMITS))
        )
        assert cells.run(reconcile_matrix(PAIR, LIMITS)) is not None


def partitions_of(cells: MemoryCells) -> list[int]:
    """Return the partitions that contain the name."""
    live = {at: held.get(NAME.name) for at, held in sorted(cells.records.items())}
    return [at.partition for at, record in live.items() if record and record.expires_ms > cells.now_ms]


def test_refreshing_finds_the_name_with_any_cached_size() -> None:
    cells = cells_after_growth(ResizeKind.INC_P, ResizeKind.INC_P, ResizeKind.INC_P)
    at = cells.run(register(PAIR, NAME, DRAW, LIMITS))
    for known in (None, MatrixSize(), MatrixSize(1), at.size):
        assert cells.run(register(PAIR, NAME, DRAW, LIMITS, known)) == at
    assert partitions_of(cells) == [5]


def test_a_refresh_after_growth_moves_the_name_and_leaves_a_copy_that_expires() -> None:
    cells = cells_after_growth(ResizeKind.INC_P)
    assert cells.run(register(PAIR, NAME, DRAW, LIMITS)).partition == 1
    grow(cells, ResizeKind.INC_P, ResizeKind.INC_P)
    cells.now_ms = 500
    again = NameRecord(NAME.name, 1, NAME.pairs, 1500)
    assert cells.run(register(PAIR, again, DRAW, LIMITS)).partition == 5
    assert partitions_of(cells) == [1, 5]
    cells.now_ms = 1000
    assert [match.name for match in cells.run(search(NAME.pairs, 9, 0, LIMITS)).matches] == [NAME.name]
    assert partitions_of(cells) == [5]


def test_a_changed_name_is_replaced_in_all_partitions() -> None:
    cells = cells_after_growth(ResizeKind.INC_P)
    cells.run(register(PAIR, NAME, DRAW, LIMITS))
    grow(cells, ResizeKind.INC_P, ResizeKind.INC_P)
    cells.run(replace(PAIR, NameRecord(NAME.name, 2, frozenset(), 1500), DRAW, LIMITS))
    assert cells.run(search(NAME.pairs, 9, 0, LIMITS)).matches == ()


def test_a_replica_that_opens_during_registration_gets_the_name() -> None:
    """It is absent at the first attempt; it is then filled and opened before the others have the name."""
    cells = cells_after_growth(ResizeKind.INC_R)
    lost = CellAddress(PAIR, 0, 1)
    cells.lose(lost)
    dialogue = register(PAIR, NAME, DRAW, LIMITS, cells.run(find_or_create_matrix(PAIR, LIMITS)).size)
    first, second = next(dialogue)
    assert second.place == lost
    refused = cells.carry_out(second)
    assert cells.run(reconcile_matrix(PAIR, LIMITS)) is not None
    (again,) = dialogue.send([cells.carry_out(first), refused])
    with pytest.raises(StopIteration):
        dialogue.send([cells.carry_out(again)])
    for row in range(2):
        found = cells.carry_out(FindNames(CellAddress(PAIR, 0, row), frozenset({PAIR}), 9)).matches
        assert [match.name for match in found] == [NAME.name], f"replica {row}"
