"""The workload of content discovery §V: names, queries, and matrices, whose cells are on 10,000 nodes.

A matrix is the group of nodes that store the names with one attribute-value pair. The names are divided into
*partitions*, and each partition may have several replicas. A *cell* is one replica of one partition, stored on one
node. Matrices grow by production's rules.

Deviation from the paper: cells are mapped to nodes by a 64-bit mixing function instead of SHA-1, which would take a
minute per run.
"""

# Names: the paper shows the distribution of attribute-value pairs only as a plot (Figure 7). Here the share of names
# that contain a pair decreases with the pair's rank by a Zipf distribution with exponent 0.88. For the first few pairs
# this formula would give shares above 100 %. Therefore shares are limited to 24 %, which applies to the five most
# popular pairs.
#
# Queries: each pair is in a query with probability 0.5/rank, independently of the others (the paper's plot is Figure
# 8). A pair has the same rank in names and queries. Of 100,000 queries drawn in this way 0.56 % are empty and left out;
# the paper has 99,473 queries. The queries have 4.9 pairs on average (in the paper four).
#
# Matrices: their records and transitions are production code. service.discovery.matrix.resize_requests computes a
# node's requests for more cells, and service.discovery.matrix.after_request the decision of the matrix's head node. New
# cells are available after the delays of the necessary messages. Nodes measure message rates as in §V.A.

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import msgspec
import numpy as np

from service.discovery.matrix import (
    WINDOW,
    CellAddress,
    CellLoad,
    Matrix,
    MatrixLimits,
    ResizeKind,
    ResizeRequest,
    after_request,
    resize_requests,
)
from service.simulate.numerics import Floats, Ints, mix_bits, ranges

ATTRIBUTES = 50
VALUES = 200
PAIRS = ATTRIBUTES * VALUES
NODES = 10_000
PAIRS_PER_NAME = 20
MAX_PAIRS = 10
NAMES = 100_000
QUERIES = 100_000

DELAY_S = 0.1
"""Mean delay of one message over the overlay. Delays are exponentially distributed."""
SERVICE_S = 0.001
"""Mean time in which a node processes one message, exponentially distributed. Messages do not wait for others, because
nodes are busy less than 20 % of the time."""

ZIPF_NAMES = 0.88
MOST_POPULAR = 0.24
ZIPF_K = 0.5


class QueryWorkload(msgspec.Struct, frozen=True):
    """A sequence of queries. All their attribute-value pairs are stored in one array.

    The pairs of query q are ``pair[begin[q]:begin[q + 1]]``.
    """

    pair: Ints
    begin: Ints

    @property
    def count(self) -> int:
        """The number of queries."""
        return len(self.begin) - 1

    def pairs_of(self, query: int) -> list[int]:
        """Return the attribute-value pairs of the query with the index ``query``."""
        return list(self.pair[self.begin[query] : self.begin[query + 1]].tolist())

    def first(self, count: int) -> "QueryWorkload":
        """Return the first ``count`` queries."""
        return QueryWorkload(self.pair[: self.begin[count]], self.begin[: count + 1])


def uniform_names(rng: np.random.Generator, count: int = NAMES) -> Ints:
    """Draw ``count`` names in which all attribute-value pairs are equally frequent.

    A name is a set of attribute-value pairs. Each row of the result contains the pairs of one name.
    """
    values = rng.integers(VALUES, size=(count, PAIRS_PER_NAME))
    return _attributes(rng, count) * VALUES + values


def skewed_names(rng: np.random.Generator, count: int = NAMES) -> Ints:
    """Draw ``count`` names whose attribute-value pairs have a Zipf distribution; pair 0 is the most frequent.

    A name is a set of attribute-value pairs. Each row of the result contains the pairs of one name.
    """
    popularity = name_popularity()
    slots = _by_attribute(popularity)
    attributes = _attributes(rng, count)
    names = np.empty((count, PAIRS_PER_NAME), dtype=np.int64)
    for attribute in range(ATTRIBUTES):
        where = attributes == attribute
        share = np.cumsum(popularity[slots[attribute]])
        drawn = np.searchsorted(share, rng.random(int(where.sum())) * share[-1], side="right")
        names[where] = slots[attribute][drawn]
    return names


def name_popularity() -> Floats:
    """Return, for each attribute-value pair, the fraction of names that contain it.

    Each name contains ``PAIRS_PER_NAME`` pairs, so the fractions add up to this number.
    """
    law = np.arange(1, PAIRS + 1) ** -ZIPF_NAMES
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(MOST_POPULAR, middle * law).sum() < PAIRS_PER_NAME else (low, middle)
    return np.asarray(np.minimum(MOST_POPULAR, low * law))


