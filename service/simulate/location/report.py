"""The table, plots and report page of the experiment ``location``, with the paper's Figures 8 to 15."""

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
    DYNAMIC,
    DYNAMIC_SIZES,
    LocationOutcome,
    LocationSetup,
    dynamic,
    static,
)
from service.simulate.location.graph import REACHED, OverlayKind
from service.simulate.location.large_fleet_experiment import FleetFilters, shipped
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
    StretchResult,
)
from service.simulate.report import FigureVerdict, Job, compare, draw, each, render, terminal_table

SEEDS = (1, 2, 3)
"""Three graphs, fewer than the paper's seven, to save time."""
JOBS = [
    *(Job(run.__name__, run, (LocationSetup(), seed)) for run in (dynamic, static) for seed in SEEDS),
    *(Job(shipped.__name__, shipped, (seed,)) for seed in SEEDS),
]
"""The static and dynamic experiments of a graph are separate jobs, to use both processors until the end."""
FIGURE_11_LINES = {1: ":", 3: "-"}
"""Line styles in Figure 11 by depth."""

OutcomesByName = dict[str, list[Any]]


def page(found: OutcomesByName) -> str:
    """Return the report page as Markdown."""
    return page_of(_outcomes(found), found["shipped"])


def page_of(outcomes: Sequence[LocationOutcome], fleets: Sequence[Sequence[FleetFilters]]) -> str:
    """Return the report page for ``outcomes``, each of which is the run on one graph.

    ``fleets`` has, for each seed, the filters of fleets of the product's workers.
    """
    documents = outcomes[0].setup.documents
    width = int(8 * INDEX_BYTES / REACHED)
    matched = false_positive_rate(width, best_hashes(width, [documents]), documents)
    return render(
        "location.md.j2",
        outcomes=outcomes,
        comparisons=comparisons(outcomes),
        fleets=list(zip(*fleets, strict=True)),
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


def comparisons(outcomes: Sequence[LocationOutcome]) -> list[FigureVerdict]:
    """Return the verdicts on the paper's figures, by the values of each graph."""
    return [
        FigureVerdict("Figs. 1 to 7", "illustrations; Fig. 1 is part of Fig. 11", "", "no measurements"),
        *_update_comparisons(outcomes),
        *_failure_comparisons(outcomes),
        *_stretch_comparisons(outcomes),
        *_cache_comparisons(outcomes),
    ]


def _per_graph(
    outcomes: Sequence[LocationOutcome], kind: str, depth: int, field: str, index_bytes: float = INDEX_BYTES
) -> list[float]:
    return each(_static(outcomes, kind, depth, index_bytes), field)


def _ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / max(other, 1e-9) for one, other in zip(ones, others, strict=True)]


def _update_comparisons(outcomes: Sequence[LocationOutcome]) -> list[FigureVerdict]:
    def bytes_of(updates: str, depth: int) -> list[float]:
        return [_document_bytes([outcome], updates)[DEPTHS.index(depth)] for outcome in outcomes]

    def relative(updates: str, depth: int) -> list[float]:
        return _ratios(bytes_of(updates, depth), bytes_of(UpdateAlgorithm.NONE, depth))

    greedy = [
        min(costs) / max(costs)
        for costs in zip(
            *(_per_graph(outcomes, OverlayKind.GREEDY, depth, "crossed_bytes") for depth in DEPTHS), strict=True
        )
    ]
    return [
        compare(
            "Fig. 8: bytes with destination filtering / none, depth 2",
            "1",
            relative(UpdateAlgorithm.DESTINATION, 2),
            (0.99, 1.01),
            ".2f",
        ),
        *(
            compare(
                f"Fig. 8: bytes with {updates} filtering / none, depth {depth}",
                text,
                relative(updates, depth),
                (0.0, most),
                ".2f",
            )
            for updates, text, most, depths in (
                (UpdateAlgorithm.DESTINATION, "less", 0.99, (3, 4)),
                (UpdateAlgorithm.SOURCE, "generally significantly less", 0.9, (2, 3, 4)),
            )
            for depth in depths
        ),
        compare(
            "Fig. 12: least / most update bytes of all depths, greedy overlay",
            "roughly the same",
            greedy,
            (0.8, 1.0),
            ".2f",
            why="deeper filters need fewer bytes here, too",
        ),
        compare(
            "Fig. 12: update bytes at depth 4 / depth 1, restricted overlay",
            "greatly reduced",
            _ratios(
                _per_graph(outcomes, OverlayKind.RESTRICTED, 4, "crossed_bytes"),
                _per_graph(outcomes, OverlayKind.RESTRICTED, 1, "crossed_bytes"),
            ),
            (0.0, 0.5),
            ".2f",
        ),
    ]


