"""Load-balancing matrices: sizes, the partition of a name, and the head node's record (Gao & Steenkiste §IV.A, §IV.C).

A name's partition p follows from its *draw*, a number that is computed from the name. With P partitions, let 2^k be the
smallest power of two that is at least P. Then:

- p = draw mod 2^k, if this is below P
- p = (draw mod 2^k) - 2^(k-1) otherwise

This is linear hashing. The same formula describes the paper's shrinking, which merges partition p into p - 2^(k-1).
Whatever sizes a matrix has had, a name can be in at most k + 1 partitions, which are computed from the draw. Deviation:
the paper draws a random number for each registration. A changed name could then not be found and replaced.

A replica is identified by its *row*, the number r of the rendezvous points H(pair, p, r). Deviation: rows need not be
consecutive. The row of a new replica can be chosen such that its cells are on other nodes
(:mod:`service.discovery.matrix_resize_policy`). The matrix's size lists the rows, so that all processes compute the
same addresses.

A cell measures its number of names, its registrations per second and its queries per second. If one of them reaches a
threshold, the cell requests more partitions or replicas from the head node. If they are far below, it requests fewer.
The head node carries out one request at a time. It changes its record first, and then
:mod:`service.discovery.matrix_resizing` makes the cells match the record. Until they do, the matrix is not *settled*,
and the head node ignores requests. Deviation: requests are not queued, because a cell that is still overloaded repeats
its request.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

PairKey = str
"""The key of an AV-pair: an opaque string that identifies the pair's matrix."""


class CellAddress(msgspec.Struct, frozen=True, order=True):
    """The address of one cell of an AV-pair's matrix: the rendezvous point H(pair, p, r).

    ``partition`` is p, from 0 to P - 1; ``replica`` is r, one of the matrix's rows.
    """

    pair: PairKey
    partition: int = 0
    replica: int = 0


class MatrixSize(msgspec.Struct, frozen=True, order=True):
    """The size of a matrix: its numbers of partitions and replicas.

    - ``epoch`` is the number of changes of the matrix so far. A size with a greater epoch is newer.
    - ``partitions`` is the number of partitions P.
    - ``rows`` has the row number r of each replica, in the order in which the replicas were added. Row 0 is the first.
    """

    epoch: int = 0
    partitions: int = 1
    rows: tuple[int, ...] = (0,)

    @property
    def replicas(self) -> int:
        """The number of replicas R."""
        return len(self.rows)


def head_address(pair: PairKey) -> CellAddress:
    """Return the address of the head node of an AV-pair's matrix: the cell (0,0), which keeps the matrix's record."""
    return CellAddress(pair)


def merge_target(partition: int) -> int:
    """Return the merge target: the partition that takes over the names of ``partition`` when it is removed (§IV.C.2).

    ``partition`` is at least 1, because partition 0 is never removed.
    """
    return partition - (1 << partition.bit_length() - 1)


def home_partition(draw: int, partitions: int) -> int:
    """Return the partition in which a name is registered while its matrix has ``partitions`` partitions.

    ``draw`` is a number that is computed from the name, such as a hash.
    """
    place = draw % (1 << (partitions - 1).bit_length())
    return place if place < partitions else merge_target(place)


def possible_partitions(draw: int, partitions: int) -> tuple[int, ...]:
    """Return all partitions in which a name may be registered, the highest number first.

    The matrix has ``partitions`` partitions now. It may have had fewer when the name was registered, so the result also
    has the partitions for smaller sizes. ``draw`` is a number that is computed from the name, such as a hash.
    """
    found = [home_partition(draw, partitions)]
    while found[-1]:
        found.append(merge_target(found[-1]))
    return tuple(found)


SECOND_ROWS = range(1, 9)
"""The rows from which a matrix's second replica is chosen: few, so that the replica can be found by trying all."""


def cell_addresses(pair: PairKey, size: MatrixSize) -> list[CellAddress]:
    """Return the addresses of all cells of a matrix of this size, ordered by partition."""
    return [CellAddress(pair, partition, row) for partition in range(size.partitions) for row in size.rows]


def probe_addresses(pair: PairKey, limits: "MatrixLimits") -> tuple[CellAddress, ...]:
    """Return the addresses of cells that store a matrix's size, for the case that its head node was lost (§IV.B.1).

    These are the partitions 1, 2, 4, … in row 0, up to the maximum in ``limits``, and partition 0 in ``SECOND_ROWS``.
    Every matrix of more than one cell has at least one of these cells: partitions are numbered without gaps, and the
    second replica is in one of these rows.
    """
    down = (CellAddress(pair, 1 << bit) for bit in range((limits.partitions - 1).bit_length()))
    across = (CellAddress(pair, 0, row) for row in SECOND_ROWS if limits.replicas > 1)
    return (*down, *across)


WINDOW = 20
"""Number of events, registrations or queries, over which a rate is measured (§V.A)."""


