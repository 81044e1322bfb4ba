"""Experiment ``location`` (Rhea and Kubiatowicz §III-IV): attenuated Bloom filters on a transit-stub graph.

Production's are the nodes with their filters, updates and queries, the messages' bytes, and the choice of hashes.
One run is one graph: all static experiments on it, and the dynamic ones.
"""

import gc
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from service.location.protocol import Filtering
from service.simulate import location_dynamic, location_static
from service.simulate.location_dynamic import Dynamic, Filters
from service.simulate.location_graph import ways
from service.simulate.location_overlay import Overlay
from service.simulate.location_static import DEPTHS, INDEX_BYTES, INDEX_SIZES, Static, index, linked, world
from service.simulate.location_trace import trace

DYNAMIC = [(1, INDEX_BYTES), (2, INDEX_BYTES), (3, INDEX_BYTES), (4, INDEX_BYTES), (3, 4 * INDEX_BYTES)]
"""Depths and index sizes of the dynamic runs, on the restricted overlay."""
STEPS = (2 * len(DEPTHS) - 1) * len(INDEX_SIZES) + 2 * (len(DEPTHS) - 1) + 1


class Setup(msgspec.Struct, frozen=True):
    """How large it is. ``documents`` and ``queries`` are per server, as are the dynamic runs' measured ``reads``."""

    servers: int = 1000
    documents: int = 70
    queries: int = 12
    files: int = 50_000
    reads: int = 6


class Outcome(msgspec.Struct, frozen=True):
    """What ``coronet simulate location --json`` prints; by the paper's figures, see ``location_report``."""

    experiment: str
    seed: int
    setup: Setup
    static: tuple[Static, ...]
    dynamic: tuple[Dynamic, ...]


def run(setup: Setup, seed: int, report: Callable[[str], None]) -> Outcome:
    """Run everything on the graph of this seed; report after each run."""
    placed = static(setup, seed, report)
    return Outcome("location", seed, setup, placed, dynamic(setup, seed, report))


def static(setup: Setup, seed: int, report: Callable[[str], None]) -> tuple[Static, ...]:
    """Run the static experiments."""
    graph_rng, rng, _ = _luck(seed)
    placed = world(ways(setup.servers, graph_rng), setup.documents, setup.queries, rng)
    gc.freeze()  # what is there stays until the end: looking through it again and again takes a fifth of the time
    outcome: list[Static] = []
    for found in location_static.runs(placed, rng):
        outcome.append(found)
        report(f"{found.index.overlay}, depth {found.index.depth}")
    gc.unfreeze()
    return tuple(outcome)


def dynamic(setup: Setup, seed: int, report: Callable[[str], None]) -> tuple[Dynamic, ...]:
    """Run the dynamic experiments."""
    graph_rng, _, rng = _luck(seed)
    graph = ways(setup.servers, graph_rng)
    stream = trace(setup.servers, setup.files, rng)
    gc.freeze()  # as above
    filters: list[Filters] = []
    for depth, index_bytes in DYNAMIC:
        links = linked(graph, Overlay.RESTRICTED, depth, setup.documents, rng)
        filters.append(Filters(links.edges, index(graph, links, index_bytes, Filtering.SOURCE)))
    outcome = location_dynamic.run(graph, stream, setup.reads * setup.servers, rng, filters)
    gc.unfreeze()
    report("caches")
    return tuple(outcome)


def _luck(seed: int) -> Sequence[np.random.Generator]:
    """Return what the graph, the static and the dynamic experiments are drawn with."""
    return np.random.default_rng(seed).spawn(3)
