"""The table, plots and report page of the experiment ``partial-lookup``."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, isclose
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from service.discovery.partial.strategies import RandomServer, expected_coverage, round_robin_tolerance
from service.simulate.partial_lookup import placement_experiment, update_experiment
from service.simulate.partial_lookup.experiment import EQUAL_WITHIN, PartialLookupOutcome, average_over_seeds, run
from service.simulate.partial_lookup.placement_experiment import (
    COVERED_STORAGE,
    ENTRIES,
    FAIR_STORAGE,
    SERVERS,
    StrategyCurve,
)
from service.simulate.partial_lookup.update_experiment import AGED_UPDATES, BETWEEN_ADDS, CUSHIONS, UPDATED_ENTRIES
from service.simulate.report import SEEDS, Job, draw, each, render, terminal_table

JOBS = [Job("partial lookup", run, (seed,)) for seed in SEEDS]

STEP = 0.5
"""Minimum difference in messages per update that counts as a step in Figure 11."""


def page(found: dict[str, list[PartialLookupOutcome]]) -> str:
    """Return the report page as Markdown; ``found`` has the results of all runs by job name."""
    outcomes = found["partial lookup"]

    def curves(figure: str) -> list[StrategyCurve]:
        """Return the curves of a figure, averaged over the seeds; a value is None if it is None for any seed."""
        return [_mean_curve(seeds) for seeds in zip(*each(outcomes, figure), strict=True)]

    def means(figure: str) -> dict[str, list[float]]:
        """Return a figure's values averaged over the seeds, by strategy, without values that a seed lacks."""
        return {curve.strategy: [value for value in curve.values if value is not None] for curve in curves(figure)}

    in_turn = enumerate(means("static.lookup_costs")["Round-Robin-2"], 1)
    tolerances = enumerate(means("static.fault_tolerances")["Round-Robin-2"], 1)
    messages = zip(UPDATED_ENTRIES, means("updates.overheads")["Hash"], strict=True)
    formulas = [
        StrategyCurve(f"{curve.strategy}, formula", curve.values) for curve in outcomes[0].updates.overheads_expected
    ]
    return render(
        "partial-lookup.md.j2",
        outcomes=outcomes,
        curves=curves,
        means=means,
        columns=[average_over_seeds(columns) for columns in zip(*each(outcomes, "table_2"), strict=True)],
        overheads=[*curves("updates.overheads"), *formulas],
        static=placement_experiment,
        updates=update_experiment,
        alike=EQUAL_WITHIN,
        longest=update_experiment.longest(BETWEEN_ADDS * ENTRIES),
        expected_coverage=expected_coverage(RandomServer(20), ENTRIES, SERVERS),
        in_steps=all(isclose(cost, ceil(target / 20)) for target, cost in in_turn),
        tolerant=all(held == round_robin_tolerance(2, target, ENTRIES, SERVERS) for target, held in tolerances),
        two_phases=_two_phases(means("static.unfairness")),
        fewer_copies=tuple(h for (_, before), (h, after) in pairwise(messages) if before - after > STEP),
    )


def _mean_curve(seeds: Sequence[StrategyCurve]) -> StrategyCurve:
    points = zip(*each(seeds, "values"), strict=True)
    return StrategyCurve(seeds[0].strategy, tuple(None if None in point else mean(point) for point in points))


def _two_phases(unfairness: dict[str, list[float]]) -> bool:
    """Return whether the curves of unfairness, by strategy, have the two phases that the paper describes.

    The boundary is the storage at which one or two servers have enough entries for the target.
    """
    sampled, hashed = unfairness["RandomServer"], unfairness["Hash"]
    one_server = FAIR_STORAGE.index(400)
    falls = [before - after for before, after in pairwise(sampled)]
    steep = falls[0] > 2 * falls[one_server] and all(fall > 0 for fall in falls)
    return steep and max(hashed) > 2 * hashed[0] and max(hashed) > hashed[-1] > max(hashed) / 2


def table(outcome: PartialLookupOutcome) -> Table:
    """Return Table 2 of one run for the terminal: measurements, computed stars, and the paper's stars."""
    rows = []
    for column in outcome.table_2:
        cells = zip(column.measured, column.stars, column.paper, strict=True)
        rows.append((column.name, *(f"{cost:.4g} {'*' * computed} ({'*' * paper})" for cost, computed, paper in cells)))
    caption = f"measured value, rating derived from it (the paper's rating); seed {outcome.seed}"
    return terminal_table(("", "Fixed-x", "RandomServer-x", "Round-Robin-y", "Hash-y"), rows, caption)


def plot(found: dict[str, list[PartialLookupOutcome]], file: Path) -> None:
    """Draw the figures of the run with the first seed, and write them to ``file``."""
    plot_run(found["partial lookup"][0], file)


def plot_run(outcome: PartialLookupOutcome, file: Path) -> None:
    """Draw the paper's Figures 3, 5, 6 and 8 to 11 with the results of one run, and write them to ``file``."""
    placed, updated = outcome.static, outcome.updates
    targets = range(1, 1 + len(placed.lookup_costs[0].values))
    positive = [StrategyCurve(it.strategy, tuple(value or None for value in it.values)) for it in updated.failing]
    expected = [StrategyCurve("formula of Coronet", updated.failing_expected)]
    paper = [
        StrategyCurve(f"{curve.strategy}, the paper's formula", curve.values) for curve in updated.overheads_expected
    ]
    panels = [
        (targets, placed.lookup_costs, (), "Lookup cost (Fig. 3)", "target", "servers queried"),
        (COVERED_STORAGE, placed.coverages, (), "Coverage (Fig. 5)", "storage", "entries"),
        (targets, placed.fault_tolerances, (), "Fault tolerance (Fig. 6)", "target", "servers, in the worst case"),
        (FAIR_STORAGE, placed.unfairness, (), "Unfairness (Fig. 8)", "storage", "target 35"),
        (CUSHIONS, positive, expected, "Too few entries (Fig. 9)", "cushion", "share of the time"),
        (AGED_UPDATES, updated.aged_unfairness, (), "Unfairness (Fig. 10)", "updates", "target 15"),
        (UPDATED_ENTRIES, updated.overheads, paper, "Messages (Fig. 11)", "entries", "per update"),
    ]
    draw(file, [(_curves, panel) for panel in panels])


def _curves(
    axis: Any, panel: tuple[Sequence[float], Sequence[StrategyCurve], Sequence[StrategyCurve], str, str, str]
) -> None:
    along, measured, formulas, title, xlabel, ylabel = panel
    for curve in measured:
        points = [(x, y) for x, y in zip(along, curve.values, strict=True) if y is not None]
        axis.plot([x for x, _ in points], [y for _, y in points], label=curve.strategy)
    for curve in formulas:
        axis.plot(along, curve.values, ":", label=curve.strategy)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if along is CUSHIONS:
        axis.set(yscale="log", ylim=(1e-6, 1))
