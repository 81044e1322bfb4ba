"""Resizing of a matrix: the protocol that makes its cells match the matrix's record (Gao & Steenkiste §IV.C).

A matrix is a table of cells with partitions and replicas. A *pass* of the protocol reads all cells and carries out the
missing steps, in an order that loses no name:

1. *Announce* the size to all cells before opening any. Every query then reads the new partitions, and every
   registration writes to the new replicas, even while these are still empty.
2. *Open* absent cells, which are new or were lost, in the state "filling".
3. *Fill* each of these cells from an open replica of its partition, if there is one. Mark the cell as open.
4. *Close* the cells that are being removed. Copy the names of a removed partition to all replicas of its *merge
   target*, the partition that takes over the names. Then delete the names in the removed partition.

A pass may stop anywhere, and several passes may run concurrently. A pass that opens cells first gives the matrix a new
*epoch* (change number). The opened cells ignore commands from passes in other epochs.

Deviations from the paper:

- Added replicas and lost replicas are filled by the same steps.
- The process that runs a pass reads all cells. In the paper, nodes report their cells to the head node.
"""

from collections.abc import Mapping, Sequence

import msgspec

from service.discovery.cell_rounds import Rounds, find_or_create_matrix, run_together
from service.discovery.matrix import (
    CellAddress,
    Matrix,
    MatrixLimits,
    MatrixSize,
    PairKey,
    RemovedPart,
    after_removal,
    cell_addresses,
    head_address,
    merge_target,
    next_epoch,
    probe_addresses,
    recover_matrix,
)
from service.discovery.matrix_cell import (
    CellAnswer,
    CellState,
    CloseCell,
    DropPostings,
    FetchPostings,
    MarkFilled,
    OpenCell,
    PutPostings,
    ReadState,
    SetSize,
    UpdateMatrix,
)
from service.discovery.postings import last_name

PAGE = 1000
"""Number of postings that are copied in one round."""

CellAnswers = Mapping[CellAddress, CellAnswer]


def reconcile_matrix(pair: PairKey, limits: MatrixLimits, page: int = PAGE) -> Rounds[Matrix | None]:
    """Run one pass of the resizing protocol for the matrix of an attribute-value pair.

    Return the matrix's record if all cells match it at the end. Return None if another pass is needed.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.

    ``limits`` contains the maximum size of a matrix. ``page`` is the maximum number of names that are copied per round.
    """
    matrix = yield from find_or_create_matrix(pair, limits)
    cells = yield from _read_cells(pair, matrix.size, limits)
    corrected = _correct_matrix(matrix, cells)
    if corrected != matrix or _missing_cells(pair, matrix, cells):
        updated = next_epoch(corrected)
        if not (yield from _update_matrix(pair, matrix, updated)):
            return None
        matrix = updated
        cells = yield from _read_cells(pair, matrix.size, limits)
    if behind := [place for place, cell in cells.items() if cell.member and cell.member.size < matrix.size]:
        yield [SetSize(place, matrix.size) for place in behind]
    if missing := _missing_cells(pair, matrix, cells):
        yield [OpenCell(place, matrix.size) for place in missing]
        cells = yield from _read_cells(pair, matrix.size, limits)
    if _missing_cells(pair, matrix, cells):
        return None
    if not all(
        (yield from run_together([_fill(column, matrix, page) for column in _filling_partitions(pair, matrix, cells)]))
    ):
        return None
    if matrix.leaving is None:
        return (yield from _complete(pair, matrix, msgspec.structs.replace(matrix, settled=True)))
    remove = _move_last_partition if matrix.leaving is RemovedPart.PARTITION else _remove_last_replica
    if not (yield from remove(pair, matrix, page)):
        return None
    return (yield from _complete(pair, matrix, after_removal(matrix)))


def _read_cells(pair: PairKey, size: MatrixSize, limits: MatrixLimits) -> Rounds[CellAnswers]:
    places = list(dict.fromkeys((*cell_addresses(pair, size), *probe_addresses(pair, limits))))
    answers = yield [ReadState(place) for place in places]
    return dict(zip(places, answers, strict=True))


def _correct_matrix(matrix: Matrix, cells: CellAnswers) -> Matrix:
    """Return the matrix's record, corrected if a cell has stored a newer size than the record contains.

    ``matrix`` is the stored record, and is returned itself if no cell has stored a newer size. A corrected record
    is recovered from the sizes that the cells have stored. ``cells`` contains the cells' answers.
    """
    # A cell can have a newer size if the head node was lost, and its record was created again from too few cells.
    sizes = [cell.member.size for cell in cells.values() if cell.member and not cell.is_in(CellState.CLOSED)]
    return recover_matrix(sizes) if sizes and max(sizes).epoch > matrix.size.epoch else matrix


def _update_matrix(pair: PairKey, before: Matrix, after: Matrix) -> Rounds[bool]:
    (answer,) = yield [UpdateMatrix(head_address(pair), before, after)]
    return answer.done


