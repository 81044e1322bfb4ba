"""The table, plots and report page of the experiment ``partial-lookup``."""

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from math import ceil, isclose
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from service.discovery.partial import strategy_choice
from service.discovery.partial.strategies import RandomServer, expected_coverage, round_robin_tolerance
from service.simulate.partial_lookup import placement_experiment, update_experiment
from service.simulate.partial_lookup.default_choice_experiment import shipped
from service.simulate.partial_lookup.experiment import EQUAL_WITHIN, PartialLookupOutcome, average_over_seeds, run
from service.simulate.partial_lookup.placement_experiment import (
    COVERED_STORAGE,
    ENTRIES,
    FAIR_STORAGE,
    SERVERS,
    StrategyCurve,
)
from service.simulate.partial_lookup.update_experiment import (
    AGED_UPDATES,
    BETWEEN_ADDS,
    BREAKS,
    CUSHIONS,
    UPDATED_ENTRIES,
)
from service.simulate.report import SEEDS, FigureVerdict, Job, compare, draw, each, render, spread, terminal_table

JOBS = [
    *(Job("partial lookup", run, (seed,)) for seed in SEEDS),
    *(Job("as shipped", shipped, (seed,)) for seed in SEEDS),
]

STEP = 0.5
"""Minimum difference in messages per update that counts as a step in Figure 11."""
TOLERANCE_STEP = 10
"""Targets in a step of Round-Robin-2's curve in Figure 6."""
_TOLERANCE = 1e-9


def page(found: dict[str, list[Any]]) -> str:
    """Return the report page as Markdown; ``found`` has the results of all runs by job name."""
    outcomes: list[PartialLookupOutcome] = found["partial lookup"]

    def curves(figure: str) -> list[StrategyCurve]:
        """Return the curves of a figure, averaged over the seeds; a value is None if it is None for any seed."""
        return [_mean_curve(seeds) for seeds in zip(*each(outcomes, figure), strict=True)]

    formulas = [
        StrategyCurve(f"{curve.strategy}, formula", curve.values) for curve in outcomes[0].updates.overheads_expected
    ]
    return render(
        "partial-lookup.md.j2",
        outcomes=outcomes,
        comparisons=comparisons(outcomes),
        shipped=list(zip(*found["as shipped"], strict=True)),
        choice=strategy_choice,
        curves=curves,
        columns=[average_over_seeds(columns) for columns in zip(*each(outcomes, "table_2"), strict=True)],
        overheads=[*curves("updates.overheads"), *formulas],
        static=placement_experiment,
        updates=update_experiment,
        alike=EQUAL_WITHIN,
        longest=update_experiment.longest(BETWEEN_ADDS * ENTRIES),
    )


def comparisons(outcomes: Sequence[PartialLookupOutcome]) -> list[FigureVerdict]:
    """Return the verdicts on all figures and tables of the paper, and on the statements about them in its text."""
    rows = [
        FigureVerdict("Figs. 1, 2, 4 and 7", "illustrations", "", "no measurements"),
        *(
            compare(
                f"Table 1: storage of {outcomes[0].static.table_1[place].strategy} / formula",
                "1",
                [one.static.table_1[place].storage / one.static.table_1[place].expected_storage for one in outcomes],
                (0.99, 1.01),
                ".4f",
            )
            for place in range(5)
        ),
    ]
    for compared in (_lookup_costs, _coverages, _tolerances, _unfairness, _updates, _ratings):
        rows += compared(outcomes)
    return rows


Values = tuple[float | None, ...]


def _values(outcomes: Sequence[PartialLookupOutcome], figure: str, strategy: str) -> list[Values]:
    """Return the curve of a strategy in a figure, for each seed."""
    return [curve.values for curves in each(outcomes, figure) for curve in curves if curve.strategy == strategy]


def _points(outcomes: Sequence[PartialLookupOutcome], figure: str, strategy: str, index: int) -> list[float]:
    """Return one point of a strategy's curve in a figure, for each seed; the curve must have the point."""
    return [point for values in _values(outcomes, figure, strategy) if (point := values[index]) is not None]


def _agreeing(values: Sequence[Values], expected: Callable[[int], float]) -> list[float]:
    """Return, for each curve by target, the share of its targets at which it has the expected value."""
    return [
        mean(isclose(value, expected(target)) for target, value in enumerate(curve, 1) if value is not None)
        for curve in values
    ]


