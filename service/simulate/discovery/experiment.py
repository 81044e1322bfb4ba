"""One run of the experiment ``discovery``: names are registered and searched on 10,000 nodes with skewed loads.

A name is a set of attribute-value pairs. Each pair has a matrix, a group of nodes that store the names containing this
pair. Matrices grow with their load. The run repeats the experiment of Gao and Steenkiste (§V and §VI).

- Production code: the records and transitions of matrices, thresholds, resize requests, and the choice of the partition
  in which a matrix stores a name.
- As in the paper: nodes, delays, workloads, and the choice of the matrix to which a query is sent.
"""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from service.discovery.matrix import MatrixLimits
from service.simulate.discovery.matrices import (
    PAIRS_PER_NAME,
    QueryWorkload,
    SimulatedMatrices,
    skewed_names,
    uniform_names,
    zipf_queries,
)
from service.simulate.discovery.queries import (
    FullQueries,
    LimitedQueries,
    PartitionChoice,
    RegisteredNames,
    Registrations,
    Scheme,
    probes_with_cache,
)
from service.simulate.numerics import Floats, Ints

RATES = (1000, 2000, 5000, 10_000)
PARTITIONS = (1, 8, 32, 64, 128, 200)
QUERY_RATES = (5000, 20_000, 50_000, 100_000)
FIG_9 = (("uniform", 1), ("uniform", 32), ("skewed", 1), ("skewed", 32), ("skewed", 200))
MOST_PARTITIONS = 200
QUERIED_PARTITIONS = 32
"""Maximum number of partitions in Figures 11 and 14 to 16. The paper does not state it; its largest matrix has 32."""
UNLIMITED_REPLICAS = 1 << 16
"""A maximum number of replicas that is never reached."""

SLICE_S = 0.05
SLICE_MESSAGES = 4000
CACHED_MESSAGES = 20_000
"""Number of messages that are simulated at once if results do not depend on it. Their arrays fit into a processor's
caches."""
GAP_S = 1.0
"""Pause in seconds between two passes. In each pass, all names of a dataset are registered."""

GROWING_PASSES = 2
"""Number of passes in which matrices may grow. In the pass after them, their sizes are fixed."""

MIXED = MatrixLimits(registrations_s=25.0, queries_s=100.0, partitions=QUERIED_PARTITIONS, replicas=UNLIMITED_REPLICAS)
MIXED_RATES = (1000, 5000)
MIXED_NAMES = 17_000
MIXED_QUERIES = 83_000
"""Number of queries in the runs in which names are registered at the same time (§VI.E)."""

STEPS = len(RATES) * len(FIG_9) + len(PARTITIONS) - 3 + 2 * len(QUERY_RATES) + 5


class RegistrationPoint(msgspec.Struct, frozen=True):
    """One point of Figures 9, 10 and 12: the results of registering a dataset of names at one rate.

    All names are registered several times in succession. The names with a given attribute-value pair are stored in the
    pair's matrix, a group of nodes that is divided into partitions.

    - ``names`` is the kind of dataset: "uniform" or "skewed".
    - ``way`` is the method of choosing the partition in which a name is stored.
    - ``rate_s`` is the number of names registered per second.
    - ``partitions`` is the maximum number of partitions of a matrix.
    - ``initial`` is the success rate when all names are registered for the first time, while matrices grow.
    - ``success`` is the success rate when all names are registered for the last time.
    - ``cv`` is the coefficient of variation: the standard deviation of the number of names per node, divided by the
      mean.
    """

    names: str
    way: PartitionChoice
    rate_s: int
    partitions: int
    initial: float
    success: float
    cv: float
    empty_nodes: float
    """Share of nodes without names."""
    most_names: float
    """Maximum number of names on a node divided by the mean."""
    largest: int
    """Number of partitions of the largest matrix."""


class QueryPoint(msgspec.Struct, frozen=True):
    """One point of Figure 11: the results of queries at one rate.

    - ``success`` is the fraction of queries that succeed.
    - ``rate_s`` is the number of queries per second.
    - ``scheme`` is the method by which a query chooses the attribute-value pair to search for.
    """

    scheme: Scheme
    rate_s: int
    success: float
    replicas: int
    """Maximum number of replicas of a matrix."""
    messages: float
    """Mean number of messages per query."""
    one_partition: float
    """Share of queries that choose a matrix with a single partition."""


