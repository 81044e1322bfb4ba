"""The commands ``coronet simulate EXPERIMENT``.

To add an experiment, write:

- a command in this module
- a module ``experiment`` with the function ``run(…, seed, report)`` and the constant ``STEPS`` (the number of progress
  reports)
- a module ``report``

The experiments that run real processes are added by ``service.cli``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from service.corona.fleet_policy import Goal
from service.simulate.clash.servers import ClashSetup, MapKind
from service.simulate.corona.workload import BinLayout, CoronaSetup, IdAssignment, PollPhases
from service.simulate.fleet.experiment import FleetSetup
from service.simulate.location.experiment import LocationSetup
from service.simulate.report import run_all, without_garbage_collection
from service.simulate.schedulers.experiment import SchedulersSetup
from service.simulate.schedulers.publication_trace import Publishers

EXPERIMENTS_WITH_PAGE = ("clash", "corona", "discovery", "location", "partial-lookup", "schedulers")
"""Experiments with a page in ``docs/experiments``, which the command ``report`` writes."""

BASES = (None, 2, 4, 16, 32, 256)
"""The allowed values of ``--base``. With base b, as in Corona's paper, N/bˡ of the N nodes poll a channel, for a level
l. With None, any number of nodes can poll a channel.

A digit to base b has 1, 2, 4, 5 or 8 bits, so that an id of 160 bits is a whole number of digits."""

PROTOCOL_BASES = (None, 2, 4, 16)
"""The allowed values of ``--base`` if ``--protocol`` is given: the bases that production supports. With None, any
number of nodes can poll a channel."""

app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also draw a plot to FILE; needs the extra `experiments`.")
]

Report = Callable[[str], None]


@app.callback(invoke_without_command=True)
def simulate(context: typer.Context) -> None:
    """Run an experiment in simulated time."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def corona(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    goal: Annotated[Goal, typer.Option(help="The goal of the optimisation.")] = Goal.LITE,
    base: Annotated[int | None, typer.Option(help="Base b of the paper's sizes N/bˡ (16). Default: any size.")] = None,
    phases: Annotated[PollPhases, typer.Option(help="Phases of the nodes of a polling set.")] = PollPhases.EVEN,
    ids: Annotated[IdAssignment, typer.Option(help="How nodes choose their ids.")] = IdAssignment.BALANCED,
    bins: Annotated[BinLayout, typer.Option(help="Bins of the tradeoff clusters.")] = BinLayout.QUANTILE,
    protocol: Annotated[
        bool, typer.Option("--protocol", help="Drive the production protocol; compare with the run without it.")
    ] = False,
    as_shipped: Annotated[
        bool, typer.Option("--as-shipped", help="Use the product's default policy; compare with equal polls for all.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Number of nodes. Default: 1024, with --protocol 128.")
    ] = None,
    channels: Annotated[
        int | None, typer.Option(min=10, help="Number of channels. Default: 100000, with --protocol 10000.")
    ] = None,
    subscriptions: Annotated[
        int | None, typer.Option(min=10, help="Number of subscriptions. Default: 50 per channel.")
    ] = None,
    maintenance: Annotated[float, typer.Option(metavar="SECONDS", min=1800, help="Maintenance interval.")] = 3600.0,
    target: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Target delay of the goal fast.")] = 30.0,
    longest_wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Maximum mean delay of a channel.")
    ] = inf,
    churn: Annotated[float, typer.Option(min=0, max=0.5, help="Share of nodes that die per hour; as many join.")] = 0.0,
    loss: Annotated[
        float | None, typer.Option(min=0, max=0.5, help="Share of lost messages; 0.02 by default with churn.")
    ] = None,
) -> None:
    """Run Corona's simulations. The fleet runs either the paper's algorithms or Coronet's."""
    if base not in BASES:
        raise typer.BadParameter(f"The base is one of {', '.join(map(str, BASES[1:]))}.")
    if protocol and (phases, bins) != (PollPhases.EVEN, BinLayout.QUANTILE):
        raise typer.BadParameter("The production protocol has no --phases and --bins.")
    if protocol and base not in PROTOCOL_BASES:
        raise typer.BadParameter(f"The base of the production protocol is one of {PROTOCOL_BASES[1:]}.")
    nodes = nodes or (128 if protocol else 1024)
    channels = channels or (10_000 if protocol else 100_000)
    setup = CoronaSetup(
        goal=goal,
        base=base,
        phases=phases,
        ids=ids,
        bins=bins,
        nodes=nodes,
        channels=channels,
        subscriptions=subscriptions or 50 * channels,
        maintenance_s=maintenance,
        rounds=round(6 * 3600 / maintenance),
        target_delay_s=target,
        longest_wait_s=longest_wait,
        churn=churn,
        loss=(0.02 if churn else 0.0) if loss is None else loss,
    )
    if protocol and plot is not None:
        raise typer.BadParameter("A run with --protocol has no plot.")
    if as_shipped and (
        protocol or goal is not Goal.LITE or base or bins is not BinLayout.QUANTILE or longest_wait < inf
    ):
        raise typer.BadParameter("A run with --as-shipped has no --protocol, --goal, --base, --bins or --longest-wait.")
    module = "protocol_experiment" if protocol else "default_policy_experiment" if as_shipped else "experiment"
    _run_experiment("corona", setup, seed, as_json=as_json, plot=plot, module=module)