def _failure_comparisons(outcomes: Sequence[LocationOutcome]) -> list[FigureVerdict]:
    restricted, least, largest = OverlayKind.RESTRICTED, INDEX_SIZES[0], INDEX_SIZES[-1]
    return [
        *(
            compare(
                f"Fig. 9: failed queries, 1.83 kB, restricted, depth {depth}",
                "few; here: at most 13.6 %",
                _per_graph(outcomes, restricted, depth, "failed"),
                (0.0, 0.136),
                ".1%",
                why="rows have very different numbers of documents; see the notes",
            )
            for depth in DEPTHS
        ),
        *(
            compare(
                f"Fig. 9: failed queries with 7.32 kB / with 1.83 kB, restricted, depth {depth}",
                "drops quickly",
                _ratios(
                    _per_graph(outcomes, restricted, depth, "failed", largest),
                    _per_graph(outcomes, restricted, depth, "failed", least),
                ),
                (0.0, 0.5),
                ".2f",
            )
            for depth in DEPTHS
        ),
        compare(
            "Fig. 9: failed queries, restricted / greedy, 7.32 kB, depth 3",
            "more",
            _ratios(
                _per_graph(outcomes, restricted, 3, "failed", largest),
                _per_graph(outcomes, OverlayKind.GREEDY, 3, "failed", largest),
            ),
            (1.0, 10.0),
            ".1f",
        ),
        compare(
            "Fig. 10: failed queries within 1.2 times Tapestry's time, depth 3",
            "86 %",
            _per_graph(outcomes, restricted, 3, "failed_almost"),
            (0.81, 0.91),
            ".1%",
        ),
    ]


def _stretch_comparisons(outcomes: Sequence[LocationOutcome]) -> list[FigureVerdict]:
    runs = _static(outcomes, OverlayKind.RESTRICTED, 3)

    def located(way: LocationMethod) -> list[StretchResult]:
        return [next(found for found in run.located if found.way is way) for run in runs]

    def near_by_far(way: LocationMethod) -> list[float]:
        bins = [[value for value in found.by_distance if value is not None] for found in located(way)]
        return [values[0] / values[-1] for values in bins]

    def means(way: LocationMethod) -> list[float]:
        return each(located(way), "mean")

    return [
        *(
            compare(
                f"Fig. 11: stretch of the nearest / of the farthest documents, {way}",
                "less optimal when near",
                near_by_far(way),
                (1.5, 1e4),
                ".1f",
            )
            for way in (LocationMethod.TAPESTRY, LocationMethod.HOME)
        ),
        *(
            compare(
                f"Fig. 11: mean stretch of the {hybrid} / of the {alone} alone, depth 3",
                "lower",
                _ratios(means(hybrid), means(alone)),
                (0.0, 0.999),
                ".2f",
            )
            for hybrid, alone in (
                (LocationMethod.HYBRID, LocationMethod.TAPESTRY),
                (LocationMethod.HYBRID_HOME, LocationMethod.HOME),
            )
        ),
        compare(
            "Fig. 11: mean stretch of Tapestry / of home nodes",
            "far lower",
            _ratios(means(LocationMethod.TAPESTRY), means(LocationMethod.HOME)),
            (0.0, 0.7),
            ".2f",
            why="lower, but the documents of this run are rarely near",
        ),
    ]


def _cache_comparisons(outcomes: Sequence[LocationOutcome]) -> list[FigureVerdict]:
    def best(field: str) -> list[float]:
        return [getattr(outcome.dynamic[0], field) / min(each(outcome.dynamic[1:], field)) for outcome in outcomes]

    def total(run: DynamicResult) -> float:
        return run.file_bytes + run.pointer_bytes + run.query_bytes + run.filter_bytes

    third = DYNAMIC.index((3, INDEX_BYTES)) + 1
    return [
        compare(
            "Fig. 13: best ratio of routing stretch, Tapestry / hybrid",
            "up to 2.1",
            best("routing_stretch"),
            (1.9, 2.4),
            ".2f",
            why="greater in the other graphs",
        ),
        compare(
            "Fig. 14: best ratio of distance stretch, Tapestry / hybrid",
            "up to 1.94",
            best("distance_stretch"),
            (1.75, 2.2),
            ".2f",
            why="greater in the other graphs",
        ),
        compare(
            "Fig. 15: interdomain bytes, hybrid at depth 3 / Tapestry alone",
            "no further cost",
            [total(outcome.dynamic[third]) / total(outcome.dynamic[0]) for outcome in outcomes],
            (0.0, 1.0),
            ".2f",
        ),
    ]


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
    """Return the results of the static runs with filters of these parameters, one for each graph.

    ``kind`` is the kind of overlay, and ``updates`` the update algorithm. At depth 1 all overlays and algorithms are
    equal.
    """
    if depth == 1:
        kind, updates = OverlayKind.GREEDY, UpdateAlgorithm.PRODUCT_SOURCE
    wanted = (kind, depth, index_bytes, updates)
    runs = [run for outcome in outcomes for run in outcome.static]
    return [run for run in runs if (run.index.overlay, run.index.depth, run.index.bytes, run.index.updates) == wanted]


def _document_bytes(outcomes: Sequence[LocationOutcome], updates: str) -> list[float]:
    """Return the bytes that a new document costs with the update algorithm ``updates``, by filter depth (Figure 8).

    They are the bytes of filter updates plus those of Tapestry's messages.
    """
    runs = (_static(outcomes, OverlayKind.RESTRICTED, depth, ALGORITHMS_INDEX_BYTES, updates) for depth in DEPTHS)
    return [mean(each(found, "crossed_bytes")) + mean(each(found, "pointer_bytes")) for found in runs]


def _dynamic(outcomes: Sequence[LocationOutcome]) -> dict[str, Sequence[DynamicResult]]:
    """Return the results of the dynamic runs of all graphs by label; those of Tapestry alone are first."""
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
    """Draw the means over all graphs, and write the figures to ``file``."""
    _plot(_outcomes(found), file)


def plot_run(outcome: LocationOutcome, file: Path) -> None:
    """Draw the results for one graph, and write the figures to ``file``."""
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
