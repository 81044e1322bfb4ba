"""The experiment ``corona`` as people read it: a table, a plot and a page of ``docs/experiments``."""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from service.simulate.corona import Outcome, run
from service.simulate.corona_jobs import JOBS
from service.simulate.corona_page import Found, page
from service.simulate.jobs import run_all
from service.simulate.workload import Setup

STEPS = len(JOBS)


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return runs as a table for a terminal."""
    shown = Table(box=SIMPLE_HEAD, show_header=False)
    shown.add_column()
    for _ in outcomes:
        shown.add_column(justify="right", no_wrap=True)
    rounds = [outcome.converged_after_rounds for outcome in outcomes]
    for label, cells in (
        ("mean detection, s", [f"{found.mean_detection_s:.2f}" for found in outcomes]),
        ("99 % of subscriptions, s", [f"{found.p99_detection_s:.1f}" for found in outcomes]),
        ("mean delay of a notification, s", [f"{found.mean_notification_delay_s:.2f}" for found in outcomes]),
        ("longest mean wait of a channel, s", [f"{found.longest_mean_wait_s:.1f}" for found in outcomes]),
        ("polls per channel per τ", [f"{found.polls_per_channel_per_tau:.2f}" for found in outcomes]),
        ("legacy, s", [f"{found.legacy_detection_s:.1f}" for found in outcomes]),
        ("converged after rounds", ["never" if count is None else str(count) for count in rounds]),
        ("overshoot", [f"{found.max_overshoot:.1%}" for found in outcomes]),
        ("orphans (empty wedges)", [f"{found.orphans:,} ({found.empty_wedges})" for found in outcomes]),
        ("busiest node over mean", [f"{found.node_load_max_over_mean:.3f}" for found in outcomes]),
        ("what the formula says, s", [f"{found.formula_detection_s:.2f}" for found in outcomes]),
    ):
        shown.add_row(label, *cells)
    return shown


def plot_runs(outcomes: Sequence[Outcome], file: Path) -> None:
    """Draw load and delay over time, and each channel's polls and wait over popularity."""
    named = {f"{found.setup.goal}, seed {found.seed}": found for found in outcomes}
    _draw(file, [(_load, named), (_delay, named), (_pollers, named), (_waits, named)])


def write(directory: Path, report: Callable[[str], None]) -> None:
    """Run everything, two at a time, and write ``corona.md`` and ``corona.png``."""
    found = run_all(JOBS, _outcome, report)
    plot(found, directory / "corona.png")
    (directory / "corona.md").write_text(page(found), encoding="utf-8")


def plot(found: Found, file: Path) -> None:
    """Draw the paper's figures 3 to 10, reproduced, with ours in them."""
    first = {name: outcomes[0] for name, outcomes in found.items()}

    def chosen(*goals: str) -> dict[str, Outcome]:
        return {name: first[name] for goal in goals for name in (f"paper's {goal}", f"our {goal}")}

    _draw(
        file,
        [
            (_load, chosen("lite", "fast")),
            (_delay, chosen("lite", "fast")),
            (_pollers, chosen("lite")),
            (_waits, chosen("lite")),
            (_by_interval, chosen("lite", "fair")),
            (_by_interval, chosen("fair-sqrt", "fair-log")),
            (_delay, chosen("lite on 60 nodes")),
            (_minutes, chosen("lite on 60 nodes")),
        ],
    )


def _outcome(setup: Setup, seed: int) -> Outcome:
    # Millions of small objects live until the end of a run: looking for garbage among them takes a seventh of it.
    gc.disable()
    try:
        return run(setup, seed, lambda _what: None)
    finally:
        gc.enable()
        gc.collect()


def _draw(file: Path, panels: "list[tuple[Callable[[Any, dict[str, Outcome]], None], dict[str, Outcome]]]") -> None:
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - same

    figure, axes = plt.subplots(len(panels) // 2, 2, figsize=(12, 2 * len(panels)), squeeze=False)
    for axis, (draw, outcomes) in zip(axes.flat, panels, strict=True):
        draw(axis, outcomes)
        axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _load(axis: Any, outcomes: dict[str, Outcome]) -> None:
    for name, found in outcomes.items():
        hours = [window.end_s / 3600 for window in found.windows]
        axis.plot(hours, [window.polls_per_channel for window in found.windows], label=name)
        people = found.setup.subscriptions / found.setup.channels
    axis.axhline(people, color="k", linestyle=":", label="legacy")
    axis.set(title="Load (Fig. 3)", xlabel="hours", ylabel="polls per channel per τ", yscale="log")


def _delay(axis: Any, outcomes: dict[str, Outcome]) -> None:
    for name, found in outcomes.items():
        hours = [window.end_s / 3600 for window in found.windows]
        axis.plot(hours, [window.mean_detection_s for window in found.windows], label=name)
        legacy_s = found.legacy_detection_s
    axis.axhline(legacy_s, color="k", linestyle=":", label="legacy")
    axis.set(title="Detection (Fig. 4; 9 on 60 nodes)", xlabel="hours", ylabel="mean detection, s", yscale="log")


def _minutes(axis: Any, outcomes: dict[str, Outcome]) -> None:
    for name, found in outcomes.items():
        hours = [window.end_s / 3600 for window in found.windows]
        per_minute = found.setup.channels / found.setup.poll_interval_s * 60
        axis.plot(hours, [window.polls_per_channel * per_minute for window in found.windows], label=name)
        people = found.setup.subscriptions / found.setup.poll_interval_s * 60
    axis.axhline(people, color="k", linestyle=":", label="legacy")
    axis.set(title="Load (Fig. 10)", xlabel="hours", ylabel="polls per minute", ylim=(0, None))


def _pollers(axis: Any, outcomes: dict[str, Outcome]) -> None:
    for name, found in outcomes.items():
        places = [channel.place for channel in found.profile]
        axis.plot(places, [channel.polls_per_tau for channel in found.profile], ".", markersize=3, label=name)
    axis.plot(places, [channel.subscribers for channel in found.profile], "k:", label="legacy")
    axis.set(title="Polls (Fig. 5)", xlabel="channels by popularity", ylabel="polls per τ", yscale="log")


def _waits(axis: Any, outcomes: dict[str, Outcome]) -> None:
    for name, found in outcomes.items():
        places = [channel.place for channel in found.profile]
        axis.plot(places, [channel.mean_wait_s for channel in found.profile], ".", markersize=3, label=name)
    axis.set(title="Detection (Fig. 6)", xlabel="channels by popularity", ylabel="mean wait, s", yscale="log")


def _by_interval(axis: Any, outcomes: dict[str, Outcome]) -> None:
    for name, found in outcomes.items():
        ranked = sorted(found.profile[::2], key=lambda channel: (channel.update_interval_s, channel.subscribers))
        axis.plot([channel.mean_wait_s for channel in ranked], ".", markersize=4, label=name)
    title = "Detection (Figs. 7 and 8)"
    axis.set(title=title, xlabel="200 channels by update interval", ylabel="mean wait, s", yscale="log")
