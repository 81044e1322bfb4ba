"""Decisions to resize a matrix, from the loads of its cells and of the Redis nodes that store them (§IV.C).

A node is a primary of a Redis Cluster, or the standalone Redis. It may store cells of many matrices. The paper compares
the total load of these cells with thresholds. A Redis node also has work other than cells, so its load is measured as
processor utilisation, and the thresholds apply to single cells. Above a utilisation of 50 %, the thresholds of the
node's cells fall linearly, so that cells with less load request growth, too.

A replica is added only if it reduces the load of the busiest node that has cells of the matrix. The address H(pair, p,
r) of a cell determines its node. The row r of the new replica is therefore chosen from a few candidates such that the
load is spread evenly.

With a standalone Redis, more replicas would only add writes, and more partitions would not reduce the node's
registrations. Such a matrix grows only by its number of names.
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
"""Processor time of a query or a registration at a node, in seconds."""

_HALF_BUSY = 0.5
_IDLE_ENOUGH = 0.3
"""Processor utilisation (0 to 1) up to which a node's other work is ignored when replicas are placed."""
_LEAST_THRESHOLD_SHARE = 0.1
_MAX_ROW = 63
_MAX_PLACEMENTS = 1024
"""Maximum number of cells whose nodes are computed to choose one row. It limits the computing time."""
_WORTHWHILE = 0.5
"""Minimum benefit of a new replica: the part of the best possible reduction of the busiest node's load.

The best possible reduction is the node's load by this matrix divided by the new number of replicas.
"""


class RedisNodes(msgspec.Struct, frozen=True):
    """The nodes of Redis and their utilisation.

    ``node_of`` returns the node of a cell's address. ``busy`` has the processor utilisation (0 to 1) of each node.
    """

    node_of: Callable[[CellAddress], Node]
    busy: Mapping[Node, float]

    def busy_of(self, place: CellAddress) -> float:
        """Return the processor utilisation (0 to 1) of the node of the cell ``place``.

        The result is 1 if the node has not been measured, for example because it is down.
        """
        return self.busy.get(self.node_of(place), 1.0)


def limits_on_node(limits: MatrixLimits, busy: float) -> MatrixLimits:
    """Return the thresholds of the cells on a node with the processor utilisation ``busy`` (0 to 1).

    Above a utilisation of 0.5, the thresholds of registrations and queries fall linearly. The threshold of names does
    not change.
    """
    share = max(_LEAST_THRESHOLD_SHARE, min(1.0, (1 - busy) / (1 - _HALF_BUSY)))
    return msgspec.structs.replace(
        limits, registrations_s=limits.registrations_s * share, queries_s=limits.queries_s * share
    )


def can_request_growth(load: CellLoad, limits: MatrixLimits, nodes: RedisNodes) -> bool:
    """Return whether a cell with this load would request growth if its node had the processor utilisation 1.

    Thresholds are lowest at this utilisation. ``limits`` has the thresholds at a low utilisation.
    """
    kinds = resize_requests(_spreadable(load, nodes), limits_on_node(limits, 1.0))
    return ResizeKind.INC_P in kinds or ResizeKind.INC_R in kinds


def choose_resize(
    matrix: Matrix, loads: Mapping[CellAddress, CellLoad], nodes: RedisNodes, limits: MatrixLimits
) -> ResizeRequest | None:
    """Return the request that the head node of a matrix must carry out; None if the matrix has the right size.

    ``loads`` has the load of each of the matrix's cells. Each cell's requests are those of
    :func:`service.discovery.matrix.resize_requests`, with three differences:

    - The queries of a partition are counted as if they were spread evenly over its replicas, because a new replica has
      not measured its load yet.
    - With a standalone Redis, only the number of names can make a matrix grow.
    - A partition or replica is removed only if the cells that take over its load would have less than half of their
      limits.

    Requests to grow take precedence over requests to shrink, and then those of cells with more load.
    """
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

    With a standalone Redis, this is only the number of names: registrations and queries remain on the same node.
    """
    return load if len(nodes.busy) > 1 else CellLoad(load.names)


def _is_superfluous(request: ResizeRequest, placement: "_Placement", limits: MatrixLimits) -> bool:
    """Return whether the part of the matrix that ``request`` would remove is superfluous.

    It is superfluous if the cells that take over its load would have less than half of the load in ``limits``.
    """
    if request.kind is ResizeKind.DEC_P:
        last = request.place.partition
        return all(
            2 * fill_share(_sum([placement.load(last, row), placement.load(merge_target(last), row)]), limits) <= 1
            for row in placement.size.rows
        )
    return 2 * placement.most_queries_s() < limits.queries_s * (placement.size.replicas - 1)


def _useless_replica(matrix: Matrix, placement: "_Placement", limits: MatrixLimits) -> ResizeRequest | None:
    """Return the request to remove the last replica, if this replica does not reduce any node's load; otherwise None.

    A replica becomes useless when slots of the cluster are moved to other nodes, or all data to a standalone Redis.
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
    """The loads of a matrix's partitions, and the loads that nodes would have with other rows of replicas."""

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
        """Return the load of the cell of this partition and row."""
        return self._loads.get(CellAddress(self.pair, partition, row), CellLoad())

    def queries_s_at_replica(self, partition: int) -> float:
        """Return the queries per second that each replica of a partition receives if they are spread evenly."""
        return self._queries_s[partition] / self.size.replicas

    def most_queries_s(self) -> float:
        """Return the greatest number of queries per second of any partition, summed over its replicas."""
        return max(self._queries_s)

    def choose_rows(self, limits: MatrixLimits) -> tuple[int, ...]:
        """Return the rows of the replicas to add; the number of replicas at most doubles.

        The result is empty if no row would reduce the load of the busiest node that has cells of the matrix.
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
        """Return the load (events per second) that the busiest node would have if the matrix's replicas had these rows.

        Only nodes with cells of the matrix count. Their load is the sum of:

        - queries, which are divided among the replicas
        - registrations, which every replica receives
        - the node's other work, as the number of events with the same cost: the utilisation above ``_IDLE_ENOUGH``,
          minus the present load by this matrix
        """
        return self._busiest(rows)[0]

    def _busiest(self, rows: Sequence[int]) -> tuple[float, float]:
        """Return (the result of :meth:`busiest`, the part of this load that the matrix causes)."""
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
