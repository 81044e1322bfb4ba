"""Registering names in a matrix (§IV.B.1), and finding them (§IV.B.2).

A query decides which matrix is asked, how many of its partitions, and which replica of each, in
two passes: the sizes of the pairs' matrices first, until one is known that has but one partition; then the matrix with
the fewest partitions. Sizes that were remembered may be old: what cells answer corrects them on the way.

A replica that is not open knows less than its partition's others, so all of those are asked; if there is no open one,
what they have together counts, and for a removed partition the heir is asked, again if it was before: what left the
one was by then in the other. All cells of a matrix know of partitions before anything is put there, so that any answer
tells whether some are left to ask.

A listing returns all names of one pair, as the directories of partial lookup are filled with.

A name is registered in one partition, in all its replicas, including those that were added meanwhile; a replica that
was not there is tried once more after the others, because what opens then is filled from them. A partition that refuses
has been removed, or is not open yet: its heir takes the name. We deviate: the paper draws a partition anew for each
registration. Here it follows from the name, so that every process refreshes it in the same partition, and nobody is
refused while a matrix changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from service.discovery.cell import CellAnswer, CellState, FetchRecords, FindNames, Match, NameRecord, PutRecords
from service.discovery.cell_rounds import Rounds, find_or_create_matrix, find_size, latest_size, run_together
from service.discovery.matrix import (
    CellAddress,
    MatrixLimits,
    MatrixSize,
    PairKey,
    home_partition,
    merge_target,
    possible_partitions,
)
from service.errors import CellsUnavailable

MAX_ROUNDS = 64


class SearchOutcome(msgspec.Struct, frozen=True):
    """What a query came to, and how."""

    matches: tuple[Match, ...]
    complete: bool
    """Whether these are all there are; otherwise there are at least as many as wanted."""
    asked: PairKey | None
    """Whose matrix was asked; None if one of the pairs has no matrix, and so no names."""
    sizes: Mapping[PairKey, MatrixSize]
    """What was learnt of sizes on the way: worth remembering."""
    cells: int
    """How many were asked for names."""


def search(
    pairs: frozenset[PairKey],
    limit: int,
    draw: int,
    limits: MatrixLimits,
    known: Mapping[PairKey, MatrixSize] | None = None,
) -> Rounds[SearchOutcome]:
    """Find up to ``limit`` names that have all these pairs, at least one.

    ``draw`` is a random number of at least 32 bits; ``known`` are sizes that were remembered. Raises
    :class:`CellsUnavailable`.
    """
    sizes = dict(known or {})
    while (unknown := size_to_learn(pairs, sizes, draw)) is not None:
        size = yield from find_size(unknown, limits)
        if size is None:
            return SearchOutcome((), True, None, sizes, 0)
        sizes[unknown] = size
    pair = choose_matrix({pair: sizes[pair] for pair in pairs if pair in sizes}, draw)
    asking = MatrixSearch(pair, pairs, limit, draw, sizes[pair])
    for _ in range(MAX_ROUNDS):
        if commands := asking.commands():
            asking.answered(commands, (yield commands))
        elif asking.headless:
            size = yield from find_size(pair, limits)
            if size is None:
                return SearchOutcome(asking.matches(), True, pair, _without(sizes, pair), asking.cells)
            asking.corrected(size)
        else:
            return SearchOutcome(asking.matches(), asking.complete, pair, sizes | {pair: asking.size}, asking.cells)
    raise CellsUnavailable(f"The cells of {pair} kept changing while they were asked. Ask again.")


def size_to_learn(pairs: Iterable[PairKey], known: Mapping[PairKey, MatrixSize], draw: int) -> PairKey | None:
    """Return whose size is to be asked before a matrix is chosen; None if one is known that has but one partition.

    We deviate: the paper asks for all sizes at once. Most matrices have one partition, so that the first is enough.
    """
    pairs = sorted(pairs)
    if any(known[pair].partitions == 1 for pair in pairs if pair in known):
        return None
    unknown = [pair for pair in pairs if pair not in known]
    return unknown[draw % len(unknown)] if unknown else None


def choose_matrix(sizes: Mapping[PairKey, MatrixSize], draw: int) -> PairKey:
    """Return whose matrix is to be asked: any of those with the fewest partitions."""
    fewest = min(size.partitions for size in sizes.values())
    best = sorted(pair for pair, size in sizes.items() if size.partitions == fewest)
    return best[draw % len(best)]


def partitions_to_ask(asked: int, matches: int, limit: int) -> int:
    """Return how many partitions to ask next, if so many had so many matches: one at first, then at most as many again.

    We deviate: the paper leaves open how many of a matrix's partitions are enough.
    """
    if matches >= limit:
        return 0
    if not asked:
        return 1
    needed = -(-(limit - matches) * asked // matches) if matches else asked
    return min(needed, asked)


def _without(sizes: Mapping[PairKey, MatrixSize], pair: PairKey) -> dict[PairKey, MatrixSize]:
    return {other: size for other, size in sizes.items() if other != pair}


class _PartitionState(Enum):
    """How far a partition is that was asked."""

    ASKED = "some of its replicas are still to be asked"
    LOST = "of the first partition: no replica knows anything, so the size must be found out elsewhere"
    ANSWERED = "what it has is known"
    HANDED_OVER = "the same; it is being removed, and its heir was asked after it"


_KNOWN = (_PartitionState.ANSWERED, _PartitionState.HANDED_OVER)


class _Partition(msgspec.Struct):
    """One partition that was asked, and what its replicas answered."""

    state: _PartitionState = _PartitionState.ASKED
    answers: dict[int, CellAnswer] = {}


class MatrixSearch:
    """One matrix that is being asked: which cells have answered what. Belongs to one dialogue."""

    def __init__(self, pair: PairKey, pairs: frozenset[PairKey], limit: int, draw: int, size: MatrixSize) -> None:
        self.size = size
        self.cells = 0
        self._pair, self._pairs, self._limit, self._draw = pair, pairs, limit, draw
        self._partitions: dict[int, _Partition] = {}
        self._found: dict[str, Match] = {}
        self._size_is_known = False
        """Whether the size was found out elsewhere, after the first partition was lost."""

    def commands(self) -> list[FindNames]:
        """Return what to ask in the next round; nothing if that was all."""
        pending = [number for number, partition in self._partitions.items() if partition.state not in _KNOWN]
        if not pending:
            wanted = partitions_to_ask(len(self._partitions), len(self._found), self._limit)
            pending = self._fresh()[:wanted]
        return [
            FindNames(CellAddress(self._pair, number, row), self._pairs, self._limit)
            for number in pending
            for row in self._replicas_to_ask(number)
        ]

    def answered(self, commands: Sequence[FindNames], answers: Sequence[CellAnswer]) -> None:
        """Take in a round's answers."""
        self.cells += len(commands)
        self.size = latest_size(self.size, *answers)
        for command, answer in zip(commands, answers, strict=True):
            asked = self._partitions.setdefault(command.place.partition, _Partition())
            asked.answers[command.place.replica] = answer
            for match in answer.matches:
                before = self._found.get(match.name, match)
                self._found[match.name] = max(before, match, key=lambda one: one.version)
        for number in sorted(self._partitions, reverse=True):
            self._settle(number, self._partitions[number])

    def corrected(self, size: MatrixSize) -> None:
        """Go on after the head's cell was not there, with the size that others know."""
        self.size = max(self.size, size)
        self._partitions[0] = _Partition()
        self._size_is_known = True

    @property
    def headless(self) -> bool:
        """Whether nobody in the first partition knew anything, so that the size must be found out elsewhere."""
        return 0 in self._partitions and self._partitions[0].state is _PartitionState.LOST

    @property
    def complete(self) -> bool:
        """Whether all names that there are have been found."""
        return len(self._found) < self._limit and not self._fresh()

    def matches(self) -> tuple[Match, ...]:
        """Return what was found."""
        return tuple(self._found.values())[: self._limit]

    def _fresh(self) -> list[int]:
        count = self.size.partitions
        order = ((self._draw + place) % count for place in range(count))
        return [number for number in order if number not in self._partitions]

    def _replicas_to_ask(self, number: int) -> list[int]:
        """Return which replicas of a partition to ask: one at first, then all others."""
        asked = self._partitions.get(number)
        if asked is None or not asked.answers:
            return [(self._draw // self.size.partitions + number) % self.size.replicas]
        return [row for row in range(self.size.replicas) if row not in asked.answers]

    def _settle(self, number: int, partition: _Partition) -> None:
        """Take a partition's state from its answers, and ask its heir again where it is being removed."""
        answers = partition.answers.values()
        if not answers or partition.state is _PartitionState.HANDED_OVER:
            return
        if any(answer.stands(CellState.OPEN) for answer in answers):
            partition.state = _PartitionState.ANSWERED
        elif self._replicas_to_ask(number):
            partition.state = _PartitionState.ASKED
        elif number and any(answer.stands(CellState.CLOSED) for answer in answers):
            partition.state = _PartitionState.HANDED_OVER
            self._partitions[merge_target(number)] = _Partition()
        elif number or self._size_is_known or any(answer.stands(CellState.FILLING) for answer in answers):
            partition.state = _PartitionState.ANSWERED
        else:
            partition.state = _PartitionState.LOST


PAGE = 2000
"""Records that are read at once."""


def list_records(pair: PairKey, most: int, limits: MatrixLimits, draw: int) -> Rounds[list[NameRecord]]:
    """Return the records of a matrix that are not withdrawn, of the first partitions that have ``most``, or of all.

    Each partition's open replica is read, beginning with a random one: ``draw``. A partition without one is left
    out, as its names are being filled in elsewhere; the next listing has them.
    """
    size = yield from find_size(pair, limits)
    found: dict[str, NameRecord] = {}
    if size is None:
        return []
    for partition in range(size.partitions):
        for row in range(size.replicas):
            read = yield from _read_cell(CellAddress(pair, partition, (draw + row) % size.replicas), most - len(found))
            if read is not None:
                found |= {record.name: record for record in read}
                break
        if len(found) >= most:
            break
    return list(found.values())


def _read_cell(place: CellAddress, most: int) -> Rounds[list[NameRecord] | None]:
    """Return a cell's records; None if it is not open, and so may lack some."""
    found: list[NameRecord] = []
    after = ""
    while len(found) < most:
        (answer,) = yield [FetchRecords(place, after, PAGE)]
        if not answer.stands(CellState.OPEN):
            return None
        if not answer.records:
            break
        found += (record for record in answer.records if record.pairs)
        after = answer.records[-1].name
    return found[:most]


MAX_TRIES = 8
"""To find a head's cell that keeps a name."""


class Registration(msgspec.Struct, frozen=True):
    """Where a name lies in a matrix now, and the newest size known of that."""

    partition: int
    size: MatrixSize


def register(
    pair: PairKey, record: NameRecord, draw: int, limits: MatrixLimits, known: MatrixSize | None = None
) -> Rounds[Registration]:
    """Register a new name, or refresh one whose version is registered.

    ``draw`` is a number of at least 32 bits that only depends on the name, ``known`` is a size that was remembered.
    Raises :class:`CellsUnavailable`.
    """
    size = known if known is not None else (yield from find_or_create_matrix(pair, limits)).size
    for _ in range(MAX_TRIES):
        partition, believed = home_partition(draw, size.partitions), size
        while True:
            size, kept = yield from _put_in_replicas(CellAddress(pair, partition), record, size, believes=believed)
            if kept:
                return Registration(partition, size)
            if not partition or size.partitions > believed.partitions:
                break
            partition = merge_target(partition)
        size = max(size, (yield from find_or_create_matrix(pair, limits)).size)
    raise CellsUnavailable(
        f"The cells of {pair} do not keep names: they are lost as soon as they are there. Try again later."
    )


def replace(
    pair: PairKey, record: NameRecord, draw: int, limits: MatrixLimits, known: MatrixSize | None = None
) -> Rounds[Registration]:
    """Register a name's new version so that no older one is found any more; a withdrawn record takes the name away.

    Arguments as for :func:`register`. Also right where nobody knows what was registered before, or how far that came.
    """
    placed = yield from register(pair, record, draw, limits, known)
    size, done = placed.size, {placed.partition}
    while others := [partition for partition in possible_partitions(draw, size.partitions) if partition not in done]:
        rows = [_put_in_replicas(CellAddress(pair, partition), record, size, only_over=True) for partition in others]
        told = yield from run_together(rows)
        size = max(size, *(found for found, _ in told))
        done.update(others)
    return Registration(placed.partition, size)


def _put_in_replicas(
    column: CellAddress,
    record: NameRecord,
    size: MatrixSize,
    *,
    only_over: bool = False,
    believes: MatrixSize | None = None,
) -> Rounds[tuple[MatrixSize, bool]]:
    """Put a record into all replicas of a partition; return the newest size, and whether any keeps it."""
    kept: set[int] = set()
    asked: set[int] = set()
    rows = set(range(size.replicas))
    while rows:
        order = sorted(rows)
        asked |= rows
        puts = [
            PutRecords(msgspec.structs.replace(column, replica=row), (record,), only_over, believes) for row in order
        ]
        answers = yield puts
        size = latest_size(size, *answers)
        now = {row for row, answer in zip(order, answers, strict=True) if answer.done}
        kept |= now
        rows = set(range(size.replicas)) - (kept if now else asked)
    return size, bool(kept)
