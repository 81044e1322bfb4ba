"""Matrices of the search directory: their sizes, and how names map to partitions (Gao & Steenkiste §IV.A, §IV.C).

A matrix is a table of cells with P partitions and R replicas. It stores the names (channels or entries) that have one
attribute-value pair. Its *head node*, cell (0,0), stores the matrix's record and makes all changes to its size.

*Partitions.* The partition p of a name is computed from the name's *draw*, an integer derived from the name, such as a
hash. Let 2^k be the smallest power of two that is at least P. Then:

- p = draw mod 2^k, if this is below P
- p = (draw mod 2^k) - 2^(k-1) otherwise

This is linear hashing. When the matrix shrinks, the removed partition p is merged into partition p - 2^(k-1), according
to the same formula. Whatever sizes a matrix has had, a name can be in at most k + 1 partitions.

*Replicas.* A replica is identified by its row number r, which is part of the address H(pair, p, r) of each of its
cells. The matrix's size lists the row numbers of all replicas.

*Changes of the size:*

1. Each cell counts its names, and measures its rates of registrations and queries.
2. If one of these loads reaches its threshold, the cell asks the head node for more partitions or replicas. If the
   loads are far below their thresholds, the cell asks for fewer.
3. The head node changes its record.
4. :mod:`service.discovery.matrix_resizing` makes the cells match the record. Until this is complete, the matrix is not
   *settled*, and the head node ignores requests.

Deviations from the paper:

- The paper chooses the partition at random for each registration. Here it is computed from the name, so that a changed
  name can be found and replaced.
- Row numbers need not be consecutive. The cells of a new replica can therefore be placed on other nodes
  (:mod:`service.discovery.matrix_resize_policy`).
- Requests are not queued. A cell that is still overloaded repeats its request.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

PairKey = str
"""The key of an AV-pair: an opaque string that identifies the pair's matrix."""


class CellAddress(msgspec.Struct, frozen=True, order=True):
    """The address H(pair, p, r) of one cell of a matrix.

    The matrix of an attribute-value pair is a table of cells. It stores the names (channels or entries) that have the
    pair. Each cell stores one copy (replica) of one part (partition) of these names.

    - ``pair``: the key of the attribute-value pair.
    - ``partition``: p, the index of the partition, from 0.
    - ``replica``: r, the row number of the replica.
    """

    pair: PairKey
    partition: int = 0
    replica: int = 0


class MatrixSize(msgspec.Struct, frozen=True, order=True):
    """The size of a matrix: how many partitions it has, and which replicas.

    A matrix is a table of cells. A partition is a part of its names, and a replica is a copy of all partitions.

    - ``epoch``: how many times the matrix has changed so far. A size with a greater epoch is newer.
    - ``partitions``: the number of partitions.
    - ``rows``: the row number of each replica, in the order in which the replicas were added. The first is 0; the
      others need not be consecutive.
    """

    epoch: int = 0
    partitions: int = 1
    rows: tuple[int, ...] = (0,)

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return len(self.rows)


def head_address(pair: PairKey) -> CellAddress:
    """Return the address of the head node of the matrix for the attribute-value pair ``pair``.

    The head node is the cell (0,0), which stores the matrix's record.
    """
    return CellAddress(pair)


def merge_target(partition: int) -> int:
    """Return the partition that takes over the names of ``partition`` when ``partition`` is removed (§IV.C.2).

    Partitions are identified by their index. ``partition`` must be at least 1, because partition 0 is never removed.
    """
    return partition - (1 << partition.bit_length() - 1)


def home_partition(draw: int, partitions: int) -> int:
    """Return the index of the partition in which a name is registered, if its matrix has ``partitions`` partitions.

    ``draw`` is an integer derived from the name, such as a hash.
    """
    place = draw % (1 << (partitions - 1).bit_length())
    return place if place < partitions else merge_target(place)


def possible_partitions(draw: int, partitions: int) -> tuple[int, ...]:
    """Return the indices of all partitions in which a name may be registered, in descending order.

    The matrix has ``partitions`` partitions now, but may have had fewer when the name was registered. The result
    therefore includes the partitions that the name would have had in a smaller matrix. ``draw`` is an integer derived
    from the name, such as a hash.
    """
    found = [home_partition(draw, partitions)]
    while found[-1]:
        found.append(merge_target(found[-1]))
    return tuple(found)


SECOND_ROWS = range(1, 9)
"""The rows from which a matrix's second replica is chosen.

There are few of these rows, so that the second replica can be found by reading all of them.
"""


def cell_addresses(pair: PairKey, size: MatrixSize) -> list[CellAddress]:
    """Return the addresses of all cells in a matrix of the given size, sorted by partition."""
    return [CellAddress(pair, partition, row) for partition in range(size.partitions) for row in size.rows]