class CellLoad(msgspec.Struct, frozen=True):
    """The load of one cell: its number of names, and its registrations and queries per second."""

    names: int = 0
    registrations_s: float = 0.0
    queries_s: float = 0.0


class MatrixLimits(msgspec.Struct, frozen=True):
    """The thresholds of a cell's load, and the maximum size of a matrix.

    A cell is overloaded if one of its loads reaches its threshold. A cell is superfluous if its loads are below
    ``low`` * threshold.

    - ``names``: threshold of the number of names (the paper's T_CN)
    - ``registrations_s``: threshold of registrations per second (T_reg)
    - ``queries_s``: threshold of queries per second (T_q)
    - ``low``: at most 0.5, so that merging two superfluous cells does not overload the merged cell
    - ``partitions``, ``replicas``: maximum numbers of partitions and of replicas
    """

    names: int = 4000
    registrations_s: float = 50.0
    queries_s: float = 200.0
    low: float = 0.25
    partitions: int = 256
    replicas: int = 64


class ResizeKind(StrEnum):
    """The kinds of requests that a cell makes to its matrix's head node.

    INC_P and DEC_P request more and fewer partitions, INC_R and DEC_R more and fewer replicas.
    """

    INC_P = "INC_P"
    DEC_P = "DEC_P"
    INC_R = "INC_R"
    DEC_R = "DEC_R"


def fill_share(load: CellLoad, limits: MatrixLimits) -> float:
    """Return how full a cell is: 1 means that its load reaches a threshold in ``limits``.

    The result is the greater of two quotients: names / threshold of names, and registrations per second / threshold of
    registrations per second.
    """
    return max(load.names / limits.names, load.registrations_s / limits.registrations_s)


def resize_requests(load: CellLoad, limits: MatrixLimits) -> tuple[ResizeKind, ...]:
    """Return the changes of the matrix's size that a cell with this load requests.

    A load that reaches its threshold in ``limits`` makes the cell request growth. A load below ``limits.low`` times the
    threshold makes it request shrinking.

    Deviation: the cell requests fewer partitions only if *both* its number of names and its rate of registrations are
    low. In §IV.C.2, one low value is enough. By that rule, a partition full of names that are no longer refreshed would
    be merged with another full partition.
    """
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
    """The part that is being removed from a matrix: the last partition, or the last replica of each partition."""

    PARTITION = "partition"
    REPLICA = "replica"


class Matrix(msgspec.Struct, frozen=True):
    """The record of a matrix, which is stored in its head node.

    - ``size`` is the matrix's size.
    - ``leaving`` is the part (partition or replica) that is being removed, or None. ``size`` includes this part until
      the removal is complete.
    - ``settled`` states whether all cells match the record.
    - ``new_partitions`` and ``new_replicas`` describe the *expansion regions*, the parts that were added last: the
      partitions from number ``new_partitions`` on, and the replicas from index ``new_replicas`` of ``size.rows`` on.
    """

    size: MatrixSize = MatrixSize(epoch=1)
    new_partitions: int = 0
    new_replicas: int = 0
    leaving: RemovedPart | None = None
    settled: bool = True


class ResizeRequest(msgspec.Struct, frozen=True):
    """A cell's request to its matrix's head node to change the matrix's size.

    ``place`` is the address of the cell, and ``kind`` the requested change. For the kind INC_R, ``new_rows`` are the
    rows of the replicas to add. If ``new_rows`` is empty, the number of replicas is doubled with the next row numbers,
    as in the paper.
    """

    kind: ResizeKind
    place: CellAddress
    new_rows: tuple[int, ...] = ()


def after_request(matrix: Matrix, request: ResizeRequest, limits: MatrixLimits) -> Matrix:
    """Return a matrix's record after a cell's request; the same object if the head node ignores the request.

    The matrix grows only at the request of a cell in an expansion region (the part that was added last). Only these
    cells have measured their load since the previous growth. The matrix shrinks only at the request of a cell in the
    last partition or the last replica.
    """
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
    """Return a matrix's record after its part ``leaving`` has been removed.

    When a whole expansion region (the part that was added last) has been removed, the upper half of the remaining
    partitions or replicas becomes the new expansion region (§IV.C.2).
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
    """Return the matrix's record with the next epoch (change number), and not settled.

    A pass of resizing (:mod:`service.discovery.matrix_resizing`) opens cells in this epoch. No other pass has used the
    number, so the cells can recognise and ignore commands of other passes.
    """
    size = msgspec.structs.replace(matrix.size, epoch=matrix.size.epoch + 1)
    return msgspec.structs.replace(matrix, size=size, settled=False)


def recover_matrix(sizes: Iterable[MatrixSize]) -> Matrix:
    """Return a new record for a matrix whose head node was lost (§IV.C.5).

    ``sizes`` are the sizes of the matrix that its other cells have stored. Raises ValueError if there are none.
    """
    latest = max(sizes)
    size = msgspec.structs.replace(latest, epoch=latest.epoch + 1)
    return Matrix(size, latest.partitions // 2, latest.replicas // 2, settled=False)
