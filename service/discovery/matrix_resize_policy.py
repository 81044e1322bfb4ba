"""The policy for resizing a matrix, a table of cells with partitions and replicas (Gao & Steenkiste §IV.C).

The decisions depend on the loads of the cells, and on the loads of the *nodes* that store them. A node is a primary of
a Redis Cluster, or the standalone Redis. It may store cells of many matrices.

- *Thresholds:* a cell that reaches a threshold requests growth. When the processor utilisation of a node rises above
  50 %, the thresholds of its cells for registrations and queries fall linearly.
- *Replicas:* a replica is added only if it reduces the load of the busiest node that has cells of the matrix. A cell's
  address H(pair, p, r) determines its node. The row number r of a new replica is therefore chosen so that the load is
  spread evenly.
- *Standalone Redis:* a matrix grows only because of its number of names. More replicas would only add writes, and more
  partitions would not reduce the number of registrations that the node handles.

Deviation: the paper compares the total load of a node's cells with the thresholds. A Redis node also has other work.
Its load is therefore measured as processor utilisation, and the thresholds apply to single cells.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from service.discovery.matrix import (
    SECOND_ROWS,
    CellAddress,
    CellLoad,
    Matrix,
    MatrixLimits,
    MatrixSize,
    ResizeKind,
    ResizeRequest,
    after_request,
    fill_share,
    merge_target,
    resize_requests,
)

Node = tuple[str, int] | None
"""A node of Redis: host and port of a primary, or None for a standalone Redis."""

QUERY_COST_S = 50e-6
"""Processor time that a node needs for a query or a registration, in seconds."""

_HALF_BUSY = 0.5
_IDLE_ENOUGH = 0.3
"""Processor utilisation (0 to 1) up to which a node's other work is ignored when replicas are placed."""
_LEAST_THRESHOLD_SHARE = 0.1
_MAX_ROW = 63
_MAX_PLACEMENTS = 1024
"""Maximum number of cells whose nodes are computed to choose one row. It limits the computing time."""
_WORTHWHILE = 0.5
"""Minimum benefit of a new replica, as a fraction of the best possible benefit.

The benefit is the reduction of the load of the busiest node. At best, this is the part of the load that the matrix
causes, divided by the new number of replicas.
"""


class RedisNodes(msgspec.Struct, frozen=True):
    """The nodes of Redis and their processor utilisation.

    - ``node_of``: function that returns the node on which the cell with a given address is stored.
    - ``busy``: the utilisation (0 to 1) of each node.
    """

    node_of: Callable[[CellAddress], Node]
    busy: Mapping[Node, float]

    def busy_of(self, place: CellAddress) -> float:
        """Return the processor utilisation (0 to 1) of the node that stores the cell ``place``.

        The result is 1 if the node has not been measured, for example because it is down.
        """
        return self.busy.get(self.node_of(place), 1.0)


def limits_on_node(limits: MatrixLimits, busy: float) -> MatrixLimits:
    """Return the thresholds that apply to cells on a node with the processor utilisation ``busy`` (0 to 1).

    ``limits`` contains the thresholds for an idle node. Above a utilisation of 0.5, the thresholds for registrations
    and queries fall linearly, down to a minimum. The threshold for names does not change.
    """
    share = max(_LEAST_THRESHOLD_SHARE, min(1.0, (1 - busy) / (1 - _HALF_BUSY)))
    return msgspec.structs.replace(
        limits, registrations_s=limits.registrations_s * share, queries_s=limits.queries_s * share
    )


def can_request_growth(load: CellLoad, limits: MatrixLimits, nodes: RedisNodes) -> bool:
    """Return whether a cell with this load would request growth if its node were fully busy.

    Thresholds are lowest on a fully busy node. A cell for which the result is False therefore does not request growth
    at any utilisation. ``limits`` contains the thresholds for an idle node.
    """
    kinds = resize_requests(_spreadable(load, nodes), limits_on_node(limits, 1.0))
    return ResizeKind.INC_P in kinds or ResizeKind.INC_R in kinds


