"""Load-balancing matrices: sizes, the partition of a name, and the head node's record (Gao & Steenkiste §IV.A, §IV.C).

A name's partition p follows from its *draw*, a number that is computed from the name. With P partitions, let 2^k be the
smallest power of two that is at least P. Then p = draw mod 2^k; if that is not below P, p = draw mod 2^k - 2^(k-1).
This is linear hashing. It agrees with the paper's shrinking, which merges partition p into p - 2^(k-1). Whatever sizes
a matrix has had, a name can therefore be in few partitions only, and these need not be stored.

Deviation: the paper draws a new number for each registration; a changed name could then not be found and replaced.

A replica is identified by its *row*, the number r of the rendezvous points H(pair, p, r). Deviation: rows need not be
consecutive. A row that is added can be chosen such that its cells are on other nodes
(:mod:`service.discovery.matrix_resize_policy`). The matrix's size lists the rows, so that all processes compute the
same addresses.

A cell whose number of names, registrations per second or queries per second reaches a threshold asks the head node for
more partitions or replicas. A cell with far less load asks for fewer. The head node carries out one request at a time.
It changes its record first, and then :mod:`service.discovery.matrix_resizing` makes the cells match the record. Until
they do, the matrix is not *settled*, and the head node ignores requests. Deviation: requests are not queued, because a
cell that is still overloaded repeats its request.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

PairKey = str
"""The key of an AV-pair; opaque here."""


class CellAddress(msgspec.Struct, frozen=True, order=True):
    """The address of one cell of an AV-pair's matrix: the rendezvous point H(pair, p, r).

    ``partition`` is p, from 0 to P - 1; ``replica`` is r, one of the matrix's rows.
    """

    pair: PairKey
    partition: int = 0
    replica: int = 0


class MatrixSize(msgspec.Struct, frozen=True, order=True):
    """The size of a matrix between two changes; a size with a greater ``epoch`` is newer.

    ``epoch`` counts the changes of the matrix up to this size, and ``partitions`` is P. ``rows`` has the number r of
    each replica, in the order in which they were added; row 0 is always the first.
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
    """Return the partition that receives the names of ``partition`` (not 0) when ``partition`` is removed (§IV.C.2)."""
    return partition - (1 << partition.bit_length() - 1)


def home_partition(draw: int, partitions: int) -> int:
    """Return the partition in which a name is registered while its matrix has ``partitions`` partitions.

    ``draw`` is a number that is computed from the name, such as a hash.
    """
    place = draw % (1 << (partitions - 1).bit_length())
    return place if place < partitions else merge_target(place)


def possible_partitions(draw: int, partitions: int) -> tuple[int, ...]:
    """Return all partitions in which a name can be registered, the highest number first.

    ``draw`` is a number that is computed from the name, such as a hash. The matrix has ``partitions`` partitions now;
    the name may have been registered when there were fewer.
    """
    found = [home_partition(draw, partitions)]
    while found[-1]:
        found.append(merge_target(found[-1]))
    return tuple(found)


SECOND_ROWS = range(1, 9)
"""The rows from which the second replica of a matrix is chosen; its cells can be found by trying these few rows."""


def cell_addresses(pair: PairKey, size: MatrixSize) -> list[CellAddress]:
    """Return the addresses of all cells of a matrix of this size, one partition after the other."""
    return [CellAddress(pair, partition, row) for partition in range(size.partitions) for row in size.rows]


def probe_addresses(pair: PairKey, limits: "MatrixLimits") -> tuple[CellAddress, ...]:
    """Return the cells from which to read the size of the matrix of ``pair`` if its head node was lost (§IV.B.1).

    These are the partitions 1, 2, 4, … in row 0, up to the maximum in ``limits``, and partition 0 in ``SECOND_ROWS``.
    At least one of them exists in any matrix of more than one cell: partitions are numbered without gaps, and the
    second replica has one of these rows. Each cell knows the whole size.
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

    A cell is overloaded if its number of ``names`` (the paper's T_CN), its ``registrations_s`` (T_reg, per second) or
    its ``queries_s`` (T_q, per second) reaches the threshold. A cell is superfluous if its load is below the share
    ``low`` of the thresholds. ``low`` should be at most a half: with more, merging two superfluous cells could overload
    the result. ``partitions`` and ``replicas`` are the maximum numbers of partitions and of replicas.
    """

    names: int = 4000
    registrations_s: float = 50.0
    queries_s: float = 200.0
    low: float = 0.25
    partitions: int = 256
    replicas: int = 64


class ResizeKind(StrEnum):
    """Kinds of a cell's request to its matrix's head node: more (INC) or fewer (DEC) partitions (P) or replicas (R)."""

    INC_P = "INC_P"
    DEC_P = "DEC_P"
    INC_R = "INC_R"
    DEC_R = "DEC_R"


def fill_share(load: CellLoad, limits: MatrixLimits) -> float:
    """Return the utilisation of a cell with this load, as a share of the thresholds in ``limits``.

    The result is the greater of two shares: names divided by their threshold, and registrations per second divided by
    theirs.
    """
    return max(load.names / limits.names, load.registrations_s / limits.registrations_s)


def resize_requests(load: CellLoad, limits: MatrixLimits) -> tuple[ResizeKind, ...]:
    """Return the changes of the matrix's size that a cell with this load requests.

    The cell requests growth if its load reaches a threshold in ``limits``, and shrinking if it is below ``limits.low``
    times the threshold. Deviation: it requests fewer partitions only if *both* its number of names and its rate of
    registrations are low; in §IV.C.2, one of them suffices. Otherwise a partition full of names that are no longer
    refreshed would be merged with another full partition.
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

    ``size`` is the matrix's size. ``leaving`` is the part that is being removed, or None; ``size`` includes it until
    the removal is complete. ``settled`` states whether all cells match the record.

    The partitions and the replicas that were added last are the *expansion regions*. They are the partitions from
    number ``new_partitions`` on, and the replicas from index ``new_replicas`` of ``size.rows`` on.
    """

    size: MatrixSize = MatrixSize(epoch=1)
    new_partitions: int = 0
    new_replicas: int = 0
    leaving: RemovedPart | None = None
    settled: bool = True


class ResizeRequest(msgspec.Struct, frozen=True):
    """A request of the cell ``place`` to the head node of its matrix to change the matrix's size as ``kind`` states.

    With the kind INC_R, ``new_rows`` are the rows of the replicas to add. If they are empty, the number of replicas is
    doubled with the next row numbers, as in the paper.
    """

    kind: ResizeKind
    place: CellAddress
    new_rows: tuple[int, ...] = ()


def after_request(matrix: Matrix, request: ResizeRequest, limits: MatrixLimits) -> Matrix:
    """Return a matrix's record after a cell's request; the same object if the head node ignores the request.

    The matrix grows only at the request of a cell in an expansion region (the part that was added last), because only
    there the load has adapted to the previous growth. It shrinks only at the request of a cell in the last partition or
    the last replica.
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
    """Return the matrix's record with the next epoch, not settled.

    A pass of resizing (:mod:`service.discovery.matrix_resizing`) opens cells in this epoch, a number that no other pass
    has used. Cells can thereby ignore commands of other passes.
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
