"""The experiment ``location`` as people read it: a table, the paper's figures 8 to 15, and a page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from service.simulate.jobs import run_all
from service.simulate.location import Outcome, dynamic, static
from service.simulate.location_jobs import JOBS, Half
from service.simulate.location_means import document_bytes, dynamic_of, label, mean_of, static_of
from service.simulate.location_overlay import Overlay
from service.simulate.location_page import page
from service.simulate.location_static import (
    DEPTHS,
    DISTANCES_MS,
    INDEX_BYTES,
    INDEX_SIZES,
    QUANTILES,
    Way,
)
from service.simulate.location_updates import Updates

STEPS = len(JOBS)
DRAWN = {1: ":", 3: "-"}
"""Depths in Figure 11, and their lines."""


def table(outcome: Outcome) -> Table:
    """Return a run as a table for a terminal."""
    shown = Table(box=SIMPLE_HEAD, caption=f"{_caches(outcome)}\nseed {outcome.seed}")
    for column in ("overlay", "depth", "updates", "kB", "found", "failed", "≤ 1.2", "bytes"):
        shown.add_column(column, justify="right", no_wrap=True)
    for found in outcome.static:
        used = found.index
        cells = (
            f"{found.found:.1%}",
            f"{found.failed:.1%}",
            f"{found.failed_almost:.0%}",
            f"{found.crossed_bytes:.0f}",
        )
        shown.add_row(used.overlay, str(used.depth), used.updates, f"{used.bytes / 1000:.2f}", *cells)
    return shown


def _caches(outcome: Outcome) -> str:
    return "\n".join(
        f"caches, {label(run)}: routing stretch {run.routing_stretch:.2f}, distance stretch {run.distance_stretch:.2f}"
        for run in outcome.dynamic
    )


def write(directory: Path, report: Callable[[str], None]) -> None:
    """Run all graphs, two halves at a time, and write ``location.md`` and ``location.png``."""
    halves = run_all(JOBS, _half, report)
    outcomes = [
        Outcome(static.experiment, static.seed, static.setup, static.static, dynamic.dynamic)
        for static, dynamic in zip(halves["static"], halves["dynamic"], strict=True)
    ]
    plot(outcomes, directory / "location.png")
    (directory / "location.md").write_text(page(outcomes), encoding="utf-8")


def plot(outcomes: Sequence[Outcome], file: Path) -> None:
    """Draw the paper's figures 8 to 15, of the means over these graphs."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - same

    figure, axes = plt.subplots(4, 2, figsize=(12, 17))
    drawn = (_algorithms, _failures, _costs, _stretch, _depths, _routing, _distance, _bytes)
    for axis, draw in zip(axes.flat, drawn, strict=True):
        draw(axis, outcomes)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _half(half: Half, seed: int) -> Outcome:
    def unheard(_what: str) -> None:
        """The page reports whole halves."""

    if half.dynamic:
        return Outcome("location", seed, half.setup, (), dynamic(half.setup, seed, unheard))
    return Outcome("location", seed, half.setup, static(half.setup, seed, unheard), ())


def _algorithms(axis: Any, outcomes: Sequence[Outcome]) -> None:
    for place, updates in enumerate(Updates):
        heights = document_bytes(outcomes, updates)
        axis.bar([depth + (place - 2) * 0.17 for depth in DEPTHS], heights, 0.15, label=f"{updates} filtering")
    axis.set(title="Update bandwidth by algorithm (Fig. 8)", xlabel="depth", ylabel="interdomain bytes per document")


def _failures(axis: Any, outcomes: Sequence[Outcome]) -> None:
    for kind, style in ((Overlay.GREEDY, "--"), (Overlay.RESTRICTED, "-")):
        for depth in DEPTHS:
            shares = [
                mean_of(static_of(outcomes, kind, depth, size, Updates.PRODUCT_SOURCE), "failed")
                for size in INDEX_SIZES
            ]
            axis.plot([size / 1000 for size in INDEX_SIZES], shares, style, color=f"C{depth}", label=f"{kind}, {depth}")
    axis.axvline(INDEX_BYTES / 1000, color="0.7", label="the paper's index")
    axis.set(title="Failed queries by index size and depth (Fig. 9)", xlabel="kB per server", ylabel="share of queries")


