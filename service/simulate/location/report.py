"""The table, plots and report page of the experiment ``location``, including the paper's Figures 8 to 15."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, mean
from typing import Any

import numpy as np
from rich.table import Table

from service.location.bloom_filters import best_hashes, false_positive_rate
from service.simulate.location import large_fleet_experiment
from service.simulate.location.dynamic_experiment import DynamicResult
from service.simulate.location.experiment import (
    DYNAMIC_SIZES,
    LocationOutcome,
    LocationSetup,
    run_dynamic,
    run_static,
)
from service.simulate.location.graph import REACHED, OverlayKind
from service.simulate.location.large_fleet_experiment import run_fleets
from service.simulate.location.network import UpdateAlgorithm
from service.simulate.location.static_experiment import (
    ALGORITHMS_INDEX_BYTES,
    DEPTHS,
    DISTANCES_MS,
    INDEX_BYTES,
    INDEX_SIZES,
    QUANTILES,
    LocationMethod,
    StaticResult,
)
from service.simulate.report import Job, draw, each, render, terminal_table

SEEDS = (1, 2, 3)
"""Three graphs, fewer than the paper's seven, to save time."""
JOBS = [
    *(Job("dynamic", run_dynamic, (LocationSetup(), seed)) for seed in SEEDS),
    *(Job("static", run_static, (LocationSetup(), seed)) for seed in SEEDS),
    *(Job("fleets", run_fleets, (seed,)) for seed in SEEDS),
]
"""The runs for the page. The static and the dynamic experiments are separate jobs, so that two processes are busy until
the end."""
FIGURE_11_LINES = {1: ":", 3: "-"}
"""Line styles in Figure 11 by depth."""

OutcomesByName = dict[str, list[Any]]


def page(found: OutcomesByName) -> str:
    """Return the report page as Markdown."""
    outcomes = _outcomes(found)
    documents = outcomes[0].setup.documents
    width = int(8 * INDEX_BYTES / REACHED)
    matched = false_positive_rate(width, best_hashes(width, [documents]), documents)
    return render(
        "location.md.j2",
        outcomes=outcomes,
        fleets=list(zip(*found["fleets"], strict=True)),
        limits=large_fleet_experiment,
        depths=DEPTHS,
        sizes=INDEX_SIZES,
        dynamic_sizes=DYNAMIC_SIZES,
        paper_bytes=INDEX_BYTES,
        most_bytes=ALGORITHMS_INDEX_BYTES,
        # Lower bound at depth 1, by formula: each row has the documents of one server.
        least_failed=1 - (1 - matched) ** REACHED,
        static_of=partial(_static, outcomes),
        document_bytes=partial(_document_bytes, outcomes),
        dynamic=list(_dynamic(outcomes).items()),
    )


def _outcomes(found: OutcomesByName) -> list[LocationOutcome]:
    halves = zip(SEEDS, found["static"], found["dynamic"], strict=True)
    return [LocationOutcome("location", seed, LocationSetup(), *half) for seed, *half in halves]


def _static(
    outcomes: Sequence[LocationOutcome],
    kind: str,
    depth: int,
    index_bytes: float = INDEX_BYTES,
    updates: str = UpdateAlgorithm.PRODUCT_SOURCE,
) -> list[StaticResult]:
    """Return the results of the static runs whose filters have these parameters, one for each random network.

    - ``kind`` is how servers are linked.
    - ``depth`` is the depth of filters in hops.
    - ``index_bytes`` is the total size of a server's filters.
    - ``updates`` is the algorithm that updates filters.

    At depth 1, ``kind`` and ``updates`` are ignored, because the results do not depend on them.
    """
    if depth == 1:
        kind, updates = OverlayKind.GREEDY, UpdateAlgorithm.PRODUCT_SOURCE
    wanted = (kind, depth, index_bytes, updates)
    runs = [run for outcome in outcomes for run in outcome.static]
    return [run for run in runs if (run.index.overlay, run.index.depth, run.index.bytes, run.index.updates) == wanted]


def _document_bytes(outcomes: Sequence[LocationOutcome], updates: str) -> list[float]:
    """Return, for each filter depth, how many bytes a new document costs with the algorithm ``updates`` (Figure 8)."""
    runs = (_static(outcomes, OverlayKind.RESTRICTED, depth, ALGORITHMS_INDEX_BYTES, updates) for depth in DEPTHS)
    return [mean(each(found, "document_bytes")) for found in runs]


def _dynamic(outcomes: Sequence[LocationOutcome]) -> dict[str, Sequence[DynamicResult]]:
    """Map the label of each dynamic run in the report to its results, one per random network.

    The run without filters comes first.
    """
    return {_label(runs[0]): runs for runs in zip(*each(outcomes, "dynamic"), strict=True)}


def _label(run: DynamicResult) -> str:
    if run.index is None:
        return "Tapestry alone"
    return f"depth {run.index.depth}" + ("" if run.index.bytes == INDEX_BYTES else f", {run.index.bytes / 1000:.2f} kB")


def table(outcome: LocationOutcome) -> Table:
    """Return the results of one run as a table for the terminal."""
    rows = [
        (
            run.index.overlay,
            str(run.index.depth),
            run.index.updates,
            f"{run.index.bytes / 1000:.2f}",
            f"{run.found:.1%}",
            f"{run.failed:.1%}",
            f"{run.failed_almost:.0%}",
            f"{run.crossed_bytes:.0f}",
        )
        for run in outcome.static
    ]
    caches = [
        f"caches, {_label(it)}: routing stretch {it.routing_stretch:.2f}, distance stretch {it.distance_stretch:.2f}"
        for it in outcome.dynamic
    ]
    caption = "\n".join((*caches, f"seed {outcome.seed}"))
    return terminal_table(
        ("overlay", "depth", "updates", "kB", "found", "failed", "≤ 1.2", "bytes"), rows, caption, padding=0
    )


