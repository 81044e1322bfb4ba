"""Protocols of registration (§IV.B.1), queries (§IV.B.2) and listings of a matrix.

A query first chooses the matrix to search among those of its AV-pairs. It reads the sizes of matrices until it knows
one with a single partition, and takes the matrix with the fewest partitions. Cached sizes may be outdated: the answers
of cells correct them. The query then asks one replica of each partition, of as many partitions as it needs.

A replica that is not open may lack names. In this case all other replicas of the partition are asked; if none is open,
their combined answers count. Instead of a removed partition, its merge target is asked, even if it was asked before,
because the names have moved there by then. All cells of a matrix know of new partitions before anything is stored in
these. Any answer therefore states whether there are more partitions to ask.

A listing returns all names of one pair, for the directories of partial lookup.

A name is registered in all replicas of one partition, including replicas that are added during the registration. An
absent replica is tried once more after the others, because a replica that opens then is filled from them. If a
partition refuses a name, it has been removed or is not open yet: its merge target stores the name. Deviation: the paper
draws a partition for each registration. Here it follows from the name, so that every process refreshes the name in the
same partition, and no registration is refused while a matrix changes.
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
    """The names that a query has found, and the sizes of matrices that cells have reported.

    ``complete`` states whether ``matches`` are all that exist. ``searched_pair`` is the AV-pair whose matrix was
    searched, or None. ``cells`` is the number of cells that were asked.
    """

    matches: tuple[Match, ...]
    complete: bool
    """Whether these are all matches; otherwise there are at least as many as requested."""
    searched_pair: PairKey | None
    """The pair whose matrix was searched; None if one of the pairs has no matrix, and therefore no names."""
    sizes: Mapping[PairKey, MatrixSize]
    """Sizes of matrices, including those given, to be cached."""
    cells: int
    """Number of cells that were asked for names."""


def search(
    pairs: frozenset[PairKey],
    limit: int,
    draw: int,
    limits: MatrixLimits,
    known: Mapping[PairKey, MatrixSize] | None = None,
) -> Rounds[SearchOutcome]:
    """Return up to ``limit`` names that have all of ``pairs``, of which there must be at least one.

    ``draw`` is a random number of at least 32 bits, by which cells are chosen. ``known`` has cached sizes of matrices
    by AV-pair; cached sizes may be outdated. Raises :class:`CellsUnavailable` if the cells keep changing.
    """
    sizes = dict(known or {})
    while (unknown := size_to_learn(pairs, sizes, draw)) is not None:
        size = yield from find_size(unknown, limits)
        if size is None:
            return SearchOutcome((), True, None, sizes, 0)
        sizes[unknown] = size
    pair = choose_matrix({pair: sizes[pair] for pair in pairs if pair in sizes}, draw)
    search_state = MatrixSearch(pair, pairs, limit, draw, sizes[pair])
    for _ in range(MAX_ROUNDS):
        if commands := search_state.commands():
            search_state.on_answers(commands, (yield commands))
        elif search_state.needs_size:
            size = yield from find_size(pair, limits)
            if size is None:
                return SearchOutcome(search_state.matches(), True, pair, _without(sizes, pair), search_state.cells)
            search_state.set_size(size)
        else:
            return SearchOutcome(
                search_state.matches(),
                search_state.complete,
                pair,
                sizes | {pair: search_state.size},
                search_state.cells,
            )
    raise CellsUnavailable(f"The cells of {pair} kept changing while they were asked. Ask again.")


def size_to_learn(pairs: Iterable[PairKey], known: Mapping[PairKey, MatrixSize], draw: int) -> PairKey | None:
    """Return the AV-pair whose matrix size must be read next, before a matrix is chosen.

    The result is None if the known sizes suffice. ``known`` are the sizes known so far. They suffice if they include a
    matrix with a single partition, or all matrices. The random number ``draw`` selects one of several pairs. Deviation:
    the paper reads all sizes at once; most matrices have one partition, so the first size usually suffices.
    """
    pairs = sorted(pairs)
    if any(known[pair].partitions == 1 for pair in pairs if pair in known):
        return None
    unknown = [pair for pair in pairs if pair not in known]
    return unknown[draw % len(unknown)] if unknown else None


def choose_matrix(sizes: Mapping[PairKey, MatrixSize], draw: int) -> PairKey:
    """Return the AV-pair whose matrix is to be searched, because it has the fewest partitions.

    If several matrices have equally few, the random number ``draw`` selects one of them.
    """
    fewest = min(size.partitions for size in sizes.values())
    best = sorted(pair for pair, size in sizes.items() if size.partitions == fewest)
    return best[draw % len(best)]


def partitions_to_ask(asked: int, matches: int, limit: int) -> int:
    """Return how many more partitions to ask in the next round.

    So far, ``asked`` partitions have been asked and have returned ``matches`` matches; ``limit`` matches are wanted.
    The first round asks one partition; each later round asks at most as many as have been asked before. Deviation: the
    paper leaves open how many partitions are enough.
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
    """Progress of one partition in a search."""

    ASKED = "some of its replicas have not been asked yet"
    LOST = "first partition only: no replica knows the size, which has to be read from other cells"
    ANSWERED = "what it has is known"
    HANDED_OVER = "answered; it is being removed, and its merge target is asked after it"