@app.command()
def schedulers(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    channels: Annotated[int, typer.Option(min=10, help="Number of channels.")] = 2000,
    weeks: Annotated[int, typer.Option(min=1, help="Weeks of measurement, after as many of warm-up.")] = 2,
    publishers: Annotated[Publishers, typer.Option(help="Publication pattern.")] = Publishers.POISSON,
    goal: Annotated[Goal, typer.Option(help="Corona's goal.")] = Goal.FAIR,
) -> None:
    """Compare Corona's polling scheduler with those of other feed readers. All make the same number of requests."""
    _run_experiment("schedulers", SchedulersSetup(channels, weeks, publishers, goal), seed, as_json=as_json, plot=plot)


@app.command()
def clash(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    stream_packets: Annotated[
        int, typer.Option(min=1, help="Mean packets before a source changes its key (L_d).")
    ] = 1000,
    queries: Annotated[int, typer.Option(min=0, help="Number of clients with a stored query.")] = 0,
    servers: Annotated[int, typer.Option(min=10, max=65_536, help="Number of servers.")] = 1000,
    sources: Annotated[int, typer.Option(min=100, help="Number of traffic sources.")] = 100_000,
    overload: Annotated[float, typer.Option(min=0.5, max=1, help="Load above which a server splits a group.")] = 0.90,
    merge: Annotated[
        float, typer.Option(min=0, max=1, help="Load below which a server must stay when groups merge.")
    ] = 0.895,
    as_shipped: Annotated[
        bool, typer.Option("--as-shipped", help="Use the product's thresholds, and loads as the product measures them.")
    ] = False,
    hashes: Annotated[MapKind, typer.Option("--map", help="Map from hashes to servers.")] = MapKind.EVEN,
) -> None:
    """Run CLASH's simulations. Three workloads run for six hours in total, and are compared with plain DHTs."""
    setup = ClashSetup(
        stream_packets, queries, hashes, overload, merge, servers=servers, sources=sources, as_shipped=as_shipped
    )
    if 4 * sources > servers * setup.capacity_packets_s:
        raise typer.BadParameter(f"{sources:,} sources need more than {servers:,} servers: half of them would be full.")
    _run_experiment("clash", setup, seed, as_json=as_json, plot=plot)


@app.command()
def partial_lookup(*, seed: Seed = 1, as_json: Json = False, plot: Plot = None) -> None:
    """Run the partial-lookup simulations. Six metrics are measured for each of five strategies."""
    _run_experiment("partial_lookup", seed, as_json=as_json, plot=plot)


@app.command()
def discovery(*, seed: Seed = 1, as_json: Json = False, plot: Plot = None) -> None:
    """Run the content-discovery simulations. They test how nodes share the load of skewed names and queries."""
    _run_experiment("discovery", seed, as_json=as_json, plot=plot)


