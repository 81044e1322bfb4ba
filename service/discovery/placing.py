"""Registering, refreshing, changing and withdrawing a name in one matrix (§IV.B.1).

A name goes to one partition, into all replicas. It is registered when every replica that there is has it, those
included that were told of meanwhile; a replica that was not there is tried once more after the others, because what
opens then is filled from them. A partition that refuses has been removed, or is not open yet: its heir takes the name.

We deviate: the paper draws a partition anew for each registration. Here the name decides, so that every process
refreshes it in the same partition, and nobody is refused while a matrix changes.
"""

import msgspec

from service.discovery.cell import Put, Record
from service.discovery.dialogue import Dialogue, latest, led, together
from service.discovery.head import Limits
from service.discovery.matrix import Pair, Place, Size, heir, home, homes
from service.errors import CellsLost

MOST_TRIES = 8
"""To find a head's cell that keeps a name."""


class Placed(msgspec.Struct, frozen=True):
    """Where a name lies in a matrix now, and the newest size known of that."""

    partition: int
    size: Size


def place(pair: Pair, record: Record, draw: int, limits: Limits, known: Size | None = None) -> Dialogue[Placed]:
    """Register a new name, or refresh one whose version is registered.

    ``draw`` is a number of at least 32 bits that only depends on the name, ``known`` is a size that was remembered.
    Raises :class:`CellsLost`.
    """
    size = known if known is not None else (yield from led(pair, limits)).size
    for _ in range(MOST_TRIES):
        partition, believed = home(draw, size.partitions), size
        while True:
            size, kept = yield from _rows(Place(pair, partition), record, size, believes=believed)
            if kept:
                return Placed(partition, size)
            if not partition or size.partitions > believed.partitions:
                break
            partition = heir(partition)
        size = max(size, (yield from led(pair, limits)).size)
    raise CellsLost(f"The cells of {pair} do not keep names: they are lost as soon as they are there. Try again later.")


def replace(pair: Pair, record: Record, draw: int, limits: Limits, known: Size | None = None) -> Dialogue[Placed]:
    """Register a name's new version so that no older one is found any more; a withdrawn record takes the name away.

    Arguments as for :func:`place`. Also right where nobody knows what was registered before, or how far that came.
    """
    placed = yield from place(pair, record, draw, limits, known)
    size, done = placed.size, {placed.partition}
    while others := [partition for partition in homes(draw, size.partitions) if partition not in done]:
        rows = [_rows(Place(pair, partition), record, size, only_over=True) for partition in others]
        told = yield from together(rows)
        size = max(size, *(found for found, _ in told))
        done.update(others)
    return Placed(placed.partition, size)


def _rows(
    column: Place, record: Record, size: Size, *, only_over: bool = False, believes: Size | None = None
) -> Dialogue[tuple[Size, bool]]:
    """Put a record into all replicas of a partition; return the newest size, and whether any keeps it."""
    kept: set[int] = set()
    asked: set[int] = set()
    rows = set(range(size.replicas))
    while rows:
        order = sorted(rows)
        asked |= rows
        puts = [Put(msgspec.structs.replace(column, replica=row), (record,), only_over, believes) for row in order]
        answers = yield puts
        size = latest(size, *answers)
        now = {row for row, answer in zip(order, answers, strict=True) if answer.done}
        kept |= now
        rows = set(range(size.replicas)) - (kept if now else asked)
    return size, bool(kept)
