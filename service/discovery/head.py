"""The head's record of its matrix, and its transitions: how a matrix grows and shrinks (§IV.C).

Requests come from cells (:mod:`service.discovery.load`); one is acted upon at a time. The record changes first, and
then upkeep (:mod:`service.discovery.upkeep`) makes the cells follow; until that is through, the matrix is not
*settled*, and requests are dropped.

We deviate: they are not kept for later, because a cell that is still overloaded then asks again.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from service.discovery.load import Kind, Limits
from service.discovery.matrix import Place, Size


class Leaving(StrEnum):
    """What is being removed from a matrix: its last partition, or its last replica of each."""

    PARTITION = "partition"
    REPLICA = "replica"


class Matrix(msgspec.Struct, frozen=True):
    """What the head keeps. What leaves is still part of the size.

    ``new_partitions`` and ``new_replicas`` are where the *expansion regions* begin: what was last added.
    """

    size: Size = Size(epoch=1)
    new_partitions: int = 0
    new_replicas: int = 0
    leaving: Leaving | None = None
    settled: bool = True


class Request(msgspec.Struct, frozen=True):
    """A cell's wish."""

    kind: Kind
    place: Place


def asked(matrix: Matrix, request: Request, limits: Limits) -> Matrix:
    """Return the record after a request; the very same if the head ignores it.

    Growth is asked for by the expansion region alone, because only there the load is what it will be: both after the
    growth before it, and under the same share of it. Shrinking is asked for by the last partition, or the last row.
    """
    size, place = matrix.size, request.place
    if not matrix.settled or place.partition >= size.partitions or place.replica >= size.replicas:
        return matrix
    match request.kind:
        case Kind.INC_P if place.partition >= matrix.new_partitions and size.partitions < limits.partitions:
            return _grown(matrix, min(2 * size.partitions, limits.partitions), size.replicas)
        case Kind.INC_R if place.replica >= matrix.new_replicas and size.replicas < limits.replicas:
            return _grown(matrix, size.partitions, min(2 * size.replicas, limits.replicas))
        case Kind.DEC_P if place.partition == size.partitions - 1 > 0:
            return msgspec.structs.replace(matrix, leaving=Leaving.PARTITION, settled=False)
        case Kind.DEC_R if place.replica == size.replicas - 1 > 0:
            return msgspec.structs.replace(matrix, leaving=Leaving.REPLICA, settled=False)
    return matrix


def _grown(matrix: Matrix, partitions: int, replicas: int) -> Matrix:
    size = matrix.size
    return Matrix(
        Size(size.epoch + 1, partitions, replicas),
        size.partitions if partitions > size.partitions else matrix.new_partitions,
        size.replicas if replicas > size.replicas else matrix.new_replicas,
        settled=False,
    )


def smaller(matrix: Matrix) -> Matrix:
    """Return the record once what was leaving has left.

    When all of an expansion region has been removed, the half of what is left becomes the new one (§IV.C.2).
    """
    size, less_p, less_r = matrix.size, 0, 0
    match matrix.leaving:
        case Leaving.PARTITION:
            less_p = 1
        case Leaving.REPLICA:
            less_r = 1
    partitions, replicas = size.partitions - less_p, size.replicas - less_r
    return Matrix(
        Size(size.epoch + 1, partitions, replicas),
        _region(matrix.new_partitions, partitions),
        _region(matrix.new_replicas, replicas),
    )


def _region(begin: int, length: int) -> int:
    return begin if begin < length else length // 2


def next_term(matrix: Matrix) -> Matrix:
    """Return the record in a new epoch, in which one pass of upkeep opens cells."""
    size = msgspec.structs.replace(matrix.size, epoch=matrix.size.epoch + 1)
    return msgspec.structs.replace(matrix, size=size, settled=False)


def recovered(told: Iterable[Size]) -> Matrix:
    """Return the record of a matrix whose head was lost, given the sizes its cells know, not none (§IV.C.5)."""
    latest = max(told)
    partitions, replicas = latest.partitions, latest.replicas
    return Matrix(Size(latest.epoch + 1, partitions, replicas), partitions // 2, replicas // 2, settled=False)
