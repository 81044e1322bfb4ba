"""Which change of size the loads of cells and nodes call for, and on which nodes replicas are added."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from service.discovery.matrix import (
    SECOND_ROWS,
    CellAddress,
    CellLoad,
    Matrix,
    MatrixLimits,
    MatrixSize,
    ResizeKind,
    ResizeRequest,
    after_removal,
    after_request,
    cell_addresses,
)
from service.discovery.matrix_resize_policy import Node, RedisNodes, choose_resize, limits_on_node
from service.store.client.keys import cell

LIMITS = MatrixLimits(names=4000, registrations_s=400.0, queries_s=100.0)


def cluster(primaries: int, busy: dict[int, float] | None = None) -> RedisNodes:
    """Return the nodes of a cluster with equal parts of the slots; without ``primaries``, those of a single Redis."""
    if not primaries:
        return RedisNodes(lambda _: None, {None: 0.0})
    shares: dict[Node, float] = {("n", n): (busy or {}).get(n, 0.0) for n in range(primaries)}

    def node_of(place: CellAddress) -> Node:
        slot = key_slot(cell(place)[0].encode())
        return ("n", slot * primaries // 16_384)

    return RedisNodes(node_of, shares)


def loads_of(pair: str, size: MatrixSize, queries_s: float, names: int = 10) -> dict[CellAddress, CellLoad]:
    """Return the loads of cells if the matrix gets ``queries_s`` queries, evenly spread over replicas."""
    return {place: CellLoad(names, 0.1, queries_s / size.replicas) for place in cell_addresses(pair, size)}


def resized(pair: str, matrix: Matrix, nodes: RedisNodes, queries_s: float) -> Matrix:
    """Return the matrix after all changes that the load calls for."""
    for _ in range(100):
        request = choose_resize(matrix, loads_of(pair, matrix.size, queries_s), nodes, LIMITS)
        if request is None:
            return matrix
        changed = after_request(matrix, request, LIMITS)
        assert changed is not matrix
        matrix = after_removal(changed)
    raise AssertionError("the size never settles")


def carried(pair: str, matrix: Matrix, nodes: RedisNodes) -> list[float]:
    """Return the share of the queries that each primary carries, in units of the mean."""
    cells = Counter(nodes.node_of(place) for place in cell_addresses(pair, matrix.size))
    return [cells[node] * len(nodes.busy) / cells.total() for node in nodes.busy]


@pytest.mark.parametrize("primaries", [2, 3, 6])
@given(
    pair=st.binary(min_size=8, max_size=8).map(lambda digest: digest.decode("latin-1")), queries_s=st.floats(500, 5_000)
)
def test_queries_for_one_pair_are_spread_evenly_over_the_primaries(primaries: int, pair: str, queries_s: float) -> None:
    nodes = cluster(primaries)
    matrix = resized(pair, Matrix(), nodes, queries_s)
    if primaries == 2 and {nodes.node_of(CellAddress(pair, 0, row)) for row in (0, *SECOND_ROWS)} != set(nodes.busy):
        return  # one of 256 pairs has no row on the other primary
    assert max(carried(pair, matrix, nodes)) <= 1.3
    assert matrix.size.rows[0] == 0
    assert matrix.size.rows[1] in SECOND_ROWS
    assert resized(pair, matrix, nodes, 5.0).size.rows == (0,)


@given(queries_s=st.floats(0, 1e6), rows=st.sampled_from([(0,), (0, 3), (0, 3, 9)]))
def test_a_single_redis_gets_no_replicas(queries_s: float, rows: tuple[int, ...]) -> None:
    assert resized("a", Matrix(MatrixSize(5, 1, rows)), cluster(0), queries_s).size.rows == (0,)


def test_registrations_add_partitions_only_if_there_are_several_nodes() -> None:
    busy = {CellAddress("a"): CellLoad(10, 500.0, 0.0)}
    assert choose_resize(Matrix(), busy, cluster(0), LIMITS) is None
    request = choose_resize(Matrix(), busy, cluster(3), LIMITS)
    assert request is not None
    assert request.kind is ResizeKind.INC_P


def test_too_many_names_add_partitions_on_any_redis() -> None:
    for nodes in (cluster(0), cluster(3)):
        request = choose_resize(Matrix(), {CellAddress("a"): CellLoad(4000)}, nodes, LIMITS)
        assert request == ResizeRequest(ResizeKind.INC_P, CellAddress("a"))


def test_cells_of_a_busy_node_request_replicas_at_a_lower_load() -> None:
    at = cluster(3).node_of(CellAddress("a"))
    assert isinstance(at, tuple)
    load = {CellAddress("a"): CellLoad(10, 0.0, 40.0)}
    assert choose_resize(Matrix(), load, cluster(3), LIMITS) is None
    request = choose_resize(Matrix(), load, cluster(3, {at[1]: 0.9}), LIMITS)
    assert request is not None
    assert request.kind is ResizeKind.INC_R
    assert limits_on_node(LIMITS, 0.5) == LIMITS
    assert limits_on_node(LIMITS, 1.0).queries_s == 10.0


def test_no_replica_is_added_where_the_other_nodes_are_as_busy() -> None:
    at = cluster(3).node_of(CellAddress("a"))
    assert isinstance(at, tuple)
    others = {n: 0.95 for n in range(3) if n != at[1]}
    assert choose_resize(Matrix(), loads_of("a", MatrixSize(), 500.0), cluster(3, others), LIMITS) is None


def test_nodes_that_were_not_measured_get_no_replica() -> None:
    nodes = RedisNodes(cluster(3).node_of, {("other", 1): 0.0, ("other", 2): 0.0})
    assert choose_resize(Matrix(), loads_of("a", MatrixSize(), 500.0), nodes, LIMITS) is None


def test_a_replica_that_shares_its_node_with_another_is_removed() -> None:
    """This is so after slots have moved to other nodes."""
    nodes = cluster(2)
    same = [row for row in range(1, 64) if nodes.node_of(CellAddress("a", 0, row)) == nodes.node_of(CellAddress("a"))]
    matrix = Matrix(MatrixSize(7, 1, (0, same[0])))
    request = choose_resize(matrix, loads_of("a", matrix.size, 500.0), nodes, LIMITS)
    assert request is not None
    assert (request.kind, request.place.replica) == (ResizeKind.DEC_R, same[0])


def test_a_partition_is_removed_only_if_the_target_has_spare_capacity() -> None:
    """The target is new: it has reported no rate yet, and seems to have no load."""
    matrix = Matrix(MatrixSize(5, 2), new_partitions=1)
    full, empty = CellLoad(3000), CellLoad(5)
    places = cell_addresses("a", matrix.size)
    assert choose_resize(matrix, dict(zip(places, (full, empty), strict=True)), cluster(0), LIMITS) is None
    request = choose_resize(matrix, dict(zip(places, (empty, empty), strict=True)), cluster(0), LIMITS)
    assert request == ResizeRequest(ResizeKind.DEC_P, places[1])