class MixedLoadResult(msgspec.Struct, frozen=True):
    """The results of Figures 14 to 16, for which names are registered and searched at the same time.

    - ``scheme`` is the method by which a query chooses the attribute-value pair to search for.
    - ``replicated`` is the fraction of attribute-value pairs whose matrices have several replicas.
    - ``registration_s`` and ``query_s`` are mean response times.
    - ``registration_quantiles_s`` and ``query_quantiles_s`` contain the percentiles 0 to 100 of response times.

    Response times are in seconds. They cover only successful operations.
    """

    scheme: Scheme
    single: float
    """Share of matrices with one cell."""
    replicated: float
    most_replicas: int
    sizes: tuple[tuple[int, int, int], ...]
    """Triples (partitions, replicas, number of matrices with these numbers of partitions and replicas)."""
    registration_messages: float
    most_registration_messages: int
    least_registration_messages: float
    """Share of names whose registration took the minimum number of messages, one per attribute-value pair."""
    query_messages: float
    one_partition: float
    """Share of queries that choose a matrix with a single partition."""
    registration_s: float
    query_s: float
    registration_quantiles_s: tuple[float, ...]
    query_quantiles_s: tuple[float, ...]
    message_quantiles: tuple[tuple[int, ...], tuple[int, ...]]
    """Percentiles 0 to 100 of the number of messages: first per registration, then per query."""
    probes: float
    """Mean number of requests per query by which a client asks for the size of a matrix, if clients cache sizes."""


class DiscoveryOutcome(msgspec.Struct, frozen=True):
    """The results of one run; the output of ``coronet simulate discovery --json``."""

    experiment: str
    seed: int
    fig_9: tuple[RegistrationPoint, ...]
    fig_10: tuple[RegistrationPoint, ...]
    fig_11: tuple[QueryPoint, ...]
    fig_13: tuple[tuple[float, float, float], ...]
    """Figure 13: the registrations per second that the nodes of partitions 1, 16 and 32 of a popular pair observe,
    every 0.5 s."""
    fig_14_to_16: tuple[MixedLoadResult, ...]
    home: RegistrationPoint
    """Registrations for which partitions are chosen as in the product. Growing matrices do not refuse registrations."""
    two_choices: RegistrationPoint
    """Registrations that go to the less loaded of two random partitions. Growing matrices do not refuse
    registrations."""
    limited: QueryPoint
    """Queries that need only a few names, with the scheme "optimised", at the highest rate of Figure 11."""


def run(seed: int, report: Callable[[str], None]) -> DiscoveryOutcome:
    """Run all measurements and return their results.

    ``report`` is called with a short text after each of the ``STEPS`` measurements.
    """
    rng = np.random.default_rng(seed)
    names = {"uniform": uniform_names(rng), "skewed": skewed_names(rng)}
    queries = zipf_queries(rng)

    def measure_registrations(
        which: str, rate_s: int, partitions: int, way: PartitionChoice = PartitionChoice.PAPER
    ) -> RegistrationPoint:
        point = _run_registrations(which, names[which], rate_s, partitions, way=way, rng=rng)
        report(f"{which} names, {rate_s:,}/s")
        return point

    fig_9 = tuple(measure_registrations(which, rate_s, most) for which, most in FIG_9 for rate_s in RATES)
    known = {point.partitions: point for point in fig_9 if (point.names, point.rate_s) == ("skewed", 5000)}
    fig_10 = tuple(known.get(most) or measure_registrations("skewed", 5000, most) for most in PARTITIONS)
    two_choices = measure_registrations("skewed", 10_000, MOST_PARTITIONS, PartitionChoice.TWO_CHOICES)
    fig_11 = []
    for scheme in Scheme:
        for rate_s in QUERY_RATES:
            fig_11.append(_run_queries(scheme, names["skewed"], queries, rate_s, rng))
            report(f"{scheme} queries, {rate_s:,}/s")
    mixed = []
    for scheme in Scheme:
        mixed.append(_run_mixed(scheme, names["skewed"][:MIXED_NAMES], queries.first(MIXED_QUERIES), rng))
        report(f"{scheme} queries among registrations")
    limited = _run_queries(None, names["skewed"], queries, QUERY_RATES[-1], rng)
    report("queries for a few names")
    sampled = _sample_rates(names["skewed"], rng)
    home = measure_registrations("skewed", 10_000, MOST_PARTITIONS, PartitionChoice.HOME)
    return DiscoveryOutcome(
        "discovery", seed, fig_9, fig_10, tuple(fig_11), sampled, tuple(mixed), home, two_choices, limited
    )


