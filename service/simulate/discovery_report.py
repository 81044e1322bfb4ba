"""The experiment ``discovery`` as people read it: a table, a plot and a page of ``docs/experiments``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from service.simulate.discovery import FIG_9, Outcome, run
from service.simulate.discovery_jobs import JOBS, NAME
from service.simulate.discovery_page import page, rows
from service.simulate.discovery_queries import Scheme
from service.simulate.jobs import run_all

STEPS = len(JOBS)


def table(outcome: Outcome) -> Table:
    """Return a run as a table for a terminal."""
    shown = Table(box=SIMPLE_HEAD, caption=f"seed {outcome.seed}")
    for header in ("", "paper", "to reach", "here"):
        shown.add_column(header)
    for row in rows([outcome]):
        shown.add_row(row.what, row.paper, row.wanted, row.shown)
    return shown


def write(directory: Path, report: Callable[[str], None]) -> None:
    """Run everything, two at a time, and write ``discovery.md`` and ``discovery.png``."""
    outcomes = run_all(JOBS, _outcome, report)[NAME]
    plot(outcomes[0], directory / "discovery.png")
    (directory / "discovery.md").write_text(page(outcomes), encoding="utf-8")


def plot(outcome: Outcome, file: Path) -> None:
    """Draw the paper's Figures 9 to 16 from one run."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - same

    figure, axes = plt.subplots(4, 2, figsize=(12, 16))
    drawn = (_rates, _partitions, _queries, _balance, _over_time, _sizes, _messages, _responses)
    for axis, draw in zip(axes.flat, drawn, strict=True):
        draw(axis, outcome)
        axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _outcome(_setup: None, seed: int) -> Outcome:
    return run(seed, lambda _what: None)


def _rates(axis: Any, outcome: Outcome) -> None:
    for names, most in FIG_9:
        points = [point for point in outcome.fig_9 if (point.names, point.partitions) == (names, most)]
        line = ":" if names == "uniform" else "-"
        successes = [point.success for point in points]
        axis.plot([point.rate_s for point in points], successes, line, marker=".", label=f"{names}, P = {most}")
    axis.plot([10_000, 10_000], [0.76, 0.68], "kx", label="paper, P = 32 and 200")
    axis.plot([10_000], [outcome.ours.success], "r*", label="ours, skewed")
    axis.set(title="Registrations that succeed (Fig. 9)", xlabel="names per second", xscale="log", ylim=(0, 1.05))


def _partitions(axis: Any, outcome: Outcome) -> None:
    most = [point.partitions for point in outcome.fig_10]
    axis.plot(most, [point.success for point in outcome.fig_10], "k.-", label="stable")
    axis.plot(most, [point.initial for point in outcome.fig_10], "k.:", label="initial run")
    axis.axhline(0.95, color="0.8", label="paper, above P = 100")
    axis.set(title="Skewed names, 5,000/s (Fig. 10)", xlabel="partitions at most", ylim=(0, 1.05))


def _queries(axis: Any, outcome: Outcome) -> None:
    for scheme in Scheme:
        points = [point for point in outcome.fig_11 if point.scheme is scheme]
        axis.plot([point.rate_s for point in points], [point.success for point in points], ".-", label=scheme)
    axis.plot([outcome.limited.rate_s], [outcome.limited.success], "r*", label="ours, for a few names")
    axis.axhline(0.95, color="0.8", label="paper, optimised")
    axis.set(title="Queries that succeed (Fig. 11)", xlabel="queries per second", xscale="log", ylim=(0, 1.05))


def _balance(axis: Any, outcome: Outcome) -> None:
    points = [point for point in outcome.fig_9 if (point.names, point.partitions) == ("skewed", 200)]
    axis.plot([point.rate_s for point in points], [point.cv for point in points], "k.-", label="skewed, P = 200")
    axis.plot([2000, 10_000], [1.242, 0.369], "kx", label="paper")
    axis.plot([10_000], [outcome.ours.cv], "r*", label="ours")
    axis.set(title="Coefficient of variance of names on nodes (Fig. 12)", xlabel="names per second", ylim=(0, None))


def _over_time(axis: Any, outcome: Outcome) -> None:
    times = [(place + 1) / 2 for place in range(len(outcome.fig_13))]
    for place, label in enumerate(("first", "16th", "32nd")):
        axis.plot(times, [rates[place] for rates in outcome.fig_13], label=f"{label} partition")
    axis.axhline(50, color="0.8", label="threshold")
    axis.set(title="One popular pair, 2,000 names/s (Fig. 13)", xlabel="seconds", ylabel="registrations/s observed")


def _sizes(axis: Any, outcome: Outcome) -> None:
    for found, marker in zip(outcome.fig_14_to_16, "ox", strict=True):
        partitions, replicas, counts = zip(*found.sizes, strict=True)
        axis.scatter(partitions, replicas, [20 + count**0.5 for count in counts], marker=marker, label=found.scheme)
    axis.set(title="Sizes of matrices (Fig. 14)", xlabel="partitions", ylabel="replicas", xscale="log", yscale="log")


def _messages(axis: Any, outcome: Outcome) -> None:
    for found in outcome.fig_14_to_16:
        registrations, queries = found.message_quantiles
        axis.plot(queries, range(101), label=f"queries, {found.scheme}")
        axis.plot(registrations, range(101), ":", label=f"registrations, {found.scheme}")
    axis.set(title="Messages (Fig. 15)", xlabel="per query or name", ylabel="% of them", xlim=(0, 100))


def _responses(axis: Any, outcome: Outcome) -> None:
    for found in outcome.fig_14_to_16:
        axis.plot(found.query_quantiles_s, range(101), label=f"queries, {found.scheme}")
        axis.plot(found.registration_quantiles_s, range(101), ":", label=f"registrations, {found.scheme}")
    axis.set(title="Response times (Fig. 16)", xlabel="seconds", ylabel="% of them", xlim=(0, 2))
