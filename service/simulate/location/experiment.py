"""One run of the experiment ``location``: documents are located by attenuated Bloom filters (§III and §IV).

An attenuated Bloom filter summarises the documents of nearby servers, in one row for each distance in hops. A run
executes all static and dynamic experiments on one random network.

The experiment uses this production code: nodes with their filters, updates and queries; the encoding of messages; and
the choice of the number of hash functions.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from service.simulate.location import dynamic_experiment, static_experiment
from service.simulate.location.dynamic_experiment import DynamicResult, draw_reference_stream
from service.simulate.location.graph import OverlayKind, draw_distances
from service.simulate.location.network import SimulatedOverlay, UpdateAlgorithm
from service.simulate.location.static_experiment import (
    ALGORITHMS,
    DEPTHS,
    INDEX_SIZES,
    StaticResult,
    filter_index,
    filter_shape,
    link_servers,
    place_documents,
)

DYNAMIC_SIZES = (INDEX_SIZES[0], INDEX_SIZES[-1])
DYNAMIC = [(depth, size) for size in DYNAMIC_SIZES for depth in DEPTHS]
"""Pairs of a filter depth and an index size, one per dynamic run. The paper has "a range of sizes and depths" (§III.C).
All these runs use the restricted overlay."""
STEPS = (2 * len(DEPTHS) - 1) * len(INDEX_SIZES) + len(ALGORITHMS) * (len(DEPTHS) - 1) + 1


class LocationSetup(msgspec.Struct, frozen=True):
    """The parameters of one run. In static runs, documents stay where they are; in dynamic runs, servers cache them.

    - ``documents`` is the number of documents per server in the static runs.
    - ``queries`` is the number of queries per server in the static runs.
    - ``reads`` is the number of measured reads per server in the dynamic runs.
    - ``files`` is the total number of files in the dynamic runs.
    """

    servers: int = 1000
    documents: int = 70
    queries: int = 12
    files: int = 50_000
    reads: int = 6


class LocationOutcome(msgspec.Struct, frozen=True):
    """The results of one run; the output of ``coronet simulate location --json``."""

    experiment: str
    seed: int
    setup: LocationSetup
    static: tuple[StaticResult, ...]
    dynamic: tuple[DynamicResult, ...]


def run(setup: LocationSetup, seed: int, report: Callable[[str], None]) -> LocationOutcome:
    """Run all experiments on the random network drawn with ``seed``, and return the results.

    ``report`` is called with a short text after each part of the run.
    """
    placed = run_static(setup, seed, report)
    return LocationOutcome("location", seed, setup, placed, run_dynamic(setup, seed, report))


def run_static(setup: LocationSetup, seed: int, report: Callable[[str], None]) -> tuple[StaticResult, ...]:
    """Run the static experiments, and return their results; ``report`` is called with a short text after each."""
    graph_rng, rng, _ = _spawn_generators(seed)
    placed = place_documents(draw_distances(setup.servers, graph_rng), setup.documents, setup.queries, rng)
    outcome: list[StaticResult] = []
    for found in static_experiment.run_all(placed, rng):
        outcome.append(found)
        report(f"{found.index.overlay}, depth {found.index.depth}")
    return tuple(outcome)


def run_dynamic(setup: LocationSetup, seed: int, report: Callable[[str], None]) -> tuple[DynamicResult, ...]:
    """Run the dynamic experiments, and return their results; ``report`` is called with a short text after each."""
    graph_rng, _, rng = _spawn_generators(seed)
    graph = draw_distances(setup.servers, graph_rng)
    stream = draw_reference_stream(setup.servers, setup.files, rng)
    links = {depth: link_servers(graph, OverlayKind.RESTRICTED, depth, setup.documents, rng) for depth in DEPTHS}
    filters = []
    for depth, index_bytes in DYNAMIC:
        used = filter_index(graph, links[depth], index_bytes, UpdateAlgorithm.PRODUCT_SOURCE)
        filters.append((used, SimulatedOverlay(graph, links[depth].edges, filter_shape(used), used.updates)))
    outcome = dynamic_experiment.run(graph, stream, setup.reads * setup.servers, rng, filters)
    report("caches")
    return tuple(outcome)


def _spawn_generators(seed: int) -> Sequence[np.random.Generator]:
    """Return three independent random generators: for the graph, the static experiments and the dynamic experiments."""
    return np.random.default_rng(seed).spawn(3)
