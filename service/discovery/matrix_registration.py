"""The protocols of registration (§IV.B.1): a name's postings are put into cells of its AV-pairs' matrices.

A name is registered in all replicas of one partition, including replicas that are added during the registration. An
absent replica is tried once more after the others, because a replica that opens then is filled from them. If a
partition refuses a name, it has been removed or is not open yet: its merge target stores the name. Deviation: the paper
draws a partition for each registration. Here it follows from the name, so that every process refreshes the name in the
same partition, and no registration is refused while a matrix changes.
"""

import msgspec

from service.discovery.cell_rounds import Rounds, latest_size, run_together
from service.discovery.matrix import (
    CellAddress,
    MatrixSize,
    PairKey,
    head_address,
    home_partition,
    merge_target,
    possible_partitions,
)
from service.discovery.matrix_cell import PutPostings, ReadState
from service.discovery.postings import Posting, pack
from service.errors import CellsUnavailable

MAX_TRIES = 8
"""Number of attempts to find a cell that stores a name."""


def register(pair: PairKey, posting: Posting, known: MatrixSize | None = None) -> Rounds[MatrixSize]:
    """Register a name in the matrix of one of its AV-pairs, or refresh it; return the newest known size of the matrix.

    ``known`` is a cached size of the matrix, or None. Raises :class:`CellsUnavailable` if no cell stores the name.
    """
    size, _ = yield from _register(pair, posting, known)
    return size


def withdraw(pair: PairKey, posting: Posting, known: MatrixSize | None = None) -> Rounds[MatrixSize]:
    """Put a withdrawal, which is a posting of weight 0, into all partitions in which the name can be registered.

    Return the newest known size of the matrix. The other arguments are those of :func:`register`.
    """
    size, first = yield from _register(pair, posting, known)
    done = {first}
    while others := [number for number in possible_partitions(posting.name, size.partitions) if number not in done]:
        results = yield from run_together(
            [_put_in_replicas(CellAddress(pair, number), posting, size, size) for number in others]
        )
        size = max(size, *(found for found, _ in results))
        done.update(others)
    return size


def _register(pair: PairKey, posting: Posting, known: MatrixSize | None) -> Rounds[tuple[MatrixSize, int]]:
    size = known if known is not None else (yield from _read_size(pair))
    for _ in range(MAX_TRIES):
        partition, assumed = home_partition(posting.name, size.partitions), size
        while True:
            size, is_stored = yield from _put_in_replicas(CellAddress(pair, partition), posting, size, assumed)
            if is_stored:
                return size, partition
            if not partition or size.partitions > assumed.partitions:
                break
            partition = merge_target(partition)
        size = max(size, (yield from _read_size(pair)))
    raise CellsUnavailable(
        f"The cells of {pair} do not keep names: they are lost as soon as they are there. Try again later."
    )


def _read_size(pair: PairKey) -> Rounds[MatrixSize]:
    (head,) = yield [ReadState(head_address(pair))]
    return head.matrix.size if head.matrix is not None else latest_size(MatrixSize(), head)


def _put_in_replicas(
    address: CellAddress, posting: Posting, size: MatrixSize, assumed_size: MatrixSize
) -> Rounds[tuple[MatrixSize, bool]]:
    """Store a posting in all replicas of the partition at ``address``.

    Return the newest known size of the matrix, and whether at least one replica stores the posting. ``size`` is the
    size known so far; ``assumed_size`` is that of :class:`PutPostings`.
    """
    packed = pack([posting])
    stored: set[int] = set()
    asked: set[int] = set()
    rows = set(size.rows)
    while rows:
        order = sorted(rows)
        asked |= rows
        puts = [PutPostings(msgspec.structs.replace(address, replica=row), packed, assumed_size) for row in order]
        answers = yield puts
        size = latest_size(size, *answers)
        now = {row for row, answer in zip(order, answers, strict=True) if answer.done}
        stored |= now
        rows = set(size.rows) - (stored if now else asked)
    return size, bool(stored)
