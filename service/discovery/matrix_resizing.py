"""Upkeep of a matrix: make its cells what the head's record says (§IV.C).

One pass looks at all cells and does what is missing, in an order that loses no name:

1. *Tell* all cells the size. Nothing opens before all know, so that readers ask the new partitions, and writers write
   into the new replicas, before anything is there.
2. *Open* what is absent, to be filled: what was added, or lost.
3. *Fill* from an open replica; where none is, there is nothing to fill from. Then the cell is open.
4. What is *leaving* is closed, its names are put into all replicas of the heir, and only then does it lose them.

A pass may stop anywhere, and another one may run beside it: whatever one sees of the other is right. Each opens cells
in an epoch of its own, so that what another one, or an earlier one, says of cells that it opened is not believed.

We deviate: growth of replicas, and recovery of lost ones, are the same steps; members do not send their indices to the
head, it is whoever does the upkeep that looks.
"""

from collections.abc import Mapping, Sequence

import msgspec

from service.discovery.cell import Answer, Close, Drop, Fetch, Lead, Look, Open, Put, Ready, Record, Standing, Tell
from service.discovery.cell_rounds import Dialogue, led, together
from service.discovery.matrix import (
    Leaving,
    Limits,
    Matrix,
    Pair,
    Place,
    Size,
    head_of,
    heir,
    next_term,
    probed,
    recovered,
    smaller,
)

PAGE = 256
"""Records that are copied in one round."""

Cells = Mapping[Place, Answer]


def upkeep(pair: Pair, limits: Limits, page: int = PAGE) -> Dialogue[Matrix | None]:
    """Do one pass; return the record if the matrix is settled now, None if another pass is needed."""
    matrix = yield from led(pair, limits)
    cells = yield from _look(pair, matrix.size, limits)
    known = _corrected(matrix, cells)
    if known != matrix or _missing(pair, matrix, cells):
        term = next_term(known)
        if not (yield from _lead(pair, matrix, term)):
            return None
        matrix = term
        cells = yield from _look(pair, matrix.size, limits)
    if behind := [place for place, cell in cells.items() if cell.member and cell.member.size < matrix.size]:
        yield [Tell(place, matrix.size) for place in behind]
    if missing := _missing(pair, matrix, cells):
        yield [Open(place, matrix.size) for place in missing]
        cells = yield from _look(pair, matrix.size, limits)
    if _missing(pair, matrix, cells):
        return None
    if not all((yield from together([_fill(column, matrix, page) for column in _columns(pair, matrix, cells)]))):
        return None
    if matrix.leaving is None:
        return (yield from _become(pair, matrix, msgspec.structs.replace(matrix, settled=True)))
    left = yield from (_empty if matrix.leaving is Leaving.PARTITION else _cut)(pair, matrix, page)
    return (yield from _become(pair, matrix, smaller(matrix))) if left else None


def _look(pair: Pair, size: Size, limits: Limits) -> Dialogue[Cells]:
    inside = [Place(pair, p, r) for p in range(size.partitions) for r in range(size.replicas)]
    places = list(dict.fromkeys((*inside, *probed(pair, limits.partitions, limits.replicas))))
    answers = yield [Look(place) for place in places]
    return dict(zip(places, answers, strict=True))


def _corrected(matrix: Matrix, cells: Cells) -> Matrix:
    """Return the record, or that of what cells know better: a head that was lost may have begun anew too early."""
    told = [cell.member.size for cell in cells.values() if cell.member and not cell.stands(Standing.CLOSED)]
    return recovered(told) if told and max(told).epoch > matrix.size.epoch else matrix


def _lead(pair: Pair, before: Matrix, after: Matrix) -> Dialogue[bool]:
    (answer,) = yield [Lead(head_of(pair), before, after)]
    return answer.done


def _become(pair: Pair, before: Matrix, after: Matrix) -> Dialogue[Matrix | None]:
    return after if before == after or (yield from _lead(pair, before, after)) else None


def _staying(pair: Pair, matrix: Matrix) -> list[Place]:
    partitions = matrix.size.partitions - (matrix.leaving is Leaving.PARTITION)
    replicas = matrix.size.replicas - (matrix.leaving is Leaving.REPLICA)
    return [Place(pair, p, r) for p in range(partitions) for r in range(replicas)]


def _missing(pair: Pair, matrix: Matrix, cells: Cells) -> list[Place]:
    held = (Standing.OPEN, Standing.FILLING)
    return [place for place in _staying(pair, matrix) if place not in cells or not cells[place].stands(*held)]


def _columns(pair: Pair, matrix: Matrix, cells: Cells) -> list[dict[Place, Answer]]:
    """Return the cells of each partition in which some are filling; from a replica that leaves they may be filled."""
    staying = {place.partition for place in _staying(pair, matrix)}
    columns: dict[int, dict[Place, Answer]] = {}
    for place in [place for place in cells if place.partition in staying and place.replica < matrix.size.replicas]:
        columns.setdefault(place.partition, {})[place] = cells[place]
    return [column for column in columns.values() if any(cell.stands(Standing.FILLING) for cell in column.values())]


def _fill(column: Cells, matrix: Matrix, page: int) -> Dialogue[bool]:
    """Fill a partition's filling cells from an open one, or, where none is, from each other."""
    filling = [place for place, cell in column.items() if cell.stands(Standing.FILLING)]
    opened = [place for place, cell in column.items() if cell.stands(Standing.OPEN)]
    for source in opened[:1] or filling:
        targets = [place for place in filling if place != source]
        if targets and not (yield from _copy(source, targets, page)):
            return False
    answers = yield [Ready(place, matrix.size.epoch) for place in filling]
    return all(answer.stands(Standing.OPEN) for answer in answers)


def _copy(source: Place, targets: Sequence[Place], page: int) -> Dialogue[bool]:
    after = ""
    while True:
        (found,) = yield [Fetch(source, after, page)]
        if found.member is None:
            return False
        if not found.records:
            return True
        if not (yield from _put(targets, found.records)):
            return False
        after = found.records[-1].name


def _put(targets: Sequence[Place], records: tuple[Record, ...]) -> Dialogue[bool]:
    answers = yield [Put(place, records) for place in targets]
    return all(answer.done for answer in answers)


def _empty(pair: Pair, matrix: Matrix, page: int) -> Dialogue[bool]:
    """Move the names of the last partition to its heir."""
    size, last = matrix.size, matrix.size.partitions - 1
    places = [Place(pair, last, row) for row in range(size.replicas)]
    if not (yield from _close(places, size, keep=True)):
        return False
    heirs = [Place(pair, heir(last), row) for row in range(size.replicas)]
    for place in places:
        while (found := (yield [Fetch(place, "", page)])[0]).records:
            if not found.stands(Standing.CLOSED) or not (yield from _put(heirs, found.records)):
                return False
            yield [Drop(place, found.records)]
    return True


def _cut(pair: Pair, matrix: Matrix, _page: int) -> Dialogue[bool]:
    """Remove the last replica of each partition."""
    size = matrix.size
    places = [Place(pair, partition, size.replicas - 1) for partition in range(size.partitions)]
    return (yield from _close(places, size, keep=False))


def _close(places: Sequence[Place], size: Size, *, keep: bool) -> Dialogue[bool]:
    """Close cells, in the epoch after this one; what is absent is as good as closed."""
    closing = msgspec.structs.replace(size, epoch=size.epoch + 1)
    answers = yield [Close(place, closing, keep) for place in places]
    return all(answer.member is None or answer.stands(Standing.CLOSED) for answer in answers)
