"""Experiment ``discovery`` (Gao & Steenkiste §V-VI): 10,000 nodes, matrices of 10,000 pairs, and skewed loads.

Production's are the matrices' records and transitions, the thresholds, what cells ask for, the homes of names, which
sizes a query asks for, and which matrix it takes. Around them are the paper's nodes, delays and workloads.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from service.discovery.matrix import MatrixLimits
from service.simulate.discovery.matrices import (
    PER_NAME,
    Matrices,
    Queries,
    skewed_names,
    uniform_names,
    zipf_queries,
)
from service.simulate.discovery.queries import (
    Asked,
    Held,
    Limited,
    Registrations,
    Scheme,
    Way,
    probes_with_memory,
    slices,
)
from service.simulate.schedulers.publication_trace import Floats, Ints

RATES = (1000, 2000, 5000, 10_000)
PARTITIONS = (1, 8, 32, 64, 128, 200)
QUERY_RATES = (5000, 20_000, 50_000, 100_000)
FIG_9 = (("uniform", 1), ("uniform", 32), ("skewed", 1), ("skewed", 32), ("skewed", 200))
MOST_PARTITIONS = 200
QUERIED_PARTITIONS = 32
"""In Figures 11 and 14 to 16 the paper does not say how many partitions there may be; its largest matrix has 32."""
MANY = 1 << 16
"""Replicas: as many as necessary."""

SLICE_S = 0.05
SLICE_MESSAGES = 4000
CACHED_MESSAGES = 20_000
"""Where nothing depends on the slices: as many as a processor's caches hold."""
GAP_S = 1.0
"""Between two sendings of a dataset."""

GROWING_PASSES = 2
"""A dataset is sent so often until matrices are taken to have stopped growing."""

MIXED = MatrixLimits(registrations_s=25.0, queries_s=100.0, partitions=QUERIED_PARTITIONS, replicas=MANY)
MIXED_RATES = (1000, 5000)
MIXED_NAMES = 17_000
MIXED_QUERIES = 83_000
"""Of §VI.E."""

STEPS = len(RATES) * len(FIG_9) + len(PARTITIONS) - 3 + 2 * len(QUERY_RATES) + 4


class Registering(msgspec.Struct, frozen=True):
    """One point of Figures 9, 10 and 12; ``initial`` is the success while matrices begin to grow, CV that of names."""

    names: str
    way: Way
    rate_s: int
    partitions: int
    initial: float
    success: float
    cv: float
    empty_nodes: float
    """Of all."""
    most_names: float
    """On one node, as a multiple of the mean."""
    largest: int
    """Partitions of the largest matrix."""


class Asking(msgspec.Struct, frozen=True):
    """One point of Figure 11."""

    scheme: Scheme
    rate_s: int
    success: float
    replicas: int
    """Of the matrix with the most."""
    messages: float
    """Per query."""
    one_partition: float
    """Share of the queries that were sent to a matrix with one."""


class Mixed(msgspec.Struct, frozen=True):
    """Figures 14 to 16 under one scheme; responses in seconds, of those that succeed."""

    scheme: Scheme
    single: float
    """Matrices of one cell, as a share of all."""
    replicated: float
    most_replicas: int
    sizes: tuple[tuple[int, int, int], ...]
    """Partitions, replicas, and how many matrices are of that size."""
    registration_messages: float
    most_registration_messages: int
    least_registration_messages: float
    """Share of the names that needed no more than one message for each pair."""
    query_messages: float
    one_partition: float
    """Share of the queries that were sent to a matrix with one."""
    registration_s: float
    query_s: float
    registration_quantiles_s: tuple[float, ...]
    query_quantiles_s: tuple[float, ...]
    message_quantiles: tuple[tuple[int, ...], tuple[int, ...]]
    """Of registrations, and of queries; by per cent."""
    probes: float
    """Sizes asked for per query, by clients that remember those they have asked for."""


