"""``coronet simulate EXPERIMENT``: the room's edge, and the list of experiments.

A new experiment joins with a command here, a module with ``run(…, seed, report)`` and ``STEPS``, how often that
reports, and a module for ``report``. One that runs real processes joins from ``service.cli``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from service.corona.objectives import Goal
from service.simulate.clash.servers import MapKind
from service.simulate.corona.workload import BinLayout, IdAssignment, PollPhases
from service.simulate.schedulers.publication_trace import Publishers

REPORTED = ("clash", "corona", "discovery", "location", "partial-lookup", "schedulers")
"""Experiments with a page; see ``report``."""

BASES = (None, 2, 4, 16, 32, 256)
"""Of whole digits in 160 bits."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same figures.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it, too; needs the extra `experiments`.")]

Report = Callable[[str], None]


@app.callback(invoke_without_command=True)
def simulate(context: typer.Context) -> None:
    """Simulate what the papers claim, what other readers do, and what Coronet does."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def corona(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    goal: Annotated[Goal, typer.Option(help="What is optimised.")] = Goal.LITE,
    base: Annotated[int | None, typer.Option(help="The paper's sizes N/bˡ and wedges (16); else any size.")] = None,
    phases: Annotated[PollPhases, typer.Option(help="When the nodes of a set poll.")] = PollPhases.EVEN,
    ids: Annotated[IdAssignment, typer.Option(help="Which ids nodes take.")] = IdAssignment.BALANCED,
    bins: Annotated[BinLayout, typer.Option(help="How channels are summed up.")] = BinLayout.QUANTILE,
    nodes: Annotated[int, typer.Option(min=1)] = 1024,
    channels: Annotated[int, typer.Option(min=10)] = 100_000,
    subscriptions: Annotated[int, typer.Option(min=10)] = 5_000_000,
    maintenance: Annotated[float, typer.Option(metavar="SECONDS", min=1800)] = 3600.0,
    target: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="The delay that fast is to keep.")] = 30.0,
    longest_wait: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="For any channel, on average.")] = inf,
    churn: Annotated[
        float, typer.Option(min=0, max=0.5, help="Share of the nodes that die, and join, per hour.")
    ] = 0.0,
    loss: Annotated[float | None, typer.Option(min=0, max=0.5, help="Of messages; 0.02 where there is churn.")] = None,
) -> None:
    """Corona's simulations: its own way, and ours."""
    from service.simulate.corona.workload import CoronaSetup  # noqa: PLC0415 - asking for help must not load it

    if base not in BASES:
        raise typer.BadParameter(f"The base is one of {', '.join(map(str, BASES[1:]))}.")
    setup = CoronaSetup(
        goal=goal,
        base=base,
        phases=phases,
        ids=ids,
        bins=bins,
        nodes=nodes,
        channels=channels,
        subscriptions=subscriptions,
        maintenance_s=maintenance,
        rounds=round(6 * 3600 / maintenance),
        target_delay_s=target,
        longest_wait_s=longest_wait,
        churn=churn,
        loss=(0.02 if churn else 0.0) if loss is None else loss,
    )
    _perform("corona", setup, seed, as_json=as_json, plot=plot)


@app.command()
def schedulers(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    channels: Annotated[int, typer.Option(min=10)] = 2000,
    weeks: Annotated[int, typer.Option(min=1, help="Measured, after as many to learn in.")] = 2,
    publishers: Annotated[Publishers, typer.Option(help="What publishers are like.")] = Publishers.POISSON,
    goal: Annotated[Goal, typer.Option(help="What ours optimises.")] = Goal.FAIR,
) -> None:
    """Ours and other readers' at equal requests."""
    from service.simulate.schedulers.experiment import SchedulersSetup  # noqa: PLC0415 - asking for help must not load it

    _perform("schedulers", SchedulersSetup(channels, weeks, publishers, goal), seed, as_json=as_json, plot=plot)