def probe_addresses(pair: PairKey, limits: "MatrixLimits") -> tuple[CellAddress, ...]:
    """Return the addresses of cells from which a matrix's size can be read if its head node was lost (§IV.B.1).

    The head node is the cell (0,0). ``limits`` contains the maximum size of a matrix. Every matrix within these limits
    that has more than one cell contains at least one of the returned cells.
    """
    # Partitions are numbered without gaps, and the second replica is in one of SECOND_ROWS.
    down = (CellAddress(pair, 1 << bit) for bit in range((limits.partitions - 1).bit_length()))
    across = (CellAddress(pair, 0, row) for row in SECOND_ROWS if limits.replicas > 1)
    return (*down, *across)


WINDOW = 20
"""Number of successive registrations, or of successive queries, over which their rate is measured (§V.A)."""


class CellLoad(msgspec.Struct, frozen=True):
    """The load of one cell: how many names it stores, and its registrations and queries per second."""

    names: int = 0
    registrations_s: float = 0.0
    queries_s: float = 0.0


class MatrixLimits(msgspec.Struct, frozen=True):
    """The maximum size of a matrix, and the load thresholds of a single cell.

    A cell is overloaded if any of its loads reaches its threshold. Cells with low loads request that the matrix shrink.

    - ``names``: threshold for the number of names (the paper's T_CN).
    - ``registrations_s``: threshold for registrations per second (T_reg).
    - ``queries_s``: threshold for queries per second (T_q).
    - ``low``: the fraction of a threshold below which a load is low. It is at most 0.5, so that two cells with low
      loads can be merged without overloading the merged cell.
    - ``partitions``, ``replicas``: the maximum number of partitions, and of replicas.
    """

    names: int = 4000
    registrations_s: float = 50.0
    queries_s: float = 200.0
    low: float = 0.25
    partitions: int = 256
    replicas: int = 64


class ResizeKind(StrEnum):
    """A change to a matrix's size that a cell can request.

    - INC_P: more partitions
    - DEC_P: fewer partitions
    - INC_R: more replicas
    - DEC_R: fewer replicas
    """

    INC_P = "INC_P"
    DEC_P = "DEC_P"
    INC_R = "INC_R"
    DEC_R = "DEC_R"


def fill_share(load: CellLoad, limits: MatrixLimits) -> float:
    """Return how full a cell is; 1 means that a load has reached its threshold in ``limits``.

    The result is the greater of these quotients:

    - number of names / threshold for the number of names
    - registrations per second / threshold for registrations per second
    """
    return max(load.names / limits.names, load.registrations_s / limits.registrations_s)


def resize_requests(load: CellLoad, limits: MatrixLimits) -> tuple[ResizeKind, ...]:
    """Return the changes to the matrix's size that a cell with the given load requests.

    - More partitions: if the number of names or the rate of registrations has reached its threshold in ``limits``.
    - Fewer partitions: if both of these loads are below ``limits.low`` * threshold.
    - More replicas: if the rate of queries has reached its threshold.
    - Fewer replicas: if the rate of queries is below ``limits.low`` * threshold.
    """
    # Deviation: in §IV.C.2, one of these two low values is enough to request fewer partitions. By that rule, a
    # partition full of names that are no longer refreshed would be merged with another full partition.
    kinds = []
    if load.names >= limits.names or load.registrations_s >= limits.registrations_s:
        kinds.append(ResizeKind.INC_P)
    elif load.names < limits.low * limits.names and load.registrations_s < limits.low * limits.registrations_s:
        kinds.append(ResizeKind.DEC_P)
    if load.queries_s >= limits.queries_s:
        kinds.append(ResizeKind.INC_R)
    elif load.queries_s < limits.low * limits.queries_s:
        kinds.append(ResizeKind.DEC_R)
    return tuple(kinds)


class RemovedPart(StrEnum):
    """The part of a matrix that is being removed: the last partition, or the last replica of every partition."""

    PARTITION = "partition"
    REPLICA = "replica"


class Matrix(msgspec.Struct, frozen=True):
    """The record of a matrix's size and of the change in progress, stored by the matrix's head node, cell (0,0).

    - ``size``: the matrix's size. A part that is being removed still counts.
    - ``leaving``: the part that is being removed (the last partition or the last replica), or None.
    - ``settled``: whether all cells match the record.
    - ``new_partitions``: the index of the first partition in which cells may request more partitions.
    - ``new_replicas``: the index, in ``size.rows``, of the first replica in which cells may request more replicas.

    The partitions from ``new_partitions`` on, and the replicas from ``new_replicas`` on, are the paper's *expansion
    regions*: the parts that were added when the matrix last grew.
    """

    size: MatrixSize = MatrixSize(epoch=1)
    new_partitions: int = 0
    new_replicas: int = 0
    leaving: RemovedPart | None = None
    settled: bool = True


