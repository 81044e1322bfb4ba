"""``coronet simulate EXPERIMENT``: the room's edge, and the list of experiments.

A new experiment joins with a command here, which imports its modules when it runs, and, if it has a page in
``docs/experiments``, with its name in ``REPORTED``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from service.corona.goals import Goal
from service.simulate.trace import Publishers

REPORTED = ("schedulers",)
"""Experiments whose module ``…_report`` has ``write(directory, report)`` and ``STEPS``, how often that reports."""

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
    import msgspec  # noqa: PLC0415 - asking for help must not load what only a run needs

    from service.simulate import schedulers as experiment  # noqa: PLC0415 - same
    from service.simulate import schedulers_report as shown  # noqa: PLC0415 - same

    setup = experiment.Setup(channels, weeks, publishers, goal)
    with _progress(experiment.RUNS, hidden=as_json) as report:
        comparison = experiment.compare(setup, seed, report)
    if plot is not None:
        shown.plot([comparison], plot)
    if as_json:
        typer.echo(msgspec.json.encode(comparison))
    else:
        _print(shown.table(comparison))


@app.command()
def report(
    directory: Annotated[Path, typer.Option(help="Where the pages are written.")] = Path("docs/experiments"),
    only: Annotated[list[str] | None, typer.Option(metavar="EXPERIMENT", help="Not all of them.")] = None,
) -> None:
    """Write the pages of all experiments."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in REPORTED if only is None else only:
        if name not in REPORTED:
            raise typer.BadParameter(f"{name} has no page; {', '.join(REPORTED)} have.")
        module = import_module(f"service.simulate.{name}_report")
        with _progress(module.STEPS, hidden=False) as done:
            module.write(directory, done)


def run(arguments: Sequence[str]) -> None:
    """Run what the arguments after ``coronet simulate`` name; wrong ones raise typer's own exceptions."""
    app(list(arguments), prog_name="coronet simulate", standalone_mode=False)


@contextmanager
def _progress(steps: int, *, hidden: bool) -> Iterator[Report]:
    from rich.console import Console  # noqa: PLC0415 - asking for help must not load what only a run needs
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - same

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("", total=steps)
        yield lambda what: bar.update(task, advance=1, description=what)


def _print(table: object) -> None:
    from rich.console import Console  # noqa: PLC0415 - asking for help must not load what only a run needs

    Console().print(table)