def _mean_difference(one: Values, other: Values, begin: int, end: int) -> float:
    """Return the mean difference of two curves by target, for the targets from ``begin`` + 1 to ``end``."""
    return mean((a or 0.0) - (b or 0.0) for a, b in zip(one[begin:end], other[begin:end], strict=True))


def _not_below(outcomes: Sequence[PartialLookupOutcome], figure: str, first: str, second: str) -> list[float]:
    """Return, for each seed, the share of the points at which the first strategy's curve is not below the second's."""
    found = []
    for one, other in zip(_values(outcomes, figure, first), _values(outcomes, figure, second), strict=True):
        pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
        found.append(mean(a >= b - _TOLERANCE for a, b in pairs))
    return found


def _lookup_costs(outcomes: Sequence[PartialLookupOutcome]) -> list[FigureVerdict]:
    figure = "static.lookup_costs"
    hashed, turns = _values(outcomes, figure, "Hash-2"), _values(outcomes, figure, "Round-Robin-2")
    crossing = [
        min(
            mean(a < b for a, b in zip(one[20:50], other[20:50], strict=True) if a is not None and b is not None),
            mean(a > b for a, b in zip(one[20:50], other[20:50], strict=True) if a is not None and b is not None),
        )
        for one, other in zip(hashed, turns, strict=True)
    ]
    return [
        compare(
            "Fig. 3: lookup cost of Hash-2, t = 15",
            "1.124",
            _points(outcomes, figure, "Hash-2", 14),
            (1.114, 1.134),
            ".3f",
        ),
        compare(
            "Fig. 3: lookup cost of Hash-2, t = 25",
            "may be below 2",
            _points(outcomes, figure, "Hash-2", 24),
            (1.0, 1.99),
            ".3f",
        ),
        compare(
            "Fig. 3: share of targets at which Round-Robin-2 asks ceil(t/20) servers",
            "100 %",
            _agreeing(turns, lambda target: ceil(target / 20)),
            (1.0, 1.0),
            ".0%",
        ),
        compare(
            "Fig. 3: share of targets at which RandomServer-20 asks at least as many servers as Round-Robin-2",
            "100 %",
            _not_below(outcomes, figure, "RandomServer-20", "Round-Robin-2"),
            (1.0, 1.0),
            ".0%",
        ),
        compare(
            "Fig. 3: least share of targets from 21 to 50 at which Hash-2 asks fewer, or more, than Round-Robin-2",
            "sometimes better, sometimes worse",
            crossing,
            (0.1, 0.5),
            ".0%",
        ),
    ]


