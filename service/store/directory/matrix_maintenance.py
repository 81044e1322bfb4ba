"""The matrices of one directory: the sizes that a process knows, the dialogues with cells, and maintenance.

Any process reads and writes cells. It caches the sizes of matrices and the changes of size that cells request.
:meth:`MaintainedMatrices.maintain` passes the requests on to the first cell of each matrix (head node) and adapts the
cells. All data that a process caches may be lost.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from cachetools import LRUCache

from service.discovery import cell
from service.discovery.av_pairs import ContentKind
from service.discovery.av_pairs import Pair as AvPair
from service.discovery.cell import CellAnswer, CellState, Command
from service.discovery.cell_rounds import Rounds, find_or_create_matrix
from service.discovery.matrix import (
    CellAddress,
    CellLoad,
    MatrixLimits,
    MatrixSize,
    PairKey,
    ResizeKind,
    ResizeRequest,
    after_request,
    cell_addresses,
    fill_share,
    head_address,
    merge_target,
    resize_requests,
)
from service.discovery.matrix_resizing import reconcile_matrix
from service.store.client import keys
from service.store.client.connection import BatchingClient
from service.store.directory.cells import MatrixCells, pair_key

T = TypeVar("T")

LIMITS = MatrixLimits(names=4000, registrations_s=400.0, queries_s=800.0)
"""Deviation from the paper's 50 and 200 per second: a query costs about 50 µs of a Redis, not 1 ms of a node."""

_CACHED_SIZES = 100_000
_MAX_UPKEEP_PASSES = 8
_GROWTH = (ResizeKind.INC_P, ResizeKind.INC_R)


class MaintainedMatrices:
    """The matrices of channels, or of entries. Every method may raise :class:`service.errors.StoreUnavailable`."""

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