def _run_registrations(
    dataset: str, names: Ints, rate_s: int, partitions: int, *, way: PartitionChoice, rng: np.random.Generator
) -> RegistrationPoint:
    """Register all ``names`` in several passes; return the results of the first and the last pass.

    Each pass registers all names once.

    - ``dataset`` is the name of the dataset.
    - ``rate_s`` is the number of names registered per second.
    - ``partitions`` is the maximum number of partitions for the names with the same attribute-value pair.
    - ``way`` is the method of choosing the partition in which a name is stored.
    """
    # Matrices grow except in the last pass. With 1 partition they cannot grow, and names are registered only once.
    matrices = SimulatedMatrices(MatrixLimits(partitions=partitions), rng)
    sent: list[Registrations] = []
    for growing in (*[partitions > 1] * GROWING_PASSES, False):
        begin_s = sent[-1].last_s + GAP_S if sent else 0.0
        sent.append(Registrations(names, rate_s, begin_s, matrices, way=way, rng=rng))
        _deliver_all(sent[-1], rate_s, matrices, grow=growing)
        if partitions == 1:
            break
    accepted_counts = sent[-1].accepted_counts
    return RegistrationPoint(
        names=dataset,
        way=way,
        rate_s=rate_s,
        partitions=partitions,
        initial=float(sent[0].succeeds.mean()),
        success=float(sent[-1].succeeds.mean()),
        cv=float(accepted_counts.std() / accepted_counts.mean()),
        empty_nodes=float((accepted_counts == 0).mean()),
        most_names=float(accepted_counts.max() / accepted_counts.mean()),
        largest=int(matrices.partitions.max()),
    )


def _deliver_all(sent: Registrations, rate_s: int, matrices: SimulatedMatrices, *, grow: bool) -> None:
    length_s = min(SLICE_S, SLICE_MESSAGES / (rate_s * PAIRS_PER_NAME))
    if not grow and sent.way is PartitionChoice.PAPER:
        length_s = CACHED_MESSAGES / (rate_s * PAIRS_PER_NAME)
    for end_s in _slices(matrices, sent.first_s, sent.last_s, length_s):
        sent.process_until(end_s, grow=grow)
    matrices.complete_growth(sent.last_s + GAP_S)


def _slices(matrices: SimulatedMatrices, begin_s: float, end_s: float, length_s: float) -> Iterator[float]:
    """Yield the end times of intervals of ``length_s`` seconds that cover the time from ``begin_s`` to ``end_s``.

    The last interval may end after ``end_s``. A matrix is a group of nodes that grows with its load. At the
    beginning of each interval, growing matrices start to use their new nodes if these are ready.
    """
    for place in range(1, int((end_s - begin_s) / length_s) + 2):
        slice_end_s = begin_s + place * length_s
        matrices.complete_growth(slice_end_s - length_s)
        yield slice_end_s


