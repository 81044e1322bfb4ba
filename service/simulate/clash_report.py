"""The experiment ``clash`` as people read it: a table, a plot and a page of ``docs/experiments``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from service.simulate.clash import Figures, Outcome, run
from service.simulate.clash_dht import LENGTHS, Loads
from service.simulate.clash_jobs import JOBS
from service.simulate.clash_page import page
from service.simulate.clash_workload import Setup
from service.simulate.jobs import run_all

STEPS = len(JOBS)

PAPER_MESSAGES_S = (10.0, 12.0)
"""Per server (§VI.D)."""


def table(outcome: Outcome) -> Table:
    """Return a run as a table for a terminal."""
    shown = Table(
        box=SIMPLE_HEAD,
        caption=f"{outcome.splits} splits, {outcome.merges} merges, {outcome.recalls} recalls; seed {outcome.seed}",
    )
    shown.add_column("workload")
    for found in outcome.workloads:
        shown.add_column(found.workload, justify="right", no_wrap=True)
    rows: list[tuple[str, Callable[[Figures], str]]] = [
        ("servers used", lambda found: f"{found.servers_used:.0f}"),
        ("share of DHT(12)'s", lambda found: f"{found.share_of_dht_12:.0%}"),
        ("mean load", lambda found: f"{found.mean_load:.0%}"),
        ("of the coarsest tree", lambda found: f"{found.mean_load_possible:.0%}"),
        ("max load after transients", lambda found: f"{found.max_load_after_transient:.1%}"),
        ("depth", lambda found: f"{found.depth_min} to {found.depth_max}, {found.depth_mean:.1f}"),
        ("probes per lookup", lambda found: f"{found.lookup_probes_mean:.3f}"),
        ("the same without memory", lambda found: f"{found.lookup_probes_without_memory:.2f}"),
        ("messages per server and s", lambda found: f"{found.messages_per_server_s:.2f}"),
        ("per used server and s", lambda found: f"{found.messages_per_used_server_s:.1f}"),
    ]
    for label, cell in rows:
        shown.add_row(label, *(cell(found) for found in outcome.workloads))
    for place, bits in enumerate(LENGTHS):
        loads = [found.dht[place] for found in outcome.workloads]
        cells = [f"{dht.servers_used:.0f}: {dht.mean_load:.0%}, {dht.max_load_after_transient:.0%}" for dht in loads]
        shown.add_row(f"DHT({bits}): servers, mean, max", *cells)
    return shown


def write(directory: Path, report: Callable[[str], None]) -> None:
    """Run everything, two at a time, and write ``clash.md`` and ``clash.png``."""
    found = run_all(JOBS, _outcome, report)
    first = [outcomes[0] for outcomes in list(found.values())[:4]]
    plot(first[0], first, directory / "clash.png")
    (directory / "clash.md").write_text(page(found), encoding="utf-8")


def plot(outcome: Outcome, overheads: Sequence[Outcome], file: Path) -> None:
    """Draw the paper's Figure 7 of one run, and Figure 8 of all these."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - same

    figure, axes = plt.subplots(3, 2, figsize=(12, 12))
    for axis, draw in zip(axes.flat, (_mean, _max, _servers, _depths), strict=False):
        draw(axis, outcome)
        axis.set_xlabel("hours: workload A, B, C")
        axis.legend(fontsize="small")
    _overheads(axes[2][0], overheads)
    _probes(axes[2][1], outcome)
    figure.tight_layout()
    figure.savefig(file, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _outcome(setup: Setup, seed: int) -> Outcome:
    return run(setup, seed, lambda _what: None)


def _hours(outcome: Outcome) -> list[float]:
    return [check.at_s / 3600 for check in outcome.checks]


def _beside_dhts(axis: Any, outcome: Outcome, shown: Callable[[Loads], float]) -> None:
    axis.plot(_hours(outcome), [shown(check.loads) for check in outcome.checks], "k", label="ours")
    for place in (1, 2, 3):
        values = [shown(check.dht[place]) for check in outcome.checks]
        axis.plot(_hours(outcome), values, ":", label=f"DHT({LENGTHS[place]})")


def _mean(axis: Any, outcome: Outcome) -> None:
    axis.axhspan(0.5, 0.6, color="0.9", label="CLASH in the paper")
    _beside_dhts(axis, outcome, lambda loads: loads.mean)
    axis.set(title="Mean load of used servers (Fig. 7)", ylabel="share of capacity", ylim=(0, 1.5))


def _max(axis: Any, outcome: Outcome) -> None:
    axis.axhline(0.9, color="0.7", label="CLASH in the paper, at most")
    axis.axhline(25, color="0.7", linestyle="--", label="DHT(6) in the paper, C")
    _beside_dhts(axis, outcome, lambda loads: loads.max)
    axis.set(title="Load of the busiest server (Fig. 7)", ylabel="share of capacity", yscale="log")


def _servers(axis: Any, outcome: Outcome) -> None:
    axis.axhspan(70, 80, color="0.9", label="CLASH in the paper")
    _beside_dhts(axis, outcome, lambda loads: loads.servers_used)
    axis.set(title="Servers used (Fig. 7)", ylabel="servers", yscale="log")


def _depths(axis: Any, outcome: Outcome) -> None:
    for name in ("depth_max", "depth_mean", "depth_min"):
        axis.plot(_hours(outcome), [getattr(check, name) for check in outcome.checks], label=name.replace("_", ", "))
    axis.set(title="Depth of key groups (Fig. 7)", ylabel="bits", ylim=(0, None))


def _overheads(axis: Any, outcomes: Sequence[Outcome]) -> None:
    axis.axhspan(*PAPER_MESSAGES_S, color="0.9", label="the paper's highest")
    for place, outcome in enumerate(outcomes):
        label = f"$L_d$ {outcome.setup.stream_packets}, {outcome.setup.queries:,} queries"
        messages = [found.messages_per_server_s for found in outcome.workloads]
        axis.bar([at + place * 0.2 for at in range(len(messages))], messages, 0.18, label=label)
    axis.set_xticks([at + 0.3 for at in range(3)], labels=["A", "B", "C"])
    axis.set(title="Messages (Fig. 8)", ylabel="per server and second")
    axis.legend(fontsize="small")


def _probes(axis: Any, outcome: Outcome) -> None:
    axis.plot(_hours(outcome), [check.probes_without_memory for check in outcome.checks], ":", label="without memory")
    axis.plot(_hours(outcome), [check.probes for check in outcome.checks], "k", label="ours")
    axis.set(title="Probes per lookup", xlabel="hours: workload A, B, C", ylim=(0, None))
    axis.legend(fontsize="small")