def _costs(axis: Any, outcomes: Sequence[Outcome]) -> None:
    for depth in DEPTHS:
        costs = [
            found.cost for found in static_of(outcomes, Overlay.RESTRICTED, depth, INDEX_BYTES, Updates.PRODUCT_SOURCE)
        ]
        axis.plot(np.mean(costs, axis=0), QUANTILES, "o-", label=f"depth {depth}")
    axis.axvline(1.2, color="0.7", label="the paper: 86 % below, depth 3")
    axis.set(title="Cost of a failed query (Fig. 10)", xlabel="times Tapestry alone", ylabel="share of failed queries")


def _stretch(axis: Any, outcomes: Sequence[Outcome]) -> None:
    middles = [*(f"≤ {edge:g}" for edge in DISTANCES_MS), "more"]
    for depth, style in DRAWN.items():
        runs = static_of(outcomes, Overlay.RESTRICTED, depth, INDEX_BYTES, Updates.PRODUCT_SOURCE)
        for place, way in enumerate(Way):
            hybrid = way in {Way.HYBRID, Way.HYBRID_HOME}
            if style == "-" or hybrid:
                bins = zip(*(run.located[place].by_distance for run in runs), strict=True)
                means = [fmean([each for each in found if each] or [np.nan]) for found in bins]
                name = f"{way}, depth {depth}" if hybrid else str(way)
                axis.plot(middles, means, style, color=f"C{place}", label=name)
    axis.set(title="Routing stretch by distance (Fig. 11)", xlabel="ms to the document", ylabel="stretch", yscale="log")


def _depths(axis: Any, outcomes: Sequence[Outcome]) -> None:
    for kind in Overlay:
        heights = [
            mean_of(static_of(outcomes, kind, depth, INDEX_BYTES, Updates.PRODUCT_SOURCE), "crossed_bytes")
            for depth in DEPTHS
        ]
        axis.plot(DEPTHS, heights, "o-", label=kind)
    axis.set(title="Update bandwidth by overlay (Fig. 12)", xlabel="depth", ylabel="interdomain bytes per document")
    axis.set_ylim(0, None)


def _routing(axis: Any, outcomes: Sequence[Outcome]) -> None:
    _bars(axis, outcomes, "routing_stretch", 2.1)
    axis.set(title="Routing stretch, caches (Fig. 13)")


def _distance(axis: Any, outcomes: Sequence[Outcome]) -> None:
    _bars(axis, outcomes, "distance_stretch", 1.94)
    axis.set(title="Distance stretch, caches (Fig. 14)")


def _bars(axis: Any, outcomes: Sequence[Outcome], name: str, gain: float) -> None:
    ways = dynamic_of(outcomes)
    heights = [mean_of(runs, name) for runs in ways.values()]
    axis.bar(list(ways), heights)
    axis.axhline(heights[0] / gain, color="0.3", label=f"the paper's best: {gain} times less")
    axis.tick_params(axis="x", labelrotation=20)


def _bytes(axis: Any, outcomes: Sequence[Outcome]) -> None:
    ways = dynamic_of(outcomes)
    bottom = np.zeros(len(ways))
    for name in ("file_bytes", "pointer_bytes", "query_bytes", "filter_bytes"):
        heights = np.array([mean_of(runs, name) / 1e6 for runs in ways.values()])
        axis.bar(list(ways), heights, bottom=bottom, label=name.removesuffix("_bytes"))
        bottom += heights
    axis.tick_params(axis="x", labelrotation=20)
    axis.set(title="Interdomain bandwidth, caches (Fig. 15)", ylabel="MB")
