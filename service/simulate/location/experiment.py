"""Experiment ``location`` (Rhea and Kubiatowicz §III-IV): attenuated Bloom filters on a transit-stub graph.

Production's are the nodes with their filters, updates and queries, the messages' bytes, and the choice of hashes.
One run is one graph: all static experiments on it, and the dynamic ones.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from service.simulate.location import dynamic as location_dynamic
from service.simulate.location import static as location_static
from service.simulate.location.dynamic import Dynamic, Filters, trace
from service.simulate.location.graph import Overlay, ways
from service.simulate.location.network import Updates
from service.simulate.location.static import ALGORITHMS, DEPTHS, INDEX_SIZES, Static, index, linked, world

DYNAMIC_SIZES = (INDEX_SIZES[0], INDEX_SIZES[-1])
DYNAMIC = [(depth, size) for size in DYNAMIC_SIZES for depth in DEPTHS]
"""Depths and index sizes of the dynamic runs ("a range of sizes and depths", §III.C), on the restricted overlay."""
STEPS = (2 * len(DEPTHS) - 1) * len(INDEX_SIZES) + len(ALGORITHMS) * (len(DEPTHS) - 1) + 1


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
    outcome: list[Static] = []
    for found in location_static.runs(placed, rng):
        outcome.append(found)
        report(f"{found.index.overlay}, depth {found.index.depth}")
    return tuple(outcome)


def dynamic(setup: Setup, seed: int, report: Callable[[str], None]) -> tuple[Dynamic, ...]:
    """Run the dynamic experiments."""
    graph_rng, _, rng = _luck(seed)
    graph = ways(setup.servers, graph_rng)
    stream = trace(setup.servers, setup.files, rng)
    links = {depth: linked(graph, Overlay.RESTRICTED, depth, setup.documents, rng) for depth in DEPTHS}
    filters = [
        Filters(links[depth].edges, index(graph, links[depth], index_bytes, Updates.PRODUCT_SOURCE))
        for depth, index_bytes in DYNAMIC
    ]
    outcome = location_dynamic.run(graph, stream, setup.reads * setup.servers, rng, filters)
    report("caches")
    return tuple(outcome)


def _luck(seed: int) -> Sequence[np.random.Generator]:
    """Return what the graph, the static and the dynamic experiments are drawn with."""
    return np.random.default_rng(seed).spawn(3)
