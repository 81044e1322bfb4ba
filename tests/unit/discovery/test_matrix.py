"""The head node's handling of requests, and the partitions of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.discovery.cell_rounds import latest_size
from service.discovery.matrix import (
    CellAddress,
    CellLoad,
    Matrix,
    MatrixLimits,
    MatrixSize,
    RemovedPart,
    ResizeKind,
    ResizeRequest,
    after_removal,
    after_request,
    home_partition,
    merge_target,
    possible_partitions,
    probe_addresses,
    recover_matrix,
    resize_requests,
)
from service.discovery.matrix_cell import CellAnswer, CellState, Membership

LIMITS = MatrixLimits(partitions=8, replicas=4)


def request(matrix: Matrix, kind: ResizeKind, partition: int = 0, replica: int = 0) -> Matrix:
    return after_request(matrix, ResizeRequest(kind, CellAddress("a=1", partition, replica)), LIMITS)


def matrix_of(partitions: int, replicas: int = 1, *, new_partitions: int = 0) -> Matrix:
    return Matrix(MatrixSize(5, partitions, tuple(range(replicas))), new_partitions)


def test_partitions_and_replicas_double_up_to_the_limit() -> None:
    assert request(matrix_of(4), ResizeKind.INC_P).size == MatrixSize(6, 8)
    assert request(matrix_of(8), ResizeKind.INC_P) == matrix_of(8)
    assert request(matrix_of(4, 2), ResizeKind.INC_R).size == MatrixSize(6, 4, (0, 1, 2, 3))


def test_only_the_expansion_region_can_request_growth() -> None:
    matrix = matrix_of(4, new_partitions=2)
    assert request(matrix, ResizeKind.INC_P, partition=1) is matrix
    assert request(matrix, ResizeKind.INC_P, partition=2).new_partitions == 4


def test_a_matrix_that_is_not_settled_ignores_requests() -> None:
    growing = request(matrix_of(2), ResizeKind.INC_P)
    for kind in ResizeKind:
        assert request(growing, kind, partition=3) is growing


def test_only_the_last_partition_can_request_shrinking_and_one_cell_stays() -> None:
    assert request(matrix_of(4), ResizeKind.DEC_P, partition=2) == matrix_of(4)
    assert request(matrix_of(4), ResizeKind.DEC_P, partition=3).leaving is RemovedPart.PARTITION
    assert request(matrix_of(1), ResizeKind.DEC_P) == matrix_of(1)
    assert request(matrix_of(1), ResizeKind.DEC_R) == matrix_of(1)


def test_after_the_expansion_region_is_removed_the_upper_half_becomes_it() -> None:
    matrix, regions = matrix_of(8, new_partitions=4), []
    for last in range(7, 2, -1):
        matrix = after_removal(request(matrix, ResizeKind.DEC_P, partition=last))
        regions.append((matrix.size.partitions, matrix.new_partitions))
    assert regions == [(7, 4), (6, 4), (5, 4), (4, 2), (3, 2)]


def test_a_lost_head_is_recovered_from_the_newest_size() -> None:
    assert recover_matrix([MatrixSize(3, 8), MatrixSize(4, 7, (0, 5))]).size == MatrixSize(5, 7, (0, 5))


def test_probe_addresses_are_the_first_cells_of_each_growth() -> None:
    """A matrix is therefore found unless a cell of each of its growths is lost at the same time."""
    assert [(place.partition, place.replica) for place in probe_addresses("a=1", LIMITS)] == [
        *((partition, 0) for partition in (1, 2, 4)),
        *((0, row) for row in range(1, 9)),
    ]
    assert probe_addresses("a=1", MatrixLimits(partitions=1, replicas=1)) == ()


def test_the_latest_size_ignores_closed_cells() -> None:
    told = [
        CellAnswer(Membership(standing, MatrixSize(epoch, partitions)))
        for standing, epoch, partitions in (
            (CellState.OPEN, 2, 8),
            (CellState.FILLING, 4, 3),
            (CellState.CLOSED, 5, 4),
        )
    ]
    assert latest_size(MatrixSize(3, 4), *told, CellAnswer(None)) == MatrixSize(4, 3)
    assert latest_size(MatrixSize(3, 4), told[0], told[2]) == MatrixSize(3, 4)


@pytest.mark.parametrize(
    ("load", "kinds"),
    [
        (CellLoad(4000, 10, 100), {ResizeKind.INC_P}),
        (CellLoad(10, 50, 100), {ResizeKind.INC_P}),
        (CellLoad(10, 1, 200), {ResizeKind.DEC_P, ResizeKind.INC_R}),
        (CellLoad(3000, 1, 100), set()),
        (CellLoad(10, 1, 1), {ResizeKind.DEC_P, ResizeKind.DEC_R}),
    ],
)
def test_a_cell_requests_growth_at_a_threshold_and_shrinking_if_all_loads_are_low(
    load: CellLoad, kinds: set[ResizeKind]
) -> None:
    assert set(resize_requests(load, LIMITS)) == kinds


@given(draw=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 64), min_size=1))
def test_a_name_is_in_one_of_its_possible_partitions_for_any_earlier_size(draw: int, sizes: list[int]) -> None:
    """A matrix grows and shrinks through these sizes; the name was registered at one of them and moved by merges."""
    last = sizes[-1]
    for size in sizes:
        at = home_partition(draw, size)
        assert at < size
        while at >= last:
            at = merge_target(at)
        assert at in possible_partitions(draw, last)
