"""Maintenance of the directory's matrices by workers.

A *matrix* is a grid of cells that store the names with one attribute-value pair. Other processes only report the load
of cells (:mod:`service.store.directory.cell_load_reports`). In each pass, a worker maintains its matrices in three
steps:

1. Read the reports.
2. Decide on the new size of each matrix (:mod:`service.discovery.matrix_resize_policy`).
3. Change the cells, and restore lost cells (:mod:`service.discovery.matrix_resizing`).

If a pass is interrupted, the next one continues it, in the same worker or another. The first cell of a matrix, cell
(0, 0), holds a *record* of the matrix's size. The record is changed by compare-and-set, so that two workers can safely
maintain the same matrix at once.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from math import ceil

import msgspec
import structlog

from service.discovery import matrix_cell
from service.discovery.av_pairs import Pair
from service.discovery.cell_rounds import Rounds, find_size
from service.discovery.matrix import (
    CellAddress,
    CellLoad,
    Matrix,
    MatrixSize,
    PairKey,
    ResizeKind,
    ResizeRequest,
    after_request,
    cell_addresses,
    head_address,
    merge_target,
)
from service.discovery.matrix_cell import CellAnswer
from service.discovery.matrix_resize_policy import Node, RedisNodes, can_request_growth, choose_resize
from service.discovery.matrix_resizing import reconcile_matrix
from service.errors import CellsUnavailable, StoreUnavailable
from service.store.client import keys
from service.store.client.redis_client import RedisClient
from service.store.directory.cell_load_reports import ReportedCell, is_forgettable
from service.store.directory.matrix_directory import Directory

_MAX_RECONCILE_PASSES = 8
_PATIENCE = 3
"""Number of successive passes after which a superfluous partition or replica is removed."""
_PASSES_PER_CHECK = 10
"""Number of passes in which each matrix with more than one cell is checked at least once, even without load."""
_CONCURRENT_MATRICES = 8
_MIN_MEASUREMENT_S = 1.0
_SWEEP_INTERVAL_S = 3600.0
"""Time after which the expired names of a cell are deleted again if its number of names has not changed."""

log = structlog.get_logger(__name__)


class NodeLoads:
    """Measures how busy the primaries of a Redis Cluster are, as fractions of one processor's time (0 to 1)."""

    def __init__(self, redis: RedisClient) -> None:
        """Create a meter that reads the loads through ``redis``."""
        self._redis = redis
        self._last: dict[Node, tuple[float, float]] = {}
        """Maps each node to (monotonic time of the last reading, processor time used until then), both in seconds."""
        self._busy: dict[Node, float] = {}

    async def read(self) -> RedisNodes:
        """Return the Redis nodes with their current loads.

        A load is computed from two measurements. Nodes that have been measured only once, or that did not reply, are
        omitted. A standalone Redis server has load 0.
        """
        # With a standalone Redis there is no other node to choose.
        primaries = self._redis.primaries()
        if not primaries:
            return RedisNodes(lambda _: None, {None: 0.0})
        await asyncio.gather(*map(self._measure, primaries))
        busy: dict[Node, float] = {node: self._busy[node] for node in primaries if node in self._busy}
        return RedisNodes(lambda place: self._redis.node_of(("GET", keys.cell(place)[0])), busy)

    async def _measure(self, node: tuple[str, int]) -> None:
        now_s = time.monotonic()
        before = self._last.get(node)
        if before is not None and now_s - before[0] < _MIN_MEASUREMENT_S:
            return
        try:
            used_s = _processor_time_s(await self._redis.call_on_node(node, "INFO", "cpu"))
        except StoreUnavailable:
            self._last.pop(node, None)
            self._busy.pop(node, None)
            return
        self._last[node] = now_s, used_s
        if before is not None:
            self._busy[node] = min(1.0, max(0.0, (used_s - before[1]) / (now_s - before[0])))


def _processor_time_s(info: Mapping[str, float]) -> float:
    """Return the processor time in seconds that a Redis server has used, excluding its child processes.

    ``info`` is the server's reply to ``INFO cpu``.
    """
    return sum(float(info.get(f"used_cpu_{kind}", 0)) for kind in ("user", "sys"))


