"""Simulated registrations and queries of the experiment ``discovery`` (Gao and Steenkiste §V.B, §VI.C).

A name is registered with 20 messages, one for each of its attribute-value pairs. A pair's matrix is the group of nodes
that store the names with this pair. The names are divided into partitions on these nodes. Time advances in short
intervals. Within an interval, messages are processed in chronological order; between two intervals, matrices grow.

*Limited* queries need only a few names, and are sent to no more partitions than necessary (:func:`partitions_to_ask`).
Production uses another method; see :mod:`service.discovery.matrix_search`.
"""

# All replicas of a partition receive a registration at the same time.
#
# The paper does not specify how many partitions are enough for a limited query (§IV.B.2). Here a query is sent to one
# partition first. partitions_to_ask then estimates how many more partitions have the names that are still needed, on
# the assumption that all partitions have equally many. Production ranks names by the cells of all pairs of a query.

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from service.discovery.matrix import home_partition
from service.simulate.discovery.matrices import (
    DELAY_S,
    NODES,
    PAIRS_PER_NAME,
    SERVICE_S,
    QueryWorkload,
    RateWindows,
    SimulatedMatrices,
    node_of,
)
from service.simulate.numerics import Bools, Floats, Ints, ranges


class PartitionChoice(StrEnum):
    """How the partition for a name is chosen, and whether registrations are refused while a matrix grows.

    A matrix is the group of nodes that store the names with one attribute-value pair. It divides these names into
    partitions.
    """

    PAPER = "paper"
    """A random partition; registrations are refused while the matrix grows."""
    HOME = "home partition"
    """The partition that a digest of the name determines, as in the product. Registrations are refused only because of
    load."""
    TWO_CHOICES = "two choices"
    """The less loaded of two random partitions. Registrations are refused only because of load. The product does not do
    this, because its clients do not know loads."""


