"""The protocol of queries: which cells to read, and how to merge their records of names (Gao & Steenkiste §IV.B.2).

A *clause* of a query is a set of alternative attribute-value pairs. A name satisfies the clause if it has at least one
of them. Each pair has a *matrix*, a table of cells that stores the names with this pair. A *posting* is a cell's record
of one name.

1. *Estimate.* For each pair, the query reads the state of one cell in the pair's matrix, and estimates from it how many
   names have the pair. If the cell has few postings, its answer also contains the postings.
2. *Read the driver.* The *driver* is the clause with the fewest names (the paper's two-pass optimisation). All postings
   of its pairs are read. If there are many, only some of the partitions are read first. The rest are read if too few
   names are found.
3. *Read the other pairs.* Small matrices are read whole. From large ones, only the postings of the driver's names are
   read, from the partitions in which these names can be registered.

A matrix may change while it is read:

- Cached sizes of matrices may be outdated. The answers of cells correct them.
- A replica that is not open may lack names. All other replicas of its partition are then read. If none is open, their
  postings are merged.
- The names of a partition that is being removed are moved to another partition, its merge target. The query therefore
  reads the merge target after the partition that is being removed.
- New partitions stay empty until all cells know of them. A query that reads any cell therefore learns of all partitions
  that contain names.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.discovery.cell_rounds import Rounds, latest_size, run_together
from service.discovery.matrix import CellAddress, MatrixSize, PairKey, cell_addresses, head_address
from service.discovery.matrix_cell import CellAnswer, CellState, ReadPostings, ReadState
from service.discovery.postings import POSTING_BYTES, NameKeys, NameWeights, valid_names
from service.errors import CellsUnavailable

MAX_ROUNDS = 64
FIRST_POSTINGS = 20_000
"""Number of postings of the *driver* that are read first. The driver is the clause with the fewest names.

More postings of the driver are read if too few of the first ones match.
"""
MAX_POSTINGS = 250_000
"""Maximum number of postings read for one AV-pair. When it is reached, no further partitions of its matrix are read."""
FIRST_NAMES = 4
"""Number of names that are looked up first for each requested result, if the query has optional clauses.

