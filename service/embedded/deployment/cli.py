"""``coronet simulate deploy``."""

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from service.embedded.deployment import run
from service.embedded.deployment.updates import Deployment
from service.simulate.cli import Json, Seed, progress, told


def deploy(
    *,
    seed: Seed = 1,
    as_json: Json = False,
    kill: Annotated[bool, typer.Option(help="Kill one worker process half-way.")] = False,
    channels: Annotated[int, typer.Option(min=10)] = 7_500,
    nodes: Annotated[int, typer.Option(min=2)] = 60,
    workers: Annotated[int, typer.Option(min=1, help="Processes that the nodes live in.")] = 4,
    settle: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Before measuring.")] = 120.0,
    measure: Annotated[float, typer.Option(min=1, metavar="SECONDS")] = 150.0,
) -> None:
    """The paper's deployment on this machine. Real processes, a real publisher, real Redis; time is compressed."""
    setup = run.Setup(channels, nodes, workers, settle, measure, kill, seed)
    with progress(run.STEPS, hidden=as_json) as done:
        deployment = asyncio.run(run.deploy(setup, done))
    told(deployment, lambda: _table(deployment), as_json=as_json)


def _table(deployment: Deployment) -> Table:
    shown = Table(title="Corona's deployment; seconds and minutes are the paper's", box=SIMPLE_HEAD, show_header=False)
    for name, value in msgspec.to_builtins(deployment).items():
        shown.add_row(name.replace("_", " "), f"{value:,.1f}" if isinstance(value, float) else f"{value:,}")
    return shown
