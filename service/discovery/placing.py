"""Registering, refreshing, changing and withdrawing a name in one matrix (§IV.B.1).

A name goes to one partition, into all replicas. It is registered when every replica that there is has it, those
included that were told of meanwhile; a replica that was not there is tried once more after the others, because what
opens then is filled from them. A partition that refuses has been removed, or is not open yet: its heir takes the name.

We deviate: partitions are not drawn evenly. A name has two, of which the one that carries less takes it (the power of
two choices), and nobody is refused while a matrix changes.
"""

from collections.abc import Sequence

import msgspec

from service.discovery.cell import Look, Put, Record
from service.discovery.dialogue import Dialogue, together
from service.discovery.load import Limits, share
from service.discovery.matrix import Pair, Place, Size, heir, home, homes
from service.discovery.sizing import latest, led
from service.errors import CellsLost

MOST_TRIES = 8
"""To find a head's cell that keeps a name."""


class Placed(msgspec.Struct, frozen=True):
    """Where a name lies in a matrix now, and the newest size known of that. Worth remembering for the next refresh."""

    partition: int
    size: Size


def place(
    pair: Pair, record: Record, draws: Sequence[int], limits: Limits, before: Placed | None = None
) -> Dialogue[Placed]:
    """Register a new name, or refresh one whose version is registered.

    ``draws`` are two numbers of at least 32 bits that only depend on the name. ``before`` is what an earlier call came
    to; without it, matrices of several partitions are asked which of two carries less. Raises :class:`CellsLost`.
    """
    if before is not None:
        return (yield from _placed(pair, record, before, limits))
    size = (yield from led(pair, limits)).size
    partition = yield from _choose(pair, draws, size, limits)
    return (yield from _placed(pair, record, Placed(partition, size), limits))


def replace(
    pair: Pair, record: Record, draws: Sequence[int], limits: Limits, before: Placed | None = None
) -> Dialogue[Placed]:
    """Register a name's new version so that no older one is found any more; a withdrawn record takes the name away.

    Arguments as for :func:`place`. Also right where nobody knows what was registered before, or how far that came.
    """
    placed = yield from place(pair, record, draws, limits, before)
    size, done = placed.size, {placed.partition}
    while others := [partition for partition in homes(draws, size.partitions) if partition not in done]:
        rows = [_rows(Place(pair, partition), record, size, only_over=True) for partition in others]
        told = yield from together(rows)
        size = max(size, *(found for found, _ in told))
        done.update(others)
    return Placed(placed.partition, size)


def _choose(pair: Pair, draws: Sequence[int], size: Size, limits: Limits) -> Dialogue[int]:
    candidates = list(dict.fromkeys(home(draw, size.partitions) for draw in draws))
    if len(candidates) == 1:
        return candidates[0]
    answers = yield [Look(Place(pair, partition)) for partition in candidates]
    return min(zip(candidates, answers, strict=True), key=lambda one: share(one[1].load, limits))[0]


def _placed(pair: Pair, record: Record, at: Placed, limits: Limits) -> Dialogue[Placed]:
    partition, size = at.partition, at.size
    for _ in range(MOST_TRIES):
        while True:
            size, kept = yield from _rows(Place(pair, partition), record, size, only_over=False)
            if kept:
                return Placed(partition, size)
            if not partition:
                break
            partition = heir(partition)
        size = max(size, (yield from led(pair, limits)).size)
    raise CellsLost(f"The cells of {pair} do not keep names: they are lost as soon as they are there. Try again later.")


def _rows(column: Place, record: Record, size: Size, *, only_over: bool) -> Dialogue[tuple[Size, bool]]:
    """Put a record into all replicas of a partition; return the newest size, and whether any keeps it."""
    kept: set[int] = set()
    asked: set[int] = set()
    rows = set(range(size.replicas))
    while rows:
        order = sorted(rows)
        asked |= rows
        puts = [Put(msgspec.structs.replace(column, replica=row), (record,), only_over) for row in order]
        answers = yield puts
        size = latest(size, *answers)
        now = {row for row, answer in zip(order, answers, strict=True) if answer.done}
        kept |= now
        rows = set(range(size.replicas)) - (kept if now else asked)
    return size, bool(kept)