def _coverages(outcomes: Sequence[PartialLookupOutcome]) -> list[FigureVerdict]:
    sampled = _values(outcomes, "static.coverages", "RandomServer")
    formula = [expected_coverage(RandomServer(storage // SERVERS), ENTRIES, SERVERS) for storage in COVERED_STORAGE]
    complete = [
        _values(outcomes, "static.coverages", strategy)[seed][place] == min(storage, ENTRIES)
        for seed in range(len(outcomes))
        for strategy in ("Round-Robin", "Hash")
        for place, storage in enumerate(COVERED_STORAGE)
    ]
    return [
        compare(
            "Fig. 5: coverage of RandomServer-20",
            "89",
            [one.static.table_1[1].coverage for one in outcomes],
            (88.8, 89.8),
            ".2f",
        ),
        compare(
            "Fig. 5: largest difference of RandomServer-x from h(1 - (1 - x/h)ⁿ), entries",
            "0",
            [max(abs((a or 0.0) - b) for a, b in zip(values, formula, strict=True)) for values in sampled],
            (0.0, 1.5),
            ".2f",
        ),
        compare(
            "Fig. 5: share of points at which Round-Robin-y and Hash-y cover min(storage, h)",
            "100 %",
            [mean(complete)],
            (1.0, 1.0),
            ".0%",
        ),
    ]


def _tolerances(outcomes: Sequence[PartialLookupOutcome]) -> list[FigureVerdict]:
    figure = "static.fault_tolerances"
    hashed, turns = _values(outcomes, figure, "Hash-2"), _values(outcomes, figure, "Round-Robin-2")
    sampled = _values(outcomes, figure, "RandomServer-20")
    better = [
        next(
            begin + 1
            for begin in range(0, ENTRIES, TOLERANCE_STEP)
            if _mean_difference(one, other, begin, begin + TOLERANCE_STEP) > 0
        )
        for one, other in zip(hashed, turns, strict=True)
    ]
    drops = [[(values[begin - 1] or 0.0) - (values[begin + 19] or 0.0) for begin in (5, 40, 75)] for values in hashed]
    return [
        compare(
            "Fig. 6: share of targets at which Round-Robin-2 tolerates min(n - 1, n + y - 1 - ceil(t·n/h)) failures",
            "100 %",
            _agreeing(turns, lambda target: round_robin_tolerance(2, target, ENTRIES, SERVERS)),
            (1.0, 1.0),
            ".0%",
        ),
        *(
            compare(
                f"Fig. 6: failures tolerated by RandomServer-20 minus Round-Robin-2, targets {begin + 1} to {end}",
                "higher",
                [_mean_difference(one, other, begin, end) for one, other in zip(sampled, turns, strict=True)],
                (0.01, 1.0),
                ".2f",
                why="fewer: entries are missing that no server stores",
            )
            for begin, end in ((20, 60), (60, 80))
        ),
        compare(
            "Fig. 6: Hash-2 falls more steeply at its ends: servers per 20 targets at both ends / in the middle",
            "S-shape",
            [(first + last) / 2 / middle for first, middle, last in drops],
            (1.05, 10),
            ".2f",
            why="the curve is nearly straight",
        ),
        compare(
            "Fig. 6: first of ten targets at which Hash-2 tolerates more failures than Round-Robin-2",
            "more than half of the entries",
            better,
            (41, 61),
            ".0f",
        ),
    ]


def _unfairness(outcomes: Sequence[PartialLookupOutcome]) -> list[FigureVerdict]:
    figure = "static.unfairness"
    fixed, sampled = _values(outcomes, figure, "Fixed"), _values(outcomes, figure, "RandomServer")
    ratios = [
        max(a / b for a, b in zip(one, other, strict=True) if a is not None and b)
        for one, other in zip(fixed, sampled, strict=True)
    ]
    phases = [
        _two_phases(*([value or 0.0 for value in values] for values in curves))
        for curves in zip(sampled, _values(outcomes, figure, "Hash"), strict=True)
    ]
    return [
        compare(
            "Fig. 8: seeds with two phases: RandomServer-x falls steeply, then evenly; Hash-y rises, then falls a bit",
            "described",
            [mean(phases)],
            (1.0, 1.0),
            ".0%",
        ),
        compare(
            "Fig. 8: largest ratio of Fixed-x to RandomServer-x",
            "an order of magnitude",
            ratios,
            (10.0, 100.0),
            ".1f",
            why="by formula (1) it cannot exceed √n = 3.16; see the notes",
        ),
        compare(
            "Fig. 8: largest unfairness of Round-Robin-y",
            "0",
            [max(value or 0.0 for value in values) for values in _values(outcomes, figure, "Round-Robin")],
            (0.0, 1e-9),
            ".2f",
        ),
    ]


def _updates(outcomes: Sequence[PartialLookupOutcome]) -> list[FigureVerdict]:
    aged, tail = "updates.aged_unfairness", CUSHIONS[-1]
    overheads = [(one.updates.overheads, one.updates.overheads_expected) for one in outcomes]
    fixed = [
        max(abs((a or 0.0) / (b or 1.0) - 1) for a, b in zip(measured[0].values, formula[0].values, strict=True))
        for measured, formula in overheads
    ]
    hashed = [
        max(abs((a or 0.0) / (b or 1.0) - 1) for a, b in zip(measured[1].values, formula[1].values, strict=True))
        for measured, formula in overheads
    ]
    breaks = [
        tuple(
            h
            for (_, a), (h, b) in pairwise(zip(UPDATED_ENTRIES, measured[1].values, strict=True))
            if (a or 0.0) - (b or 0.0) > STEP
        )
        for measured, _ in overheads
    ]
    return [
        compare(
            "Fig. 9: share of the time with too few entries, no cushion",
            "over 10 %",
            _points(outcomes, "updates.failing", "exponential", 0),
            (0.10, 0.30),
            ".1%",
        ),
        compare(
            "Fig. 9: the same, cushion 3",
            "0.1 %",
            _points(outcomes, "updates.failing", "exponential", 3),
            (0.0005, 0.0015),
            ".3%",
        ),
        compare(
            "Fig. 9: factor between cushions 0 and 3, as a root: per entry",
            "exponential",
            [
                (a / max(b, _TOLERANCE)) ** (1 / 3)
                for a, b in zip(
                    _points(outcomes, "updates.failing", "exponential", 0),
                    _points(outcomes, "updates.failing", "exponential", 3),
                    strict=True,
                )
            ],
            (3.0, 10.0),
            ".1f",
        ),
        compare(
            "Fig. 9: the same with lifetimes of 2,000 and cushion 2, by Coronet's formula",
            "sufficient for 0.1 %",
            [one.updates.failing_twice_expected for one in outcomes],
            (0.0, 0.001),
            ".2%",
        ),
        FigureVerdict(
            f"Fig. 9: the tail of Zipf-like lifetimes tapers off (cushion {tail})",
            "tapers off",
            spread(_points(outcomes, "updates.failing", "Zipf-like", tail), form=".2g"),
            "not seen: with such cushions a run has a few failures or none",
        ),
        compare(
            "Fig. 10: unfairness of Fixed-20 after 2,000 updates",
            "2",
            _points(outcomes, aged, "Fixed-20", -1),
            (1.9, 2.1),
            ".2f",
        ),
        compare(
            "Fig. 10: ratio of Fixed-20 to RandomServer-20 after 2,000 updates",
            "2",
            [
                a / b
                for a, b in zip(
                    _points(outcomes, aged, "Fixed-20", -1), _points(outcomes, aged, "RandomServer-20", -1), strict=True
                )
            ],
            (1.8, 2.2),
            ".2f",
        ),
        compare(
            "Fig. 10: share of RandomServer-20's rise within the first 500 updates",
            "rapid, then stable",
            [
                (later - first) / (last - first)
                for first, later, last in zip(
                    *(_points(outcomes, aged, "RandomServer-20", place) for place in (0, AGED_UPDATES.index(500), -1)),
                    strict=True,
                )
            ],
            (0.8, 1.2),
            ".0%",
        ),
        FigureVerdict(
            "Fig. 11: numbers of entries at which Hash-y takes a step down",
            "133, 200, 400",
            "; ".join(sorted({", ".join(map(str, found)) for found in breaks})),
            "reproduced (400/3 = 133.3)" if set(breaks) == {BREAKS} else "**not reproduced**",
        ),
        compare(
            "Fig. 11: largest difference of Fixed-50 from 1 + x·n/h",
            "0",
            fixed,
            (0.0, 0.15),
            ".1%",
        ),
        compare(
            "Fig. 11: largest difference of Hash-y from 1 + y",
            "0, without collisions",
            hashed,
            (0.0, 0.15),
            ".1%",
        ),
        *(
            compare(
                f"Fig. 11: messages of Fixed-50 minus those of Hash-y, {entries} entries",
                "the last crossing is at 500",
                [
                    (measured[0].values[place] or 0.0) - (measured[1].values[place] or 0.0)
                    for measured, _ in overheads
                    for place in (UPDATED_ENTRIES.index(entries),)
                ],
                accepted,
                ".2f",
            )
            for entries, accepted in ((440, (0.0, 0.5)), (560, (-0.5, 0.0)))
        ),
    ]


def _ratings(outcomes: Sequence[PartialLookupOutcome]) -> list[FigureVerdict]:
    columns = each(outcomes, "table_2")
    pairs = len(columns[0]) * len(list(combinations(columns[0][0].stars, 2)))
    return [
        compare(
            f"Table 2: pairs of strategies of {pairs} that the measurements order in the opposite way",
            "0",
            [sum(column.contradicted for column in seed) for seed in columns],
            (0, 0),
            ".0f",
            why="update overhead with a small target: Fixed-x needs fewer messages than Hash-y",
        ),
        compare(
            f"Table 2: ratings of {4 * len(columns[0])} that differ by more than one star",
            "0",
            [
                sum(abs(a - b) > 1 for column in seed for a, b in zip(column.stars, column.paper, strict=True))
                for seed in columns
            ],
            (0, 0),
            ".0f",
        ),
    ]


def _mean_curve(seeds: Sequence[StrategyCurve]) -> StrategyCurve:
    points = zip(*each(seeds, "values"), strict=True)
    return StrategyCurve(seeds[0].strategy, tuple(None if None in point else mean(point) for point in points))


def _two_phases(sampled: Sequence[float], hashed: Sequence[float]) -> bool:
    """Return whether RandomServer-x and Hash-y have the two phases of unfairness by storage that the paper describes.

    The boundary is the storage at which one or two servers have enough entries for the target.
    """
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


def plot(found: dict[str, list[Any]], file: Path) -> None:
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
