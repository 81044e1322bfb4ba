"""The protocols that register and withdraw a name, which is a channel or an entry (Gao & Steenkiste §IV.B.1).

Each attribute-value pair has a matrix, a table of cells with partitions and replicas. A name is registered in the
matrices of all its pairs. In each matrix, it is stored in all replicas of one partition:

1. The name is written to all known replicas, and to replicas that are added during the registration.
2. If a replica is absent, the write to this replica is retried once, after all other writes. A replica that opens
   after this retry is filled from the other replicas.
3. A partition that has been removed or is not open yet rejects the name. The name is then stored in the partition's
   *merge target*, the partition that takes over the names of a removed partition.
4. If the matrix gets partitions during the registration, some replicas store the name and others reject it. It is then
   registered again in its new partition.

Deviation: the paper chooses a partition at random for each registration. Here the partition is computed from the name,
so that every process refreshes the name in the same partition.

Names can be registered even while the matrix is being resized.
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
from service.discovery.matrix_cell import CellState, PutPostings, ReadState
from service.discovery.postings import Posting, pack
from service.errors import CellsUnavailable

MAX_TRIES = 8
"""Maximum number of partitions that a registration tries until one stores the name."""


def register(pair: PairKey, posting: Posting, cached_size: MatrixSize | None = None) -> Rounds[MatrixSize]:
    """Store a name's posting (record) in the matrix of the attribute-value pair ``pair``.

    If a cell already has a posting of this name, it keeps the one that expires later. Return the newest known size of
    the matrix.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.

    ``cached_size`` is the matrix size that the caller has cached, or None. Raises :class:`CellsUnavailable` if no cell
    has stored the name after ``MAX_TRIES`` attempts.
    """
    size, _ = yield from _register(pair, posting, cached_size)
    return size


def withdraw(pair: PairKey, posting: Posting, cached_size: MatrixSize | None = None) -> Rounds[MatrixSize]:
    """Withdraw a name from the matrix of the attribute-value pair ``pair``.

    ``posting`` is a record of the name with weight 0. It is stored in all partitions in which the name may have been
    registered. Return the newest known size of the matrix. While the head cell is lost, a caller that does not know the
    size reaches only the head. The next pass of resizing then copies the withdrawal to the other replicas.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.

    ``cached_size`` is the matrix size that the caller has cached, or None. Raises :class:`CellsUnavailable` if no cell
    has stored the withdrawal after ``MAX_TRIES`` attempts.
    """
    size, first = yield from _register(pair, posting, cached_size)
    done = {first}
    while others := [number for number in possible_partitions(posting.name, size.partitions) if number not in done]:
        results = yield from run_together(
            [_put_in_replicas(CellAddress(pair, number), posting, size, size) for number in others]
        )
        size = max(size, *(found for found, _ in results))
        done.update(others)
    return size


def _register(pair: PairKey, posting: Posting, cached_size: MatrixSize | None) -> Rounds[tuple[MatrixSize, int]]:
    size = cached_size if cached_size is not None else (yield from _read_size(pair))
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
    """Store a posting (record of a name) in all replicas of the partition that contains the cell ``address``.

    Return (the newest known size of the matrix, whether the posting is stored). It is stored if at least one replica
    has it, and none has rejected it because the matrix has more partitions than assumed.

    This is a generator: in each round, it yields the commands to run, and the caller sends back the cells' answers.

    - ``size``: the newest size that the caller knows.
    - ``assumed_size``: the size from which the caller has computed the partition.
    """
    packed = pack([posting])
    stored: set[int] = set()
    asked: set[int] = set()
    has_grown = False
    rows = set(size.rows)
    while rows:
        order = sorted(rows)
        asked |= rows
        puts = [PutPostings(msgspec.structs.replace(address, replica=row), packed, assumed_size) for row in order]
        answers = yield puts
        size = latest_size(size, *answers)
        now = {row for row, answer in zip(order, answers, strict=True) if answer.done}
        # Open and filling cells reject a name only if the matrix has grown since its size was read.
        has_grown |= any(not answer.done and answer.is_in(CellState.OPEN, CellState.FILLING) for answer in answers)
        stored |= now
        rows = set(size.rows) - (stored if now else asked)
    return size, bool(stored) and not has_grown
