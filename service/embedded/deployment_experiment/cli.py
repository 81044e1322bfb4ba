"""The command ``coronet simulate deploy``."""

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from service.embedded.deployment_experiment import experiment
from service.embedded.deployment_experiment.publication_plan import DeploymentResult
from service.simulate.cli import Json, Seed, print_outcome, progress
from service.simulate.report import terminal_table


def deploy(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    kill: Annotated[bool, typer.Option(help="Kill one worker process after half of the measurement.")] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Keep the limits of public channels, as shipped. Needs Linux namespaces.")
    ] = False,
    channels: Annotated[int, typer.Option(min=10, help="Number of channels.")] = 7_500,
    nodes: Annotated[int, typer.Option(min=2, help="Number of overlay nodes.")] = 60,
    workers: Annotated[int, typer.Option(min=1, help="Number of worker processes.")] = 4,
    settle: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Duration before the measurement.")] = 120.0,
    measure: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Duration of the measurement.")] = 150.0,
) -> None:
    """Repeat the deployment experiment of the Corona paper (§5.2) on this machine, 30 times as fast.

    The worker processes, the publisher and Redis are real.
    """
    setup = experiment.DeploymentSetup(channels, nodes, workers, settle, measure, kill, public, seed)
    with progress(experiment.STEPS, hidden=as_json) as done:
        deployment = asyncio.run(experiment.deploy(setup, done))
    print_outcome(deployment, lambda: _table(deployment), as_json=as_json)


def _table(deployment: DeploymentResult) -> Table:
    rows = [
        (name.replace("_", " "), f"{value:,.1f}" if isinstance(value, float) else str(value))
        for name, value in msgspec.structs.asdict(deployment).items()
    ]
    return terminal_table(("", ""), rows, title="Corona's deployment; in seconds and minutes of the paper")
