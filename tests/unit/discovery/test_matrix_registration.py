"""Registration of names: the partition, and all of its replicas."""

from contextlib import suppress

import pytest

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
from service.discovery.matrix_cell import ReadPostings, UpdateMatrix
from service.discovery.matrix_registration import register, withdraw
from service.discovery.matrix_resizing import reconcile_matrix
from service.discovery.matrix_search import read_matrix
from service.discovery.postings import Posting, pack
from tests.support.memory_cells import MemoryCells

PAIR = "a=1"
LIMITS = MatrixLimits(partitions=8, replicas=4)
NAME = Posting(5, 1, 1000)
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
    live = {at: held.get(NAME.name) for at, held in sorted(cells.postings.items())}
    return [at.partition for at, record in live.items() if record and record.expires_s > cells.now_s]


def names_found(cells: MemoryCells) -> list[int]:
    return list(cells.run(read_matrix(PAIR, 0, cells.now_s, None))[0].tolist())


def test_refreshing_finds_the_name_with_any_cached_size() -> None:
    cells = cells_after_growth(ResizeKind.INC_P, ResizeKind.INC_P, ResizeKind.INC_P)
    size = cells.run(register(PAIR, NAME))
    for known in (None, MatrixSize(), MatrixSize(1), size):
        assert cells.run(register(PAIR, NAME, known)) == size
    assert partitions_of(cells) == [5]


def test_a_refresh_after_growth_moves_the_name_and_leaves_a_copy_that_expires() -> None:
    cells = cells_after_growth(ResizeKind.INC_P)
    cells.run(register(PAIR, NAME))
    assert partitions_of(cells) == [1]
    grow(cells, ResizeKind.INC_P, ResizeKind.INC_P)
    cells.now_s = 500
    cells.run(register(PAIR, Posting(NAME.name, 1, 1500)))
    assert partitions_of(cells) == [1, 5]
    cells.now_s = 1000
    assert names_found(cells) == [NAME.name]
    assert partitions_of(cells) == [5]


def test_a_withdrawn_name_is_not_found_in_any_partition() -> None:
    cells = cells_after_growth(ResizeKind.INC_P)
    cells.run(register(PAIR, NAME))
    grow(cells, ResizeKind.INC_P, ResizeKind.INC_P)
    cells.run(withdraw(PAIR, Posting(NAME.name, 0, 1000)))
    assert names_found(cells) == []


def test_a_replica_that_opens_during_registration_gets_the_name() -> None:
    """It is absent at the first attempt; it is then filled and opened before the others have the name."""
    cells = cells_after_growth(ResizeKind.INC_R)
    lost = CellAddress(PAIR, 0, 1)
    cells.lose(lost)
    dialogue = register(PAIR, NAME, cells.run(find_or_create_matrix(PAIR, LIMITS)).size)
    first, second = next(dialogue)
    assert second.place == lost
    refused = cells.carry_out(second)
    assert cells.run(reconcile_matrix(PAIR, LIMITS)) is not None
    (again,) = dialogue.send([cells.carry_out(first), refused])
    with pytest.raises(StopIteration):
        dialogue.send([cells.carry_out(again)])
    for row in range(2):
        assert cells.carry_out(ReadPostings(CellAddress(PAIR, 0, row))).postings == pack([NAME]), f"replica {row}"


def test_a_name_is_in_all_replicas_although_the_matrix_grows_between_two_writes() -> None:
    cells = cells_after_growth(ResizeKind.INC_R)
    dialogue = register(PAIR, NAME, cells.run(find_or_create_matrix(PAIR, LIMITS)).size)
    first, second = next(dialogue)
    stored = cells.carry_out(first)
    grow(cells, ResizeKind.INC_P)
    answers = [stored, cells.carry_out(second)]
    with suppress(StopIteration):
        while True:
            answers = [cells.carry_out(command) for command in dialogue.send(answers)]
    for draw in range(8):
        names, _, _ = cells.run(read_matrix(PAIR, draw, cells.now_s, None))
        assert names.tolist() == [NAME.name], f"draw {draw}"