def zipf_queries(rng: np.random.Generator, count: int = QUERIES) -> QueryWorkload:
    """Draw queries of one to ten attribute-value pairs. The more popular a pair is, the more queries contain it.

    Queries drawn without any pair are left out, so the result can contain fewer than ``count`` queries.
    """
    often = 64
    dense = rng.random((count, often)) < ZIPF_K / np.arange(1, often + 1)
    query, pair = np.nonzero(dense)
    ranks = np.arange(often + 1, PAIRS + 1)
    rare = np.repeat(ranks - 1, rng.binomial(count, ZIPF_K / ranks))
    keys = np.unique(np.concatenate([query * PAIRS + pair, rng.integers(count, size=len(rare)) * PAIRS + rare]))
    keys = rng.permuted(keys)
    keys = keys[np.argsort(keys // PAIRS, kind="stable")]
    query, pair = keys // PAIRS, keys % PAIRS
    rank_in_query = np.arange(len(query)) - np.searchsorted(query, query)
    query, pair = query[rank_in_query < MAX_PAIRS], pair[rank_in_query < MAX_PAIRS]
    _, begin = np.unique(query, return_index=True)
    return QueryWorkload(pair, np.append(begin, len(pair)))


def _attributes(rng: np.random.Generator, count: int) -> Ints:
    return np.asarray(
        np.argpartition(rng.random((count, ATTRIBUTES), dtype=np.float32), PAIRS_PER_NAME, axis=1)[:, :PAIRS_PER_NAME]
    )


def _by_attribute(popularity: Floats) -> list[Ints]:
    """Divide the attribute-value pairs among the attributes; return the pairs of each attribute.

    ``popularity`` contains, for each pair, the fraction of names that contain it. Every attribute gets pairs with
    about the same total popularity.
    """
    pairs: list[list[int]] = [[] for _ in range(ATTRIBUTES)]
    heap = [(0.0, attribute) for attribute in range(ATTRIBUTES)]
    heapify(heap)
    for pair, share in enumerate(popularity):
        total, attribute = heappop(heap)
        pairs[attribute].append(pair)
        if len(pairs[attribute]) < VALUES:
            heappush(heap, (total + float(share), attribute))
    return [np.array(values) for values in pairs]


def node_of(pair: Ints, partition: Ints, replica: Ints, salt: int) -> Ints:
    """Return, for each cell of a matrix, the index of the node that stores it.

    A cell is one replica of one partition of the names with an attribute-value pair; ``pair``, ``partition`` and
    ``replica`` identify it. All nodes are equally likely. Different values of ``salt`` give independent results.
    """
    with np.errstate(over="ignore"):
        mixed = np.asarray(pair, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += np.asarray(partition, dtype=np.uint64) << np.uint64(20)
        mixed += np.asarray(replica, dtype=np.uint64) + np.uint64(salt << 40)
        mixed = mix_bits(mixed)
    return ((mixed >> np.uint64(32)) * np.uint64(NODES) >> np.uint64(32)).astype(np.int64)


class RateWindows:
    """The arrival times of the last ``WINDOW`` messages at each node, from which nodes compute their message rates."""

    def __init__(self) -> None:
        self._times = np.full(NODES * WINDOW, -np.inf)
        self._count = np.zeros(NODES, dtype=np.int64)

    def current_rates_per_s(self, node: Ints, time_s: Floats) -> Floats:
        """Return, for each ``node``, the message rate that it observes at the corresponding time in ``time_s``.

        Unlike :meth:`record_messages`, this method does not record a message.
        """
        oldest = self._times[node * WINDOW + self._count[node] % WINDOW]
        return np.asarray(WINDOW / np.maximum(time_s - oldest, 1e-9))

    def record_messages(self, node: Ints, time_s: Floats) -> Floats:
        """Record one message at each ``node``; return, for each message, the rate that its node then observes.

        ``time_s`` contains the messages' arrival times, in ascending order. A rate is computed from the node's last
        ``WINDOW`` messages.
        """
        order = np.argsort(node.astype(np.uint16), kind="stable")  # uint16 uses radix sort
        of, at = node[order], time_s[order]
        first = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if len(of) else np.zeros(0, dtype=np.int64)
        sizes = np.diff(np.append(first, len(of)))
        nth = ranges(0, sizes)
        slot = of * WINDOW + (self._count[of] + nth) % WINDOW
        before = self._times[slot]
        late = np.flatnonzero(nth >= WINDOW)
        before[late] = at[late - WINDOW]
        self._times[slot] = at
        self._count[of[first]] += sizes
        rates = np.empty(len(of))
        rates[order] = WINDOW / np.maximum(at - before, 1e-9)
        return rates


ROUND_TRIP = 2
COPY = 3
"""Number of successive messages until new replicas are available: request, confirmation, and copy of the names. New
partitions are available after only ``ROUND_TRIP`` messages, because they need no copy."""


class SimulatedMatrices:
    """The matrices of all attribute-value pairs.

    A pair's matrix is the group of nodes that store the names with this pair. It grows with its load.
    """

    def __init__(self, limits: MatrixLimits, rng: np.random.Generator) -> None:
        self.limits = limits
        self.partitions = np.ones(PAIRS, dtype=np.int64)
        self.replicas = np.ones(PAIRS, dtype=np.int64)
        self.growing = np.zeros(PAIRS, dtype=np.bool_)
        self.begun = np.zeros(PAIRS, dtype=np.bool_)
        """Whether a name with the pair was registered."""
        self.salt = int(rng.integers(2**20))
        self._rng = rng
        self._records: dict[int, Matrix] = {}
        self._ready_s: dict[int, float] = {}
        """When the new cells of each growing matrix are available."""

    def complete_growth(self, now_s: float) -> None:
        """Complete the growth of all matrices with new nodes that are ready at ``now_s``.

        A matrix is the group of nodes that store the names with one attribute-value pair. From now on, clients see
        the new sizes of these matrices.
        """
        for pair in [pair for pair, ready_s in self._ready_s.items() if ready_s <= now_s]:
            del self._ready_s[pair]
            self.growing[pair] = False
            record = msgspec.structs.replace(self._records[pair], settled=True)
            self._records[pair] = record
            self.partitions[pair], self.replicas[pair] = record.size.partitions, record.size.replicas

    def partitions_of(self, pairs: Iterable[int]) -> dict[int, int]:
        """Map each pair in ``pairs`` to the number of partitions of the pair's matrix.

        The number is 0 if no name with the pair has been registered.
        """
        return {pair: int(self.partitions[pair]) if self.begun[pair] else 0 for pair in pairs}

    def report_registrations(self, pair: Ints, partition: Ints, counts: Ints, rate_s: Floats, now_s: float) -> None:
        """Start the growth of matrices in which registrations overload a cell.

        A cell is one partition of the names with an attribute-value pair. The cells for a pair are its matrix. The
        arrays have one element per message to a cell.

        - ``pair`` and ``partition`` identify the cell.
        - ``counts`` contains the number of names on the cell's node.
        - ``rate_s`` contains the registrations per second that the cell's node observes.
        - ``now_s`` is the simulated time.
        """
        self.begun[pair] = True
        few_queries_s = self.limits.queries_s * self.limits.low
        is_overloaded = (rate_s >= self.limits.registrations_s) | (counts >= self.limits.names)
        is_overloaded &= (self.partitions[pair] < self.limits.partitions) & ~self.growing[pair]
        for at in np.flatnonzero(is_overloaded):
            load = CellLoad(int(counts[at]), float(rate_s[at]), few_queries_s)
            self._request_growth(load, int(pair[at]), int(partition[at]), 0, now_s)

    def report_queries(self, pair: Ints, partition: Ints, replica: Ints, rate_s: Floats, now_s: float) -> None:
        """Start the growth of matrices in which queries overload a cell.

        A cell is one replica of one partition of the names with an attribute-value pair. The cells for a pair are its
        matrix. The arrays have one element per query.

        - ``pair``, ``partition`` and ``replica`` identify the cell.
        - ``rate_s`` contains the queries per second that the cell's node observes.
        - ``now_s`` is the simulated time.
        """
        few_names_s = self.limits.registrations_s * self.limits.low
        is_overloaded = (rate_s >= self.limits.queries_s) & (self.replicas[pair] < self.limits.replicas)
        for at in np.flatnonzero(is_overloaded & ~self.growing[pair]):
            load = CellLoad(0, few_names_s, float(rate_s[at]))
            self._request_growth(load, int(pair[at]), int(partition[at]), int(replica[at]), now_s)

    def _request_growth(self, load: CellLoad, pair: int, partition: int, replica: int, now_s: float) -> None:
        if self.growing[pair]:
            return
        before, cell = self._records.get(pair, Matrix()), CellAddress(str(pair), partition, replica)
        for kind in resize_requests(load, self.limits):
            after = after_request(before, ResizeRequest(kind, cell), self.limits)
            if after is not before:
                self._records[pair] = after
                self._ready_s[pair] = now_s + self._growth_delay_s(kind, before, after)
                self.growing[pair] = True
                return

    def _growth_delay_s(self, kind: ResizeKind, before: Matrix, after: Matrix) -> float:
        if kind is ResizeKind.INC_P:
            return float(self._rng.gamma(ROUND_TRIP, DELAY_S))
        cells = after.size.partitions * (after.size.replicas - before.size.replicas)
        return float(self._rng.gamma(COPY, DELAY_S, size=cells).max())
