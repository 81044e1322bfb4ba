"""Creates the table, plots and report page of the experiment ``schedulers``."""

from pathlib import Path
from typing import Any

from rich.table import Table

from service.corona.fleet_policy import Goal
from service.simulate.numerics import HOUR_S, WEEK_S
from service.simulate.report import SEEDS, Job, draw, render, terminal_table
from service.simulate.schedulers.experiment import Comparison, ReaderResults, SchedulersSetup, run
from service.simulate.schedulers.publication_trace import Publishers

CHANNELS = 1000
"""Number of channels in runs for the page; lower than the command's default, because there are many runs."""
OTHER_GOALS = (Goal.LITE, Goal.FAIR_SQRT, Goal.FAIR_LOG)
LONGER_WEEKS = 4
"""Weeks of learning, and then of measurement, in the runs that show how much the time for learning matters."""

JOBS = [
    *(Job(kind, run, (SchedulersSetup(CHANNELS, publishers=kind), seed)) for kind in Publishers for seed in SEEDS),
    *(
        Job("longer", run, (SchedulersSetup(CHANNELS, weeks=LONGER_WEEKS, publishers=Publishers.RHYTHMIC), seed))
        for seed in SEEDS
    ),
    *(Job("other goals", run, (SchedulersSetup(CHANNELS, goal=goal), 1)) for goal in OTHER_GOALS),
]

OutcomesByName = dict[str, list[Comparison]]

HEADINGS = (
    *("reader", "polls\n/h", "mean\ns", "p95\ns", "Coronet\nmean", "Coronet\np95"),
    *("ratio", "with\nrhythm", "as\nshipped", "upper\nbound"),
)


def page(found: OutcomesByName) -> str:
    """Return the report page as Markdown.

    For each kind of publisher, the page shows the runs with all seeds. It also shows the runs with more time for
    learning, and one run for each optimisation goal in ``OTHER_GOALS``.

    ``found`` maps the name of each group of runs to their results.
    """
    poisson, rhythmic = (found[kind] for kind in Publishers)
    goals = [poisson[0], *found["other goals"]]
    return render("schedulers.md.j2", poisson=poisson, rhythmic=rhythmic, longer=found["longer"], goals=goals)


def table(comparison: Comparison) -> Table:
    """Return a table of one run's results for the terminal, with one row per feed reader."""
    setup = comparison.setup
    publishers = f"{setup.publishers} publishers"
    rows = []
    for peer in comparison.schedulers:
        delays_s = (peer.mean_notification_delay_s, peer.p95_s, peer.ours.mean_notification_delay_s, peer.ours.p95_s)
        ours = (peer.ours, peer.ours_with_rhythm, peer.as_shipped, peer.known)
        polls = f"{_polls_per_channel_hour(peer, setup):.2f}"
        rows.append((peer.name, polls, *(f"{delay:,.0f}" for delay in delays_s), *(f"{it.ratio:.2f}" for it in ours)))
    shown = terminal_table(
        HEADINGS,
        rows,
        f"Notification delay in seconds, and its ratio to Coronet's with goal {setup.goal}",
        title=f"{setup.channels:,} channels, {publishers}, {setup.weeks} weeks, seed {comparison.seed}",
        padding=0,
    )
    shown.columns[0].max_width = 15
    return shown


def plot_run(comparison: Comparison, file: Path) -> None:
    """Plot the results of one run, and write the image to ``file``."""
    draw(file, [(_delays, comparison)], columns=1, height=5)


def plot(found: OutcomesByName, file: Path) -> None:
    """Plot the run with the first seed for each kind of publisher, and write the image to ``file``.

    ``found`` maps the name of each group of runs to their results.
    """
    draw(file, [(_delays, found[kind][0]) for kind in Publishers], height=5, sharey=True)


def _delays(axis: Any, comparison: Comparison) -> None:
    """Plot mean notification delay against polls per channel per hour: other readers as points, Coronet as curves."""
    peers = sorted(comparison.schedulers, key=lambda peer: peer.requests)
    polls = [_polls_per_channel_hour(peer, comparison.setup) for peer in peers]
    for label, style, field in (
        ("Coronet", "o-", "ours"),
        ("Coronet with rhythm", "^--", "ours_with_rhythm"),
        ("Coronet as shipped", "s:", "as_shipped"),
    ):
        axis.plot(polls, [getattr(peer, field).mean_notification_delay_s for peer in peers], style, label=label)
    named: dict[tuple[float, float], list[str]] = {}
    for peer, place in zip(peers, polls, strict=True):
        named.setdefault((place, peer.mean_notification_delay_s), []).append(peer.name.replace(" ", "\n", 1))
    for point, names in named.items():
        axis.plot(*point, "kx")
        axis.annotate("\n".join(names), point, (0, 5), textcoords="offset points", ha="center", fontsize=8)
    axis.margins(0.1)
    axis.set(xscale="log", yscale="log", title=comparison.setup.publishers)
    axis.set(xlabel="polls per channel and hour", ylabel="mean notification delay, s")
    axis.set_xticks(ticks := (0.5, 1, 2, 4, 8), labels=[f"{tick:g}" for tick in ticks])
    axis.tick_params(axis="x", which="minor", labelbottom=False)


def _polls_per_channel_hour(peer: ReaderResults, setup: SchedulersSetup) -> float:
    return peer.requests / setup.channels / (setup.weeks * WEEK_S / HOUR_S)
