"""Matrices of the experiment ``discovery``: production's records and transitions, with their sizes in arrays.

What a node asks for is :func:`service.discovery.load.wanted`, what the head does :func:`service.discovery.head.asked`;
cells follow after the time that messages take.

Nodes observe rates (§V.A). We deviate: places come from a 64-bit mixing function instead of SHA-1, which would take a
minute for each run.
"""

import msgspec
import numpy as np

from service.discovery.head import Matrix, Request, asked
from service.discovery.load import WINDOW, Kind, Limits, Load, wanted
from service.discovery.matrix import Place, Size
from service.simulate.discovery_workload import DELAY_S, NODES, PAIRS
from service.simulate.trace import Bools, Floats, Ints



def node_of(pair: Ints, partition: Ints, replica: Ints, salt: int) -> Ints:
    """Return the nodes that have these cells: each node has an equal part of the hashes."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(pair, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += np.asarray(partition, dtype=np.uint64) << np.uint64(20)
        mixed += np.asarray(replica, dtype=np.uint64) + np.uint64(salt << 40)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(32)) * np.uint64(NODES) >> np.uint64(32)).astype(np.int64)


class Windows:
    """When the last ``WINDOW`` messages came to each node."""

    def __init__(self) -> None:
        self._times = np.full(NODES * WINDOW, -np.inf)
        self._count = np.zeros(NODES, dtype=np.int64)

    def now_s(self, node: Ints, time_s: Floats) -> Floats:
        """Return the rates of nodes at some times, if no message came to them then."""
        oldest = self._times[node * WINDOW + self._count[node] % WINDOW]
        rates: Floats = WINDOW / np.maximum(time_s - oldest, 1e-9)
        return rates

    def rates_per_s(self, node: Ints, time_s: Floats) -> Floats:
        """Take in messages, not earlier than those before, in order of time; return the rate that each one sees.

        It is that of this message and the ``WINDOW`` - 1 before it, over the time since the one before those.
        """
        order = np.argsort(node.astype(np.uint16), kind="stable")  # of so narrow numbers it is a radix sort
        of, at = node[order], time_s[order]
        first = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if len(of) else np.zeros(0, dtype=np.int64)
        sizes = np.diff(np.append(first, len(of)))
        nth = np.arange(len(of)) - np.repeat(first, sizes)
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
"""Messages, one after another, until new partitions are there, and until new replicas are: asked, copied, confirmed."""


UNGROWN = Size()
UNBEGUN = Size(0, 0, 0)


class Matrices:
    """One matrix for each pair."""

    def __init__(self, limits: Limits, rng: np.random.Generator) -> None:
        self.limits = limits
        self.partitions = np.ones(PAIRS, dtype=np.int64)
        self.replicas = np.ones(PAIRS, dtype=np.int64)
        self.growing = np.zeros(PAIRS, dtype=np.bool_)
        self.begun = np.zeros(PAIRS, dtype=np.bool_)
        """Whether a node has seen the pair."""
        self.growths = 0
        self.salt = int(rng.integers(2**20))
        self._rng = rng
        self._records: dict[int, Matrix] = {}
        self._growing: dict[int, float] = {}

    def follow(self, now_s: float) -> None:
        """Make the sizes known of those matrices that have all their cells by now."""
        for pair in [pair for pair, ready_s in self._growing.items() if ready_s <= now_s]:
            del self._growing[pair]
            self.growing[pair] = False
            record = msgspec.structs.replace(self._records[pair], settled=True)
            self._records[pair] = record
            self.partitions[pair], self.replicas[pair] = record.size.partitions, record.size.replicas

    def size_of(self, pair: int) -> Size:
        """Return a matrix's size; of one in which nothing was registered yet, that it has no partition."""
        if not self.begun[pair]:
            return UNBEGUN
        record = self._records.get(pair)
        return UNGROWN if record is None else Size(0, int(self.partitions[pair]), int(self.replicas[pair]))

    def registered(self, pair: Ints, partition: Ints, names: Ints, rate_s: Floats, now_s: float) -> None:
        """Let cells tell what they carry in names and registrations; one message each, from any of their nodes."""
        self.begun[pair] = True
        hot = np.flatnonzero((rate_s >= self.limits.registrations_s) | (names >= self.limits.names))
        hot = hot[(self.partitions[pair[hot]] < self.limits.partitions) & ~self.growing[pair[hot]]]
        few_queries_s = self.limits.queries_s * self.limits.low
        for of, column, held, observed_s in zip(
            *(part[hot].tolist() for part in (pair, partition, names, rate_s)), strict=True
        ):
            if of not in self._growing:
                self._ask(Load(held, observed_s, few_queries_s), of, Place(str(of), column), now_s)

    def queried(self, pair: Ints, partition: Ints, replica: Ints, rate_s: Floats, now_s: float) -> None:
        """Let cells tell how many queries they answer."""
        hot = np.flatnonzero(rate_s >= self.limits.queries_s)
        hot = hot[(self.replicas[pair[hot]] < self.limits.replicas) & ~self.growing[pair[hot]]]
        few_names_s = self.limits.registrations_s * self.limits.low
        for of, column, row, observed_s in zip(
            *(part[hot].tolist() for part in (pair, partition, replica, rate_s)), strict=True
        ):
            if of not in self._growing:
                self._ask(Load(0, few_names_s, observed_s), of, Place(str(of), column, row), now_s)

    def _ask(self, load: Load, pair: int, place: Place, now_s: float) -> None:
        before = self._records.get(pair, Matrix())
        for kind in wanted(load, self.limits):
            after = asked(before, Request(kind, place), self.limits)
            if after is before:
                continue
            self._records[pair] = after
            self._growing[pair] = now_s + self._takes_s(kind, before, after)
            self.growing[pair] = True
            self.growths += 1
            return

    def _takes_s(self, kind: Kind, before: Matrix, after: Matrix) -> float:
        if kind is Kind.INC_P:
            return float(self._rng.gamma(ROUND_TRIP, DELAY_S))
        cells = after.size.partitions * (after.size.replicas - before.size.replicas)
        return float(self._rng.gamma(COPY, DELAY_S, size=cells).max())