If too few of them match, more are looked up.
"""
_ALWAYS_WHOLE = 1_000
"""Number of postings up to which a matrix is read whole."""
_POSTINGS_PER_LOOKUP = 48
"""Cost of looking up one name in a cell: the number of postings that can be read in sequence in the same time."""
_MOST_STATES = 64
_SAMPLING_STEP = 16
_NO_NAMES: Final[NameKeys] = np.empty(0, np.uint64)

_NamesToRead = Mapping[int, "tuple[int, ...] | None"]
"""The names whose postings are to be read, by partition; None for all postings of the partition."""


class PairClause(msgspec.Struct, frozen=True):
    """A condition of a query: a name (channel or entry) must have at least one of several attribute-value pairs.

    - ``alternatives``: tuples (key of the attribute-value pair, factor). The factor, in (0, 1], tells how well
      the pair fits the query.
    - ``is_optional``: whether the clause is optional. A name must satisfy all clauses that are not optional, and
      at least one optional clause if there is any.
    """

    alternatives: tuple[tuple[PairKey, float], ...]
    is_optional: bool = False


class SearchOutcome(msgspec.Struct, frozen=True):
    """The best names (channels or entries) that satisfy a query, as arrays with one row per name, best first.

    A name can have several of a clause's alternative attribute-value pairs. The one with the greatest factor * weight
    counts. The factor states how well the pair fits the query, and the weight how well the pair describes the name.

    - ``names``: the keys of the names.
    - ``choices``: one column per clause: the index of the alternative that counts.
    - ``weights``: one column per clause: factor * weight of this alternative; 0 if the name has none.
    - ``scores``: the sum of importance * ``weights`` over all clauses.
    - ``coverages``: the sum of importance * factor over the optional clauses that the name satisfies.
    - ``total``, ``complete``, ``frequencies``: as in :class:`service.discovery.search_candidates.Candidates`.
    - ``sizes``: the size of each matrix that was read, by attribute-value pair.
    - ``cells``: how many cells were read, by attribute-value pair.

    Names are sorted by coverage, then by score.
    """

    names: NameKeys
    scores: NDArray[np.float64]
    coverages: NDArray[np.float64]
    weights: NDArray[np.float64]
    choices: NDArray[np.int64]
    total: int
    complete: bool
    frequencies: Mapping[PairKey, int]
    sizes: Mapping[PairKey, MatrixSize]
    cells: Mapping[PairKey, int]


class _Found(msgspec.Struct, frozen=True):
    """Sorted keys of names, and the arrays ``weights`` and ``choices`` of :class:`SearchOutcome` in the same order.

    These two arrays are transposed: they have one row for each clause, and one column for each name.
    """

    names: NameKeys
    weights: NDArray[np.float64]
    choices: NDArray[np.int64]

    def select(self, selected: NDArray[np.bool_]) -> "_Found":
        """Return the selected names."""
        places = selected.nonzero()[0]
        if len(places) == len(self.names):
            return self
        return _Found(self.names.take(places), self.weights.take(places, axis=1), self.choices.take(places, axis=1))


class PairQuery(msgspec.Struct, frozen=True):
    """A query for the best names that satisfy its clauses.

    - ``clauses``: the conditions, at least one.
    - ``excluded``: attribute-value pairs that no result may have.
    - ``most``: the maximum number of names to return.
    - ``importance``: function that returns the importance of a clause. Its arguments are the clause's index, and a list
      with the number of names that have each of the clause's alternatives.
    """

    clauses: Sequence[PairClause]
    excluded: Collection[PairKey]
    most: int
    importance: Callable[[int, Sequence[int]], float]


def search(
    query: PairQuery,
    draw: int,
    now_s: float,
    cached_sizes: Mapping[PairKey, MatrixSize],
    known_readers: "MatrixReaders",
) -> Rounds[SearchOutcome]:
    """Return the best names that satisfy a query.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.

    - ``draw``: a random integer of at least 32 bits, which selects the partitions and replicas to read.
    - ``now_s``: the Unix time in seconds.
    - ``cached_sizes``: the known sizes of matrices. Sizes may be missing or outdated.
    - ``known_readers``: readers from earlier, similar queries, by attribute-value pair. Their cached content is used
      instead of reading it again. Readers that this query creates are added to the dict.

    Raises :class:`CellsUnavailable` if the cells keep changing while they are read.
    """
    clauses, excluded = query.clauses, query.excluded
    pairs = dict.fromkeys((*(pair for clause in clauses for pair, _ in clause.alternatives), *excluded))
    yield from read_states(pairs, draw, now_s, cached_sizes, known_readers)
    readers = {pair: known_readers[pair] for pair in pairs}
    importances = [
        query.importance(index, [readers[pair].frequency for pair, _ in clause.alternatives])
        for index, clause in enumerate(clauses)
    ]
    complete = [msgspec.structs.replace(clause, is_optional=False) for clause in clauses]
    has_optional, found = complete != list(clauses), None
    # Names that satisfy all clauses come first. If too few of them exist, they are found with the others.
    if not (has_optional and _finds_complete(clauses, readers, query.most)):
        found, is_whole = yield from _collect(complete, query, readers, importances)
        is_whole = is_whole and not has_optional
    if found is None or (has_optional and len(found.names) < query.most):
        found, is_whole = yield from _collect(clauses, query, readers, importances)
    best, scores, coverages = _best(found, clauses, importances, query.most)
    return SearchOutcome(
        found.names[best],
        scores[best],
        coverages[best],
        found.weights.take(best, axis=1).T,
        found.choices.take(best, axis=1).T,
        len(found.names),
        is_whole,
        {pair: reader.frequency for pair, reader in readers.items()},
        {pair: reader.size for pair, reader in readers.items()},
        {pair: reader.cells for pair, reader in readers.items()},
    )


def read_states(
    pairs: Iterable[PairKey],
    draw: int,
    now_s: float,
    cached_sizes: Mapping[PairKey, MatrixSize],
    known_readers: "MatrixReaders",
) -> Rounds[None]:
    """Read one cell of the matrix of each attribute-value pair, and thereby estimate how many names have the pair.

    The reader of each new pair is added to ``known_readers``; pairs that have a reader are skipped. The parameters are
    those of :func:`search`.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
    """
    new = {pair: MatrixReader(pair, cached_sizes.get(pair), draw, now_s) for pair in pairs if pair not in known_readers}
    yield from run_together([reader.read_state() for reader in new.values()])
    known_readers.update(new)


def _collect(
    clauses: Sequence[PairClause], query: PairQuery, readers: "MatrixReaders", importances: Sequence[float]
) -> Rounds[tuple[_Found, bool]]:
    """Return (names that satisfy ``clauses``, whether these are all such names).

    Cells are read until ``query.most`` names are found or nothing is left to read. ``readers`` contains the reader of
    each pair's matrix. ``importances`` contains the importance of each clause.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
    """
    # Of optional clauses, those with the rarest pairs are read first, because their names have the best scores.
    first = FIRST_NAMES * query.most
    driver = _driver(clauses, readers, first)
    if not _frequency(driver, readers):
        is_whole = all(readers[pair].is_whole for pair, _ in driver.alternatives)
        return _weigh(_NO_NAMES, clauses, readers), is_whole
    share = _first_share(driver, readers)
    kept = [column for column, clause in enumerate(clauses) if _frequency(clause, readers) < query.most]
    while True:
        leading = [readers[pair] for pair, _ in driver.alternatives]
        others = [reader for reader in readers.values() if reader not in leading]
        small = [reader for reader in others if not reader.is_whole and reader.frequency <= _ALWAYS_WHOLE]
        incomplete = [(each, share) for each in leading if not each.is_whole]
        yield from run_together([each.read_share(part) for each, part in (*incomplete, *((each, 1) for each in small))])
        names = _leading_names(driver, clauses, leading, first)
        is_whole = all(reader.is_whole for reader in leading)  # looking names up below may read more partitions
        is_all = not driver.is_optional or len(names) <= first
        found = _weigh(names, clauses, readers)
        if not is_all:
            # Names with a rare pair may satisfy all clauses, although not all of their weights are known yet.
            selected = np.logical_or.reduce(found.weights[kept] > 0)
            selected[_best(found, clauses, importances, first)[0]] = True
            found = found.select(selected)
        # A name with one leading pair may also have another one, whose posting is in a partition that was not read.
        looked_up = readers.values() if len(leading) > 1 else others
        cells = sum(reader.cells for reader in looked_up)
        yield from run_together([reader.read_names(found.names) for reader in looked_up])
        if sum(reader.cells for reader in looked_up) > cells:
            found = _weigh(found.names, clauses, readers)
        found = _select_satisfying(found, clauses, query.excluded, readers)
        if len(found.names) >= query.most:
            break
        if not is_all:
            first = 4 * first
        elif share < 1 and max(reader.postings for reader in leading) < MAX_POSTINGS:
            share = min(1.0, 2 * share)
        elif (wider := _driver(clauses, readers, None)) != driver and driver.is_optional:
            driver, share = wider, _first_share(wider, readers)
        else:
            break
    is_widest = not driver.is_optional or driver == _driver(clauses, readers, None)
    return found, is_all and is_widest and is_whole


def read_matrix(
    pair: PairKey, draw: int, now_s: float, cached_size: MatrixSize | None
) -> Rounds[tuple[NameKeys, NameWeights, MatrixSize]]:
    """Read all names that have an attribute-value pair; return (name keys, weights, size of the pair's matrix).

    The keys are sorted, and the weights are in the same order.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.

    - ``draw``: a random integer of at least 32 bits, which selects the replicas to read.
    - ``now_s``: the Unix time in seconds.
    - ``cached_size``: a known size of the matrix, or None.
    """
    reader = MatrixReader(pair, cached_size, draw, now_s)
    yield from reader.read_state()
    yield from reader.read_share(1)
    return (*reader.content(), reader.size)


class MatrixReader:
    """A caching reader for the matrix of one attribute-value pair. Similar queries can share a reader.

    The matrix is a table of cells that stores the names (channels or entries) with this pair.

    - ``frequency``: approximately how many names have the pair.
    - ``size``: the newest known size of the matrix.
    - ``cells``: how many cells have been read so far.
    - ``postings``: how many records of names have been read so far.
    """

    def __init__(self, pair: PairKey, cached_size: MatrixSize | None, draw: int, now_s: float) -> None:
        self.size = cached_size or MatrixSize()
        self.frequency = 0
        self.cells = 0
        self.postings = 0
        self._pair, self._draw, self._now_s = pair, draw, now_s
        self._parts: list[bytes] = []
        self._read: set[int] = set()
        """Partitions that have been read whole."""
        self._looked_up = _NO_NAMES
        """Names whose postings have been read individually, sorted."""
        self._content: tuple[NameKeys, NameWeights] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all partitions of the matrix have been read."""
        return len(self._read) >= self.size.partitions

    def content(self) -> tuple[NameKeys, NameWeights]:
        """Return (sorted keys of the names read so far, their weights in the same order)."""
        if self._content is None:
            self._content = valid_names(self._parts, self._now_s)
        return self._content

    def read_state(self) -> Rounds[None]:
        """Read the state of one cell, and estimate ``frequency`` from the number of names in the cell.

        This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
        """
        partition = self._draw % self.size.partitions
        place = CellAddress(self._pair, partition, self._row(partition))
        (answer,) = yield [ReadState(place)]
        self.cells += 1
        if answer.member is None and self.size != MatrixSize():
            # The known size is outdated, or the cell is lost.
            places = list(dict.fromkeys((head_address(self._pair), *cell_addresses(self._pair, self.size))))
            answers = yield [ReadState(each) for each in places[:_MOST_STATES]]
            present = [each for each in answers if each.member is not None]
            place, answer, self.size = places[0], answers[0], latest_size(MatrixSize(), *answers)
            names = max((each.load.names for each in present), default=answer.load.names)
        else:
            self.size = latest_size(self.size, answer)
            names = answer.load.names
        # Other cells may have names although this one has none.
        self.frequency = names if self.size == MatrixSize() else max(1, names) * self.size.partitions
        if self.size.partitions == 1 and answer.postings is not None and _is_open(answer, place, self.size):
            self._add(answer)
            self._read.add(0)

    def read_share(self, share: float) -> Rounds[None]:
        """Read all records in a fraction ``share`` (0 to 1) of the partitions, but at least one partition.

        This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
        """

        def wanted(size: MatrixSize) -> _NamesToRead:
            number = max(1, round(share * size.partitions))
            return {(self._draw + place) % size.partitions: None for place in range(number)}

        if not self.is_whole:
            yield from self._read_cells(wanted)

    def read_names(self, names: NameKeys) -> Rounds[None]:
        """Read the records of ``names``. If the matrix has few names, read all its records instead.

        This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
        """
        if self.is_whole or not len(names) or not self.frequency:
            return
        names = np.delete(names, _intersect(names, self._looked_up)[0])
        if not len(names):
            return
        places = 1 + (self.size.partitions - 1).bit_length() / 2
        if self.frequency <= max(_ALWAYS_WHOLE, places * len(names) * _POSTINGS_PER_LOOKUP):
            yield from self.read_share(1)
        else:
            yield from self._read_cells(lambda size: _partitions_of(names, size.partitions))
            self._looked_up = np.union1d(self._looked_up, names)

    def _read_cells(self, wanted: Callable[[MatrixSize], _NamesToRead]) -> Rounds[None]:
        """Read the names that ``wanted`` requests from each partition.

        ``wanted`` is a function of the matrix size. It returns a dict from each partition to the names to read from the
        partition, or to None for all names. ``wanted`` is called again whenever an answer contains a newer size.

        This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.
        """
        received: dict[int, dict[int, CellAnswer]] = {}
        """The answers of the replicas that have been read, by partition and row."""
        finished, targets = set(self._read), dict[int, tuple[int, ...] | None]()
        for _ in range(MAX_ROUNDS):
            todo = {
                number: names for number, names in {**wanted(self.size), **targets}.items() if number not in finished
            }
            if not todo:
                return
            commands = [
                ReadPostings(CellAddress(self._pair, number, row), names)
                for number, names in todo.items()
                for row in self._rows_to_read(number, received.get(number, {}))
            ]
            answers = yield commands
            self.cells += len(commands)
            self.size = latest_size(self.size, *answers)
            for command, answer in zip(commands, answers, strict=True):
                received.setdefault(command.place.partition, {})[command.place.replica] = answer
                self._add(answer)
            for number in sorted(todo, reverse=True):
                target = self._finish_partition(number, received.get(number, {}), finished)
                if todo[number] is None and number in finished:
                    self._read.add(number)
                if target is not None:
                    finished.discard(target)
                    self._read.discard(target)
                    received.pop(target, None)
                    targets[target] = todo[number] if targets.get(target, todo[number]) == todo[number] else None
        raise CellsUnavailable(f"The cells of {self._pair} kept changing while they were read. Ask again.")

    def _finish_partition(self, number: int, answers: Mapping[int, CellAnswer], finished: set[int]) -> int | None:
        """Add the partition with index ``number`` to ``finished`` if no other replica of it has to be read.

        ``answers`` maps row numbers to the answers received so far. If the partition's names are being moved to another
        partition, return the index of that partition, which has to be read next. Otherwise return None.
        """
        if not answers:
            return None
        if any(_is_open(answer, CellAddress(self._pair, number, row), self.size) for row, answer in answers.items()):
            finished.add(number)
        elif not self._rows_to_read(number, answers):
            finished.add(number)
            if number and any(answer.is_in(CellState.CLOSED) for answer in answers.values()):
                return number - (1 << number.bit_length() - 1)
        return None

    def _rows_to_read(self, number: int, answers: Mapping[int, CellAnswer]) -> list[int]:
        if not answers:
            return [self._row(number)]
        return [row for row in self.size.rows if row not in answers]

    def _row(self, partition: int) -> int:
        return self.size.rows[(self._draw // self.size.partitions + partition) % self.size.replicas]

    def _add(self, answer: CellAnswer) -> None:
        if answer.postings:
            self._parts.append(answer.postings)
            self.postings += len(answer.postings) // POSTING_BYTES
            self._content = None


MatrixReaders = dict[PairKey, MatrixReader]
"""Readers of matrices, by AV-pair."""


def _is_open(answer: CellAnswer, place: CellAddress, size: MatrixSize) -> bool:
    """Return whether the cell at ``place`` is open, which means that it has all names of its partition.

    ``answer`` is the cell's answer. An absent head cell, (0,0), counts as open if ``size`` is the size of a matrix with
    a single cell.
    """
    if answer.member is None:
        return place == head_address(place.pair) and size.partitions * size.replicas == 1
    return answer.is_in(CellState.OPEN)


def _finds_complete(clauses: Sequence[PairClause], readers: "MatrixReaders", most: int) -> bool:
    """Return whether a search in which some clauses are optional finds all names that satisfy all clauses.

    This is certain if fewer than ``most`` names satisfy one of the clauses, and all of these names are read.
    """
    driver = _driver(clauses, readers, FIRST_NAMES * most)
    is_read_whole = driver.is_optional or _frequency(driver, readers) <= FIRST_POSTINGS
    return is_read_whole and min(_frequency(clause, readers) for clause in clauses) < most


def _frequency(clause: PairClause, readers: Mapping[PairKey, MatrixReader]) -> int:
    frequency = 0
    for pair, _ in clause.alternatives:
        frequency += readers[pair].frequency
    return frequency


def _partitions_of(names: NameKeys, partitions: int) -> _NamesToRead:
    """Map each partition to the names in ``names`` that may be registered in it.

    ``partitions`` is the number of partitions. A partition in which none of the names can be registered is left out.
    """
    bits = (partitions - 1).bit_length()
    homes = (names & np.uint64((1 << bits) - 1)).astype(np.int64)
    if bits:
        homes = np.where(homes < partitions, homes, homes - (1 << bits - 1))
    found: dict[int, set[int]] = {}
    for bit in range(bits + 1):
        for number, name in zip((homes & ((1 << bit) - 1)).tolist(), names.tolist(), strict=True):
            found.setdefault(number, set()).add(name)
    return {number: tuple(own) for number, own in found.items()}


def _union(parts: Iterable[NameKeys]) -> NameKeys:
    """Merge sorted arrays of names into one sorted array without duplicates."""
    found = [part for part in parts if len(part)]
    if len(found) <= 1:
        return found[0] if found else _NO_NAMES
    names = np.concatenate(found)
    names.sort(kind="stable")  # merges sorted runs; np.unique would hash them
    is_repeated = names[1:] == names[:-1]
    return np.delete(names, is_repeated.nonzero()[0]) if is_repeated.any() else names


def _intersect(names: NameKeys, others: NameKeys) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the names that two sorted arrays have in common; return (their indices in ``names``, and in ``others``)."""
    if len(names) > len(others):  # each of the fewer names is looked up in the longer array
        in_others, in_names = _intersect(others, names)
        return in_names, in_others
    places = np.searchsorted(others, names)
    places[places == len(others)] = 0
    found = np.flatnonzero(others[places] == names) if len(others) else places[:0]
    return found, places[found]


def _driver(clauses: Sequence[PairClause], readers: "MatrixReaders", most: int | None) -> PairClause:
    """Return the *driver* of the query: the clause with the fewest names. Its names are read first.

    For this comparison, the optional clauses are joined into one clause, because a name needs to satisfy only one
    of them. They are joined in ascending order of their number of names, until the joined clause has at least
    ``most`` names. The remaining optional clauses are left out. If ``most`` is None, all optional clauses are
    joined.
    """
    # The other optional clauses can be left out, because names that satisfy only these come last in the results.
    rarest, count = dict[PairKey, float](), 0
    optional = [(_frequency(clause, readers), clause) for clause in clauses if clause.is_optional]
    for frequency, clause in sorted(optional, key=itemgetter(0)):
        if most is None or count < most:
            rarest.update(clause.alternatives)
            count += frequency
    required = [clause for clause in clauses if not clause.is_optional]
    drivers = [*required, PairClause(tuple(rarest.items()), is_optional=True)] if rarest else required
    return min(drivers, key=lambda clause: _frequency(clause, readers))


def _leading_names(
    driver: PairClause, clauses: Sequence[PairClause], leading: Sequence[MatrixReader], most: int
) -> NameKeys:
    """Return the names that have a pair of the driver, as far as they can be among the best ``most`` results.

    The driver is the clause whose names are read first, and ``leading`` are the readers of its pairs. If all clauses
    are optional and the driver contains them all, names that have only its most frequent pair differ only in the weight
    of this pair. Of these names, those with the greatest weights suffice. The result has more than ``most`` names if
    the driver has.
    """
    joined = {pair for pair, _ in driver.alternatives}
    if not all(clause.is_optional and joined.issuperset(pair for pair, _ in clause.alternatives) for clause in clauses):
        return _union(reader.content()[0] for reader in leading)
    largest = max(leading, key=lambda reader: len(reader.content()[0]))
    others = (reader.content()[0] for reader in leading if reader is not largest)
    return _union((*others, _heaviest(*largest.content(), most + 1)))


def _heaviest(names: NameKeys, weights: NameWeights, most: int) -> NameKeys:
    """Return the ``most`` names with the greatest weights, sorted by name. Of equal weights, the first names count."""
    if len(names) <= most:
        return names
    least = np.partition(weights, len(weights) - most)[len(weights) - most]
    is_chosen = weights > least
    is_chosen[np.flatnonzero(weights == least)[: most - np.count_nonzero(is_chosen)]] = True
    return names.compress(is_chosen)


def _first_share(driver: PairClause, readers: "MatrixReaders") -> float:
    """Return the fraction (0 to 1) of the driver's partitions to read first.

    The driver is the clause whose names are read first. The fraction is chosen so that about ``FIRST_POSTINGS`` records
    of names are read.
    """
    return min(1.0, FIRST_POSTINGS / max(1, _frequency(driver, readers)))


def _best(
    found: _Found, clauses: Sequence[PairClause], importances: Sequence[float], most: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return (rows of the best ``most`` names in ``found``, best first; all scores in ``found``; all its coverages).

    :class:`SearchOutcome` describes the order, the scores and the coverages.
    """
    scores = np.array(importances) @ found.weights
    coverages = _coverages(clauses, found, importances)
    near = np.arange(len(scores))
    if len(scores) > most:  # sorting all names would take longer than the rest of the search
        least = np.maximum.reduce(coverages)
        if np.count_nonzero(coverages == least) < most:
            least = _nth_greatest(coverages, most)
        near = (coverages >= least).nonzero()[0]
        if len(near) > most:
            near_scores = scores[near]
            near = near[(near_scores >= _nth_greatest(near_scores, most)) | (coverages[near] > least)]
    order = np.lexsort((found.names[near], -scores[near], -coverages[near]))
    return near[order[:most]], scores, coverages


def _nth_greatest(values: NDArray[np.float64], number: int) -> np.float64:
    """Return the value that has the place ``number`` (from 1) when ``values`` are sorted in descending order."""
    # A sample gives a lower bound, which leaves most values out: selecting among all takes several times as long.
    sample = values[::_SAMPLING_STEP].copy()
    if len(sample) > number:
        sample.partition(len(sample) - number)
        bound: np.float64 = sample[-number]
        values = values[values > bound]
        if len(values) < number:  # many values are equal
            return bound
    else:
        values = values.copy()
    values.partition(len(values) - number)
    greatest: np.float64 = values[-number]
    return greatest


def _coverages(clauses: Sequence[PairClause], found: _Found, importances: Sequence[float]) -> NDArray[np.float64]:
    """Return the coverage of each name: the sum of importance * factor over the optional clauses that it satisfies.

    ``importances`` contains the importance of each clause.
    """
    coverages = np.zeros(len(found.names))
    for clause, importance, weights, choices in zip(clauses, importances, found.weights, found.choices, strict=True):
        if clause.is_optional:
            products = np.array([importance * factor for _, factor in clause.alternatives])
            coverages += products.take(choices) * (weights > 0)
    return coverages


def _select_satisfying(
    found: _Found, clauses: Sequence[PairClause], excluded: Iterable[PairKey], readers: Mapping[PairKey, MatrixReader]
) -> _Found:
    """Select the names that satisfy all required clauses and one of the optional ones, and have no excluded pair."""
    has = found.weights > 0
    optional = [place for place, clause in enumerate(clauses) if clause.is_optional]
    required = [place for place, clause in enumerate(clauses) if not clause.is_optional]
    selected = np.logical_and.reduce(has[required])
    if optional:
        selected &= np.logical_or.reduce(has[optional])
    for pair in excluded:
        selected[_intersect(found.names, readers[pair].content()[0])[0]] = False
    return found.select(selected)


def _weigh(names: NameKeys, clauses: Sequence[PairClause], readers: Mapping[PairKey, MatrixReader]) -> _Found:
    """Return ``names`` with their weights and choices, which have a row for each clause and a column for each name.

    - Weight: the greatest factor * weight among the clause's alternatives that the name has.
    - Choice: the index of the alternative with this greatest product.

    If the name has none of the alternatives, the weight and the choice are 0.
    """
    weights = np.zeros((len(clauses), len(names)))
    choices = np.zeros((len(clauses), len(names)), np.int64)
    for clause, own_weights, own_choices in zip(clauses, weights, choices, strict=True):
        for index, (pair, factor) in enumerate(clause.alternatives):
            with_pair, held = readers[pair].content()
            if not len(with_pair):  # as for most stems in other languages
                continue
            # numpy's methods are called directly, because its functions take longer than these short arrays.
            if len(names) <= len(with_pair):
                if names is with_pair:
                    weighed = held * factor
                else:
                    places = with_pair.searchsorted(names)
                    weighed = held.take(places, mode="clip") * (with_pair.take(places, mode="clip") == names) * factor
                if index:
                    own_choices[weighed > own_weights] = index
                np.maximum(own_weights, weighed, out=own_weights)
            else:
                rows = names.searchsorted(with_pair)
                is_found = names.take(rows, mode="clip") == with_pair
                rows, weighed = rows[is_found], held[is_found] * factor
                former = own_weights[rows]
                if index:
                    own_choices[rows[weighed > former]] = index
                own_weights[rows] = np.maximum(former, weighed)
    return _Found(names, weights, choices)