def _run_queries(
    scheme: Scheme | None, names: Ints, queries: QueryWorkload, rate_s: int, rng: np.random.Generator
) -> QueryPoint:
    """Register the names, then send ``rate_s`` queries per second; return the measurements of the queries.

    ``scheme`` is the method by which a query chooses the attribute-value pair to search for. If ``scheme`` is None,
    each query needs only a few names, and ends when it has found them.
    """
    matrices = SimulatedMatrices(MatrixLimits(partitions=QUERIED_PARTITIONS, replicas=UNLIMITED_REPLICAS), rng)
    registrations = Registrations(names, 2000, 0.0, matrices, rng=rng)
    _deliver_all(registrations, 2000, matrices, grow=True)
    begin_s = registrations.last_s + GAP_S
    sent_queries: FullQueries | LimitedQueries
    if scheme is None:
        sent_queries = LimitedQueries(
            queries, rate_s, begin_s, matrices, registered_names=RegisteredNames(registrations), rng=rng
        )
    else:
        sent_queries = FullQueries(queries, rate_s, begin_s, matrices, scheme=scheme, rng=rng)
    length_s = min(SLICE_S, SLICE_MESSAGES / 10 / rate_s)
    for end_s in _slices(matrices, begin_s, sent_queries.last_s, length_s):
        sent_queries.process_until(end_s)
    matrices.complete_growth(np.inf)
    return QueryPoint(
        scheme=scheme or Scheme.OPTIMISED,
        rate_s=rate_s,
        success=float(sent_queries.succeeds.mean()),
        replicas=int(matrices.replicas.max()),
        messages=float(sent_queries.messages.mean()),
        one_partition=float((sent_queries.messages == 1).mean()),
    )


def _run_mixed(scheme: Scheme, names: Ints, queries: QueryWorkload, rng: np.random.Generator) -> MixedLoadResult:
    """Register names and send queries at the same time; return the measurements.

    ``scheme`` is the method by which a query chooses the attribute-value pair to search for.
    """
    matrices = SimulatedMatrices(MIXED, rng)
    registrations = Registrations(names, MIXED_RATES[0], 0.0, matrices, rng=rng)
    sent_queries = FullQueries(queries, MIXED_RATES[1], 0.0, matrices, scheme=scheme, rng=rng)
    for end_s in _slices(matrices, 0.0, max(registrations.last_s, sent_queries.last_s), 0.02):
        registrations.process_until(end_s, grow=True)
        sent_queries.process_until(end_s)
    matrices.complete_growth(np.inf)
    sizes, counts = np.unique(np.stack([matrices.partitions, matrices.replicas]), axis=1, return_counts=True)
    messages = registrations.messages()
    registration_s, query_s = registrations.response_s(), sent_queries.response_s()
    return MixedLoadResult(
        scheme=scheme,
        single=float(((matrices.partitions == 1) & (matrices.replicas == 1)).mean()),
        replicated=float((matrices.replicas > 1).mean()),
        most_replicas=int(matrices.replicas.max()),
        sizes=tuple((int(p), int(r), int(count)) for p, r, count in zip(*sizes, counts, strict=True)),
        registration_messages=float(messages.mean()),
        most_registration_messages=int(messages.max()),
        least_registration_messages=float((messages == PAIRS_PER_NAME).mean()),
        query_messages=float(sent_queries.messages.mean()),
        one_partition=float((sent_queries.messages == 1).mean()),
        registration_s=float(registration_s.mean()),
        query_s=float(query_s.mean()),
        registration_quantiles_s=_quantiles(registration_s),
        query_quantiles_s=_quantiles(query_s),
        message_quantiles=(
            tuple(int(value) for value in _quantiles(messages)),
            tuple(int(value) for value in _quantiles(sent_queries.messages)),
        ),
        probes=probes_with_cache(queries, matrices, rng),
    )


def _quantiles(values: Floats | Ints) -> tuple[float, ...]:
    return tuple(np.quantile(values, np.linspace(0, 1, 101), method="lower").tolist())


def _sample_rates(names: Ints, rng: np.random.Generator) -> tuple[tuple[float, float, float], ...]:
    """Return the registrations per second that three nodes observe, sampled every 0.5 s for 15 s (Figure 13).

    The nodes store partitions 1, 16 and 32 of the most popular attribute-value pair. In total, 2,000 names per second
    are registered.
    """
    matrices = SimulatedMatrices(MatrixLimits(partitions=MOST_PARTITIONS), rng)
    sent = Registrations(names, 2000, 0.0, matrices, rng=rng)
    partitions = np.array((0, 15, 31))
    sampled = []
    for place, end_s in enumerate(_slices(matrices, 0.0, 15.0, SLICE_S), start=1):
        sent.process_until(end_s, grow=True)
        if place % 10 == 0:
            rates = sent.observed_rates_per_s(0, partitions, end_s) * (partitions < matrices.partitions[0])
            sampled.append((float(rates[0]), float(rates[1]), float(rates[2])))
    return tuple(sampled)