class Registrations:
    """The registrations of all names in a dataset, at a constant mean rate."""

    def __init__(
        self,
        names: Ints,
        rate_s: float,
        begin_s: float,
        matrices: SimulatedMatrices,
        *,
        rng: np.random.Generator,
        way: PartitionChoice = PartitionChoice.PAPER,
    ) -> None:
        self.windows = RateWindows()
        self.accepted_counts = np.zeros(NODES, dtype=np.int64)
        """Number of registrations that each node accepted."""
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
        self._choosing, self._arriving = TimedEvents(self._chosen_s), TimedEvents(self._arrives_s)

    @property
    def first_s(self) -> float:
        """The earliest simulated time at which a registration chooses a partition."""
        return float(self._chosen_s.min())

    def observed_rates_per_s(self, pair: int, partitions: Ints, now_s: float) -> Floats:
        """Return, for each of the given partitions, the messages per second that its node observes at ``now_s``.

        ``partitions`` contains indices of partitions of the names with the attribute-value pair ``pair``.
        """
        node = node_of(np.full_like(partitions, pair), partitions, np.zeros_like(partitions), self._matrices.salt)
        return self.windows.current_rates_per_s(node, np.full(len(partitions), now_s))

    @property
    def last_s(self) -> float:
        """The simulated arrival time of the last message."""
        return float(self._arrives_s.max())

    def process_until(self, end_s: float, *, grow: bool) -> None:
        """Process all messages that arrive before ``end_s`` and have not been processed yet.

        If ``grow`` is true, the matrices of overloaded nodes begin to grow, so that their names are divided among more
        nodes.
        """
        self._choose(self._choosing.take_until(end_s))
        self._arrive(self._arriving.take_until(end_s), end_s, grow=grow)

    def messages(self) -> Ints:
        """Return, for each name, the number of messages needed to register it."""
        return np.bincount(self._name, weights=self.replicas).astype(np.int64)

    def response_s(self) -> Floats:
        """Return the response times in seconds of the successful registrations.

        A registration first asks into how many partitions the names with its attribute-value pairs are divided. It then
        sends all its messages in parallel.
        """
        longest = slowest_round_trips(self.replicas, self._rng) + self._rng.gamma(2, DELAY_S, len(self.pair))
        per_name: Floats = longest.reshape(len(self.succeeds), -1).max(axis=1)
        return per_name[self.succeeds]

    def _choose(self, which: Ints) -> None:
        pair = self.pair[which]
        sizes = self._matrices.partitions[pair]
        self.replicas[which] = self._matrices.replicas[pair]
        if self.way is PartitionChoice.PAPER:
            self.partition[which] = self._rng.random(len(which)) * sizes
            return
        several = sizes > 1
        which, pair, sizes = which[several], pair[several], sizes[several]
        if self.way is PartitionChoice.HOME:
            self.partition[which] = _home_partitions(_digests(self._name[which]), sizes)
            return
        one, other = (_home_partitions(self._rng.integers(2**32, size=len(sizes)), sizes) for _ in range(2))
        at_s = self._chosen_s[which]
        less = self._load_share(pair, one, at_s) <= self._load_share(pair, other, at_s)
        self.partition[which] = np.where(less, one, other)

    def _load_share(self, pair: Ints, partition: Ints, at_s: Floats) -> Floats:
        node = node_of(pair, partition, np.zeros_like(pair), self._matrices.salt)
        limits = self._matrices.limits
        rate = self.windows.current_rates_per_s(node, at_s)
        return np.asarray(np.maximum(self.accepted_counts[node] / limits.names, rate / limits.registrations_s))

    def _arrive(self, which: Ints, end_s: float, *, grow: bool) -> None:
        replicas = self.replicas[which]
        which, replica = np.repeat(which, replicas), ranges(0, replicas)
        pair, partition = self.pair[which], self.partition[which]
        node = node_of(pair, partition, replica, self._matrices.salt)
        rates = self.windows.record_messages(node, self._arrives_s[which])
        refused = self._refused(pair, node, rates)
        self.succeeds[self._name[which[refused]]] = False
        self.accepted_counts += np.bincount(node[~refused], minlength=NODES)
        if grow:
            self._matrices.report_registrations(pair, partition, self.accepted_counts[node], rates, end_s)

    def _refused(self, pair: Ints, node: Ints, rates: Floats) -> Bools:
        limits = self._matrices.limits
        refused: Bools = (rates > limits.registrations_s) | (self.accepted_counts[node] > limits.names)
        return refused | self._matrices.growing[pair] if self.way is PartitionChoice.PAPER else refused


def _home_partitions(draws: Ints, sizes: Ints) -> Ints:
    """Return the index of the partition that each hash or random number in ``draws`` selects.

    ``sizes`` contains, for each element of ``draws``, the number of partitions to choose from.
    """
    result = np.empty(len(sizes), dtype=np.int64)
    for size in np.unique(sizes):
        of = sizes == size
        table = np.array([home_partition(draw, int(size)) for draw in range(1 << int(size - 1).bit_length())])
        result[of] = table[draws[of] % len(table)]
    return result


def _digests(names: Ints) -> Ints:
    """Return a 31-bit hash for each name index in ``names``."""
    with np.errstate(over="ignore"):
        mixed = (names.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(31)) * np.uint64(0x94D049BB133111EB)
    return (mixed >> np.uint64(33)).astype(np.int64)


class TimedEvents:
    """A queue of events sorted by time. The caller retrieves the events of one interval after another."""

    def __init__(self, at_s: Floats) -> None:
        self._order = np.argsort(at_s)
        self._sorted_s = at_s[self._order]
        self._done = 0

    def take_until(self, end_s: float) -> Ints:
        """Return the indices of all events before ``end_s`` that no earlier call has returned."""
        begin, self._done = self._done, int(np.searchsorted(self._sorted_s, end_s))
        return np.asarray(self._order[begin : self._done])


def slowest_round_trips(counts: Ints, rng: np.random.Generator) -> Floats:
    """Draw, for each n in ``counts``, the longest of n random round-trip times in seconds."""
    times = rng.gamma(2, DELAY_S, int(counts.sum())) + rng.exponential(SERVICE_S, int(counts.sum()))
    return np.asarray(np.maximum.reduceat(times, np.cumsum(counts) - counts))


