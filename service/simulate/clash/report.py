"""The table, plots and report page of the experiment ``clash``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from service.clash.key_groups import Keyspaces
from service.corona.fleet_policy import DEFAULT_POLICY
from service.simulate.clash.experiment import LENGTHS, SAMPLED_ENTRY_SERVERS, ClashOutcome, Loads, WorkloadResults, run
from service.simulate.clash.servers import ClashSetup, MapKind
from service.simulate.report import SEEDS, Job, command, draw, render, terminal_table

DEFAULT = ClashSetup()
SETUPS = {
    "long streams": DEFAULT,
    "short streams": ClashSetup(stream_packets=50),
    "long streams, queries": ClashSetup(queries=50_000),
    "short streams, queries": ClashSetup(stream_packets=50, queries=50_000),
    "merges below 54 %": ClashSetup(merged=0.54),
    "splits above 86 %": ClashSetup(overload=0.86, merged=0.855),
    "Chord's map": ClashSetup(map=MapKind.CHORD),
    "as shipped": ClashSetup(servers=Keyspaces().count, as_shipped=True),
}
"""The setups of all runs by their names on the page. The page compares only the results of the first four setups with
targets."""
JOBS = [Job(name, run, (setup, seed)) for name, setup in SETUPS.items() for seed in SEEDS]

OutcomesByName = dict[str, list[ClashOutcome]]

_OPTIONS = {
    "stream-packets": "stream_packets",
    "queries": "queries",
    "overload": "overload",
    "merge": "merged",
    "map": "map",
    "servers": "servers",
}

PAPER_MESSAGES_S = (10.0, 12.0)
"""Range of messages per server and second in the paper (§VI.D)."""
HOURS = "hours: workload A, B, C"


def page(found: OutcomesByName) -> str:
    """Return the report page as Markdown."""
    return render(
        "clash.md.j2",
        runs=found,
        setups=SETUPS,
        command=lambda setup: command("clash --as-shipped" if setup.as_shipped else "clash", setup, DEFAULT, _OPTIONS),
        followed=SAMPLED_ENTRY_SERVERS,
        shipped_interval_s=DEFAULT_POLICY.maintenance_interval_s,
    )


def table(outcome: ClashOutcome) -> Table:
    """Return the results of one run as a table for the terminal."""
    cells: list[tuple[str, Callable[[WorkloadResults], str]]] = [
        ("servers used", lambda found: f"{found.servers_used:.0f}"),
        ("relative to DHT(12)", lambda found: f"{found.share_of_dht_12:.0%}"),
        ("mean load", lambda found: f"{found.mean_load:.0%}"),
        ("mean load of the coarsest tree", lambda found: f"{found.mean_load_possible:.0%}"),
        ("share of the coarsest possible", lambda found: f"{found.share_of_possible:.1%}"),
        ("max load after the transient", lambda found: f"{found.max_load_after_transient:.1%}"),
        ("depth", lambda found: f"{found.depth_min} to {found.depth_max}, {found.depth_mean:.1f}"),
        ("probes per lookup", lambda found: f"{found.lookup_probes_mean:.3f}"),
        ("probes per lookup without cache", lambda found: f"{found.lookup_probes_without_memory:.2f}"),
        ("messages per server and second", lambda found: f"{found.messages_per_server_s:.2f}"),
        ("messages by Chord per server and second", lambda found: f"{found.messages_by_chord_per_server_s:.2f}"),
        ("messages per used server and second", lambda found: f"{found.messages_per_used_server_s:.1f}"),
    ]
    rows = [(label, *map(cell, outcome.workloads)) for label, cell in cells]
    for place, bits in enumerate(LENGTHS):
        loads = [found.dht[place] for found in outcome.workloads]
        shown = [f"{dht.servers_used:.0f}: {dht.mean_load:.0%}, {dht.max_load_after_transient:.0%}" for dht in loads]
        rows.append((f"DHT({bits}): servers, mean, max", *shown))
    caption = f"{outcome.splits} splits, {outcome.merges} merges; seed {outcome.seed}"
    return terminal_table(("workload", *(found.workload for found in outcome.workloads)), rows, caption)


def plot_run(outcome: ClashOutcome, file: Path) -> None:
    """Draw the plots of one run and save them to ``file``."""
    plot({"": [outcome]}, file)


def plot(found: OutcomesByName, file: Path) -> None:
    """Draw Figures 7 and 8 of the paper with the results of the first seed, and save them to ``file``.

    Figure 7 shows the results of the first setup in ``found``, Figure 8 compares the first four setups.
    """
    outcomes = [seeds[0] for seeds in list(found.values())[:4]]
    figure_7 = [(panel, outcomes[0]) for panel in (_mean, _max, _servers, _depths)]
    draw(file, [*figure_7, (_overheads, outcomes), (_probes, outcomes[0])])


def _hours(outcome: ClashOutcome) -> list[float]:
    return [check.at_s / 3600 for check in outcome.checks]


def _beside_dhts(axis: Any, outcome: ClashOutcome, shown: Callable[[Loads], float]) -> None:
    axis.plot(_hours(outcome), [shown(check.loads) for check in outcome.checks], "k", label="Coronet")
    for place in (1, 2, 3):
        values = [shown(check.dht[place]) for check in outcome.checks]
        axis.plot(_hours(outcome), values, ":", label=f"DHT({LENGTHS[place]})")


def _mean(axis: Any, outcome: ClashOutcome) -> None:
    axis.axhspan(0.5, 0.6, color="0.9", label="CLASH in the paper")
    _beside_dhts(axis, outcome, lambda loads: loads.mean)
    axis.set(xlabel=HOURS, title="Mean load of used servers (Fig. 7)", ylabel="share of capacity", ylim=(0, 1.5))


def _max(axis: Any, outcome: ClashOutcome) -> None:
    axis.axhline(0.9, color="0.7", label="CLASH in the paper, at most")
    axis.axhline(25, color="0.7", linestyle="--", label="DHT(6) in the paper, C")
    _beside_dhts(axis, outcome, lambda loads: loads.max)
    axis.set(xlabel=HOURS, title="Load of the busiest server (Fig. 7)", ylabel="share of capacity", yscale="log")


def _servers(axis: Any, outcome: ClashOutcome) -> None:
    axis.axhspan(70, 80, color="0.9", label="CLASH in the paper")
    _beside_dhts(axis, outcome, lambda loads: loads.servers_used)
    axis.set(xlabel=HOURS, title="Servers used (Fig. 7)", ylabel="servers", yscale="log")


def _depths(axis: Any, outcome: ClashOutcome) -> None:
    for name in ("depth_max", "depth_mean", "depth_min"):
        axis.plot(_hours(outcome), [getattr(check, name) for check in outcome.checks], label=name.replace("_", ", "))
    axis.set(xlabel=HOURS, title="Depth of key groups (Fig. 7)", ylabel="bits", ylim=(0, None))


def _overheads(axis: Any, outcomes: list[ClashOutcome]) -> None:
    axis.axhspan(*PAPER_MESSAGES_S, color="0.9", label="the paper's highest")
    for place, outcome in enumerate(outcomes):
        label = f"$L_d$ {outcome.setup.stream_packets}, {outcome.setup.queries:,} queries"
        messages = [found.messages_per_server_s for found in outcome.workloads]
        axis.bar([at + place * 0.2 for at in range(len(messages))], messages, 0.18, label=label)
    axis.set_xticks([at + 0.3 for at in range(3)], labels=["A", "B", "C"])
    axis.set(title="Messages (Fig. 8)", ylabel="per server and second")


def _probes(axis: Any, outcome: ClashOutcome) -> None:
    axis.plot(_hours(outcome), [check.probes_without_memory for check in outcome.checks], ":", label="without cache")
    axis.plot(_hours(outcome), [check.probes for check in outcome.checks], "k", label="Coronet")
    axis.set(title="Probes per lookup", xlabel=HOURS, ylim=(0, None))
