"""The table, plots and report page of the experiment ``clash``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from service.clash.key_groups import Keyspaces
from service.corona.fleet_policy import DEFAULT_POLICY
from service.simulate.clash.experiment import LENGTHS, SAMPLED_ENTRY_SERVERS, ClashOutcome, Loads, WorkloadResults, run
from service.simulate.clash.servers import ClashSetup, MapKind
from service.simulate.report import SEEDS, FigureVerdict, Job, command, compare, draw, each, render, terminal_table

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
"""The setups by their names on the page. Targets are about the first four."""
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
        comparisons=comparisons(found),
        command=lambda setup: command("clash --as-shipped" if setup.as_shipped else "clash", setup, DEFAULT, _OPTIONS),
        followed=SAMPLED_ENTRY_SERVERS,
        shipped_interval_s=DEFAULT_POLICY.maintenance_interval_s,
    )


def comparisons(found: OutcomesByName) -> list[FigureVerdict]:
    """Return the verdicts on all figures of CLASH §VI, and on the statements about them in its text."""

    def values(run: str, workload: str, field: str) -> list[float]:
        return each(found[run], f"workloads.{'ABC'.index(workload)}.{field}")

    def of_long(workload: str, field: str) -> list[float]:
        return values("long streams", workload, field)

    hops = found["long streams"][0].chord_hops
    half = "A has half of B's traffic, and needs half of the servers at equal mean loads; see the notes"
    calibrated = "the skew and the capacity are calibrated to this value"
    return [
        FigureVerdict("Fig. 6: three skews", "curves without numbers", "", "assumed; see *Calibrated and derived*"),
        *(
            compare(
                f"Fig. 7: mean load of used servers, {workload}",
                "50 to 60 %",
                of_long(workload, "mean_load"),
                (0.50, 0.60),
                ".1%",
                why="higher: a uniform load fills all groups of 5 bits"
                if workload == "A"
                else "the other seeds are higher",
            )
            for workload in "ABC"
        ),
        *(
            compare(
                f"Fig. 7: the same with the paper's merge limit of 54 %, {workload}",
                "50 to 60 %",
                values("merges below 54 %", workload, "mean_load"),
                (0.50, 0.60),
                ".1%",
            )
            for workload in "BC"
        ),
        *(
            compare(
                f"Fig. 7: max load after the transient, {workload}",
                "< 90 %",
                of_long(workload, "max_load_after_transient"),
                (0.0, 0.90),
                ".1%",
            )
            for workload in "ABC"
        ),
        *(
            compare(
                f"Fig. 7: servers used, {workload}",
                "70 to 80",
                of_long(workload, "servers_used"),
                (70, 80),
                ".0f",
                why=half if workload == "A" else "",
            )
            for workload in "ABC"
        ),
        compare(
            "Fig. 7: leaf depths, range of C minus range of B, bits",
            "the range grows with the skew",
            [c - b for b, c in zip(_depth_ranges(of_long, "B"), _depth_ranges(of_long, "C"), strict=True)],
            (1, 24),
            ".1f",
        ),
        compare(
            "Fig. 7: leaf depths, range of B minus range of A, bits",
            "the range grows with the skew",
            [b - a for a, b in zip(_depth_ranges(of_long, "A"), _depth_ranges(of_long, "B"), strict=True)],
            (1, 24),
            ".1f",
        ),
        compare(
            "Fig. 7: max load of DHT(6), C",
            "25 times capacity",
            of_long("C", "dht.1.max_load_after_transient"),
            (20, 30),
            ".1f",
        )._replace(verdict=calibrated),
        compare(
            "Fig. 7: mean load of DHT(6), C",
            "high, but acceptable",
            of_long("C", "dht.1.mean_load"),
            (0.5, 1.0),
            ".0%",
            why="with this skew, half of the servers of DHT(6) have nearly all traffic",
        ),
        *(
            compare(
                f"Fig. 7: servers used by DHT(12), {workload}",
                "450 to 800",
                of_long(workload, "dht.2.servers_used"),
                (450, 800),
                ".0f",
                why="all 4,096 groups have traffic, and their hashes leave few of 1,000 servers without a group",
            )
            for workload in "ABC"
        ),
        *(
            compare(
                f"Fig. 8, case A: messages per server and second, {counted}, worst workload",
                "≤ 10 to 12",
                [max(workload) for workload in zip(*(values("short streams", w, field) for w in "ABC"), strict=True)],
                (6, 12),
                ".1f",
                why=why,
            )
            for counted, field, why in (
                ("a request is one message", "messages_per_server_s", ""),
                (
                    f"Chord routes requests in {hops:.1f} hops",
                    "messages_by_chord_per_server_s",
                    "the paper's value lies between the two counts, and it does not say what it counts",
                ),
            )
        ),
        compare(
            "Fig. 8, case A: messages with short streams / with long streams, B",
            "fewer with long streams",
            [
                short / long
                for short, long in zip(
                    values("short streams", "B", "messages_per_server_s"),
                    of_long("B", "messages_per_server_s"),
                    strict=True,
                )
            ],
            (1.01, 100),
            ".1f",
        ),
        compare(
            "Fig. 8, case B: messages added by 50,000 queries per server and second, C",
            "1 to 2",
            [
                queries - none
                for queries, none in zip(
                    values("short streams, queries", "C", "messages_per_server_s"),
                    values("short streams", "C", "messages_per_server_s"),
                    strict=True,
                )
            ],
            (1.0, 2.0),
            ".2f",
            why="fewer: a stored query that moves is one message, and few move after the transients",
        ),
        compare(
            "§V.C: probes per lookup without a cache, worst workload",
            "much fewer than log₂ 24 = 4.6",
            [max(w) for w in zip(*(of_long(w, "lookup_probes_without_memory") for w in "ABC"), strict=True)],
            (1.0, 4.0),
            ".2f",
        ),
    ]


def _depth_ranges(values: Callable[[str, str], list[float]], workload: str) -> list[float]:
    ends = zip(values(workload, "depth_min"), values(workload, "depth_max"), strict=True)
    return [most - least for least, most in ends]


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
    """Draw the figures of one run to ``file``."""
    _plot([outcome], file)


def plot(found: OutcomesByName, file: Path) -> None:
    """Draw the paper's Figure 7 for the first kind of streams, and Figure 8 for all four kinds, to ``file``."""
    _plot([outcomes[0] for outcomes in list(found.values())[:4]], file)


def _plot(outcomes: list[ClashOutcome], file: Path) -> None:
    """Draw the paper's Figure 7 for the first of ``outcomes``, and Figure 8 for all of them, to ``file``."""
    first = outcomes[0]
    figure_7 = [(panel, first) for panel in (_mean, _max, _servers, _depths)]
    draw(file, [*figure_7, (_overheads, outcomes), (_probes, first)])


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