@app.command()
def location(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    plot: Plot = None,
    servers: Annotated[int, typer.Option(min=50, max=4000, help="Number of servers.")] = 1000,
    documents: Annotated[int, typer.Option(min=1, help="Documents per server in the static runs.")] = 70,
) -> None:
    """Run the content-location simulations. Attenuated Bloom filters are compared with Tapestry and home nodes."""
    _run_experiment("location", LocationSetup(servers, documents), seed, as_json=as_json, plot=plot)


@app.command()
def fleet(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    nodes: Annotated[int, typer.Option(min=3, max=10_000, help="Number of nodes, each a worker process.")] = 1_000,
    channels: Annotated[int, typer.Option(min=100, help="Number of channels.")] = 1_000_000,
    subscribers: Annotated[int, typer.Option(min=1, help="Mean number of subscribers of a channel.")] = 50,
    churn: Annotated[
        float, typer.Option(min=0, max=0.5, help="Share of nodes that die per hour; as many join. Default: 1 of 24.")
    ] = 1 / 24,
) -> None:
    """Forecast the cost of a fleet's control plane. Counts messages, Redis commands, memory, and the time to heal."""
    setup = FleetSetup(nodes=nodes, channels=channels, subscribers=subscribers, churn=churn)
    _run_experiment("fleet", setup, seed, as_json=as_json, plot=None)


@app.command()
def report(
    directory: Annotated[Path, typer.Option(help="Directory for the pages.")] = Path("docs/experiments"),
    only: Annotated[list[str] | None, typer.Option(metavar="EXPERIMENT", help="Only these experiments.")] = None,
) -> None:
    """Write the report pages. All experiments are run, or only those that ``--only`` selects."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in EXPERIMENTS_WITH_PAGE if only is None else only:
        if name not in EXPERIMENTS_WITH_PAGE:
            raise typer.BadParameter(f"{name} has no page; {', '.join(EXPERIMENTS_WITH_PAGE)} have.")
        module = import_module(f"service.simulate.{name.replace('-', '_')}.report")
        with progress(len(module.JOBS), hidden=False) as done:
            outcomes = run_all(module.JOBS, done)
        module.plot(outcomes, directory / f"{name}.png")
        (directory / f"{name}.md").write_text(module.page(outcomes), encoding="utf-8")


def run(arguments: Sequence[str]) -> int:
    """Run the command ``coronet simulate`` with ``arguments``, and return its exit status.

    Usage errors are raised as typer's exceptions, not printed.
    """
    return app(list(arguments), prog_name="coronet simulate", standalone_mode=False) or 0


@contextmanager
def progress(steps: int, *, hidden: bool) -> Iterator[Report]:
    """Show a progress bar of ``steps`` steps on standard error until the context ends, unless ``hidden``.

    The context manager yields a function with one argument, a text. Each call completes one step and shows the text
    beside the bar.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("", total=steps)
        yield lambda what: bar.update(task, advance=1, description=what)


def _run_experiment(
    name: str, *arguments: object, as_json: bool, plot: Path | None, module: str = "experiment"
) -> None:
    """Run the experiment ``name`` and print its results. If ``plot`` is given, also save plots of the results to it.

    ``arguments`` are passed to the function ``run`` of the experiment's module ``module``.
    """
    if plot is not None and not plot.absolute().parent.is_dir():
        raise typer.BadParameter(f"There is no folder {plot.parent} for the plot.")
    experiment, report_module = (import_module(f"service.simulate.{name}.{part}") for part in (module, "report"))
    with progress(experiment.STEPS, hidden=as_json) as report, without_garbage_collection():
        outcome = experiment.run(*arguments, report)
    print_outcome(outcome, lambda: report_module.table(outcome), as_json=as_json)
    if plot is not None:
        report_module.plot_run(outcome, plot)


def print_outcome(outcome: object, table: Callable[[], object], *, as_json: bool) -> None:
    """Print ``outcome`` as one JSON object if ``as_json``, otherwise print the table that ``table`` returns."""
    if as_json:
        typer.echo(msgspec.json.encode(outcome))
    else:
        Console().print(table())
