"""Reports of how often the cells of the search directory are used.

A *cell* stores a part of the names that have one attribute-value pair. Its load is measured in three steps:

1. Each process counts the queries and registrations that it sends to each cell. A cell cannot count queries itself,
   because queries only read it.
2. The process adds its counts for a cell to a Redis hash that all processes share. It does so after ``WINDOW`` queries
   or registrations, or when the cell reaches its limit on names, but at most once every ``_INTERVAL_S`` seconds.
3. The shared counts decay exponentially with the time constant ``_MEMORY_S``. The rate of events is count /
   ``_MEMORY_S``.

The rate adapts to a change within seconds. A lost report changes the rate only slightly.

In the paper on load-balancing matrices, a node computes a rate from its last 20 events. This is not possible here,
because no single process sees all events of a cell.
"""

import asyncio
import math
import time
from collections.abc import Sequence

import msgspec
import structlog
from cachetools import LRUCache

from service.discovery.av_pairs import ContentKind, Pair
from service.discovery.matrix import WINDOW, CellLoad, MatrixLimits
from service.errors import StoreUnavailable
from service.store.client import keys
from service.store.client import redis_client as redis
from service.store.client.redis_client import RedisClient

_MEMORY_S = 10.0
_INTERVAL_S = 1.0
_COUNTED_CELLS = 5_000
_CELLS_PER_REPORT = 64
_MAX_CELLS = 10_000
"""Maximum number of cells in the shared hash. Cells with little load are removed by :meth:`CellLoadReports.forget`."""
_FORGOTTEN_COUNT = 1.0

log = structlog.get_logger(__name__)


class ReportedCell(msgspec.Struct, frozen=True, order=True):
    """The address of a cell, which stores some of the channels or entries with one attribute-value pair.

    - ``pair``: the attribute-value pair, as text.
    - ``partition``: number of the part of these channels or entries that the cell stores, from 0.
    - ``row``: number of the replica. All replicas of a part store the same channels or entries.
    """

    pair: Pair
    partition: int
    row: int


class _Count(msgspec.Struct):
    """What this process has counted for one cell since its last report on the cell.

    - ``queries``, ``registrations``: the queries and registrations that this process has sent to the cell.
    - ``names``: how many channels or entries the cell stores; None if this is unknown.
    """

    queries: int = 0
    registrations: int = 0
    names: int | None = None


class CellLoadReports:
    """Reports how often this process uses the cells of a search directory, and reads the reports of all processes.

    A cell stores some of the channels or entries with one attribute-value pair.
    """

    def __init__(self, client: RedisClient, about: ContentKind, limits: MatrixLimits) -> None:
        """Create an object that reports on the cells of one search directory.

        - ``about``: selects the directory: that of channels or that of entries.
        - ``limits``: a cell is reported when it stores at least ``limits.names`` channels or entries. Independently
          of this, it is reported when this process has used it often.
        """
        self._redis = client
        self._key = keys.matrix_loads(about)
        self._limits = limits
        self._counts: LRUCache[ReportedCell, _Count] = LRUCache(_COUNTED_CELLS)
        self._due: dict[ReportedCell, None] = {}
        self._reported_s = -math.inf
        self._sending: set[asyncio.Task[None]] = set()

    def count_query(self, cell: ReportedCell) -> None:
        """Count a query that this process has sent to a cell."""
        count = self._counts.setdefault(cell, _Count())
        count.queries += 1
        if count.queries >= WINDOW:
            self._report(cell)

    def count_registrations(self, cell: ReportedCell, number: int, name_count: int | None) -> None:
        """Count ``number`` registrations of names that this process has sent to a cell.

        ``name_count`` is how many names the cell has now; None if this is unknown.
        """
        count = self._counts.setdefault(cell, _Count())
        count.registrations += number
        count.names = name_count
        if count.registrations >= WINDOW or (name_count is not None and name_count >= self._limits.names):
            self._report(cell)

    def _report(self, cell: ReportedCell) -> None:
        """Add a cell to the next report, and send the report unless one was sent recently."""
        # The report is sent by a task, because the sender of a query must not wait for it.
        self._due[cell] = None
        if time.monotonic() - self._reported_s >= _INTERVAL_S and not self._sending:
            task = asyncio.create_task(self.flush())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def flush(self) -> None:
        """Report this process's counts for the cells that are waiting to be reported.

        At most ``_CELLS_PER_REPORT`` cells are reported: those with the most events. The report is lost if Redis does
        not reply.
        """
        self._reported_s = time.monotonic()
        due, self._due = self._due, {}
        own = {each: self._counts[each] for each in due if each in self._counts}
        most = sorted(own, key=lambda each: -own[each].queries - own[each].registrations)[:_CELLS_PER_REPORT]
        counts = {each: self._counts.pop(each) for each in most}
        if not counts:
            return
        parts: list[redis.Value] = []
        for cell, count in counts.items():
            names = "" if count.names is None else count.names
            parts += [_field(cell), count.queries, count.registrations, names]
        try:
            await self._redis.run_script("matrix_count_load", (self._key,), int(_MEMORY_S * 1000), _MAX_CELLS, *parts)
        except StoreUnavailable as error:
            log.debug("load report lost", cells=len(counts), error=str(error))

    async def read(self) -> dict[ReportedCell, CellLoad]:
        """Return the current load of every cell that any process has reported.

        Raises :class:`StoreUnavailable` if Redis is unavailable.
        """
        now_ms, held = await self._redis.run_script("matrix_read_load", (self._key,))
        fields = iter(held)
        return {_cell(field): _load(value, int(now_ms)) for field, value in zip(fields, fields, strict=True)}

    async def forget(self, cells: Sequence[ReportedCell]) -> None:
        """Remove the reports on these cells. Raises :class:`StoreUnavailable` if Redis is unavailable."""
        if cells:
            await self._redis.call("HDEL", self._key, *map(_field, cells))


def is_forgettable(load: CellLoad) -> bool:
    """Return whether a cell with this load has had so few recent events that its report can be removed."""
    return (load.queries_s + load.registrations_s) * _MEMORY_S < _FORGOTTEN_COUNT


def _field(cell: ReportedCell) -> str:
    return f"{cell.partition} {cell.row} {cell.pair}"


def _cell(field: bytes) -> ReportedCell:
    partition, row, pair = field.decode().split(" ", 2)
    return ReportedCell(pair, int(partition), int(row))


def _load(value: bytes, now_ms: int) -> CellLoad:
    queries, registrations, names, at_ms = value.split()
    left = math.exp(-max(0.0, (now_ms - int(at_ms)) / 1000) / _MEMORY_S) / _MEMORY_S
    return CellLoad(int(names), float(registrations) * left, float(queries) * left)
