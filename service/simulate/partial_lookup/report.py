"""The table, plots and report page of the experiment ``partial-lookup``."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from rich.table import Table

from service.discovery.partial_lookup import strategy_choice
from service.discovery.partial_lookup.placement_metrics import Bools, Floats
from service.discovery.partial_lookup.strategies import RandomServer, expected_coverage, round_robin_tolerance
from service.simulate.partial_lookup import placement_experiment, update_experiment
from service.simulate.partial_lookup.default_choice_experiment import run_default_choices
from service.simulate.partial_lookup.experiment import EQUAL_WITHIN, PartialLookupOutcome, average_over_seeds, run
from service.simulate.partial_lookup.placement_experiment import (
    COVERED_STORAGE,
    ENTRIES,
    FAIR_STORAGE,
    SERVERS,
    TARGETS,
    StrategyCurve,
)
from service.simulate.partial_lookup.update_experiment import AGED_UPDATES, BETWEEN_ADDS, CUSHIONS, UPDATED_ENTRIES
from service.simulate.report import SEEDS, Job, draw, each, render, terminal_table

JOBS = [
    *(Job("partial lookup", run, (seed,)) for seed in SEEDS),
    *(Job("as shipped", run_default_choices, (seed,)) for seed in SEEDS),
]

STEP = 0.5
"""Hash-y's curve in Figure 11 has a step where messages per update decrease by more than this."""
TOLERANCE_STEP = 10
"""Number of successive targets (entries wanted) for which Round-Robin-2 has the same fault tolerance (Figure 6)."""
_TOLERANCE = 1e-9


def page(found: dict[str, list[Any]]) -> str:
    """Return the report page as Markdown; ``found`` maps each job's name to the results of its runs."""
    outcomes: list[PartialLookupOutcome] = found["partial lookup"]

    def mean_curves(figure: str) -> list[StrategyCurve]:
        """Return the curves of a figure, averaged over the seeds. A value is None if it is None for any seed."""
        return [_mean_curve(seeds) for seeds in zip(*each(outcomes, figure), strict=True)]

    formulas = [
        StrategyCurve(f"{curve.strategy}, formula", curve.values) for curve in outcomes[0].updates.overheads_expected
    ]
    return render(
        "partial-lookup.md.j2",
        outcomes=outcomes,
        points=lambda figure, strategy, index: _by_seed(outcomes, figure, strategy)[:, index].tolist(),
        placed=_placement_values(outcomes),
        updated=_update_values(outcomes),
        shipped=list(zip(*found["as shipped"], strict=True)),
        choice=strategy_choice,
        curves=mean_curves,
        columns=[average_over_seeds(columns) for columns in zip(*each(outcomes, "table_2"), strict=True)],
        overheads=[*mean_curves("updates.overheads"), *formulas],
        static=placement_experiment,
        updates=update_experiment,
        alike=EQUAL_WITHIN,
        longest=update_experiment.longest_lifetime(BETWEEN_ADDS * ENTRIES),
    )


def _by_seed(outcomes: Sequence[PartialLookupOutcome], figure: str, strategy: str) -> Floats:
    """Return, for each seed, the curve of a strategy in a figure, as an array of shape (seeds, points).

    Points without a value are NaN.
    """
    curves = (curve for curves in each(outcomes, figure) for curve in curves if curve.strategy == strategy)
    return np.array([curve.values for curve in curves], dtype=np.float64)


def _share(holds: Bools, *curves: Floats) -> Floats:
    """Return, for each seed, the fraction of points at which ``holds`` is true.

    Points at which any of the ``curves`` has no value are not counted. All arrays have the shape (seeds, points).
    """
    known = ~np.isnan(curves).any(axis=0)
    return np.asarray((holds & known).sum(axis=1) / known.sum(axis=1))


