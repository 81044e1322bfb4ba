"""The command ``coronet``: subcommands for all programs and operator tasks.

Modules are imported when a subcommand runs, so that help is fast and no program loads the libraries of another. The
worker, the bot and the console are found by entry points, because ``service`` must not import ``workers`` and ``bots``.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import platformdirs
import typer

from service.errors import AddressRefused, CoronetError, OperationalError, UsageError

Run = Callable[..., Coroutine[None, None, None]]

STATE = Path(platformdirs.user_state_dir("coronet"))

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

AllowPrivate = Annotated[
    bool, typer.Option("--allow-private", help="Allow feeds at loopback addresses. Only for trials and tests.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.callback(invoke_without_command=True)
def coronet(context: typer.Context) -> None:
    """Coronet monitors feeds and web pages and sends changes to subscribers by chat."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    *,
    state: Annotated[Path, typer.Option(help="Directory with all data; use the same one to continue.")] = STATE,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of workers.")] = 3,
    bots: Annotated[int, typer.Option(min=1, max=16, help="Number of bots, each with its own address.")] = 1,
    console_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the console. 0: a free port, the same at every start.")
    ] = 0,
    xmpp_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for chat clients. 0: a free port, the same at every start.")
    ] = 0,
    sample_feeds: Annotated[
        bool | None, typer.Option(help="Run a sample publisher; implies --allow-private. Default with --allow-private.")
    ] = None,
    poll_interval: Annotated[
        float | None,
        typer.Option(
            min=1.0, metavar="SECONDS", help="Seconds between two polls of a channel by one worker (Corona's τ)."
        ),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="JSON file with addresses and passwords, written when all programs are ready.")
    ] = None,
    allow_private: AllowPrivate = False,
) -> None:
    """Run all programs on this machine. These are Redis, an XMPP server, workers, bots and the console."""
    from rich.console import Console  # noqa: PLC0415 - see module docstring

    from service.embedded.up import UpOptions, up  # noqa: PLC0415 - same

    options = UpOptions(
        directory=state.absolute(),
        workers=workers,
        bots=bots,
        console_port=console_port,
        xmpp_port=xmpp_port,
        sample_feeds=allow_private if sample_feeds is None else sample_feeds,
        allow_private=allow_private or bool(sample_feeds),
        poll_interval_s=poll_interval,
        ready_file=ready_file,
    )
    asyncio.run(up(options, Console()))


@app.command()
def worker() -> None:
    """Run one worker. It polls channels and queues changes for subscribers."""
    import uvloop  # noqa: PLC0415 - see module docstring

    _run_program("worker", uvloop.new_event_loop)


@app.command()
def bot() -> None:
    """Run one chat bot."""
    _run_program("bot")


@app.command()
def console() -> None:
    """Run the admin console and its API."""
    _run_program("console")


@app.command()
def sample_publisher(
    directory: Annotated[Path, typer.Option(help="Directory of its journals.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free port.")] = 0,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds between two new entries.")] = 30.0,
) -> None:
    """Serve sample feeds on loopback. Feed 0 gets regular new entries; some feeds are broken."""
    from service.embedded.sample_publisher import run  # noqa: PLC0415 - see module docstring

    asyncio.run(run(directory, port, every))


@app.command()
def inspect(
    url: str,
    selector: Annotated[str, typer.Argument(help="CSS selector of the part of a page to monitor.")] = "",
    *,
    as_json: Json = False,
    allow_private: AllowPrivate = False,
) -> None:
    """Fetch and parse one feed or page, and show the result."""
    import msgspec  # noqa: PLC0415 - see module docstring

    from service import settings  # noqa: PLC0415 - same
    from service.operations import inspection  # noqa: PLC0415 - same

    effective = settings.load(None, **({"allow_private": True} if allow_private else {}))
    try:
        result = asyncio.run(inspection.inspect(url, effective, selector))
    except AddressRefused as error:
        if allow_private:
            raise
        raise AddressRefused("{why} Loopback addresses are allowed with --allow-private.", why=str(error)) from error
    typer.echo(msgspec.json.encode(result) if as_json else inspection.as_text(result))


@app.command()
def doctor(
    *,
    state: Annotated[Path | None, typer.Option(help="Check the `coronet up` with this state directory.")] = None,
    settings: Annotated[bool, typer.Option("--settings", help="Only show every setting and its source.")] = False,
) -> None:
    """Check for problems and show advice. Checks Redis, workers, bots, console, XMPP login, clock and limits.

    With CORONET_PROGRAM (worker, bot or console), check only what that program needs.
    """
    from rich.console import Console  # noqa: PLC0415 - see module docstring

    from service import settings as settings_module  # noqa: PLC0415 - same
    from service.embedded.state_directory import load_environment  # noqa: PLC0415 - same
    from service.operations import doctor as checks  # noqa: PLC0415 - same

    environ = None if state is None else load_environment(state)
    effective = settings_module.load(environ)
    if settings:
        Console(soft_wrap=True).print(checks.settings_table(effective, settings_module.origins(environ)), markup=False)
        return
    results = asyncio.run(checks.examine(effective))
    typer.echo(checks.as_text(results))
    if not all(result.ok for result in results):
        raise typer.Exit(1)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def admin(
    context: typer.Context,
    *,
    state: Annotated[
        Path | None, typer.Option(help="Use the console of the `coronet up` with this state directory.")
    ] = None,
) -> None:
    """Administer a running Coronet. Uses the console's API."""
    from service.console import admin_cli as remote  # noqa: PLC0415 - see module docstring
    from service.embedded.state_directory import load_environment  # noqa: PLC0415 - same

    environ = None if state is None else load_environment(state)
    if text := asyncio.run(remote.run(context.args, environ)):
        typer.echo(text)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def simulate(context: typer.Context) -> None:
    """Run experiments. These are simulations of the papers' algorithms and a deployment of real processes."""
    from service.embedded.deployment.cli import deploy  # noqa: PLC0415 - same
    from service.simulate import cli as experiments  # noqa: PLC0415 - see module docstring

    experiments.app.command()(deploy)
    experiments.run(context.args)


def _run_program(name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
    """Run a program until SIGTERM. ``name`` is the entry point of its ``async def run(settings: Settings) -> None``."""
    from service import settings  # noqa: PLC0415 - see module docstring
    from service.observability import logs, tracing  # noqa: PLC0415 - see module docstring

    matches = entry_points(group="coronet.programs", name=name)
    if not matches:
        raise OperationalError(f"This installation has no program {name!r}: reinstall Coronet.")
    effective = settings.load()
    logs.configure(effective)
    tracing.configure()
    run: Run = next(iter(matches)).load()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(effective))


def main() -> None:
    """Run the command line.

    The exit status is 1 if the command failed, and 2 for a usage error.
    """
    try:
        sys.exit(app(prog_name="coronet", standalone_mode=False))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)  # of the command with the usage error
        path = context.command_path if context else "coronet"
        _fail(f"{error.format_message().rstrip('.')}. See {path} --help.", 2)
    except UsageError as error:
        _fail(f"{error}.", 2)
    except CoronetError as error:
        _fail(str(error), 1)


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"coronet: {message}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
