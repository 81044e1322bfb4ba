"""The table, plots and report page of the experiment ``corona``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from msgspec.structs import replace
from rich.table import Table

from service.corona.fleet_policy import DEFAULT_POLICY, SECONDS_PER_HOUR, Goal
from service.simulate.corona import default_policy_experiment, protocol_experiment
from service.simulate.corona.default_policy_experiment import ShippedOutcome
from service.simulate.corona.experiment import ChannelProfile, CoronaOutcome, Window, run
from service.simulate.corona.protocol_experiment import ProtocolOutcome
from service.simulate.corona.workload import BinLayout, CoronaSetup, IdAssignment, PollPhases
from service.simulate.report import SEEDS, Job, command, draw, render, terminal_table

CORONET = CoronaSetup()
PAPER = CoronaSetup(base=16, ids=IdAssignment.RANDOM, bins=BinLayout.PAPER)
SIXTY: Mapping[str, object] = {
    "nodes": 60,
    "channels": 7_500,
    "subscriptions": 150_000,
    "maintenance_s": 1800.0,
    "rounds": 12,
}


_AGAINST_PAPER = {
    **{f"Coronet, {goal}": replace(CORONET, goal=goal) for goal in Goal},
    **{f"paper mode, {goal}": replace(PAPER, goal=goal) for goal in Goal},
    "Coronet, fair, longest wait": replace(CORONET, goal=Goal.FAIR, longest_wait_s=120.0),
    "Coronet, lite on 60 nodes": replace(CORONET, **SIXTY),
    "paper mode, lite on 60 nodes": replace(PAPER, **SIXTY),
    "paper mode, lite on 60 nodes, base 4": replace(PAPER, base=4, **SIXTY),
    "paper mode, lite, random phases": replace(PAPER, phases=PollPhases.RANDOM),
    "paper mode, fast, random phases": replace(PAPER, phases=PollPhases.RANDOM, goal=Goal.FAST),
}
"""Setups that are run with all seeds, for comparison with the paper. The keys are the names of the jobs."""
_ONCE = {
    "Coronet, lite, random phases": replace(CORONET, phases=PollPhases.RANDOM),
    "Coronet, lite, random ids": replace(CORONET, ids=IdAssignment.RANDOM),
    "Coronet, lite, bins as in the paper": replace(CORONET, bins=BinLayout.PAPER),
    "Coronet, lite, base-16 levels": replace(CORONET, base=16),
}

_AS_SHIPPED = "Coronet, as shipped"
_SMALLER = replace(CORONET, nodes=128, channels=10_000, subscriptions=500_000)
_BY_PROTOCOL = {
    "protocol, churn": replace(_SMALLER, churn=0.05, loss=0.02),
    "protocol": _SMALLER,
    "protocol, fair": replace(_SMALLER, goal=Goal.FAIR),
    **{f"protocol, base-{base} levels": replace(_SMALLER, base=base) for base in (2, 4, 16)},
}
"""Setups that run the production protocol, with one seed. The keys are the names of the jobs."""

JOBS = [
    *(Job(name, protocol_experiment.run, (setup, 1)) for name, setup in _BY_PROTOCOL.items()),
    Job("Coronet, lite, churn", run, (replace(CORONET, churn=0.05, loss=0.02), 1)),
    *(Job(_AS_SHIPPED, default_policy_experiment.run, (CORONET, seed)) for seed in SEEDS),
    *(Job(name, run, (setup, seed)) for name, setup in _AGAINST_PAPER.items() for seed in SEEDS),
    *(Job(name, run, (setup, 1)) for name, setup in _ONCE.items()),
]
"""The runs for the page. The longest ones are first, so that the two processes end at about the same time."""

OutcomesByName = dict[str, list[Any]]
"""The results of all runs, :class:`CoronaOutcome` or :class:`ProtocolOutcome`, as lists by the name of the job."""

_OPTIONS = {
    **{name: name for name in ("goal", "base", "ids", "bins", "phases", "nodes", "channels", "subscriptions")},
    "maintenance": "maintenance_s",
    "longest-wait": "longest_wait_s",
    "churn": "churn",
}


def page(found: OutcomesByName) -> str:
    """Return the report page as Markdown."""
    by_protocol = {name: outcomes[0] for name, outcomes in found.items() if name in _BY_PROTOCOL}
    return render(
        "corona.md.j2",
        runs={name: outcomes for name, outcomes in found.items() if name not in _BY_PROTOCOL},
        protocol=by_protocol,
        above_limit=share_above_limit,
        policy=DEFAULT_POLICY,
        shipped=found[_AS_SHIPPED],
        command=lambda name: (
            command("corona --as-shipped", CORONET, CORONET, _OPTIONS)
            if name == _AS_SHIPPED
            else command("corona", found[name][0].setup, CORONET, _OPTIONS)
        ),
        protocol_command=lambda setup: command("corona --protocol", setup, _SMALLER, _OPTIONS),
    )


def share_above_limit(outcome: CoronaOutcome) -> float:
    """Return the fraction of channels that are polled more often than the default limit for public channels allows.

    Only the channels in the run's profile are considered. These are about 400 channels, evenly spaced by popularity.
    """
    per_hour = SECONDS_PER_HOUR / outcome.setup.poll_interval_s
    return mean(
        channel.polls_per_tau * per_hour > DEFAULT_POLICY.most_polls_per_hour(channel.subscribers)
        for channel in outcome.profile
    )


def table(outcome: CoronaOutcome | ProtocolOutcome) -> Table:
    """Return the results of one run as a table for the terminal."""
    rounds = outcome.converged_after_rounds
    rows = [
        ["mean detection, s", f"{outcome.mean_detection_s:.2f}"],
        ["p99 detection, s", f"{outcome.p99_detection_s:.1f}"],
        ["notification delay, s", f"{outcome.mean_notification_delay_s:.2f}"],
        ["polls per channel per τ", f"{outcome.polls_per_channel_per_tau:.2f}"],
        ["longest mean wait of a channel, s", f"{outcome.longest_mean_wait_s:.1f}"],
        ["rounds to convergence", "never" if rounds is None else str(rounds)],
        ["busiest node / mean", f"{outcome.node_load_max_over_mean:.3f}"],
        ["detection by formula, s", f"{outcome.formula_detection_s:.2f}"],
    ]
    if isinstance(outcome, ProtocolOutcome):
        rows[0].append(f"{outcome.vectorised_mean_detection_s:.2f}")
        rows[1].append(f"{outcome.vectorised_p99_detection_s:.1f}")
        rows[2].append(f"{outcome.vectorised_mean_notification_delay_s:.2f}")
        rows[3].append(f"{outcome.vectorised_polls_per_channel_per_tau:.2f}")
        rows += [
            ["entries with a version", f"{outcome.versioned_updates:,} of {outcome.updates:,}"],
            ["publication to version, s", f"{outcome.mean_version_delay_s:.2f}"],
            ["messages per node and maintenance", f"{outcome.messages_per_node_per_maintenance:,.0f}"],
        ]
        return terminal_table(("", "protocol", "vectorised"), rows)
    rows += [
        ["legacy, s", f"{outcome.legacy_detection_s:.1f}"],
        ["overshoot", f"{outcome.max_overshoot:.1%}"],
        ["orphans (empty wedges)", f"{outcome.orphans:,} ({outcome.empty_wedges})"],
    ]
    if isinstance(outcome, ShippedOutcome):
        rows += [
            ["notification delay, equal polls for all, s", f"{outcome.uniform_notification_delay_s:.2f}"],
            ["requests for the same delay", f"{outcome.uniform_requests_at_equal_delay:.1%}"],
            ["largest share of channels at one bound", f"{outcome.share_at_one_bound:.1%}"],
        ]
    return terminal_table(("", ""), rows)


def plot_run(outcome: CoronaOutcome, file: Path) -> None:
    """Draw plots of one run and save them to ``file``.

    The plots show load and delay over time, and the polls and the mean wait of each channel by popularity.
    """
    named = {f"{outcome.setup.goal}, seed {outcome.seed}": outcome}
    draw(file, [(_load, named), (_delay, named), (_polls, named), (_waits, named)])


def plot(found: OutcomesByName, file: Path) -> None:
    """Draw Figures 3 to 10 of the paper, and save them to ``file``.

    The figures show results of the paper's algorithms and of Coronet's.
    """

    def both(*goals: str, other: str = "") -> dict[str, CoronaOutcome]:
        names = [name for goal in goals for name in (f"paper mode, {goal}", f"Coronet, {goal}")]
        return {name: found[name][0] for name in ([*names, other] if other else names)}

    draw(
        file,
        [
            (_load, both("lite", "fast")),
            (_delay, both("lite", "fast", other="paper mode, lite, random phases")),
            (_polls, both("lite")),
            (_waits, both("lite", other="paper mode, lite, random phases")),
            (_by_interval, both("lite", "fair")),
            (_by_interval, both("fair-sqrt", "fair-log")),
            (_delay, both("lite on 60 nodes", other="paper mode, lite on 60 nodes, base 4")),
            (_minutes, both("lite on 60 nodes", other="paper mode, lite on 60 nodes, base 4")),
        ],
    )


def _over_time(axis: Any, outcomes: dict[str, CoronaOutcome], value: Callable[[Window], float], legacy: float) -> None:
    for name, found in outcomes.items():
        axis.plot([window.end_s / 3600 for window in found.windows], list(map(value, found.windows)), label=name)
    axis.axhline(legacy, color="k", linestyle=":", label="legacy")
    axis.set(xlabel="hours")


def _load(axis: Any, outcomes: dict[str, CoronaOutcome]) -> None:
    setup = _any(outcomes).setup
    _over_time(axis, outcomes, lambda window: window.polls_per_channel, setup.subscriptions / setup.channels)
    axis.set(title="Load (Fig. 3)", ylabel="polls per channel per τ", yscale="log")


def _delay(axis: Any, outcomes: dict[str, CoronaOutcome]) -> None:
    _over_time(axis, outcomes, lambda window: window.mean_detection_s, _any(outcomes).legacy_detection_s)
    axis.set(title="Detection (Fig. 4; 9 on 60 nodes)", ylabel="mean detection, s", yscale="log")


def _minutes(axis: Any, outcomes: dict[str, CoronaOutcome]) -> None:
    setup = _any(outcomes).setup
    per_minute = setup.channels / setup.poll_interval_s * 60
    legacy = setup.subscriptions / setup.poll_interval_s * 60
    _over_time(axis, outcomes, lambda window: window.polls_per_channel * per_minute, legacy)
    axis.set(title="Load (Fig. 10)", ylabel="polls per minute", ylim=(0, None))


def _any(outcomes: dict[str, CoronaOutcome]) -> CoronaOutcome:
    return list(outcomes.values())[-1]


def _over_popularity(axis: Any, outcomes: dict[str, CoronaOutcome], value: Callable[[ChannelProfile], float]) -> None:
    for name, found in outcomes.items():
        places = [channel.place for channel in found.profile]
        axis.plot(places, list(map(value, found.profile)), ".", markersize=3, label=name)
    axis.set(xlabel="channels by popularity", yscale="log")


def _polls(axis: Any, outcomes: dict[str, CoronaOutcome]) -> None:
    _over_popularity(axis, outcomes, lambda channel: channel.polls_per_tau)
    profile = _any(outcomes).profile
    axis.plot([channel.place for channel in profile], [each.subscribers for each in profile], "k:", label="legacy")
    axis.set(title="Polls (Fig. 5)", ylabel="polls per τ")


def _waits(axis: Any, outcomes: dict[str, CoronaOutcome]) -> None:
    _over_popularity(axis, outcomes, lambda channel: channel.mean_wait_s)
    axis.set(title="Detection (Fig. 6)", ylabel="mean wait, s")


def _by_interval(axis: Any, outcomes: dict[str, CoronaOutcome]) -> None:
    for name, found in outcomes.items():
        ranked = sorted(found.profile[::2], key=lambda one: (one.update_interval_s, one.subscribers))
        axis.plot([channel.mean_wait_s for channel in ranked], ".", markersize=4, label=name)
    title = "Detection (Figs. 7 and 8)"
    axis.set(title=title, xlabel="200 channels by update interval", ylabel="mean wait, s", yscale="log")
