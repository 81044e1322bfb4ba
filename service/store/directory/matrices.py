"""The directory: names of channels and entries in load-balancing matrices on Redis (content discovery §III-IV).

A content name consists of AV-pairs. Each AV-pair has a matrix of cells, in which the names with this pair are
registered. Any process may register and find names. It caches the sizes of matrices and the changes of size that cells
request. :meth:`Directory.maintain` passes the requests on to the first cell of each matrix (head node) and adapts the
cells.

All data that a process caches may be lost: names are registered again before they expire, and a wrong cached size is
corrected by the answers of cells.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from secrets import randbits
from typing import TypeVar

import msgspec
from cachetools import LRUCache

from service.discovery import cell, registration_and_search
from service.discovery.av_pairs import ContentKind
from service.discovery.av_pairs import Pair as AvPair
from service.discovery.cell import CellAnswer, CellState, Command, Match, NameRecord
from service.discovery.cell_rounds import Rounds, find_or_create_matrix, run_together
from service.discovery.matrix import (
    CellAddress,
    CellLoad,
    Matrix,
    MatrixLimits,
    MatrixSize,
    PairKey,
    ResizeKind,
    ResizeRequest,
    after_request,
    cell_addresses,
    fill_share,
    head_address,
    home_partition,
    merge_target,
    resize_requests,
)
from service.discovery.matrix_resizing import reconcile_matrix
from service.store.client import keys
from service.store.client.connection import BatchingClient
from service.store.directory.cells import ContentMark, MatrixCells, pair_key

T = TypeVar("T")

LIMITS = MatrixLimits(names=4000, registrations_s=400.0, queries_s=800.0)
"""Deviation from the paper's 50 and 200 per second: a query costs about 50 µs of a Redis, not 1 ms of a node."""

_CACHED_SIZES = 100_000
_CACHED_NAMES = 4096
_MAX_UPKEEP_PASSES = 8
_ONE = MatrixSize()
_GROWTH = (ResizeKind.INC_P, ResizeKind.INC_R)


class ContentName(msgspec.Struct, frozen=True):
    """A content name to register: the AV-pairs in version ``version`` of the channel or entry ``id``.

    If ``pairs`` is empty, the name is withdrawn.
    """

    id: str
    version: int
    pairs: frozenset[AvPair]


class QueryResult(msgspec.Struct, frozen=True):
    """The matches of a query, and how they were found.

    ``complete`` is False if there may be more matches than the limit. ``queried_pair`` is the AV-pair whose matrix was
    queried, ``size`` the size of that matrix, ``cells`` the number of cells queried. ``elapsed_s`` is the duration in
    seconds.
    """

    matches: tuple[Match, ...]
    complete: bool
    queried_pair: AvPair
    size: MatrixSize
    cells: int
    elapsed_s: float


