"""The directory: names of channels and entries in load-balancing matrices on Redis (content discovery §III-IV).

A content name consists of AV-pairs. Each AV-pair has a matrix of cells, in which the names with this pair are
registered. Any process may register and find names. All data that a process caches may be lost: names are registered
again before they expire, and a wrong cached size is corrected by the answers of cells.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, product
from secrets import randbits

import msgspec

from service.discovery import cell, registration_and_search
from service.discovery.av_pairs import ContentKind
from service.discovery.av_pairs import Pair as AvPair
from service.discovery.candidates import Candidate, Candidates, Clause, QueriedMatrix
from service.discovery.cell import CellAnswer, CellState, NameRecord
from service.discovery.cell_rounds import run_together
from service.discovery.matrix import (
    CellAddress,
    Matrix,
    MatrixLimits,
    MatrixSize,
    PairKey,
    cell_addresses,
    head_address,
    home_partition,
)
from service.store.client import keys
from service.store.client.connection import BatchingClient
from service.store.directory.cells import ContentMark, MatrixCells
from service.store.directory.matrix_maintenance import LIMITS, MaintainedMatrices
from service.store.directory.vocabulary import StoredVocabulary

_CACHED_NAMES = 4096
_MAX_COMBINATIONS = 64
_MAX_MATCHES = 5000
_ONE = MatrixSize()


class ContentName(msgspec.Struct, frozen=True):
    """A content name to register: the AV-pairs of the channel or entry ``id``, each with its weight (1 to 255).

    The weight states how much the pair says about the name.
    """

    id: str
    pairs: Mapping[AvPair, int]


class Directory(MaintainedMatrices):
    """Content names of channels, or of entries. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(
        self, redis: BatchingClient, cells: MatrixCells, about: ContentKind, limits: MatrixLimits = LIMITS
    ) -> None:
        """Create the directory of the content names of channels or of entries, as ``about`` states.

        The two directories have separate matrices, whose cells are in ``cells``.
        """
        super().__init__(redis, cells, about, limits)
        self.vocabulary = StoredVocabulary(redis, about)

    async def register(self, names: Sequence[ContentName], kept_s: float) -> None:
        """Register names, or refresh them, so that they expire after ``kept_s`` seconds.

        A pair that an earlier registration of a name had and that is missing now has to be withdrawn. Raises
        :class:`service.errors.CellsUnavailable`.
        """
        now_ms = int(time.time() * 1000)
        left: list[tuple[PairKey, NameRecord]] = []
        for name in names:
            record = NameRecord(name.id, now_ms, frozenset(map(self.key, name.pairs)), now_ms + int(1000 * kept_s))
            left += [(pair, record) for pair in record.pairs]
        if left := await self._store_records(left):
            await self._create_missing_matrices({pair for pair, _ in left})
            left = await self._store_records(left)
        register = registration_and_search.register
        dialogues = [
            register(pair, record, _draw(record.name), self.limits, self._sizes.get(pair)) for pair, record in left
        ]
        for (pair, _), placed in zip(left, await self._led(run_together(dialogues)), strict=True):
            self._sizes[pair] = placed.size

    async def _store_records(self, given: Sequence[tuple[PairKey, NameRecord]]) -> list[tuple[PairKey, NameRecord]]:
        """Store records in the cells that follow from the cached sizes of matrices, with one command per cell.

        ``given`` has pairs (AV-pair of the matrix, record). Return the pairs that were not stored, because a size was
        wrong or a cell is missing.
        """
        assumed = {pair: self._sizes.get(pair, _ONE) for pair, _ in given}
        by_cell: dict[CellAddress, list[NameRecord]] = {}
        for pair, record in given:
            partition = home_partition(_draw(record.name), assumed[pair].partitions)
            for row in assumed[pair].rows:
                by_cell.setdefault(CellAddress(pair, partition, row), []).append(record)
        puts = [
            cell.PutRecords(place, tuple(records), assumed_size=assumed[place.pair])
            for place, records in by_cell.items()
        ]
        answers = await self.cells.carry_out(puts)
        self._count(puts, answers)
        left = {
            (put.place.pair, record.name)
            for put, answer in zip(puts, answers, strict=True)
            if not self._is_stored(put, answer, assumed[put.place.pair])
            for record in put.records
        }
        return [(pair, record) for pair, record in given if (pair, record.name) in left]

    def _is_stored(self, put: cell.PutRecords, answer: CellAnswer, assumed: MatrixSize) -> bool:
        """Return whether a command has stored its records, and the matrix has the assumed size.

        ``answer`` is the cell's answer to the command ``put``. ``assumed`` is the size that the command assumed.
        """
        pair, member = put.place.pair, answer.member
        if member is None or answer.is_in(CellState.CLOSED):
            return False
        if member.size != assumed:
            self._sizes[pair] = max(member.size, self._sizes.get(pair, member.size))
        if not answer.done:
            return False
        return member.size == assumed or (assumed is _ONE and member.size.partitions * member.size.replicas == 1)

    async def _create_missing_matrices(self, pairs: Iterable[PairKey]) -> bool:
        """Create matrices for those AV-pairs that have none; return whether any was created.

        A matrix with several cells is listed before its cells exist. So if a matrix has no head node and is not listed,
        it has no other cells. If it is listed and its head node was lost, maintenance repairs it.
        """
        new = [pair for pair in pairs if pair not in self._sizes and pair in self._texts]
        if not new:
            return False
        listed = await self._redis.call("HMGET", keys.matrix_sizes(self._about), *(self._texts[pair] for pair in new))
        leads = [
            cell.UpdateMatrix(head_address(pair), None, Matrix())
            for pair, size in zip(new, listed, strict=True)
            if not size
        ]
        await self.cells.carry_out(leads)
        return bool(leads)

    async def withdraw(self, name: str, pairs: Iterable[AvPair], kept_s: float) -> None:
        """Withdraw a name from the matrices of AV-pairs that it no longer has.

        The withdrawals expire after ``kept_s`` seconds, which must be at least the lifetime of earlier registrations
        of the name.
        """
        now_ms = int(time.time() * 1000)
        record = NameRecord(name, now_ms, frozenset(), now_ms + int(1000 * kept_s))
        draw, known = _draw(name), self._sizes
        gone = [self.key(pair) for pair in pairs]
        await self._led(
            run_together(
                [registration_and_search.replace(pair, record, draw, self.limits, known.get(pair)) for pair in gone]
            )
        )

    async def find(self, clauses: Sequence[Clause], excluded: Collection[AvPair], most: int) -> Candidates:
        """Return up to ``most`` names that satisfy all clauses and have no excluded pair, those with best scores first.

        There must be at least one clause. Raises :class:`CellsUnavailable`.
        """
        began_s = time.perf_counter()
        found: dict[str, Candidate] = {}
        queried: dict[AvPair, QueriedMatrix] = {}
        complete, counts = True, Counter[AvPair]()
        for chosen in islice(product(*(clause.alternatives for clause in clauses)), _MAX_COMBINATIONS):
            wanted = frozenset(each.pair for each in chosen)
            weights = tuple(each.factor for each in chosen)
            hits, matrix, whole = await self._search(wanted, _MAX_MATCHES)
            complete = complete and whole
            if matrix is not None:
                queried[matrix.pair] = matrix
            for pair in excluded:
                hits -= (await self._search(wanted | {pair}, _MAX_MATCHES))[0]
            for name in hits:
                candidate = Candidate(name, sum(weights), weights, tuple(each.pair for each in chosen))
                if name not in found or found[name].score < candidate.score:
                    found[name] = candidate
        for candidate in found.values():
            counts.update(set(candidate.pairs))
        best = sorted(found.values(), key=lambda each: (-each.score, each.name))[:most]
        frequencies = {each.pair: counts[each.pair] for clause in clauses for each in clause.alternatives}
        took_s = time.perf_counter() - began_s
        return Candidates(tuple(best), len(found), complete, frequencies, tuple(queried.values()), took_s)

    async def _search(self, pairs: frozenset[AvPair], limit: int) -> tuple[set[str], QueriedMatrix | None, bool]:
        own = frozenset(map(self.key, pairs))
        known = {pair: self._sizes[pair] for pair in own if pair in self._sizes}
        found = await self._led(registration_and_search.search(own, limit, randbits(32), self.limits, known))
        self._sizes.update(found.sizes)
        names = {match.name for match in found.matches}
        if found.searched_pair is None or found.searched_pair not in found.sizes:
            return names, None, found.complete
        pair = found.searched_pair
        return names, QueriedMatrix(self._texts.get(pair, ""), found.sizes[pair], found.cells), found.complete

    async def names(self, pair: AvPair, most: int) -> list[NameRecord]:
        """Return up to ``most`` records of names with this AV-pair. Raises :class:`CellsUnavailable`."""
        return await self._led(registration_and_search.list_records(self.key(pair), most, self.limits, randbits(32)))

    async def content_mark(self, pair: AvPair) -> tuple[ContentMark, ...]:
        """Return a value that changes whenever names with this AV-pair are registered or withdrawn.

        The expiry of names does not change it.
        """
        head = head_address(self.key(pair))
        (mark,) = await self.cells.content_marks([head])
        size = msgspec.msgpack.decode(mark.matrix, type=Matrix).size if mark.matrix else MatrixSize()
        others = [place for place in cell_addresses(head.pair, size) if place != head]
        return (mark, *await self.cells.content_marks(others))


@lru_cache(_CACHED_NAMES)
def _draw(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())