def plot(found: OutcomesByName, file: Path) -> None:
    """Draw the means of the results over all random networks, and save the plots to ``file``."""
    _plot(_outcomes(found), file)


def plot_run(outcome: LocationOutcome, file: Path) -> None:
    """Draw the results for one random network, and save the plots to ``file``."""
    _plot([outcome], file)


def _plot(outcomes: Sequence[LocationOutcome], file: Path) -> None:
    draw(
        file,
        [
            *((panel, outcomes) for panel in (_algorithms, _failures, _costs, _stretch, _depths)),
            (_stretches, (outcomes, "routing_stretch", 2.1, "Routing stretch, caches (Fig. 13)")),
            (_stretches, (outcomes, "distance_stretch", 1.94, "Distance stretch, caches (Fig. 14)")),
            (_bytes, outcomes),
        ],
        height=4.25,
    )


def _algorithms(axis: Any, outcomes: Sequence[LocationOutcome]) -> None:
    for place, updates in enumerate(UpdateAlgorithm):
        heights = _document_bytes(outcomes, updates)
        axis.bar([depth + (place - 2) * 0.17 for depth in DEPTHS], heights, 0.15, label=f"{updates} filtering")
    axis.set(title="Update bandwidth by algorithm (Fig. 8)", xlabel="depth", ylabel="interdomain bytes per document")


def _failures(axis: Any, outcomes: Sequence[LocationOutcome]) -> None:
    for kind, style in ((OverlayKind.GREEDY, "--"), (OverlayKind.RESTRICTED, "-")):
        for depth in DEPTHS:
            shares = [mean(each(_static(outcomes, kind, depth, size), "failed")) for size in INDEX_SIZES]
            axis.plot([size / 1000 for size in INDEX_SIZES], shares, style, color=f"C{depth}", label=f"{kind}, {depth}")
    axis.axvline(INDEX_BYTES / 1000, color="0.7", label="the paper's index")
    axis.set(title="Failed queries by index size and depth (Fig. 9)", xlabel="kB per server", ylabel="share of queries")


def _costs(axis: Any, outcomes: Sequence[LocationOutcome]) -> None:
    for depth in DEPTHS:
        costs = [found.cost for found in _static(outcomes, OverlayKind.RESTRICTED, depth)]
        axis.plot(np.mean(costs, axis=0), QUANTILES, "o-", label=f"depth {depth}")
    axis.axvline(1.2, color="0.7", label="the paper: 86 % below, depth 3")
    axis.set(title="Cost of a failed query (Fig. 10)", xlabel="times Tapestry alone", ylabel="share of failed queries")


def _stretch(axis: Any, outcomes: Sequence[LocationOutcome]) -> None:
    middles = [*(f"≤ {edge:g}" for edge in DISTANCES_MS), "more"]
    for depth, style in FIGURE_11_LINES.items():
        runs = _static(outcomes, OverlayKind.RESTRICTED, depth)
        for place, way in enumerate(LocationMethod):
            hybrid = way in {LocationMethod.HYBRID, LocationMethod.HYBRID_HOME}
            if style == "-" or hybrid:
                bins = zip(*(run.located[place].by_distance for run in runs), strict=True)
                means = [fmean([it for it in found if it] or [np.nan]) for found in bins]
                name = f"{way}, depth {depth}" if hybrid else str(way)
                axis.plot(middles, means, style, color=f"C{place}", label=name)
    axis.set(title="Routing stretch by distance (Fig. 11)", xlabel="ms to the document", ylabel="stretch", yscale="log")


def _depths(axis: Any, outcomes: Sequence[LocationOutcome]) -> None:
    for kind in OverlayKind:
        heights = [mean(each(_static(outcomes, kind, depth), "crossed_bytes")) for depth in DEPTHS]
        axis.plot(DEPTHS, heights, "o-", label=kind)
    axis.set(title="Update bandwidth by overlay (Fig. 12)", xlabel="depth", ylabel="interdomain bytes per document")
    axis.set_ylim(0, None)


def _stretches(axis: Any, data: tuple[Sequence[LocationOutcome], str, float, str]) -> None:
    outcomes, field, gain, title = data
    runs = _dynamic(outcomes)
    heights = [mean(each(of, field)) for of in runs.values()]
    axis.bar(list(runs), heights)
    axis.axhline(heights[0] / gain, color="0.3", label=f"the paper's best: {gain} times less")
    axis.tick_params(axis="x", labelrotation=20)
    axis.set(title=title)


def _bytes(axis: Any, outcomes: Sequence[LocationOutcome]) -> None:
    ways = _dynamic(outcomes)
    bottom = np.zeros(len(ways))
    for name in ("file_bytes", "pointer_bytes", "query_bytes", "filter_bytes"):
        heights = np.array([mean(each(runs, name)) / 1e6 for runs in ways.values()])
        axis.bar(list(ways), heights, bottom=bottom, label=name.removesuffix("_bytes"))
        bottom += heights
    axis.tick_params(axis="x", labelrotation=20)
    axis.set(title="Interdomain bandwidth, caches (Fig. 15)", ylabel="MB")
