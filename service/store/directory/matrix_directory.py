"""The directory: names of channels and entries in load-balancing matrices on Redis (content discovery §III-IV).

A content name consists of AV-pairs. Each AV-pair has a matrix of cells, in which the names with this pair are
registered. Any process may register and find names. All data that a process caches may be lost: names are registered
again before they expire, and a wrong cached size is corrected by the answers of cells.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from secrets import randbits

import msgspec

from service.discovery import matrix_cell, matrix_registration
from service.discovery.av_pairs import ContentKind
from service.discovery.av_pairs import Pair as AvPair
from service.discovery.cell_rounds import run_together
from service.discovery.matrix import CellAddress, MatrixLimits, MatrixSize, PairKey, home_partition
from service.discovery.matrix_cell import CellAnswer, CellState
from service.discovery.matrix_search import MatrixReaders, PairClause, PairQuery, read_matrix, search
from service.discovery.postings import NameKey, Posting, name_key, pack
from service.discovery.search_candidates import (
    MAX_WEIGHT,
    CandidateName,
    Candidates,
    Clause,
    QueriedMatrix,
)
from service.discovery.text_search.ranking import clause_importance
from service.store.client.redis_client import RedisClient
from service.store.directory.content_name_table import ContentNameTable
from service.store.directory.matrix_access import LIMITS, MatrixAccess
from service.store.directory.matrix_cells import MatrixCells
from service.store.directory.vocabulary_store import StoredVocabulary

_ONE = MatrixSize()


class ContentName(msgspec.Struct, frozen=True):
    """A content name to register: the AV-pairs of the channel or entry ``id``, each with its weight (1 to 255).

    The weight states how much the pair says about the name.
    """

    id: str
    pairs: Mapping[AvPair, int]


class Directory(MatrixAccess):
    """Content names of channels, or of entries. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(
        self, redis: RedisClient, cells: MatrixCells, about: ContentKind, limits: MatrixLimits = LIMITS
    ) -> None:
        """Create the directory of the content names of channels or of entries, as ``about`` states.

        The two directories have separate matrices, whose cells are in ``cells``.
        """
        super().__init__(redis, cells, about, limits)
        self._names = ContentNameTable(redis, about)
        self.vocabulary = StoredVocabulary(redis, about)

    async def register(self, names: Sequence[ContentName], expires_s: float) -> None:
        """Register names, or refresh them, so that they expire at ``expires_s`` (Unix time).

        A registration with an earlier expiry than the one before changes nothing. A pair of an earlier registration
        that a name no longer has must be withdrawn by the caller. Raises :class:`service.errors.CellsUnavailable`.
        """
        expiry_s = int(expires_s)
        await self._names.put((name.id for name in names), expiry_s)
        given = [
            (self.key(pair), Posting(name_key(name.id), max(1, min(MAX_WEIGHT, weight)), expiry_s))
            for name in names
            for pair, weight in name.pairs.items()
        ]
        left = await self._store_postings(given)
        if left:
            dialogues = [matrix_registration.register(pair, posting, self._sizes.get(pair)) for pair, posting in left]
            self._learn([pair for pair, _ in left], await self._run(run_together(dialogues)))

    async def withdraw(self, name: str, pairs: Iterable[AvPair], expires_s: float) -> None:
        """Withdraw a name from the matrices of AV-pairs that it no longer has.

        The withdrawals expire at ``expires_s`` (Unix time), which must not be earlier than the expiry of any
        registration of the name. Raises :class:`service.errors.CellsUnavailable`.
        """
        posting = Posting(name_key(name), 0, int(expires_s))
        given = [(self.key(pair), posting) for pair in pairs]
        stored = {pair for pair, _ in given} - {pair for pair, _ in await self._store_postings(given)}
        left = [pair for pair, _ in given if pair not in stored or self._sizes.get(pair, _ONE).partitions > 1]
        if left:
            dialogues = [matrix_registration.withdraw(pair, posting, self._sizes.get(pair)) for pair in left]
            self._learn(left, await self._run(run_together(dialogues)))

    async def find(
        self,
        clauses: Sequence[Clause],
        excluded: Collection[AvPair],
        max_count: int,
        cached: MatrixReaders | None = None,
    ) -> Candidates:
        """Return up to ``max_count`` names that satisfy the clauses and have no excluded pair, best scores first.

        A name satisfies a clause if it has at least one of the clause's AV-pairs. There must be at least one clause.
        Names that satisfy more optional clauses precede others. ``cached`` has the parts of matrices that earlier
        searches for the same query have read; the parts that this search reads are added to it. Raises
        :class:`service.errors.CellsUnavailable`.
        """
        began_s = time.perf_counter()
        asked = [
            PairClause(tuple((self.key(each.pair), each.factor) for each in clause.alternatives), clause.is_optional)
            for clause in clauses
        ]
        without = [self.key(pair) for pair in excluded]
        known = {
            pair: self._sizes[pair]
            for pair in (*(pair for clause in asked for pair, _ in clause.alternatives), *without)
            if pair in self._sizes
        }

        def importance(index: int, frequencies: Sequence[int]) -> float:
            alternatives = (each.pair for each in clauses[index].alternatives)
            return clause_importance(clauses[index], dict(zip(alternatives, frequencies, strict=True)))

        query, readers = PairQuery(asked, without, max_count, importance), {} if cached is None else cached
        outcome = await self._run(search(query, randbits(48), time.time(), known, readers), is_query=True)
        self._learn(list(outcome.sizes), list(outcome.sizes.values()))
        names = await self._names.resolve(outcome.names.tolist())
        found = [
            CandidateName(
                names[key],
                score,
                tuple(weights),
                tuple(clause.alternatives[choice].pair for clause, choice in zip(clauses, choices, strict=True)),
            )
            for key, score, weights, choices in zip(
                outcome.names.tolist(),
                outcome.scores.tolist(),
                outcome.weights.tolist(),
                outcome.choices.tolist(),
                strict=True,
            )
            if key in names
        ]
        texts = {self.key(each.pair): each.pair for clause in clauses for each in clause.alternatives}
        return Candidates(
            tuple(found),
            outcome.total,
            outcome.complete,
            {text: outcome.frequencies[pair] for pair, text in texts.items()},
            tuple(QueriedMatrix(text, outcome.sizes[pair], outcome.cells[pair]) for pair, text in texts.items()),
            time.perf_counter() - began_s,
        )

    async def weights_of(self, pair: AvPair) -> dict[NameKey, int]:
        """Return the keys of all names that have an AV-pair, each with the pair's weight.

        Raises :class:`service.errors.CellsUnavailable`.
        """
        key = self.key(pair)
        names, weights, size = await self._run(read_matrix(key, randbits(48), time.time(), self._sizes.get(key)))
        self._learn([key], [size])
        return dict(zip(names.tolist(), weights.tolist(), strict=True))

    async def resolve(self, name_keys: Sequence[NameKey]) -> dict[NameKey, str]:
        """Return names by their keys. Keys of names that are not registered any more are left out."""
        return await self._names.resolve(name_keys)

    async def _store_postings(self, given: Sequence[tuple[PairKey, Posting]]) -> list[tuple[PairKey, Posting]]:
        """Store postings in cells, with one command per cell; return those that were not stored.

        ``given`` has pairs (AV-pair of the matrix, posting), and so has the result. The cells of a posting follow from
        the cached size of its matrix. A posting is not stored if this size is wrong, or if one of the cells is missing.
        """
        by_cell: dict[CellAddress, list[Posting]] = {}
        for pair, posting in given:
            size = self._sizes.get(pair, _ONE)
            partition = home_partition(posting.name, size.partitions)
            for row in size.rows:
                by_cell.setdefault(CellAddress(pair, partition, row), []).append(posting)
        assumed = {place.pair: self._sizes.get(place.pair, _ONE) for place in by_cell}
        puts = [matrix_cell.PutPostings(place, pack(own), assumed[place.pair]) for place, own in by_cell.items()]
        answers = await self.cells.carry_out(puts)
        self._count(puts, answers)
        left = {
            (put.place.pair, posting)
            for put, answer in zip(puts, answers, strict=True)
            if not self._is_stored(put, answer, assumed[put.place.pair])
            for posting in by_cell[put.place]
        }
        return [each for each in given if each in left]

    def _is_stored(self, put: matrix_cell.PutPostings, answer: CellAnswer, assumed: MatrixSize) -> bool:
        """Return whether the command ``put`` has stored its postings, and the matrix has the size ``assumed``.

        ``answer`` is the cell's answer to the command.
        """
        pair, member = put.place.pair, answer.member
        if member is None or answer.is_in(CellState.CLOSED):
            return answer.done and member is None
        if member.size != assumed:
            self._sizes[pair] = max(member.size, self._sizes.get(pair, member.size))
        if not answer.done:
            return False
        return member.size == assumed or (assumed == _ONE and member.size.partitions * member.size.replicas == 1)

    def _learn(self, pairs: Sequence[PairKey], sizes: Sequence[MatrixSize]) -> None:
        """Cache the size of the matrix of each pair. A matrix of one cell, as most are, needs no cached size."""
        for pair, size in zip(pairs, sizes, strict=True):
            if size == _ONE:
                self._sizes.pop(pair, None)
            else:
                self._sizes[pair] = size
