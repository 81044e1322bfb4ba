"""The experiment ``partial-lookup`` as people read it: a table, a plot and a page of ``docs/experiments``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from service.simulate.jobs import SEEDS, Job, run_all
from service.simulate.partial_lookup import Outcome, run
from service.simulate.partial_lookup_page import page
from service.simulate.partial_lookup_static import COVERED_STORAGE, FAIR_STORAGE, Curve
from service.simulate.partial_lookup_updates import AGED_UPDATES, CUSHIONS, UPDATED_ENTRIES

STEPS = len(SEEDS)


def table(outcome: Outcome) -> Table:
    """Return a run's Table 2 for a terminal: what was measured, our stars and the paper's."""
    shown = Table(box=SIMPLE_HEAD, caption=f"measured, our stars (the paper's stars); seed {outcome.seed}")
    for name in ("", "Fixed-x", "RandomServer-x", "Round-Robin-y", "Hash-y"):
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    for column in outcome.table_2:
        cells = zip(column.measured, column.stars, column.paper, strict=True)
        shown.add_row(column.name, *(f"{cost:.4g} {'*' * ours} ({'*' * paper})" for cost, ours, paper in cells))
    return shown


def write(directory: Path, report: Callable[[str], None]) -> None:
    """Run all seeds, two at a time, and write ``partial-lookup.md`` and ``partial-lookup.png``."""
    outcomes = run_all([Job("partial lookup", None, seed) for seed in SEEDS], _outcome, report)["partial lookup"]
    plot(outcomes[0], directory / "partial-lookup.png")
    (directory / "partial-lookup.md").write_text(page(outcomes), encoding="utf-8")


def plot(outcome: Outcome, file: Path) -> None:
    """Draw the paper's Figures 3, 5, 6 and 8 to 11 of one run."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - same

    figure, axes = plt.subplots(4, 2, figsize=(12, 16))
    static, updates = outcome.static, outcome.updates
    targets = range(1, 1 + len(static.lookup_costs[0].values))
    drawn: list[tuple[Sequence[float], Sequence[Curve], str, str, str]] = [
        (targets, static.lookup_costs, "Lookup cost (Fig. 3)", "target", "servers asked"),
        (COVERED_STORAGE, static.coverages, "Coverage (Fig. 5)", "storage", "entries"),
        (targets, static.fault_tolerances, "Fault tolerance (Fig. 6)", "target", "servers, in the worst case"),
        (FAIR_STORAGE, static.unfairness, "Unfairness (Fig. 8)", "storage", "target 35"),
        (CUSHIONS, updates.failing, "Too few entries (Fig. 9)", "cushion", "share of the time"),
        (AGED_UPDATES, updates.aged_unfairness, "Unfairness (Fig. 10)", "updates", "target 15"),
        (UPDATED_ENTRIES, updates.overheads, "Messages (Fig. 11)", "entries", "per update"),
    ]
    for axis, (along, curves, title, what, how_much) in zip(axes.flat, drawn, strict=False):
        _draw(axis, along, curves, log=curves is updates.failing)
        axis.set(title=title, xlabel=what, ylabel=how_much)
    axes[2][0].plot(CUSHIONS, updates.failing_expected, "k:", label="our formula")
    axes[2][0].set(yscale="log", ylim=(1e-6, 1))
    for curve in updates.overheads_expected:
        axes[3][0].plot(UPDATED_ENTRIES, curve.values, ":", label=f"{curve.strategy}, the paper's formula")
    for axis in axes.flat[: len(drawn)]:
        axis.legend(fontsize="small")
    axes[3][1].axis("off")
    figure.tight_layout()
    figure.savefig(file, dpi=80, metadata={"Software": None})
    plt.close(figure)


def _outcome(_setup: None, seed: int) -> Outcome:
    return run(seed, lambda _what: None)


def _draw(axis: Any, along: Sequence[float], curves: Sequence[Curve], *, log: bool) -> None:
    for curve in curves:
        points = [(x, y) for x, y in zip(along, curve.values, strict=True) if y is not None and (y > 0 or not log)]
        axis.plot([x for x, _ in points], [y for _, y in points], label=curve.strategy)
