"""Table, plots and page of the experiment ``partial-lookup``."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, isclose
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from service.discovery.partial.strategies import RandomServer, expected_coverage, round_robin_tolerance
from service.simulate.partial_lookup import static, updates
from service.simulate.partial_lookup.experiment import ALIKE, Outcome, over_seeds, run
from service.simulate.partial_lookup.static import COVERED_STORAGE, ENTRIES, FAIR_STORAGE, SERVERS, Curve
from service.simulate.partial_lookup.updates import AGED_UPDATES, BETWEEN_ADDS, CUSHIONS, UPDATED_ENTRIES
from service.simulate.report import SEEDS, Job, draw, each, render, terminal_table

JOBS = [Job("partial lookup", run, (seed,)) for seed in SEEDS]

STEP = 0.5
"""Messages that are a step of Figure 11."""


def page(found: dict[str, list[Outcome]]) -> str:
    """Return the page from the runs of all seeds."""
    outcomes = found["partial lookup"]

    def curves(figure: str) -> list[Curve]:
        """Return the curves of a figure, means over the seeds, None where a seed has no value."""
        return [_mean_curve(seeds) for seeds in zip(*each(outcomes, figure), strict=True)]

    def means(figure: str) -> dict[str, list[float]]:
        """Return these means by strategy, as far as all seeds have a value."""
        return {curve.strategy: [value for value in curve.values if value is not None] for curve in curves(figure)}

    in_turn = enumerate(means("static.lookup_costs")["Round-Robin-2"], 1)
    tolerances = enumerate(means("static.fault_tolerances")["Round-Robin-2"], 1)
    messages = zip(UPDATED_ENTRIES, means("updates.overheads")["Hash"], strict=True)
    formulas = [Curve(f"{curve.strategy}, formula", curve.values) for curve in outcomes[0].updates.overheads_expected]
    return render(
        "partial-lookup.md.j2",
        outcomes=outcomes,
        curves=curves,
        means=means,
        columns=[over_seeds(columns) for columns in zip(*each(outcomes, "table_2"), strict=True)],
        overheads=[*curves("updates.overheads"), *formulas],
        static=static,
        updates=updates,
        alike=ALIKE,
        longest=updates.longest(BETWEEN_ADDS * ENTRIES),
        expected_coverage=expected_coverage(RandomServer(20), ENTRIES, SERVERS),
        in_steps=all(isclose(cost, ceil(target / 20)) for target, cost in in_turn),
        tolerant=all(held == round_robin_tolerance(2, target, ENTRIES, SERVERS) for target, held in tolerances),
        two_phases=_two_phases(means("static.unfairness")),
        fewer_copies=tuple(h for (_, before), (h, after) in pairwise(messages) if before - after > STEP),
    )


def _mean_curve(seeds: Sequence[Curve]) -> Curve:
    points = zip(*each(seeds, "values"), strict=True)
    return Curve(seeds[0].strategy, tuple(None if None in point else mean(point) for point in points))


def _two_phases(unfairness: dict[str, list[float]]) -> bool:
    """Return whether the curves have the paper's shapes: until a server or two have the target, and from there on."""
    sampled, hashed = unfairness["RandomServer"], unfairness["Hash"]
    one_server = FAIR_STORAGE.index(400)
    falls = [before - after for before, after in pairwise(sampled)]
    steep = falls[0] > 2 * falls[one_server] and all(fall > 0 for fall in falls)
    return steep and max(hashed) > 2 * hashed[0] and max(hashed) > hashed[-1] > max(hashed) / 2


def table(outcome: Outcome) -> Table:
    """Return a run's Table 2 for a terminal: what was measured, our stars and the paper's."""
    rows = []
    for column in outcome.table_2:
        cells = zip(column.measured, column.stars, column.paper, strict=True)
        rows.append((column.name, *(f"{cost:.4g} {'*' * ours} ({'*' * paper})" for cost, ours, paper in cells)))
    caption = f"measured, our stars (the paper's stars); seed {outcome.seed}"
    return terminal_table(("", "Fixed-x", "RandomServer-x", "Round-Robin-y", "Hash-y"), rows, caption)


def plot(found: dict[str, list[Outcome]], file: Path) -> None:
    """Draw the first seed."""
    plot_run(found["partial lookup"][0], file)


def plot_run(outcome: Outcome, file: Path) -> None:
    """Draw the paper's Figures 3, 5, 6 and 8 to 11 of one run."""
    placed, updated = outcome.static, outcome.updates
    targets = range(1, 1 + len(placed.lookup_costs[0].values))
    positive = [Curve(it.strategy, tuple(value or None for value in it.values)) for it in updated.failing]
    expected = [Curve("our formula", updated.failing_expected)]
    paper = [Curve(f"{curve.strategy}, the paper's formula", curve.values) for curve in updated.overheads_expected]
    panels = [
        (targets, placed.lookup_costs, (), "Lookup cost (Fig. 3)", "target", "servers asked"),
        (COVERED_STORAGE, placed.coverages, (), "Coverage (Fig. 5)", "storage", "entries"),
        (targets, placed.fault_tolerances, (), "Fault tolerance (Fig. 6)", "target", "servers, in the worst case"),
        (FAIR_STORAGE, placed.unfairness, (), "Unfairness (Fig. 8)", "storage", "target 35"),
        (CUSHIONS, positive, expected, "Too few entries (Fig. 9)", "cushion", "share of the time"),
        (AGED_UPDATES, updated.aged_unfairness, (), "Unfairness (Fig. 10)", "updates", "target 15"),
        (UPDATED_ENTRIES, updated.overheads, paper, "Messages (Fig. 11)", "entries", "per update"),
    ]
    draw(file, [(_curves, panel) for panel in panels])


def _curves(axis: Any, panel: tuple[Sequence[float], Sequence[Curve], Sequence[Curve], str, str, str]) -> None:
    along, measured, formulas, title, xlabel, ylabel = panel
    for curve in measured:
        points = [(x, y) for x, y in zip(along, curve.values, strict=True) if y is not None]
        axis.plot([x for x, _ in points], [y for _, y in points], label=curve.strategy)
    for curve in formulas:
        axis.plot(along, curve.values, ":", label=curve.strategy)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if along is CUSHIONS:
        axis.set(yscale="log", ylim=(1e-6, 1))