class Outcome(msgspec.Struct, frozen=True):
    """What ``coronet simulate discovery --json`` prints."""

    experiment: str
    seed: int
    fig_9: tuple[Registering, ...]
    fig_10: tuple[Registering, ...]
    fig_11: tuple[Asking, ...]
    fig_13: tuple[tuple[float, float, float], ...]
    """Every 0.5 s: rates that the nodes of the first, the 16th and the 32nd partition of a popular pair observe."""
    fig_14_to_16: tuple[Mixed, ...]
    ours: Registering
    """Two choices of a partition, and nobody refused because a matrix grows."""
    limited: Asking
    """Queries for a few names, optimised, at the highest rate of Figure 11."""


def run(seed: int, report: Callable[[str], None]) -> Outcome:
    """Run everything; report after each of ``STEPS``."""
    rng = np.random.default_rng(seed)
    names = {"uniform": uniform_names(rng), "skewed": skewed_names(rng)}
    queries = zipf_queries(rng)

    def registering(which: str, rate_s: int, partitions: int, way: Way = Way.PAPER) -> Registering:
        limits = MatrixLimits(partitions=partitions)
        found = _registering(which, names[which], rate_s, limits=limits, way=way, rng=rng)
        report(f"{which} names, {rate_s:,}/s")
        return found

    fig_9 = [registering(which, rate_s, most) for which, most in FIG_9 for rate_s in RATES]
    known = {point.partitions: point for point in fig_9 if (point.names, point.rate_s) == ("skewed", 5000)}
    fig_10 = [known.get(most) or registering("skewed", 5000, most) for most in PARTITIONS]
    ours = registering("skewed", 10_000, MOST_PARTITIONS, Way.OURS)
    fig_11 = []
    for scheme in Scheme:
        for rate_s in QUERY_RATES:
            fig_11.append(_asking(scheme, names["skewed"], queries, rate_s, rng))
            report(f"{scheme} queries, {rate_s:,}/s")
    mixed = []
    for scheme in Scheme:
        mixed.append(_mixed(scheme, names["skewed"][:MIXED_NAMES], queries.first(MIXED_QUERIES), rng))
        report(f"{scheme} queries among registrations")
    limited = _asking(None, names["skewed"], queries, QUERY_RATES[-1], rng)
    report("queries for a few names")
    return Outcome(
        "discovery",
        seed,
        tuple(fig_9),
        tuple(fig_10),
        tuple(fig_11),
        _over_time(names["skewed"], rng),
        tuple(mixed),
        ours,
        limited,
    )


def _registering(
    which: str, names: Ints, rate_s: int, *, limits: MatrixLimits, way: Way, rng: np.random.Generator
) -> Registering:
    """Send a dataset until matrices have stopped growing, and then once more."""
    matrices = Matrices(limits, rng)
    sent: list[Registrations] = []
    for growing in (*[limits.partitions > 1] * GROWING_PASSES, False):
        begin_s = sent[-1].last_s + GAP_S if sent else 0.0
        sent.append(Registrations(names, rate_s, begin_s, matrices, way=way, rng=rng))
        _until_all_came(sent[-1], rate_s, matrices, grow=growing)
        if limits.partitions == 1:
            break
    held = sent[-1].held
    return Registering(
        names=which,
        way=way,
        rate_s=rate_s,
        partitions=limits.partitions,
        initial=float(sent[0].succeeds.mean()),
        success=float(sent[-1].succeeds.mean()),
        cv=float(held.std() / held.mean()),
        empty_nodes=float((held == 0).mean()),
        most_names=float(held.max() / held.mean()),
        largest=int(matrices.partitions.max()),
    )


def _until_all_came(sent: Registrations, rate_s: int, matrices: Matrices, *, grow: bool) -> None:
    length_s = min(SLICE_S, SLICE_MESSAGES / (rate_s * PER_NAME))
    if not grow and sent.way is Way.PAPER:
        length_s = CACHED_MESSAGES / (rate_s * PER_NAME)
    for end_s in slices(sent.first_s, sent.last_s, length_s):
        matrices.follow(end_s - length_s)
        sent.until(end_s, grow=grow)
    matrices.follow(sent.last_s + GAP_S)


