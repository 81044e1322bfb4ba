"""The experiment ``schedulers`` as people read it: a table, a plot and a page of ``docs/experiments``."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from service.corona.goals import Goal
from service.simulate.schedulers import Comparison, Setup, compare
from service.simulate.schedulers_page import page, polls_per_channel_hour
from service.simulate.trace import Publishers

SEEDS = (1, 2, 3, 4, 5)
CHANNELS = 1000
"""Of the page; fewer than the command's, because there are many runs."""
OTHER_GOALS = (Goal.LITE, Goal.FAIR_SQRT, Goal.FAIR_LOG)

_JOBS = [
    *((Setup(CHANNELS, publishers=publishers), seed) for publishers in Publishers for seed in SEEDS),
    *((Setup(CHANNELS, goal=goal), SEEDS[0]) for goal in OTHER_GOALS),
]
STEPS = len(_JOBS)


def table(comparison: Comparison) -> Table:
    """Return the comparison as a table for a terminal."""
    setup = comparison.setup
    title = f"{setup.channels:,} channels, {setup.publishers} publishers, {setup.weeks} weeks, seed {comparison.seed}"
    caption = f"Seconds a notification takes, and how many times longer than ours with goal {setup.goal}"
    shown = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=0)
    shown.add_column("scheduler", max_width=15)
    for heading in ("polls\n/h", "mean\ns", "p95\ns", "ours\nmean", "ours\np95"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for heading in ("times\nours", "\npolite", "with\nrhythm", "at\nmost"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for peer in comparison.schedulers:
        delays_s = (peer.mean_notification_delay_s, peer.p95_s, peer.ours.mean_notification_delay_s, peer.ours.p95_s)
        beside = (peer.ours, peer.ours_polite, peer.ours_with_rhythm, peer.known)
        shown.add_row(
            peer.name,
            f"{polls_per_channel_hour(peer, setup):.2f}",
            *(f"{delay_s:,.0f}" for delay_s in delays_s),
            *(f"{ours.ratio:.2f}" for ours in beside),
        )
    return shown


def plot(comparisons: Sequence[Comparison], file: Path) -> None:
    """Draw mean delay over requests, one panel for each comparison: peers as points, ours as a curve."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - same
    from matplotlib.ticker import NullFormatter  # noqa: PLC0415 - same

    figure, panels = plt.subplots(1, len(comparisons), figsize=(6 * len(comparisons), 5), sharey=True, squeeze=False)
    for panel, comparison in zip(panels[0], comparisons, strict=True):
        peers = sorted(comparison.schedulers, key=lambda peer: peer.requests)
        asked = [polls_per_channel_hour(peer, comparison.setup) for peer in peers]
        for label, style, of_ours in (
            ("ours", "o-", "ours"),
            ("ours, polite", "s:", "ours_polite"),
            ("ours with rhythm", "^--", "ours_with_rhythm"),
        ):
            panel.plot(asked, [getattr(peer, of_ours).mean_notification_delay_s for peer in peers], style, label=label)
        named: dict[tuple[float, float], list[str]] = {}
        for peer, polls in zip(peers, asked, strict=True):
            named.setdefault((polls, peer.mean_notification_delay_s), []).append(peer.name.replace(" ", "\n", 1))
        for point, names in named.items():
            panel.plot(*point, "kx")
            panel.annotate("\n".join(names), point, (0, 5), textcoords="offset points", ha="center", fontsize=8)
        panel.set(xscale="log", yscale="log", xlabel="polls per channel and hour", title=comparison.setup.publishers)
        panel.set_xticks(ticks := (0.5, 1, 2, 4, 8), labels=[f"{tick:g}" for tick in ticks], minor=False)
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.margins(0.1)
    panels[0][0].set_ylabel("mean delay of a notification, s")
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120, metadata={"Software": None})
    plt.close(figure)


def write(directory: Path, report: Callable[[str], None]) -> None:
    """Run all seeds, two at a time, and write ``schedulers.md`` and ``schedulers.png``."""
    with ProcessPoolExecutor(2, get_context("fork")) as pool:  # see jobs.run_all
        comparisons = []
        for comparison in pool.map(_compared, *zip(*_JOBS, strict=True)):
            comparisons.append(comparison)
            report(f"{comparison.setup.publishers}, seed {comparison.seed}")
    by_kind = [
        [found for found in comparisons if found.setup == Setup(CHANNELS, publishers=publishers)]
        for publishers in Publishers
    ]
    plot([found[0] for found in by_kind], directory / "schedulers.png")
    goals = [found for found in comparisons if found.setup.goal is not Goal.FAIR]
    (directory / "schedulers.md").write_text(page(by_kind[0], by_kind[1], goals), encoding="utf-8")


def _compared(setup: Setup, seed: int) -> Comparison:
    return compare(setup, seed, lambda _what: None)