def choose_resize(
    matrix: Matrix, loads: Mapping[CellAddress, CellLoad], nodes: RedisNodes, limits: MatrixLimits
) -> ResizeRequest | None:
    """Return the change of size that a matrix needs, or None if its size is right.

    - ``matrix``: the record of the matrix.
    - ``loads``: the load of each of the matrix's cells.
    - ``nodes``: the nodes of Redis that store the cells.
    - ``limits``: the thresholds for cells on an idle node.

    Each cell requests the changes that :func:`service.discovery.matrix.resize_requests` returns for its load. There are
    three exceptions:

    - The queries of a partition are counted as if they were spread evenly over its replicas.
    - With a standalone Redis, only the number of names can make a matrix grow.
    - A partition or replica is removed only if the cells that take over its load would not exceed half of their
      thresholds.

    One change is chosen, in this order of precedence:

    1. Remove the last replica if it does not reduce the load of the busiest node.
    2. Grow, preferably as requested by the cell with the highest load.
    3. Shrink.
    """
    # The queries are spread evenly because a new replica has not measured its load yet.
    placement = _Placement(matrix.size, loads, nodes)
    loads = {
        place: msgspec.structs.replace(load, queries_s=placement.queries_s_at_replica(place.partition))
        for place, load in loads.items()
    }
    if useless := _useless_replica(matrix, placement, limits):
        return useless
    order = sorted(loads, key=lambda place: (-loads[place].queries_s - loads[place].registrations_s, place))
    shrinking = None
    for place in order:
        own_limits = limits_on_node(limits, nodes.busy_of(place))
        for kind in resize_requests(_spreadable(loads[place], nodes), own_limits):
            request = ResizeRequest(kind, place)
            if kind is ResizeKind.INC_R:
                request = ResizeRequest(kind, place, placement.choose_rows(limits))
                if not request.new_rows:
                    continue
            if after_request(matrix, request, limits) is matrix:
                continue
            if kind in (ResizeKind.INC_P, ResizeKind.INC_R):
                return request
            if shrinking is None and _is_superfluous(request, placement, own_limits):
                shrinking = request
    return shrinking


def _spreadable(load: CellLoad, nodes: RedisNodes) -> CellLoad:
    """Return the part of a cell's load that additional cells could take over.

    With a standalone Redis, this is only the number of names: registrations and queries would still be handled by the
    same node.
    """
    return load if len(nodes.busy) > 1 else CellLoad(load.names)


def _is_superfluous(request: ResizeRequest, placement: "_Placement", limits: MatrixLimits) -> bool:
    """Return whether the matrix can do without the part (partition or replica) that ``request`` would remove.

    The part is superfluous if the cells that would take over its load would not exceed half of the thresholds in
    ``limits``.
    """
    if request.kind is ResizeKind.DEC_P:
        last = request.place.partition
        return all(
            2 * fill_share(_sum([placement.load(last, row), placement.load(merge_target(last), row)]), limits) <= 1
            for row in placement.size.rows
        )
    return 2 * placement.most_queries_s() < limits.queries_s * (placement.size.replicas - 1)


def _useless_replica(matrix: Matrix, placement: "_Placement", limits: MatrixLimits) -> ResizeRequest | None:
    """Return a request to remove the last replica if it does not reduce the load of the busiest node; otherwise None.

    A replica can become useless when its cells are moved to other nodes of Redis.
    """
    rows = matrix.size.rows
    if len(rows) == 1 or placement.busiest(rows[:-1]) > placement.busiest(rows):
        return None
    request = ResizeRequest(ResizeKind.DEC_R, CellAddress(placement.pair, 0, rows[-1]))
    return request if after_request(matrix, request, limits) is not matrix else None


def _sum(loads: Sequence[CellLoad]) -> CellLoad:
    return CellLoad(
        sum(load.names for load in loads),
        sum(load.registrations_s for load in loads),
        sum(load.queries_s for load in loads),
    )