def _complete(pair: PairKey, before: Matrix, after: Matrix) -> Rounds[Matrix | None]:
    return after if before == after or (yield from _update_matrix(pair, before, after)) else None


def _remaining_addresses(pair: PairKey, matrix: Matrix) -> list[CellAddress]:
    partitions = matrix.size.partitions - (matrix.leaving is RemovedPart.PARTITION)
    rows = matrix.size.rows[:-1] if matrix.leaving is RemovedPart.REPLICA else matrix.size.rows
    return cell_addresses(pair, MatrixSize(matrix.size.epoch, partitions, rows))


def _missing_cells(pair: PairKey, matrix: Matrix, cells: CellAnswers) -> list[CellAddress]:
    states = (CellState.OPEN, CellState.FILLING)
    return [
        place for place in _remaining_addresses(pair, matrix) if place not in cells or not cells[place].is_in(*states)
    ]


def _filling_partitions(pair: PairKey, matrix: Matrix, cells: CellAnswers) -> list[dict[CellAddress, CellAnswer]]:
    """Return the partitions in which at least one cell is being filled, each as a dict of all its cells.

    Partitions that are being removed are left out.
    """
    staying = {place.partition for place in _remaining_addresses(pair, matrix)}
    columns: dict[int, dict[CellAddress, CellAnswer]] = {}
    for place in [place for place in cells if place.partition in staying and place.replica in matrix.size.rows]:
        columns.setdefault(place.partition, {})[place] = cells[place]
    return [column for column in columns.values() if any(cell.is_in(CellState.FILLING) for cell in column.values())]


def _fill(column: CellAnswers, matrix: Matrix, page: int) -> Rounds[bool]:
    """Copy names into those cells of a partition that are in the state "filling".

    ``column`` contains the partition's cells. Return True if the filled cells are all open at the end, or False if
    another pass has to continue. Each round copies up to ``page`` names.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
    """
    # Step 2 is for a head cell that was lost: it may have stored names while it counted as the only cell of the matrix.
    filling = [place for place, cell in column.items() if cell.is_in(CellState.FILLING)]
    opened = [place for place, cell in column.items() if cell.is_in(CellState.OPEN)]
    for source in (*opened[:1], *filling):
        targets = [place for place in column if place != source and (place in filling or source in filling)]
        if targets and not (yield from _copy_postings(source, targets, page)):
            return False
    answers = yield [MarkFilled(place, matrix.size.epoch) for place in filling]
    return all(answer.is_in(CellState.OPEN) for answer in answers)


def _copy_postings(source: CellAddress, targets: Sequence[CellAddress], page: int) -> Rounds[bool]:
    after = -1
    while True:
        (found,) = yield [FetchPostings(source, after, page)]
        if found.member is None:
            return False
        if not found.postings:
            return True
        if not (yield from _put_in_cells(targets, found.postings)):
            return False
        after = last_name(found.postings)


def _put_in_cells(targets: Sequence[CellAddress], postings: bytes) -> Rounds[bool]:
    answers = yield [PutPostings(place, postings) for place in targets]
    return all(answer.done for answer in answers)


def _move_last_partition(pair: PairKey, matrix: Matrix, page: int) -> Rounds[bool]:
    """Close the last partition of ``matrix``, and move its names to the partition that takes them over.

    Each round copies up to ``page`` names. Return True if all names have been moved, or False if another pass has to
    continue.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
    """
    size, last = matrix.size, matrix.size.partitions - 1
    places = [CellAddress(pair, last, row) for row in size.rows]
    if not (yield from _close(places, size, keep=True)):
        return False
    targets = [CellAddress(pair, merge_target(last), row) for row in size.rows]
    for place in places:
        while (found := (yield [FetchPostings(place, -1, page)])[0]).postings:
            if not found.is_in(CellState.CLOSED) or not (yield from _put_in_cells(targets, found.postings)):
                return False
            yield [DropPostings(place, found.postings)]
    return True


def _remove_last_replica(pair: PairKey, matrix: Matrix, _page: int) -> Rounds[bool]:
    """Close the last replica of each partition of ``matrix``, and delete the names in it.

    Return True if all these cells are closed, or False if another pass has to continue. ``_page`` is unused; it gives
    this function the same parameters as :func:`_move_last_partition`.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
    """
    size = matrix.size
    places = [CellAddress(pair, partition, size.rows[-1]) for partition in range(size.partitions)]
    return (yield from _close(places, size, keep=False))


def _close(places: Sequence[CellAddress], size: MatrixSize, *, keep: bool) -> Rounds[bool]:
    """Close the cells at ``places``; return whether all of them are now closed or absent.

    The cells are closed in the next epoch (change number) after ``size.epoch``. Their names are deleted unless ``keep``
    is true.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
    """
    closing = msgspec.structs.replace(size, epoch=size.epoch + 1)
    answers = yield [CloseCell(place, closing, keep) for place in places]
    return all(answer.member is None or answer.is_in(CellState.CLOSED) for answer in answers)
