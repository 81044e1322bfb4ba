"""Queries of the experiment ``discovery``: which matrix each is sent to, and what becomes of it (§V.B, §VI.C)."""

from enum import StrEnum

import numpy as np

from service.discovery.finding import chosen, unsure
from service.discovery.matrix import Size
from service.simulate.discovery_matrices import Matrices
from service.simulate.discovery_nodes import Windows, node_of
from service.simulate.discovery_registrations import Moments, each_of, slowest
from service.simulate.discovery_workload import DELAY_S, Queries
from service.simulate.trace import Floats, Ints

CLIENTS = 16
"""Processes that ask for everybody, and remember sizes."""


class Scheme(StrEnum):
    """Which of a query's pairs is asked."""

    RANDOM = "random"
    OPTIMISED = "optimised"


class Asked:
    """Queries that are sent at some rate."""

    def __init__(
        self,
        queries: Queries,
        rate_s: float,
        begin_s: float,
        matrices: Matrices,
        *,
        scheme: Scheme,
        rng: np.random.Generator,
    ) -> None:
        self.windows = Windows()
        self.succeeds = np.ones(queries.count, dtype=np.bool_)
        self._queries, self._matrices, self._scheme, self._rng = queries, matrices, scheme, rng
        probes = np.diff(queries.begin) if scheme is Scheme.OPTIMISED else np.ones(queries.count, dtype=np.int64)
        self._probing_s = slowest(probes, rng)
        sent_s = begin_s + np.cumsum(rng.exponential(1 / rate_s, queries.count))
        self._arrives_s = sent_s + self._probing_s + rng.exponential(DELAY_S, queries.count)
        self.pair = np.zeros(queries.count, dtype=np.int64)
        self.partitions = np.ones(queries.count, dtype=np.int64)
        self._replicas = np.ones(queries.count, dtype=np.int64)
        self._choosing, self._arriving = Moments(sent_s + self._probing_s), Moments(self._arrives_s)

    @property
    def last_s(self) -> float:
        """Return when the last message arrives."""
        return float(self._arrives_s.max())

    def until(self, end_s: float) -> None:
        """Carry out what happens until then."""
        self._choose(self._choosing.until(end_s))
        self._arrive(self._arriving.until(end_s), end_s)

    def response_s(self) -> Floats:
        """Return how long each query took that succeeded: asking for sizes, then all partitions."""
        return (self._probing_s + slowest(self.partitions, self._rng))[self.succeeds]

    def _choose(self, which: Ints) -> None:
        begin, length = self._queries.begin[which], np.diff(self._queries.begin)[which]
        draws = self._rng.integers(2**32, size=len(which))
        if self._scheme is Scheme.RANDOM:
            self.pair[which] = self._queries.pair[begin + draws % length]
        else:
            sizes = self._matrices.size_of
            for query, first, count, draw in zip(
                *(part.tolist() for part in (which, begin, length, draws)), strict=True
            ):
                pairs = self._queries.pair[first : first + count].tolist()
                self.pair[query] = int(chosen({str(pair): sizes(pair) for pair in pairs}, draw))
        self.partitions[which] = self._matrices.partitions[self.pair[which]]
        self._replicas[which] = self._matrices.replicas[self.pair[which]]

    def _arrive(self, which: Ints, end_s: float) -> None:
        which, partition = each_of(which, self.partitions[which])
        pair = self.pair[which]
        replica = (self._rng.random(len(which)) * self._replicas[which]).astype(np.int64)
        node = node_of(pair, partition, replica, self._matrices.salt)
        rates = self.windows.rates_per_s(node, self._arrives_s[which])
        self.succeeds[which[rates > self._matrices.limits.queries_s]] = False
        self._matrices.queried(pair, partition, replica, rates, end_s)


def probes_with_memory(queries: Queries, matrices: Matrices, rng: np.random.Generator) -> float:
    """Return how many sizes are asked for per query, where each client remembers those it has asked for."""
    known: list[dict[str, Size]] = [{} for _ in range(CLIENTS)]
    probes = 0
    draws = rng.integers(2**32, size=queries.count).tolist()
    for query, client in enumerate(rng.integers(CLIENTS, size=queries.count).tolist()):
        pairs = [str(pair) for pair in queries.pair[queries.begin[query] : queries.begin[query + 1]].tolist()]
        while (unknown := unsure(pairs, known[client], draws[query])) is not None:
            known[client][unknown] = matrices.size_of(int(unknown))
            probes += 1
    return probes / queries.count
