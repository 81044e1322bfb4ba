"""A process's access to the matrices of one directory.

A *matrix* is a grid of cells that store the names with one attribute-value pair. This module sends commands to cells,
caches how many cells each matrix has, and reports the load of cells. Workers use these reports to resize the matrices
(:mod:`service.store.directory.matrix_balancer`). Everything that a process caches here can be lost without harm.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from cachetools import LRUCache

from service.discovery import matrix_cell
from service.discovery.av_pairs import ContentKind
from service.discovery.av_pairs import Pair as AvPair
from service.discovery.cell_rounds import Rounds
from service.discovery.matrix import (
    CellAddress,
    MatrixLimits,
    MatrixSize,
    PairKey,
    cell_addresses,
    head_address,
)
from service.discovery.matrix_cell import CellAnswer, CellState, Command
from service.discovery.postings import POSTING_BYTES
from service.store.client import keys
from service.store.client.redis_client import RedisClient
from service.store.directory.cell_load_reports import CellLoadReports, ReportedCell
from service.store.directory.matrix_cells import MatrixCells, pair_key

T = TypeVar("T")

LIMITS = MatrixLimits(names=4000, registrations_s=400.0, queries_s=100.0)
"""Limits on the load of a cell: its number of names, and its registrations and queries per second.

The paper on load-balancing matrices limits a node to 50 registrations and 200 queries per second. With the limits here,
a matrix gets partitions later and replicas earlier. An additional partition makes each query more expensive. An
additional replica makes only registrations more expensive, and these are far rarer than queries. On a standalone Redis,
only the number of names has an effect.
"""

_CACHED_SIZES = 10_000
_CACHED_KEYS = 10_000


class MatrixAccess:
    """Sends commands to the matrices of one directory, and caches the sizes of these matrices.

    There is one directory for channels and one for entries. Each of them has a matrix for each attribute-value
    pair, such as ``tag=python``. A matrix is a grid of cells that store the names (ids of channels or entries)
    with this pair. Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    def __init__(
        self, redis: RedisClient, cells: MatrixCells, about: ContentKind, limits: MatrixLimits = LIMITS
    ) -> None:
        """Create an object that accesses the matrices of one directory.

        - ``cells``: the storage of the cells.
        - ``about``: selects the directory of channels or that of entries.
        - ``limits``: the load at which a cell counts as overloaded, and the maximum size of a matrix.
        """
        self._redis = redis
        self.cells = cells
        self._about = about
        self.limits = limits
        self.load_reports = CellLoadReports(redis, about, limits)
        self._sizes: LRUCache[PairKey, MatrixSize] = LRUCache(_CACHED_SIZES)
        self._keys: OrderedDict[AvPair, PairKey] = OrderedDict()
        """The digests of the latest ``_CACHED_KEYS`` attribute-value pairs; ``_texts`` is the inverse.

        Recording uses, as ``LRUCache`` does, takes longer than computing a digest.
        """
        self._texts: dict[PairKey, AvPair] = {}

    async def matrix_sizes(self) -> dict[AvPair, MatrixSize]:
        """Map attribute-value pairs to the sizes of their matrices.

        Only matrices that have, or recently had, more than one cell are included.
        """
        held = await self._redis.call("HGETALL", keys.matrix_sizes(self._about))
        return {pair.decode(): msgspec.msgpack.decode(size, type=MatrixSize) for pair, size in held.items()}

    async def list_size(self, pair: AvPair, size: MatrixSize) -> None:
        """Store the size of an attribute-value pair's matrix, so that :meth:`matrix_sizes` returns it.

        If the matrix has a single cell, delete its stored size instead.
        """
        key = keys.matrix_sizes(self._about)
        if size.partitions * size.replicas > 1:
            await self._redis.call("HSET", key, pair, msgspec.msgpack.encode(size))
        else:
            await self._redis.call("HDEL", key, pair)

    async def cells_of(self, pair: AvPair) -> list[tuple[CellAddress, CellAnswer]]:
        """Return the address and state of each cell in the matrix of an attribute-value pair.

        The matrix consists of the cells that store the names (ids of channels or entries) with this pair. The state
        is the cell's answer to :class:`~service.discovery.matrix_cell.ReadState`.
        """
        key = self.key(pair)
        (head,) = await self.cells.carry_out([matrix_cell.ReadState(head_address(key))])
        size = head.matrix.size if head.matrix else MatrixSize()
        places = cell_addresses(key, size)
        return list(
            zip(places, await self.cells.carry_out([matrix_cell.ReadState(place) for place in places]), strict=True)
        )

    def key(self, pair: AvPair) -> PairKey:
        """Return the digest that stands for an attribute-value pair in the addresses of cells."""
        key = self._keys.get(pair)
        if key is None:
            if len(self._keys) >= _CACHED_KEYS:
                del self._texts[self._keys.popitem(last=False)[1]]
            key = self._keys[pair] = pair_key(f"{self._about} {pair}")
            self._texts[key] = pair
        return key

    async def _run(self, protocol: Rounds[T], *, is_query: bool = False) -> T:
        """Run ``protocol``, a generator of commands to cells, and return the generator's result.

        The generator yields groups of commands, and is sent the cells' answers to each group. Registrations of names
        are counted for the load reports. If ``is_query`` is true, reads of cells are counted as queries.
        """
        try:
            commands = next(protocol)
            while True:
                answers = await self.cells.carry_out(commands)
                self._count(commands, answers, is_query=is_query)
                commands = protocol.send(answers)
        except StopIteration as stopped:
            result: T = stopped.value
            return result

    def _count(self, commands: Sequence[Command], answers: Sequence[CellAnswer], *, is_query: bool = False) -> None:
        """Count registrations and queries in these commands; the counts are used for reports of the cells' loads.

        ``answers`` are the cells' answers, in the order of ``commands``. Commands that read cells count as queries
        only if ``is_query`` is true.
        """
        for command, answer in zip(commands, answers, strict=True):
            pair = self._texts.get(command.place.pair)
            if pair is None or answer.is_in(CellState.CLOSED, CellState.FILLING):
                continue
            reported = ReportedCell(pair, command.place.partition, command.place.replica)
            if isinstance(command, matrix_cell.PutPostings):
                self.load_reports.count_registrations(
                    reported, len(command.postings) // POSTING_BYTES, answer.load.names
                )
            elif is_query and answer.postings is not None and (answer.postings or answer.member):
                self.load_reports.count_query(reported)