def _asking(scheme: Scheme | None, names: Ints, queries: Queries, rate_s: int, rng: np.random.Generator) -> Asking:
    """Register the names, and then ask: by a scheme, or for a few of them each time."""
    matrices = Matrices(MatrixLimits(partitions=QUERIED_PARTITIONS, replicas=MANY), rng)
    registered = Registrations(names, 2000, 0.0, matrices, rng=rng)
    _until_all_came(registered, 2000, matrices, grow=True)
    begin_s = registered.last_s + GAP_S
    asked: Asked | Limited
    if scheme is None:
        asked = Limited(queries, rate_s, begin_s, matrices, held=Held(registered), rng=rng)
    else:
        asked = Asked(queries, rate_s, begin_s, matrices, scheme=scheme, rng=rng)
    length_s = min(SLICE_S, SLICE_MESSAGES / 10 / rate_s)
    for end_s in slices(begin_s, asked.last_s, length_s):
        matrices.follow(end_s - length_s)
        asked.until(end_s)
    matrices.follow(np.inf)
    return Asking(
        scheme=scheme or Scheme.OPTIMISED,
        rate_s=rate_s,
        success=float(asked.succeeds.mean()),
        replicas=int(matrices.replicas.max()),
        messages=float(asked.messages.mean()),
        one_partition=float((asked.messages == 1).mean()),
    )


def _mixed(scheme: Scheme, names: Ints, queries: Queries, rng: np.random.Generator) -> Mixed:
    """Register and ask at the same time."""
    matrices = Matrices(MIXED, rng)
    registered = Registrations(names, MIXED_RATES[0], 0.0, matrices, rng=rng)
    asked = Asked(queries, MIXED_RATES[1], 0.0, matrices, scheme=scheme, rng=rng)
    for end_s in slices(0.0, max(registered.last_s, asked.last_s), 0.02):
        matrices.follow(end_s - 0.02)
        registered.until(end_s, grow=True)
        asked.until(end_s)
    matrices.follow(np.inf)
    sizes, counts = np.unique(np.stack([matrices.partitions, matrices.replicas]), axis=1, return_counts=True)
    messages = registered.messages()
    registration_s, query_s = registered.response_s(), asked.response_s()
    return Mixed(
        scheme=scheme,
        single=float(((matrices.partitions == 1) & (matrices.replicas == 1)).mean()),
        replicated=float((matrices.replicas > 1).mean()),
        most_replicas=int(matrices.replicas.max()),
        sizes=tuple((int(p), int(r), int(count)) for p, r, count in zip(*sizes, counts, strict=True)),
        registration_messages=float(messages.mean()),
        most_registration_messages=int(messages.max()),
        least_registration_messages=float((messages == PER_NAME).mean()),
        query_messages=float(asked.messages.mean()),
        one_partition=float((asked.messages == 1).mean()),
        registration_s=float(registration_s.mean()),
        query_s=float(query_s.mean()),
        registration_quantiles_s=_quantiles(registration_s),
        query_quantiles_s=_quantiles(query_s),
        message_quantiles=(
            tuple(int(value) for value in _quantiles(messages)),
            tuple(int(value) for value in _quantiles(asked.messages)),
        ),
        probes=probes_with_memory(queries, matrices, rng),
    )


def _quantiles(values: Floats | Ints) -> tuple[float, ...]:
    return tuple(np.quantile(values, np.linspace(0, 1, 101), method="lower").tolist())


def _over_time(names: Ints, rng: np.random.Generator) -> tuple[tuple[float, float, float], ...]:
    """Watch three partitions of the most popular pair while names come at 2,000/s, for 15 s."""
    matrices = Matrices(MatrixLimits(partitions=MOST_PARTITIONS), rng)
    sent = Registrations(names, 2000, 0.0, matrices, rng=rng)
    watched = []
    for place, end_s in enumerate(slices(0.0, 15.0, SLICE_S), start=1):
        matrices.follow(end_s - SLICE_S)
        sent.until(end_s, grow=True)
        if place % 10 == 0:
            watched.append(_rates(sent, matrices, (0, 15, 31), end_s))
    return tuple(watched)


def _rates(
    sent: Registrations, matrices: Matrices, partitions: Sequence[int], now_s: float
) -> tuple[float, float, float]:
    first, middle, last = sent.observed_s(0, partitions, now_s) * (np.array(partitions) < matrices.partitions[0])
    return float(first), float(middle), float(last)