class ResizeRequest(msgspec.Struct, frozen=True):
    """A cell's request to change the size of its matrix.

    - ``kind``: the requested change.
    - ``place``: the address of the cell.
    - ``new_rows``: the row numbers of the replicas to add, for requests of the kind INC_R. If empty, the number of
      replicas is doubled by adding the next row numbers, as in the paper.
    """

    kind: ResizeKind
    place: CellAddress
    new_rows: tuple[int, ...] = ()


def after_request(matrix: Matrix, request: ResizeRequest, limits: MatrixLimits) -> Matrix:
    """Return a matrix's record after processing a cell's request to change the matrix's size.

    - The matrix grows only if the requesting cell is in a part that was added by the last growth, and only up to
      ``limits``.
    - The matrix shrinks only if the requesting cell is in the last partition or the last replica.
    - While a change is in progress, requests are ignored.

    If the request is ignored, the object ``matrix`` itself is returned.
    """
    # Only the cells of an expansion region have measured their load since the previous growth.
    size, place = matrix.size, request.place
    if not matrix.settled or place.partition >= size.partitions or place.replica not in size.rows:
        return matrix
    nth = size.rows.index(place.replica)
    match request.kind:
        case ResizeKind.INC_P if place.partition >= matrix.new_partitions and size.partitions < limits.partitions:
            return _grow(matrix, min(2 * size.partitions, limits.partitions), ())
        case ResizeKind.INC_R if nth >= matrix.new_replicas and size.replicas < limits.replicas:
            rows = request.new_rows or tuple(range(max(size.rows) + 1, max(size.rows) + 1 + size.replicas))
            return _grow(matrix, size.partitions, rows[: limits.replicas - size.replicas])
        case ResizeKind.DEC_P if place.partition == size.partitions - 1 > 0:
            return msgspec.structs.replace(matrix, leaving=RemovedPart.PARTITION, settled=False)
        case ResizeKind.DEC_R if nth == size.replicas - 1 > 0:
            return msgspec.structs.replace(matrix, leaving=RemovedPart.REPLICA, settled=False)
    return matrix


def _grow(matrix: Matrix, partitions: int, new_rows: tuple[int, ...]) -> Matrix:
    size = matrix.size
    return Matrix(
        MatrixSize(size.epoch + 1, partitions, size.rows + new_rows),
        size.partitions if partitions > size.partitions else matrix.new_partitions,
        size.replicas if new_rows else matrix.new_replicas,
        settled=False,
    )


def after_removal(matrix: Matrix) -> Matrix:
    """Return a matrix's record after the removal of a partition or replica is complete (Gao & Steenkiste §IV.C.2).

    Growth can be requested only by cells in the parts that the last growth added. If all these parts have been removed,
    cells in the upper half of the remaining partitions or replicas may request growth.
    """
    size, less_p, less_r = matrix.size, 0, 0
    match matrix.leaving:
        case RemovedPart.PARTITION:
            less_p = 1
        case RemovedPart.REPLICA:
            less_r = 1
    partitions, rows = size.partitions - less_p, size.rows[: size.replicas - less_r]
    return Matrix(
        MatrixSize(size.epoch + 1, partitions, rows),
        _region_begin(matrix.new_partitions, partitions),
        _region_begin(matrix.new_replicas, len(rows)),
    )


def _region_begin(begin: int, length: int) -> int:
    return begin if begin < length else length // 2


def next_epoch(matrix: Matrix) -> Matrix:
    """Return the matrix's record with the next epoch (change number), marked as not settled.

    :mod:`service.discovery.matrix_resizing` takes a new epoch before it opens cells or corrects the record. Cells can
    then recognise and ignore late commands that belong to another epoch.
    """
    size = msgspec.structs.replace(matrix.size, epoch=matrix.size.epoch + 1)
    return msgspec.structs.replace(matrix, size=size, settled=False)


def recover_matrix(sizes: Iterable[MatrixSize]) -> Matrix:
    """Return a new record for a matrix whose record was lost (Gao & Steenkiste §IV.C.5).

    ``sizes`` are the sizes of the matrix as stored in its cells. Raises :class:`ValueError` if ``sizes`` is empty.
    """
    latest = max(sizes)
    size = msgspec.structs.replace(latest, epoch=latest.epoch + 1)
    return Matrix(size, latest.partitions // 2, latest.replicas // 2, settled=False)
