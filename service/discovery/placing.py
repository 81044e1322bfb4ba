"""Registering, refreshing, changing and withdrawing a name in one matrix (§IV.B.1).

A name goes to one partition, into all replicas. It is registered when every replica that there is has it, those
included that were told of meanwhile; a replica that was not there is tried once more after the others, because what
opens then is filled from them. A partition that refuses has been removed, or is not open yet: its heir takes the name.

We deviate: partitions are not drawn evenly. A name has two, of which the one that carries less takes it (the power of
two choices), and nobody is refused while a matrix changes. It is sought first in all its homes, and stays where it
lies, unless that is crowded and another has room: whoever refreshes it, it lies in one partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import msgspec

from service.discovery.cell import Answer, Put, Record, Seek, Standing
from service.discovery.dialogue import Dialogue, together
from service.discovery.load import Limits, share
from service.discovery.matrix import Pair, Place, Size, heir, home, homes
from service.discovery.sizing import latest, led
from service.errors import CellsLost

MOST_TRIES = 8
"""To find a head's cell that keeps a name."""
CROWDED = 0.5
"""The share of what a cell may carry above which names leave it, as they are refreshed, for one that carries less."""


class Placed(msgspec.Struct, frozen=True):
    """Where a name lies in a matrix now, and the newest size known of that."""

    partition: int
    size: Size


def place(
    pair: Pair, record: Record, draws: Sequence[int], limits: Limits, known: Size | None = None
) -> Dialogue[Placed]:
    """Register a new name, or refresh one whose version is registered.

    ``draws`` are two numbers of at least 32 bits that only depend on the name, ``known`` is a size that was remembered.
    Raises :class:`CellsLost`.
    """
    return (yield from _keep(pair, record, draws, limits, known, crowded=CROWDED))


def replace(
    pair: Pair, record: Record, draws: Sequence[int], limits: Limits, known: Size | None = None
) -> Dialogue[Placed]:
    """Register a name's new version so that no older one is found any more; a withdrawn record takes the name away.

    Arguments as for :func:`place`. Also right where nobody knows what was registered before, or how far that came. The
    name stays where it lies: what it left would be replaced too, and not expire.
    """
    placed = yield from _keep(pair, record, draws, limits, known, crowded=inf)
    size, done = placed.size, {placed.partition}
    while others := [partition for partition in homes(draws, size.partitions) if partition not in done]:
        rows = [_rows(Place(pair, partition), record, size, only_over=True) for partition in others]
        told = yield from together(rows)
        size = max(size, *(found for found, _ in told))
        done.update(others)
    return Placed(placed.partition, size)


def goes_to(
    draws: Sequence[int],
    partitions: int,
    lies: Mapping[int, int],
    carries: Mapping[int, float],
    crowded: float = CROWDED,
) -> int:
    """Return which of so many partitions takes a name.

    ``lies`` are its versions, by partitions that have it; ``carries`` is the share of what it may carry that each of
    its homes does. What lies in several places is left to expire in all but the one that was refreshed last. After a
    matrix has grown, half of the names in a crowded partition lie where its new size does not put them: they leave.
    """
    two = [home(draw, partitions) for draw in draws]
    lightest = min(two, key=carries.__getitem__)
    if not lies:
        return lightest
    at = max(lies, key=lambda partition: (lies[partition], -carries[partition]))
    leaves = carries[at] > max(crowded, carries[lightest] * (2 if at in two else 1))
    return lightest if leaves else at


def _keep(
    pair: Pair, record: Record, draws: Sequence[int], limits: Limits, known: Size | None, *, crowded: float
) -> Dialogue[Placed]:
    size = known if known is not None else (yield from led(pair, limits)).size
    for _ in range(MOST_TRIES):
        partition, believed = 0, size
        if size.partitions > 1:
            own = homes(draws, size.partitions)
            lies, carries = yield from _survey(pair, record.name, own, size.replicas, limits)
            partition = goes_to(draws, size.partitions, lies, carries, crowded)
        while True:
            size, kept = yield from _rows(Place(pair, partition), record, size, believes=believed)
            if kept:
                return Placed(partition, size)
            if not partition or size.partitions > believed.partitions:
                break
            partition = heir(partition)
        size = max(size, (yield from led(pair, limits)).size)
    raise CellsLost(f"The cells of {pair} do not keep names: they are lost as soon as they are there. Try again later.")


def _survey(
    pair: Pair, name: str, partitions: Sequence[int], replicas: int, limits: Limits
) -> Dialogue[tuple[dict[int, int], dict[int, float]]]:
    """Return which version of a name partitions have, if any, and the share of what they may carry that they do."""
    told = yield from _seek(pair, name, partitions, range(1))
    if replicas > 1:
        unsure = [partition for partition, (answer,) in told.items() if not answer.stands(Standing.OPEN)]
        for partition, answers in (yield from _seek(pair, name, unsure, range(1, replicas))).items():
            told[partition] = [*told[partition], *answers]
    lies = {
        partition: max(match.version for answer in answers for match in answer.matches)
        for partition, answers in told.items()
        if any(answer.matches for answer in answers)
    }
    carries = {partition: max(share(answer.load, limits) for answer in answers) for partition, answers in told.items()}
    return lies, carries


def _seek(pair: Pair, name: str, partitions: Sequence[int], rows: Iterable[int]) -> Dialogue[dict[int, list[Answer]]]:
    places = [Place(pair, partition, row) for partition in partitions for row in rows]
    told: dict[int, list[Answer]] = {partition: [] for partition in partitions}
    for at, answer in zip(places, (yield [Seek(at, (name,)) for at in places]) if places else (), strict=True):
        told[at.partition].append(answer)
    return told


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