class _Placement:
    """Computes the load of the nodes of Redis that store a matrix, for its present replicas or for other ones.

    The row numbers of the replicas determine which nodes store their cells.
    """

    def __init__(self, size: MatrixSize, loads: Mapping[CellAddress, CellLoad], nodes: RedisNodes) -> None:
        self.size = size
        self._loads, self._nodes = loads, nodes
        self.pair = next(iter(loads)).pair if loads else ""
        self._queries_s = [0.0] * size.partitions
        self._registrations_s = [0.0] * size.partitions
        self._carried: dict[Node, float] = {}
        for place, load in loads.items():
            self._queries_s[place.partition] += load.queries_s
            most = max(self._registrations_s[place.partition], load.registrations_s)
            self._registrations_s[place.partition] = most
            node = nodes.node_of(place)
            self._carried[node] = self._carried.get(node, 0.0) + load.queries_s + load.registrations_s
        self._nodes_of_rows: dict[int, tuple[Node, ...]] = {}

    def load(self, partition: int, row: int) -> CellLoad:
        """Return the load of the cell in the given partition and in the replica with row number ``row``."""
        return self._loads.get(CellAddress(self.pair, partition, row), CellLoad())

    def queries_s_at_replica(self, partition: int) -> float:
        """Return how many queries per second each replica of ``partition`` gets, if they are spread evenly."""
        return self._queries_s[partition] / self.size.replicas

    def most_queries_s(self) -> float:
        """Return the queries per second of the busiest partition, summed over its replicas."""
        return max(self._queries_s)

    def choose_rows(self, limits: MatrixLimits) -> tuple[int, ...]:
        """Return the row numbers of the replicas to add: at most as many as the matrix already has.

        The result is empty if no new replica would sufficiently reduce the load of the busiest node that has cells of
        the matrix.
        """
        rows = self.size.rows
        added: tuple[int, ...] = ()
        while len(added) < min(len(rows), limits.replicas - len(rows)):
            present = rows + added
            candidates = SECOND_ROWS if len(present) == 1 else range(1, _MAX_ROW + 1)
            free = [row for row in candidates if row not in present]
            free = free[: max(len(SECOND_ROWS), _MAX_PLACEMENTS // self.size.partitions)]
            best = min(free, key=lambda row: self.busiest((*present, row)), default=None)
            if best is None:
                break
            most, own = self._busiest(present)
            if most - self.busiest((*present, best)) < _WORTHWHILE * own / (len(present) + 1):
                break
            added += (best,)
        return added

    def busiest(self, rows: Sequence[int]) -> float:
        """Return the load of the busiest node, in events per second, if the replicas had the row numbers ``rows``.

        Only nodes that would then store cells of the matrix are considered. The load of a node is the sum of:

        - the queries to the node's cells, if each partition's queries are divided evenly among its replicas
        - the registrations in the node's cells; every replica receives all registrations of its partition
        - the node's other work, converted to the number of events that would take the same processor time
        """
        # The other work is the utilisation above _IDLE_ENOUGH, minus the present load by this matrix.
        return self._busiest(rows)[0]

    def _busiest(self, rows: Sequence[int]) -> tuple[float, float]:
        """Return (the load of the busiest node as in :meth:`busiest`, the part of this load that the matrix causes)."""
        own: dict[Node, float] = {}
        for row in rows:
            for partition, node in enumerate(self._row_nodes(row)):
                load = self._queries_s[partition] / len(rows) + self._registrations_s[partition]
                own[node] = own.get(node, 0.0) + load
        return max((load + self._other_work_s(node), load) for node, load in own.items())

    def _other_work_s(self, node: Node) -> float:
        busy = self._nodes.busy.get(node, 1.0)
        return max(0.0, (busy - _IDLE_ENOUGH) / QUERY_COST_S - self._carried.get(node, 0.0))

    def _row_nodes(self, row: int) -> tuple[Node, ...]:
        if row not in self._nodes_of_rows:
            partitions = range(self.size.partitions)
            self._nodes_of_rows[row] = tuple(
                self._nodes.node_of(CellAddress(self.pair, partition, row)) for partition in partitions
            )
        return self._nodes_of_rows[row]