CLIENTS = 16
"""Number of client processes that send all queries. Each caches the sizes of matrices."""


class Scheme(StrEnum):
    """How a query chooses the attribute-value pair to search for.

    - RANDOM chooses any of the query's pairs.
    - OPTIMISED chooses the pair whose names are divided into the fewest partitions.
    """

    RANDOM = "random"
    OPTIMISED = "optimised"


class SimulatedQueries:
    """Queries for names, and their results.

    A query fails if it is sent to a node that receives too many queries per second.
    """

    def __init__(self, count: int, matrices: SimulatedMatrices, rng: np.random.Generator) -> None:
        self.succeeds = np.ones(count, dtype=np.bool_)
        self.messages = np.ones(count, dtype=np.int64)
        """Number of cells to which each query is sent."""
        self._matrices, self._rng, self._windows = matrices, rng, RateWindows()

    def _process_at_cells(
        self, query: Ints, pair: Ints, partition: Ints, replicas: Ints, *, at_s: Floats, end_s: float
    ) -> None:
        """Process requests that queries send to nodes. A query fails if one of these nodes is overloaded.

        The arrays have one element per request:

        - ``query`` is the index of the query that sends the request.
        - ``pair`` is the attribute-value pair that requested names must have.
        - ``partition`` is the index of the partition that receives the request, among the partitions for this pair.
        - ``replicas`` is the number of nodes that store this partition. The request goes to a random one.
        - ``at_s`` is the arrival time.

        At ``end_s``, the matrices of overloaded nodes begin to grow.
        """
        replica = (self._rng.random(len(query)) * replicas).astype(np.int64)
        node = node_of(pair, partition, replica, self._matrices.salt)
        rates = self._windows.record_messages(node, at_s)
        self.succeeds[query[rates > self._matrices.limits.queries_s]] = False
        self._matrices.report_queries(pair, partition, replica, rates, end_s)