class Directory:
    """Content names of channels, or of entries. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(
        self, redis: BatchingClient, cells: MatrixCells, about: ContentKind, limits: MatrixLimits = LIMITS
    ) -> None:
        """Create the directory of the content names of channels or of entries, as ``about`` states.

        The two directories have separate matrices, whose cells are in ``cells``.
        """
        self._redis = redis
        self._cells = cells
        self._about = about
        self._limits = limits
        self._sizes: LRUCache[PairKey, MatrixSize] = LRUCache(_CACHED_SIZES)
        self._resize_requests: dict[ResizeRequest, None] = {}
        self._unsettled: dict[PairKey, None] = {}
        self._texts: LRUCache[PairKey, AvPair] = LRUCache(_CACHED_SIZES)

    async def register(self, names: Sequence[ContentName], kept_s: float, *, changed: bool) -> None:
        """Register names, or refresh them, so that they expire after ``kept_s`` seconds.

        ``changed`` must be True if an earlier version of a name may be registered; the new version then replaces it.
        Raises :class:`service.errors.CellsUnavailable`.
        """
        expires_ms = int((time.time() + kept_s) * 1000)
        left: list[tuple[PairKey, NameRecord]] = []
        for name in names:
            record = NameRecord(name.id, name.version, frozenset(map(self.key, name.pairs)), expires_ms)
            left += [(pair, record) for pair in record.pairs]
        if not changed and (left := await self._store_records(left)):
            await self._create_missing_matrices({pair for pair, _ in left})
            left = await self._store_records(left)
        register = registration_and_search.replace if changed else registration_and_search.register
        dialogues = [
            register(pair, record, _draw(record.name), self._limits, self._sizes.get(pair)) for pair, record in left
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
        answers = await self._cells.carry_out(puts)
        self._notice(puts, answers)
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
        await self._cells.carry_out(leads)
        return bool(leads)

    async def withdraw(self, name: str, version: int, pairs: Iterable[AvPair], kept_s: float) -> None:
        """Withdraw a name from the matrices of AV-pairs that it no longer has.

        ``version`` is the name's version without these pairs. The withdrawals expire after ``kept_s`` seconds, which
        must be at least the lifetime of earlier records of the name.
        """
        record = NameRecord(name, version, frozenset(), int((time.time() + kept_s) * 1000))
        draw, known = _draw(name), self._sizes
        gone = [self.key(pair) for pair in pairs]
        await self._led(
            run_together(
                [registration_and_search.replace(pair, record, draw, self._limits, known.get(pair)) for pair in gone]
            )
        )

    async def find(self, pairs: Iterable[AvPair], limit: int) -> QueryResult:
        """Return up to ``limit`` names that have all these AV-pairs; at least one pair must be given.

        Raises :class:`CellsUnavailable`.
        """
        began_s = time.perf_counter()
        own = frozenset(map(self.key, pairs))
        known = {pair: self._sizes[pair] for pair in own if pair in self._sizes}
        found = await self._led(registration_and_search.search(own, limit, randbits(32), self._limits, known))
        self._sizes.update(found.sizes)
        chosen = found.searched_pair or ""
        took_s = time.perf_counter() - began_s
        size = found.sizes.get(chosen, MatrixSize(0, 0, ()))
        return QueryResult(found.matches, found.complete, self._texts.get(chosen, ""), size, found.cells, took_s)

    async def names(self, pair: AvPair, most: int) -> list[NameRecord]:
        """Return up to ``most`` records of names with this AV-pair. Raises :class:`CellsUnavailable`."""
        return await self._led(registration_and_search.list_records(self.key(pair), most, self._limits, randbits(32)))

    async def content_mark(self, pair: AvPair) -> tuple[ContentMark, ...]:
        """Return a value that changes whenever names with this AV-pair are registered or withdrawn.

        The expiry of names does not change it.
        """
        head = head_address(self.key(pair))
        (mark,) = await self._cells.content_marks([head])
        size = msgspec.msgpack.decode(mark.matrix, type=Matrix).size if mark.matrix else MatrixSize()
        others = [place for place in cell_addresses(head.pair, size) if place != head]
        return (mark, *await self._cells.content_marks(others))

    async def maintain(self) -> int:
        """Carry out the changes of size that cells have requested, and adapt cells of matrices whose size is changing.

        Return the number of matrices whose size was changing.
        """
        requests, self._resize_requests = self._resize_requests, {}
        by_pair: dict[PairKey, list[ResizeRequest]] = {}
        for request in requests:
            by_pair.setdefault(request.place.pair, []).append(request)
        await asyncio.gather(*(self._act_on_requests(pair, own) for pair, own in by_pair.items()))
        unsettled, self._unsettled = self._unsettled, {}
        for pair in unsettled:
            for _ in range(_MAX_UPKEEP_PASSES):
                matrix = await self._led(reconcile_matrix(pair, self._limits))
                if matrix is not None:
                    self._sizes[pair] = matrix.size
                    await self._list(pair, matrix.size)
                    break
            else:
                self._unsettled[pair] = None
        return len(unsettled)

    async def matrix_sizes(self) -> dict[AvPair, MatrixSize]:
        """Return the sizes of matrices that have, or recently had, more than one cell, by AV-pair."""
        held = await self._redis.call("HGETALL", keys.matrix_sizes(self._about))
        return {pair.decode(): msgspec.msgpack.decode(size, type=MatrixSize) for pair, size in held.items()}

    async def cells_of(self, pair: AvPair) -> list[tuple[CellAddress, CellAnswer]]:
        """Return the address and the state of each cell in the matrix of an AV-pair."""
        key = self.key(pair)
        (head,) = await self._cells.carry_out([cell.ReadState(head_address(key))])
        size = head.matrix.size if head.matrix else MatrixSize()
        places = cell_addresses(key, size)
        return list(zip(places, await self._cells.carry_out([cell.ReadState(place) for place in places]), strict=True))

    def key(self, pair: AvPair) -> PairKey:
        """Return the digest that represents an AV-pair in the records of cells."""
        key = pair_key(f"{self._about} {pair}")
        self._texts[key] = pair
        return key

    async def _led(self, dialogue: Rounds[T]) -> T:
        try:
            commands = next(dialogue)
            while True:
                answers = await self._cells.carry_out(commands)
                self._notice(commands, answers)
                commands = dialogue.send(answers)
        except StopIteration as stopped:
            result: T = stopped.value
            return result

    def _notice(self, commands: Sequence[Command], answers: Sequence[CellAnswer]) -> None:
        for command, answer in zip(commands, answers, strict=True):
            place = command.place
            if answer.matrix is not None and not answer.matrix.settled:
                self._unsettled[place.pair] = None
            if isinstance(command, cell.PutRecords | cell.FindNames) and answer.member and answer.is_in(CellState.OPEN):
                for kind in resize_requests(answer.load, self._limits):
                    if kind in _GROWTH or (place.partition if kind is ResizeKind.DEC_P else place.replica) > 0:
                        self._resize_requests[ResizeRequest(kind, place)] = None

    async def _act_on_requests(self, pair: PairKey, requests: Sequence[ResizeRequest]) -> None:
        """Change the size of an AV-pair's matrix according to the first of the requests that the head node accepts.

        Nothing changes if it accepts none, or if another process changes the matrix first.

        Deviation from the paper: a new cell has no load at first, so it would be removed at once, and its load would
        return to the cell that was just overloaded. A partition or replica is therefore removed only if the cells that
        take over its load then have less than half of their limits.
        """
        before = await self._led(find_or_create_matrix(pair, self._limits))
        for request in requests:
            after = after_request(before, request, self._limits)
            if after != before and (request.kind in _GROWTH or not await self._is_needed(request)):
                await self._list(pair, after.size)
                await self._led(_one(cell.UpdateMatrix(head_address(pair), before, after)))
                self._unsettled[pair] = None
                return

    async def _is_needed(self, request: ResizeRequest) -> bool:
        """Return whether a matrix needs the partition or replica that ``request`` would remove.

        It is needed if the other cells would be overloaded without it.
        """
        place = request.place
        if request.kind is ResizeKind.DEC_P:
            both = (place, msgspec.structs.replace(place, partition=merge_target(place.partition)))
            swept = await self._cells.carry_out([cell.ExpireNames(each) for each in both])
            return 2 * fill_share(_together([answer.load for answer in swept]), self._limits) > 1
        row = [msgspec.structs.replace(place, replica=replica) for replica in range(place.replica + 1)]
        looked = await self._cells.carry_out([cell.ReadState(each) for each in row])
        carried = _together([answer.load for answer in looked])
        return 2 * carried.queries_s > self._limits.queries_s * place.replica

    async def _list(self, pair: PairKey, size: MatrixSize) -> None:
        if pair not in self._texts:
            return
        key, text = keys.matrix_sizes(self._about), self._texts[pair]
        if size.partitions * size.replicas > 1:
            await self._redis.call("HSET", key, text, msgspec.msgpack.encode(size))
        else:
            await self._redis.call("HDEL", key, text)


def _one(command: Command) -> Rounds[CellAnswer]:
    (answer,) = yield [command]
    return answer


def _together(loads: Iterable[CellLoad]) -> CellLoad:
    names, registrations_s, queries_s = zip(*map(msgspec.structs.astuple, loads), strict=True)
    return CellLoad(sum(names), sum(registrations_s), sum(queries_s))


@lru_cache(_CACHED_NAMES)
def _draw(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())