class MatrixBalancer:
    """Resizes and repairs the matrices of one directory.

    A matrix is the grid of cells in which the directory stores all names (ids of channels or entries) with one
    attribute-value pair. Methods may raise :class:`StoreUnavailable`.
    """

    def __init__(self, directory: Directory, nodes: NodeLoads) -> None:
        """Create the balancer for the matrices of ``directory``; ``nodes`` measures the load of the Redis nodes."""
        self._directory, self._node_loads = directory, nodes
        self._limits = directory.limits
        self._passes = 0
        self._active: set[Pair] = set()
        """AV-pairs whose matrices changed in the last pass, or have a superfluous partition or replica."""
        self._superfluous: dict[Pair, int] = {}
        """Maps each AV-pair to how many successive passes found a partition or replica of its matrix superfluous."""
        self._listed: set[Pair] = set()
        self._swept: dict[CellAddress, tuple[int, float]] = {}
        """How many names a cell had after its expired names were deleted, and when that was (monotonic time)."""
        self.cell_count = 0
        """Number of cells of all matrices with more than one cell, in the last pass."""

    async def maintain(self, is_own: Callable[[Pair], bool]) -> int:
        """Run one maintenance pass, which repairs and resizes the matrices that are due for a check.

        Only matrices of attribute-value pairs for which ``is_own`` returns true are checked. Return how many matrices
        were resized or need another pass.
        """
        self._passes += 1
        await self._directory.load_reports.flush()
        reports, sizes = await asyncio.gather(self._directory.load_reports.read(), self._directory.matrix_sizes())
        self.cell_count = sum(size.partitions * size.replicas for size in sizes.values())
        # Also while there is nothing to check: the first load after a pause would be an average over the whole pause.
        nodes = await self._node_loads.read()
        if not (reports or sizes or self._listed or self._active):
            return 0
        own = {cell: load for cell, load in reports.items() if is_own(cell.pair)}
        due = self._due_pairs(own, sizes, nodes, is_own)
        self._listed = {pair for pair in sizes if is_own(pair)}
        permits = asyncio.Semaphore(_CONCURRENT_MATRICES)

        async def check(pair: Pair) -> bool:
            async with permits:
                return await self._check_matrix(pair, {at: load for at, load in own.items() if at.pair == pair}, nodes)

        changed = await asyncio.gather(*map(check, due))
        waiting = {pair for pair, passes in self._superfluous.items() if passes}
        self._active = {pair for pair, has_changed in zip(due, changed, strict=True) if has_changed} | waiting
        await self._directory.load_reports.forget([each for each, load in own.items() if is_forgettable(load)])
        return sum(changed)

    def _due_pairs(
        self,
        loads: Mapping[ReportedCell, CellLoad],
        sizes: Mapping[Pair, MatrixSize],
        nodes: RedisNodes,
        is_own: Callable[[Pair], bool],
    ) -> list[Pair]:
        """Return the attribute-value pairs whose matrices must be checked in this pass.

        Only pairs for which ``is_own`` is true are returned. A matrix is checked in each of these cases:

        - The reported ``loads`` and the loads of the Redis ``nodes`` suggest that it may have to grow.
        - It has several replicas.
        - In the last pass, it changed or had a superfluous partition or replica.
        - It is listed in ``sizes``, and its turn has come. Each listed matrix has one turn every ``_PASSES_PER_CHECK``
          passes.
        - It was listed in the last pass but is not listed now, perhaps because the stored list was lost.
        """
        growing = {at.pair for at, load in loads.items() if can_request_growth(load, self._limits, nodes)}
        replicated = {pair for pair, size in sizes.items() if size.replicas > 1}
        # The matrices of one pass are checked concurrently, so that they share round trips.
        own = sorted(pair for pair in sizes if is_own(pair))
        count = max(_CONCURRENT_MATRICES, ceil(len(own) / _PASSES_PER_CHECK))
        begin = self._passes % _PASSES_PER_CHECK * count
        in_turn = own[begin : begin + count]
        unlisted = self._listed.difference(sizes)
        return sorted(pair for pair in growing.union(replicated, in_turn, unlisted, self._active) if is_own(pair))

    async def _check_matrix(self, pair: Pair, reported: Mapping[ReportedCell, CellLoad], nodes: RedisNodes) -> bool:
        """Repair and resize the matrix of ``pair``; return whether it has changed or needs another pass."""
        key = self._directory.key(pair)
        try:
            if await self._directory.cells.run(find_size(key, self._limits)) is None:
                await self._directory.list_size(pair, MatrixSize())
                return False
            has_changed = False
            while (matrix := await self._settle(pair, key)) is not None:
                loads = await self._loads(key, matrix.size, reported)
                request = self._choose_request(pair, matrix, loads, nodes)
                if request is None:
                    return has_changed
                if not await self._change(pair, matrix, after_request(matrix, request, self._limits)):
                    break
                log.info("matrix resized", pair=pair, request=request.kind.value, rows=request.new_rows)
                has_changed = True
        except CellsUnavailable as error:
            log.warning("matrix maintenance failed, will retry", pair=pair, error=str(error))
        return True

    async def _settle(self, pair: Pair, key: PairKey) -> Matrix | None:
        """Change the cells of a matrix until they match the matrix's stored record; return the record.

        The record states which cells the matrix must have. Return None if the cells still do not match after
        ``_MAX_RECONCILE_PASSES`` attempts.
        """
        for _ in range(_MAX_RECONCILE_PASSES):
            matrix = await self._directory.cells.run(reconcile_matrix(key, self._limits))
            if matrix is not None:
                await self._directory.list_size(pair, matrix.size)
                return matrix
        return None

    async def _loads(
        self, key: PairKey, size: MatrixSize, reported: Mapping[ReportedCell, CellLoad]
    ) -> dict[CellAddress, CellLoad]:
        """Map the address of each cell of a matrix to the cell's load.

        A load consists of the number of names, which is read from the cell, and the reported rates of queries and
        registrations.
        """
        rates = {CellAddress(key, at.partition, at.row): load for at, load in reported.items()}
        places = cell_addresses(key, size)
        answers = await self._directory.cells.run(_run_once([matrix_cell.ReadState(place) for place in places]))
        names = {place: answer.load.names for place, answer in zip(places, answers, strict=True)}
        last = [place for place in places if place.partition == size.partitions - 1 > 0]
        if last and all(names[place] < self._limits.low * self._limits.names for place in last):
            # It may be removed: expired names would count in the partition that takes over the others.
            both = [*last, *(CellAddress(key, merge_target(place.partition), place.replica) for place in last)]
            names |= await self._expire_names({place: names[place] for place in both})
        return {
            place: msgspec.structs.replace(rates.get(place, CellLoad()), names=count) for place, count in names.items()
        }

    async def _expire_names(self, names: Mapping[CellAddress, int]) -> dict[CellAddress, int]:
        """Delete the expired names of cells; return the number of names that are left in each cell.

        ``names`` contains the present number of names of each cell. A cell is skipped if its number of
        names has not changed since its expired names were last deleted, at most an hour ago.
        """
        # This takes Redis several milliseconds for a cell with thousands of names, which live for hours.
        now_s = time.monotonic()
        self._swept = {place: swept for place, swept in self._swept.items() if now_s - swept[1] < _SWEEP_INTERVAL_S}
        due = [place for place, count in names.items() if self._swept.get(place, (-1, 0.0))[0] != count]
        answers = await self._directory.cells.run(_run_once([matrix_cell.ExpireNames(place) for place in due]))
        left = {place: answer.load.names for place, answer in zip(due, answers, strict=True)}
        self._swept |= {place: (count, now_s) for place, count in left.items()}
        return {**names, **left}

    def _choose_request(
        self, pair: Pair, matrix: Matrix, loads: dict[CellAddress, CellLoad], nodes: RedisNodes
    ) -> ResizeRequest | None:
        """Return the change to the size of ``matrix`` that must be made now; None if no change is due.

        A change adds or removes a partition (a part of the names) or a replica (a copy of all parts). A partition or
        replica is removed only after it was superfluous in ``_PATIENCE`` successive passes.
        """
        request = choose_resize(matrix, loads, nodes, self._limits)
        if request is None or request.kind in (ResizeKind.INC_P, ResizeKind.INC_R):
            self._superfluous.pop(pair, None)
            return request
        self._superfluous[pair] = self._superfluous.get(pair, 0) + 1
        if self._superfluous[pair] < _PATIENCE:
            return None
        del self._superfluous[pair]
        return request

    async def _change(self, pair: Pair, before: Matrix, after: Matrix) -> bool:
        """Replace the stored record of a matrix's size with ``after``; return whether it was replaced.

        ``before`` is the record as it was read. Nothing is replaced if ``after`` equals ``before``, or if the stored
        record has changed since it was read.
        """
        # A matrix is listed with its new size before cells are added, so that no cell exists in an unlisted matrix.
        if after == before:
            return False
        await self._directory.list_size(pair, after.size)
        update = matrix_cell.UpdateMatrix(head_address(self._directory.key(pair)), before, after)
        (answer,) = await self._directory.cells.run(_run_once([update]))
        return answer.done


def _run_once(commands: Iterable[matrix_cell.Command]) -> Rounds[list[CellAnswer]]:
    """Yield ``commands`` as one group, and return the answers that the cells send back."""
    return list((yield list(commands)))