class FullQueries(SimulatedQueries):
    """Queries that search all names with one attribute-value pair. They are sent at a constant mean rate.

    Each query chooses one of its own pairs. The names with this pair are divided into partitions, and the query is
    sent to all of them.
    """

    def __init__(
        self,
        queries: QueryWorkload,
        rate_s: float,
        begin_s: float,
        matrices: SimulatedMatrices,
        *,
        scheme: Scheme,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(queries.count, matrices, rng)
        self._queries, self._scheme = queries, scheme
        probes = np.diff(queries.begin) if scheme is Scheme.OPTIMISED else np.ones(queries.count, dtype=np.int64)
        self._probing_s = slowest_round_trips(probes, rng)
        sent_s = begin_s + np.cumsum(rng.exponential(1 / rate_s, queries.count))
        self._arrives_s = sent_s + self._probing_s + rng.exponential(DELAY_S, queries.count)
        self.last_s = float(self._arrives_s.max())
        """Arrival time of the last message."""
        self.pair = np.zeros(queries.count, dtype=np.int64)
        self._replicas = np.ones(queries.count, dtype=np.int64)
        self._choosing, self._arriving = TimedEvents(sent_s + self._probing_s), TimedEvents(self._arrives_s)

    def process_until(self, end_s: float) -> None:
        """Process all requests that arrive before ``end_s`` and have not been processed yet."""
        self._choose(self._choosing.take_until(end_s))
        arriving = self._arriving.take_until(end_s)
        messages = self.messages[arriving]
        query, partition = np.repeat(arriving, messages), ranges(0, messages)
        self._process_at_cells(
            query, self.pair[query], partition, self._replicas[query], at_s=self._arrives_s[query], end_s=end_s
        )

    def response_s(self) -> Floats:
        """Return the response times in seconds of the successful queries.

        A query first asks into how many partitions the names with its attribute-value pairs are divided. It is then
        sent to all partitions of one pair in parallel.
        """
        return (self._probing_s + slowest_round_trips(self.messages, self._rng))[self.succeeds]

    def _choose(self, which: Ints) -> None:
        draws = self._rng.integers(2**32, size=len(which))
        if self._scheme is Scheme.RANDOM:
            begin, length = self._queries.begin[which], np.diff(self._queries.begin)[which]
            self.pair[which] = self._queries.pair[begin + draws % length]
        else:
            for query, draw in zip(which.tolist(), draws.tolist(), strict=True):
                self.pair[query] = choose_matrix(self._matrices.partitions_of(self._queries.pairs_of(query)), draw)
        self.messages[which] = self._matrices.partitions[self.pair[which]]
        self._replicas[which] = self._matrices.replicas[self.pair[which]]


def probes_with_cache(queries: QueryWorkload, matrices: SimulatedMatrices, rng: np.random.Generator) -> float:
    """Return how often, on average, a client has to ask for the size of a matrix in order to send one query.

    A matrix is the group of nodes that store the names with one attribute-value pair. Clients cache all sizes that
    they learn.
    """
    known: list[dict[int, int]] = [{} for _ in range(CLIENTS)]
    probes = 0
    draws = rng.integers(2**32, size=queries.count).tolist()
    for query, client in enumerate(rng.integers(CLIENTS, size=queries.count).tolist()):
        while (unknown := size_to_learn(queries.pairs_of(query), known[client], draws[query])) is not None:
            known[client] |= matrices.partitions_of([unknown])
            probes += 1
    return probes / queries.count


LIMIT = 10
"""Number of names that a limited query needs."""


class RegisteredNames:
    """The names that are stored in each partition after a dataset has been registered.

    A partition is a part of the names with one attribute-value pair. Only names that could be stored for all of their
    pairs are included.
    """

    def __init__(self, registered: Registrations) -> None:
        self._registered = registered
        self._order = np.argsort(registered.pair, kind="stable")
        self._begin = np.searchsorted(registered.pair[self._order], np.arange(registered.pair.max() + 2))
        self._bits: dict[int, Any] = {}

    def spread(self, pairs: list[int], pair: int, partitions: int) -> Ints:
        """Return, for each partition of the names with the pair ``pair``, how many names match a query.

        A name matches if it has all of ``pairs``, the attribute-value pairs of the query. ``partitions`` is the
        number of partitions.
        """
        bits = np.bitwise_and.reduce([self._names_with(each) for each in pairs])
        names = np.flatnonzero(np.unpackbits(bits, count=len(self._registered.succeeds)))
        slots = self._registrations_with(pair)
        where = slots[np.searchsorted(slots // PAIRS_PER_NAME, names)]
        return np.asarray(np.bincount(self._registered.partition[where], minlength=partitions))

    def _registrations_with(self, pair: int) -> Ints:
        """Return the indices of the registrations of all names that contain ``pair``, ordered by name.

        A name has one registration for each of its attribute-value pairs.
        """
        return np.asarray(self._order[self._begin[pair] : self._begin[pair + 1]])

    def _names_with(self, pair: int) -> Any:
        result = self._bits.get(pair)
        if result is None:
            has = np.zeros(len(self._registered.succeeds), dtype=np.bool_)
            has[self._registrations_with(pair) // PAIRS_PER_NAME] = True
            result = self._bits[pair] = np.packbits(has & self._registered.succeeds)
        return result


class LimitedQueries(SimulatedQueries):
    """Queries that need only ``LIMIT`` names each. They are sent at a constant mean rate.

    The names with an attribute-value pair are divided into partitions. A query chooses the pair with the fewest
    partitions among its own pairs. It is sent to more and more of these partitions until it has found enough names.
    """

    def __init__(
        self,
        queries: QueryWorkload,
        rate_s: float,
        begin_s: float,
        matrices: SimulatedMatrices,
        *,
        registered_names: RegisteredNames,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(queries.count, matrices, rng)
        probing_s = slowest_round_trips(np.diff(queries.begin), rng)
        sent_s = begin_s + np.cumsum(rng.exponential(1 / rate_s, queries.count)) + probing_s
        draws = rng.integers(2**32, size=queries.count).tolist()
        requests: list[tuple[int, int, int, float]] = []
        for query, draw in enumerate(draws):
            pairs = queries.pairs_of(query)
            pair = choose_matrix(matrices.partitions_of(pairs), draw)
            count = int(matrices.partitions[pair])
            spread = registered_names.spread(pairs, pair, count) if count > 1 else np.zeros(1, dtype=np.int64)
            requests += [(query, pair, *each) for each in self._requests_of_query(spread, draw, float(sent_s[query]))]
        self._query, self._pair, self._partition = np.array([message[:3] for message in requests]).T
        self._at_s = np.array([at_s for *_, at_s in requests])
        self.last_s = float(self._at_s.max())
        """Arrival time of the last message."""
        self.messages = np.bincount(self._query, minlength=queries.count)
        self._moments = TimedEvents(self._at_s)

    def process_until(self, end_s: float) -> None:
        """Process all requests that arrive before ``end_s`` and have not been processed yet."""
        which = self._moments.take_until(end_s)
        pair = self._pair[which]
        replicas = self._matrices.replicas[pair]
        self._process_at_cells(
            self._query[which], pair, self._partition[which], replicas, at_s=self._at_s[which], end_s=end_s
        )

    def _requests_of_query(self, spread: Ints, draw: int, sent_s: float) -> list[tuple[int, float]]:
        """Return the requests that a query sends, as pairs (partition, arrival time).

        The query is first sent to one partition, then to several at a time. It ends when it has found ``LIMIT`` names
        or there are no more partitions.

        - ``spread`` contains the number of matching names in each partition.
        - ``draw`` is a random number that determines the first partition.
        - ``sent_s`` is the time when the first request is sent.
        """
        result: list[tuple[int, float]] = []
        matches = 0
        while needed := min(partitions_to_ask(len(result), matches, LIMIT), len(spread) - len(result)):
            arrives_s = sent_s + self._rng.exponential(DELAY_S)
            requests = [(draw + len(result) + place) % len(spread) for place in range(needed)]
            result += [(partition, arrives_s) for partition in requests]
            matches += int(spread[requests].sum())
            sent_s += float(slowest_round_trips(np.array([needed]), self._rng)[0])
        return result


def size_to_learn(pairs: Iterable[int], known: Mapping[int, int], draw: int) -> int | None:
    """Return the pair whose partition count a client should ask for next, or None if the client knows enough.

    The client looks for the pair whose names are divided into the fewest partitions. It knows enough if a pair has only
    one partition, or if the partition counts of all pairs are known.

    - ``pairs`` are the attribute-value pairs in a query.
    - ``known`` maps pairs to their known partition counts.
    - ``draw`` is a random number that selects one of the pairs with an unknown partition count.
    """
    # Deviation: the paper reads all sizes at once. Most matrices have one partition, so that the first size usually
    # suffices.
    pairs = sorted(pairs, key=str)
    unknown = [pair for pair in pairs if pair not in known]
    if not unknown or any(known.get(pair) == 1 for pair in pairs):
        return None
    return unknown[draw % len(unknown)]


def choose_matrix(partitions: Mapping[int, int], draw: int) -> int:
    """Return the attribute-value pair for which a query should search: the pair with the fewest partitions.

    ``partitions`` maps each pair in the query to its number of partitions. If several pairs have the fewest, the
    random number ``draw`` selects one of them.
    """
    fewest = min(partitions.values())
    best = sorted((pair for pair, count in partitions.items() if count == fewest), key=str)
    return best[draw % len(best)]


def partitions_to_ask(answered: int, matches: int, limit: int) -> int:
    """Return how many further partitions a query should ask next, all at the same time.

    - ``answered`` is the number of partitions that have answered so far.
    - ``matches`` is the number of matches in their answers.
    - ``limit`` is the number of matches that the query needs.

    The result is 0 if there are enough matches, and 1 if no partition has answered yet. Otherwise it is at most
    ``answered``, so that the total number of partitions asked at most doubles.
    """
    # So the number of queried partitions at most doubles. Deviation: the paper leaves open how many partitions are
    # enough.
    if matches >= limit:
        return 0
    if not answered:
        return 1
    needed = -(-(limit - matches) * answered // matches) if matches else answered
    return min(needed, answered)