def _placement_values(outcomes: Sequence[PartialLookupOutcome]) -> dict[str, Floats]:
    """Return, by name, numbers that summarise the curves of the placement figures, for comparison with the paper.

    Each array contains one number per seed. Exception: ``two_phases`` contains a single number, the fraction of seeds
    for which two curves have the two phases described in the paper.
    """
    targets = range(1, TARGETS + 1)
    hashed, turns, random = (
        _by_seed(outcomes, "static.lookup_costs", name) for name in ("Hash-2", "Round-Robin-2", "RandomServer-20")
    )
    one, other = hashed[:, 20:50], turns[:, 20:50]
    found = {
        "round_robin_cost": _share(np.isclose(turns, [ceil(target / 20) for target in targets]), turns),
        "random_server_cost": _share(random >= turns - _TOLERANCE, random, turns),
        "hash_cost": np.minimum(_share(one < other, one, other), _share(one > other, one, other)),
    }
    random = _by_seed(outcomes, "static.coverages", "RandomServer")
    formula = [expected_coverage(RandomServer(storage // SERVERS), ENTRIES, SERVERS) for storage in COVERED_STORAGE]
    found["coverage_difference"] = np.abs(random - formula).max(axis=1)
    covered = np.array([_by_seed(outcomes, "static.coverages", name) for name in ("Round-Robin", "Hash")])
    found["complete_coverage"] = (covered == np.minimum(COVERED_STORAGE, ENTRIES)).mean(axis=(0, 2))

    hashed, turns, random = (
        _by_seed(outcomes, "static.fault_tolerances", name) for name in ("Hash-2", "Round-Robin-2", "RandomServer-20")
    )
    expected = [round_robin_tolerance(2, target, ENTRIES, SERVERS) for target in targets]
    found["round_robin_tolerance"] = _share(np.isclose(turns, expected), turns)
    hashed, turns, random = map(np.nan_to_num, (hashed, turns, random))
    found["random_server_gain_to_60"] = (random - turns)[:, 20:60].mean(axis=1)
    found["random_server_gain_to_80"] = (random - turns)[:, 60:80].mean(axis=1)
    first, middle, last = (hashed[:, begin - 1] - hashed[:, begin + 19] for begin in (5, 40, 75))
    found["hash_steepness"] = (first + last) / 2 / middle
    steps = (hashed - turns).reshape(len(outcomes), -1, TOLERANCE_STEP).mean(axis=2)
    found["hash_gain_begin"] = (steps > 0).argmax(axis=1) * TOLERANCE_STEP + 1.0

    fixed, random, hashed = (
        _by_seed(outcomes, "static.unfairness", name) for name in ("Fixed", "RandomServer", "Hash")
    )
    found["fixed_unfairness"] = np.divide(fixed, random, out=np.zeros_like(fixed), where=random > 0).max(axis=1)
    # The phases end at the storage at which one server has enough entries for the target.
    falls, peak = -np.diff(random), hashed.max(axis=1)
    random_phases = (falls[:, 0] > 2 * falls[:, FAIR_STORAGE.index(400)]) & (falls > 0).all(axis=1)
    hash_phases = (peak > 2 * hashed[:, 0]) & (peak > hashed[:, -1]) & (hashed[:, -1] > peak / 2)
    found["two_phases"] = np.array([(random_phases & hash_phases).mean()])
    return found


def _update_values(outcomes: Sequence[PartialLookupOutcome]) -> dict[str, Any]:
    """Return, by name, numbers that summarise the curves of the update figures, for comparison with the paper.

    Each sequence contains one number per seed. Exception: ``steps`` contains one tuple per seed, with the numbers of
    entries at which the messages of the strategy Hash-y decrease abruptly.
    """
    failing = _by_seed(outcomes, "updates.failing", "exponential")
    fixed, hashed = (_by_seed(outcomes, "updates.overheads", name) for name in ("Fixed-50", "Hash"))
    fixed_formula, hash_formula = (
        _by_seed(outcomes, "updates.overheads_expected", name) for name in ("Fixed-50", "Hash")
    )
    lower = np.array(UPDATED_ENTRIES[1:])
    return {
        "cushion_factor": (failing[:, 0] / np.maximum(failing[:, 3], _TOLERANCE)) ** (1 / 3),
        "steps": [tuple(lower[falls > STEP].tolist()) for falls in -np.diff(hashed)],
        "fixed_difference": np.abs(fixed / fixed_formula - 1).max(axis=1),
        "hash_difference": np.abs(hashed / hash_formula - 1).max(axis=1),
    }


def _mean_curve(seeds: Sequence[StrategyCurve]) -> StrategyCurve:
    points = zip(*each(seeds, "values"), strict=True)
    return StrategyCurve(seeds[0].strategy, tuple(None if None in point else mean(point) for point in points))


def table(outcome: PartialLookupOutcome) -> Table:
    """Return Table 2 for one run as a table for the terminal: measurements, computed stars, and the paper's stars."""
    rows = []
    for column in outcome.table_2:
        cells = zip(column.measured, column.stars, column.paper, strict=True)
        rows.append((column.name, *(f"{cost:.4g} {'*' * computed} ({'*' * paper})" for cost, computed, paper in cells)))
    caption = f"measured value, rating derived from it (the paper's rating); seed {outcome.seed}"
    return terminal_table(("", "Fixed-x", "RandomServer-x", "Round-Robin-y", "Hash-y"), rows, caption)


def plot(found: dict[str, list[Any]], file: Path) -> None:
    """Draw Figures 3, 5, 6 and 8 to 11 of the paper with the results of the first seed, and save them to ``file``."""
    plot_run(found["partial lookup"][0], file)


def plot_run(outcome: PartialLookupOutcome, file: Path) -> None:
    """Draw Figures 3, 5, 6 and 8 to 11 of the paper with the results of one run, and save them to ``file``."""
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
