"""Queries that want a few names and ask no more partitions than those are found in, as production's ``find`` does.

The paper leaves open how many partitions of a matrix are enough (§IV.B.2); production asks one, and then as many as it
takes for the rest to be found, if names are as dense there: :func:`service.discovery.finding.partitions_wanted`.
"""

from typing import Any

import numpy as np

from service.discovery.finding import chosen, partitions_wanted
from service.simulate.discovery_matrices import Matrices
from service.simulate.discovery_nodes import Windows, node_of
from service.simulate.discovery_registrations import Moments, Registrations, slowest
from service.simulate.discovery_workload import DELAY_S, PER_NAME, Queries
from service.simulate.trace import Floats, Ints

LIMIT = 10
"""Names that a query wants."""


class Held:
    """Which names lie in which partitions after a dataset was registered: those that succeeded whole."""

    def __init__(self, registered: Registrations) -> None:
        self._registered = registered
        self._order = np.argsort(registered.pair, kind="stable")
        self._begin = np.searchsorted(registered.pair[self._order], np.arange(registered.pair.max() + 2))
        self._bits: dict[int, Any] = {}

    def spread(self, pairs: list[int], asked: int, partitions: int) -> Ints:
        """Return how many names with all these pairs each partition of one of them has."""
        bits = np.bitwise_and.reduce([self._names_with(pair) for pair in pairs])
        names = np.flatnonzero(np.unpackbits(bits, count=len(self._registered.succeeds)))
        slots = self._slots(asked)
        where = slots[np.searchsorted(slots // PER_NAME, names)]
        counts: Ints = np.bincount(self._registered.partition[where], minlength=partitions)
        return counts

    def _slots(self, pair: int) -> Ints:
        """Return the registrations in a pair's matrix, by name."""
        slots: Ints = self._order[self._begin[pair] : self._begin[pair + 1]]
        return slots

    def _names_with(self, pair: int) -> Any:
        found = self._bits.get(pair)
        if found is None:
            has = np.zeros(len(self._registered.succeeds), dtype=np.bool_)
            has[self._slots(pair) // PER_NAME] = True
            found = self._bits[pair] = np.packbits(has & self._registered.succeeds)
        return found


class Limited:
    """Queries that are sent at some rate, each to the matrix with the fewest partitions, for ``LIMIT`` names."""

    def __init__(
        self,
        queries: Queries,
        rate_s: float,
        begin_s: float,
        matrices: Matrices,
        *,
        held: Held,
        rng: np.random.Generator,
    ) -> None:
        self.succeeds = np.ones(queries.count, dtype=np.bool_)
        self._matrices, self._rng, self._windows = matrices, rng, Windows()
        probing_s = slowest(np.diff(queries.begin), rng)
        sent_s = begin_s + np.cumsum(rng.exponential(1 / rate_s, queries.count)) + probing_s
        draws = rng.integers(2**32, size=queries.count).tolist()
        asked: list[tuple[int, int, int, float]] = []
        for query, draw in enumerate(draws):
            pairs = queries.pair[queries.begin[query] : queries.begin[query + 1]].tolist()
            pair = int(chosen({str(pair): matrices.size_of(pair) for pair in pairs}, draw))
            count = int(matrices.partitions[pair])
            spread = held.spread(pairs, pair, count) if count > 1 else np.zeros(1, dtype=np.int64)
            asked += [(query, pair, *each) for each in self._rounds(spread, draw, float(sent_s[query]))]
        self._query, self._pair, self._partition = np.array([message[:3] for message in asked]).T
        self._at_s = np.array([at_s for *_, at_s in asked])
        self._moments = Moments(self._at_s)

    @property
    def last_s(self) -> float:
        """Return when the last message arrives."""
        return float(self._at_s.max())

    @property
    def messages(self) -> Ints:
        """Return how many cells each query asks."""
        asked: Ints = np.bincount(self._query, minlength=len(self.succeeds))
        return asked

    def until(self, end_s: float) -> None:
        """Carry out what happens until then."""
        which = self._moments.until(end_s)
        pair, partition = self._pair[which], self._partition[which]
        replica = (self._rng.random(len(which)) * self._matrices.replicas[pair]).astype(np.int64)
        node = node_of(pair, partition, replica, self._matrices.salt)
        rates: Floats = self._windows.rates_per_s(node, self._at_s[which])
        self.succeeds[self._query[which[rates > self._matrices.limits.queries_s]]] = False
        self._matrices.queried(pair, partition, replica, rates, end_s)

    def _rounds(self, spread: Ints, draw: int, sent_s: float) -> list[tuple[int, float]]:
        """Return which partitions a query asks, and when it arrives there: in each round at all of them together."""
        found: list[tuple[int, float]] = []
        matches = 0
        while wanted := min(partitions_wanted(len(found), matches, LIMIT), len(spread) - len(found)):
            arrives_s = sent_s + self._rng.exponential(DELAY_S)
            asked = [(draw + len(found) + place) % len(spread) for place in range(wanted)]
            found += [(partition, arrives_s) for partition in asked]
            matches += int(spread[asked].sum())
            sent_s += float(slowest(np.array([wanted]), self._rng)[0])
        return found