_KNOWN = (_PartitionState.ANSWERED, _PartitionState.HANDED_OVER)


class _Partition(msgspec.Struct):
    """One partition of a search, and the answers of its replicas."""

    state: _PartitionState = _PartitionState.ASKED
    answers: dict[int, CellAnswer] = {}


class MatrixSearch:
    """The search of one matrix: which cells have been asked, and their answers.

    The caller sends :meth:`commands`, passes the answers to :meth:`on_answers`, and repeats this until there are no
    commands.
    """

    def __init__(self, pair: PairKey, pairs: frozenset[PairKey], limit: int, draw: int, size: MatrixSize) -> None:
        self.size = size
        self.cells = 0
        self._pair, self._pairs, self._limit, self._draw = pair, pairs, limit, draw
        self._partitions: dict[int, _Partition] = {}
        self._found: dict[str, Match] = {}
        self._size_is_known = False
        """Whether the size was read from other cells after the first partition was lost."""

    def commands(self) -> list[FindNames]:
        """Return the commands of the next round; empty if the search is over, or if :attr:`needs_size` is true."""
        pending = [number for number, partition in self._partitions.items() if partition.state not in _KNOWN]
        if not pending:
            wanted = partitions_to_ask(len(self._partitions), len(self._found), self._limit)
            pending = self._unasked_partitions()[:wanted]
        return [
            FindNames(CellAddress(self._pair, number, row), self._pairs, self._limit)
            for number in pending
            for row in self._replicas_to_ask(number)
        ]

    def on_answers(self, commands: Sequence[FindNames], answers: Sequence[CellAnswer]) -> None:
        """Process the cells' answers to the commands of a round, given in the same order."""
        self.cells += len(commands)
        self.size = latest_size(self.size, *answers)
        for command, answer in zip(commands, answers, strict=True):
            partition = self._partitions.setdefault(command.place.partition, _Partition())
            partition.answers[command.place.replica] = answer
            for match in answer.matches:
                before = self._found.get(match.name, match)
                self._found[match.name] = max(before, match, key=lambda one: one.version)
        for number in sorted(self._partitions, reverse=True):
            self._settle(number, self._partitions[number])

    def set_size(self, size: MatrixSize) -> None:
        """Continue the search with ``size``, which the caller has read because :attr:`needs_size` was true."""
        self.size = max(self.size, size)
        self._partitions[0] = _Partition()
        self._size_is_known = True

    @property
    def needs_size(self) -> bool:
        """Whether the matrix's size must be read from other cells, because no cell of the first partition knew it."""
        return 0 in self._partitions and self._partitions[0].state is _PartitionState.LOST

    @property
    def complete(self) -> bool:
        """Whether the matches found so far are all that exist."""
        return len(self._found) < self._limit and not self._unasked_partitions()

    def matches(self) -> tuple[Match, ...]:
        """Return the matches found so far, up to the limit."""
        return tuple(self._found.values())[: self._limit]

    def _unasked_partitions(self) -> list[int]:
        count = self.size.partitions
        order = ((self._draw + place) % count for place in range(count))
        return [number for number in order if number not in self._partitions]

    def _replicas_to_ask(self, number: int) -> list[int]:
        """Return the replicas of partition ``number`` to ask next: one replica at first, then all others."""
        partition = self._partitions.get(number)
        if partition is None or not partition.answers:
            return [self.size.rows[(self._draw // self.size.partitions + number) % self.size.replicas]]
        return [row for row in self.size.rows if row not in partition.answers]

    def _settle(self, number: int, partition: _Partition) -> None:
        """Update the state of partition ``number`` from its replicas' answers.

        If the partition is being removed, its merge target (the partition that takes over its names) is asked again.
        """
        answers = partition.answers.values()
        if not answers or partition.state is _PartitionState.HANDED_OVER:
            return
        if any(answer.is_in(CellState.OPEN) for answer in answers):
            partition.state = _PartitionState.ANSWERED
        elif self._replicas_to_ask(number):
            partition.state = _PartitionState.ASKED
        elif number and any(answer.is_in(CellState.CLOSED) for answer in answers):
            partition.state = _PartitionState.HANDED_OVER
            self._partitions[merge_target(number)] = _Partition()
        elif number or self._size_is_known or any(answer.is_in(CellState.FILLING) for answer in answers):
            partition.state = _PartitionState.ANSWERED
        else:
            partition.state = _PartitionState.LOST


PAGE = 2000
"""Number of records that are read in one round."""


def list_records(pair: PairKey, most: int, limits: MatrixLimits, draw: int) -> Rounds[list[NameRecord]]:
    """Return up to ``most`` records of the matrix of an AV-pair, without withdrawn records.

    One open replica of each partition is read; the search for it begins with the replica that the random number
    ``draw`` selects. A partition without an open replica is skipped, because its names are still being copied; the next
    listing has them.
    """
    size = yield from find_size(pair, limits)
    found: dict[str, NameRecord] = {}
    if size is None:
        return []
    for partition in range(size.partitions):
        first = draw % size.replicas
        for row in size.rows[first:] + size.rows[:first]:
            read = yield from _read_cell(CellAddress(pair, partition, row), most - len(found))
            if read is not None:
                found |= {record.name: record for record in read}
                break
        if len(found) >= most:
            break
    return list(found.values())


def _read_cell(place: CellAddress, most: int) -> Rounds[list[NameRecord] | None]:
    """Return up to ``most`` records of a cell, without withdrawn records; None if the cell is not open.

    A cell is open once it has been filled, and until it is closed; otherwise it may lack records.
    """
    found: list[NameRecord] = []
    after = ""
    while len(found) < most:
        (answer,) = yield [FetchRecords(place, after, PAGE)]
        if not answer.is_in(CellState.OPEN):
            return None
        if not answer.records:
            break
        found += (record for record in answer.records if record.pairs)
        after = answer.records[-1].name
    return found[:most]


MAX_TRIES = 8
"""Number of attempts to find a head cell that stores a name."""


class Registration(msgspec.Struct, frozen=True):
    """The result of a registration: the name's partition, and the newest size of the matrix that the cells know."""

    partition: int
    size: MatrixSize


def register(
    pair: PairKey, record: NameRecord, draw: int, limits: MatrixLimits, known: MatrixSize | None = None
) -> Rounds[Registration]:
    """Register a name in the matrix of one of its AV-pairs, or refresh a version that is already registered (§IV.B.1).

    ``draw`` is a number of at least 32 bits that is computed from the name and determines its partition. ``known`` is a
    cached size of the matrix, or None. Raises :class:`CellsUnavailable` if no cell stores the name.
    """
    size = known if known is not None else (yield from find_or_create_matrix(pair, limits)).size
    for _ in range(MAX_TRIES):
        partition, assumed = home_partition(draw, size.partitions), size
        while True:
            size, stored = yield from _put_in_replicas(CellAddress(pair, partition), record, size, assumed_size=assumed)
            if stored:
                return Registration(partition, size)
            if not partition or size.partitions > assumed.partitions:
                break
            partition = merge_target(partition)
        size = max(size, (yield from find_or_create_matrix(pair, limits)).size)
    raise CellsUnavailable(
        f"The cells of {pair} do not keep names: they are lost as soon as they are there. Try again later."
    )


def replace(
    pair: PairKey, record: NameRecord, draw: int, limits: MatrixLimits, known: MatrixSize | None = None
) -> Rounds[Registration]:
    """Register a new version of a name, so that all older versions are no longer found.

    A withdrawn record removes the name. The arguments are those of :func:`register`. Earlier registrations may have
    been incomplete; nothing needs to be known about them.
    """
    placed = yield from register(pair, record, draw, limits, known)
    size, done = placed.size, {placed.partition}
    while others := [partition for partition in possible_partitions(draw, size.partitions) if partition not in done]:
        rows = [_put_in_replicas(CellAddress(pair, partition), record, size, replace_only=True) for partition in others]
        results = yield from run_together(rows)
        size = max(size, *(found for found, _ in results))
        done.update(others)
    return Registration(placed.partition, size)


def _put_in_replicas(
    address: CellAddress,
    record: NameRecord,
    size: MatrixSize,
    *,
    replace_only: bool = False,
    assumed_size: MatrixSize | None = None,
) -> Rounds[tuple[MatrixSize, bool]]:
    """Store a record in all replicas of the partition at ``address``.

    Return the newest known size of the matrix, and whether at least one replica stores the record. ``size`` is the size
    known so far; ``replace_only`` and ``assumed_size`` are those of :class:`PutRecords`.
    """
    stored: set[int] = set()
    asked: set[int] = set()
    rows = set(size.rows)
    while rows:
        order = sorted(rows)
        asked |= rows
        puts = [
            PutRecords(msgspec.structs.replace(address, replica=row), (record,), replace_only, assumed_size)
            for row in order
        ]
        answers = yield puts
        size = latest_size(size, *answers)
        now = {row for row, answer in zip(order, answers, strict=True) if answer.done}
        stored |= now
        rows = set(size.rows) - (stored if now else asked)
    return size, bool(stored)