@app.command()
def clash(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    stream_packets: Annotated[int, typer.Option(min=1, help="For how many a source keeps its key, L_d.")] = 1000,
    queries: Annotated[int, typer.Option(min=0, help="Clients with a stored query.")] = 0,
    servers: Annotated[int, typer.Option(min=10, max=65_536)] = 1000,
    sources: Annotated[int, typer.Option(min=100)] = 100_000,
    overload: Annotated[float, typer.Option(min=0.5, max=1, help="The load above which a server splits.")] = 0.90,
    hashes: Annotated[MapKind, typer.Option("--map", help="How servers share the hash space.")] = MapKind.EVEN,
) -> None:
    """CLASH's simulations beside plain DHTs. Six hours of three workloads."""
    from service.simulate.clash.servers import ClashSetup  # noqa: PLC0415 - asking for help must not load it

    setup = ClashSetup(stream_packets, queries, hashes, overload, servers=servers, sources=sources)
    if 4 * sources > servers * setup.capacity_packets_s:
        raise typer.BadParameter(f"{sources:,} sources need more than {servers:,} servers: half of them would be full.")
    _perform("clash", setup, seed, as_json=as_json, plot=plot)


@app.command()
def partial_lookup(*, seed: Seed = 1, as_json: Json = False, plot: Plot = None) -> None:
    """Partial lookup's five strategies by six metrics. Placed, and updated."""
    _perform("partial_lookup", seed, as_json=as_json, plot=plot)


@app.command()
def discovery(*, seed: Seed = 1, as_json: Json = False, plot: Plot = None) -> None:
    """Load-balancing matrices under load. The paper's way and ours; skewed names and queries."""
    _perform("discovery", seed, as_json=as_json, plot=plot)


@app.command()
def location(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    servers: Annotated[int, typer.Option(min=50, max=4000)] = 1000,
    documents: Annotated[int, typer.Option(min=1, help="Of each server, in the static runs.")] = 70,
) -> None:
    """Attenuated Bloom filters beside Tapestry. On a transit-stub graph; home nodes, too."""
    from service.simulate.location.experiment import LocationSetup  # noqa: PLC0415 - asking for help must not load it

    _perform("location", LocationSetup(servers, documents), seed, as_json=as_json, plot=plot)


@app.command()
def report(
    directory: Annotated[Path, typer.Option(help="Where the pages are written.")] = Path("docs/experiments"),
    only: Annotated[list[str] | None, typer.Option(metavar="EXPERIMENT", help="Not all of them.")] = None,
) -> None:
    """Write the pages of all experiments."""
    from service.simulate.report import run_all  # noqa: PLC0415 - asking for help must not load it

    directory.mkdir(parents=True, exist_ok=True)
    for name in REPORTED if only is None else only:
        if name not in REPORTED:
            raise typer.BadParameter(f"{name} has no page; {', '.join(REPORTED)} have.")
        shown = import_module(f"service.simulate.{name.replace('-', '_')}.report")
        with progress(len(shown.JOBS), hidden=False) as done:
            found = run_all(shown.JOBS, done)
        shown.plot(found, directory / f"{name}.png")
        (directory / f"{name}.md").write_text(shown.page(found), encoding="utf-8")


def run(arguments: Sequence[str]) -> None:
    """Run what the arguments after ``coronet simulate`` name; wrong ones raise typer's own exceptions."""
    app(list(arguments), prog_name="coronet simulate", standalone_mode=False)


@contextmanager
def progress(steps: int, *, hidden: bool) -> Iterator[Report]:
    """Show a bar of so many steps; yield what advances it."""
    from rich.console import Console  # noqa: PLC0415 - asking for help must not load what only a run needs
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - same

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("", total=steps)
        yield lambda what: bar.update(task, advance=1, description=what)


def _perform(name: str, *arguments: object, as_json: bool, plot: Path | None) -> None:
    """Run an experiment, print its outcome, and draw it if asked to."""
    from service.simulate.report import no_collection  # noqa: PLC0415 - asking for help must not load it

    experiment, shown = (import_module(f"service.simulate.{name}.{part}") for part in ("experiment", "report"))
    with progress(experiment.STEPS, hidden=as_json) as report, no_collection():
        outcome = experiment.run(*arguments, report)
    told(outcome, lambda: shown.table(outcome), as_json=as_json)
    if plot is not None:
        shown.plot_run(outcome, plot)


def told(outcome: object, table: Callable[[], object], *, as_json: bool) -> None:
    """Print an outcome: as one JSON object, or as a table for people."""
    import msgspec  # noqa: PLC0415 - asking for help must not load what only a run needs
    from rich.console import Console  # noqa: PLC0415 - same

    if as_json:
        typer.echo(msgspec.json.encode(outcome))
    else:
        Console().print(table())
