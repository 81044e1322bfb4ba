"""Registrations of the experiment ``discovery``: names that arrive at random, each with 20 messages (§V.B).

Time goes on in slices, in which messages are taken in order, and after which matrices follow. All replicas of a
partition hear of a name at the same moment.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np

from service.discovery.matrix import home
from service.simulate.discovery_matrices import Matrices, Windows, node_of
from service.simulate.discovery_workload import DELAY_S, NODES, SERVICE_S
from service.simulate.trace import Bools, Floats, Ints


class Way(StrEnum):
    """How names choose partitions, and what becomes of them while a matrix grows."""

    PAPER = "paper"
    """A partition at random; refused while the matrix grows."""
    OURS = "ours"
    """Of two partitions the one that carries less; refused by loads alone."""


class Registrations:
    """A dataset that is sent at some rate."""

    def __init__(
        self,
        names: Ints,
        rate_s: float,
        begin_s: float,
        matrices: Matrices,
        *,
        rng: np.random.Generator,
        way: Way = Way.PAPER,
    ) -> None:
        self.windows = Windows()
        self.held = np.zeros(NODES, dtype=np.int64)
        """Registrations that each node accepted."""
        self.succeeds = np.ones(len(names), dtype=np.bool_)
        self.way = way
        self._matrices, self._rng = matrices, rng
        self.pair = names.ravel()
        self._name = np.repeat(np.arange(len(names)), names.shape[1])
        sent_s = begin_s + np.cumsum(rng.exponential(1 / rate_s, len(names)))
        self._chosen_s = np.repeat(sent_s, names.shape[1]) + rng.exponential(DELAY_S, len(self.pair))
        self._arrives_s = self._chosen_s + rng.gamma(2, DELAY_S, len(self.pair))
        self.partition = np.zeros(len(self.pair), dtype=np.int64)
        self.replicas = np.ones(len(self.pair), dtype=np.int64)
        self._choosing, self._arriving = Moments(self._chosen_s), Moments(self._arrives_s)

    @property
    def first_s(self) -> float:
        """Return when the first message is sent, or a bit earlier."""
        return float(self._chosen_s.min())

    def observed_s(self, pair: int, partitions: Sequence[int], now_s: float) -> Floats:
        """Return the rates that the nodes of some partitions of a pair observe now."""
        partition = np.array(partitions)
        pairs = np.full(len(partition), pair)
        node = node_of(pairs, partition, np.zeros_like(partition), self._matrices.salt)
        return self.windows.now_s(node, np.full(len(partition), now_s))

    @property
    def last_s(self) -> float:
        """Return when the last message arrives."""
        return float(self._arrives_s.max())

    def until(self, end_s: float, *, grow: bool) -> None:
        """Carry out what happens until then."""
        self._choose(self._choosing.until(end_s))
        self._arrive(self._arriving.until(end_s), end_s, grow=grow)

    def messages(self) -> Ints:
        """Return how many each name took."""
        return np.bincount(self._name, weights=self.replicas).astype(np.int64)

    def response_s(self) -> Floats:
        """Return how long each registration took that succeeded: asking for sizes, then all registrations."""
        longest = slowest(self.replicas, self._rng) + self._rng.gamma(2, DELAY_S, len(self.pair))
        per_name: Floats = longest.reshape(len(self.succeeds), -1).max(axis=1)
        return per_name[self.succeeds]

    def _choose(self, which: Ints) -> None:
        pair = self.pair[which]
        sizes = self._matrices.partitions[pair]
        self.replicas[which] = self._matrices.replicas[pair]
        if self.way is Way.PAPER:
            self.partition[which] = self._rng.random(len(which)) * sizes
            return
        several = sizes > 1
        which, pair, sizes = which[several], pair[several], sizes[several]
        one, other = (self._homes(sizes) for _ in range(2))
        at_s = self._chosen_s[which]
        less = self._share(pair, one, at_s) <= self._share(pair, other, at_s)
        self.partition[which] = np.where(less, one, other)

    def _homes(self, sizes: Ints) -> Ints:
        """Return the home of a name in each of these matrices, by a draw of its own."""
        found = np.empty(len(sizes), dtype=np.int64)
        draws = self._rng.integers(2**32, size=len(sizes))
        for size in np.unique(sizes):
            of = sizes == size
            table = np.array([home(draw, int(size)) for draw in range(1 << int(size - 1).bit_length())])
            found[of] = table[draws[of] % len(table)]
        return found

    def _share(self, pair: Ints, partition: Ints, at_s: Floats) -> Floats:
        node = node_of(pair, partition, np.zeros_like(pair), self._matrices.salt)
        limits = self._matrices.limits
        rate = self.windows.now_s(node, at_s)
        shares: Floats = np.maximum(self.held[node] / limits.names, rate / limits.registrations_s)
        return shares

    def _arrive(self, which: Ints, end_s: float, *, grow: bool) -> None:
        which, replica = each_of(which, self.replicas[which])
        pair, partition = self.pair[which], self.partition[which]
        node = node_of(pair, partition, replica, self._matrices.salt)
        rates = self.windows.rates_per_s(node, self._arrives_s[which])
        refused = self._refused(pair, node, rates)
        self.succeeds[self._name[which[refused]]] = False
        self.held += np.bincount(node[~refused], minlength=NODES)
        if grow:
            self._matrices.registered(pair, partition, self.held[node], rates, end_s)

    def _refused(self, pair: Ints, node: Ints, rates: Floats) -> Bools:
        limits = self._matrices.limits
        refused: Bools = (rates > limits.registrations_s) | (self.held[node] > limits.names)
        return refused | self._matrices.growing[pair] if self.way is Way.PAPER else refused


class Moments:
    """What happens at some times, in their order."""

    def __init__(self, at_s: Floats) -> None:
        self._order = np.argsort(at_s)
        self._sorted_s = at_s[self._order]
        self._done = 0

    def until(self, end_s: float) -> Ints:
        """Return what happens until then, and has not been returned before."""
        begin, self._done = self._done, int(np.searchsorted(self._sorted_s, end_s))
        happens: Ints = self._order[begin : self._done]
        return happens


def each_of(which: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return each as often as ``counts`` say, and its numbers from 0 on."""
    if counts.max(initial=1) == 1:
        return which, np.zeros_like(which)
    return np.repeat(which, counts), np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def slowest(counts: Ints, rng: np.random.Generator) -> Floats:
    """Return how long the slowest of so many messages takes, there, served, and back."""
    times = rng.gamma(2, DELAY_S, int(counts.sum())) + rng.exponential(SERVICE_S, int(counts.sum()))
    longest: Floats = np.maximum.reduceat(times, np.cumsum(counts) - counts)
    return longest


def slices(begin_s: float, end_s: float, length_s: float) -> Iterator[float]:
    """Yield the ends of the slices of some time."""
    count = int((end_s - begin_s) / length_s) + 1
    for place in range(1, count + 1):
        yield begin_s + place * length_s
