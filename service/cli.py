"""``coronet``: every program of Coronet, behind one command.

What a command needs is imported when it runs, so that asking for help is quick and no program
loads another's libraries. The worker and the bot are found by their entry points, since nothing
here may import them.
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
    bool, typer.Option("--allow-private", help="Let feeds be on this machine's loopback. For trials and tests only.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.callback(invoke_without_command=True)
def coronet(context: typer.Context) -> None:
    """Coronet watches feeds and web pages for people and tells them in chat, within seconds, what changed."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    *,
    state: Annotated[Path, typer.Option(help="Where everything is kept; the same directory continues it.")] = STATE,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers.")] = 3,
    bots: Annotated[int, typer.Option(min=1, max=16, help="How many bots, each with an address of its own.")] = 1,
    console_port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one, always the same.")] = 0,
    xmpp_port: Annotated[int, typer.Option(min=0, max=65535, help="For chat clients; 0 as above.")] = 0,
    sample_feeds: Annotated[
        bool | None, typer.Option(help="A publisher to try it with; opens loopback. On with --allow-private.")
    ] = None,
    poll_interval: Annotated[
        float | None,
        typer.Option(min=1.0, metavar="SECONDS", help="How often one worker polls one channel: Corona's τ."),
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Written when all parts answer; holds passwords.")] = None,
    allow_private: AllowPrivate = False,
) -> None:
    """Run everything on this machine. That is Redis, an XMPP server, workers, the bot and the console."""
    from rich.console import Console  # noqa: PLC0415 - see the module's docstring

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
    """Run one worker. It joins the others, polls feeds and tells subscribers' outboxes what is new."""
    import uvloop  # noqa: PLC0415 - see the module's docstring

    _run_program("worker", uvloop.new_event_loop)


@app.command()
def bot() -> None:
    """Run the chat bot."""
    _run_program("bot")


@app.command()
def console() -> None:
    """Run the admin console and its API."""
    _run_program("console")


@app.command()
def sample_publisher(
    directory: Annotated[Path, typer.Option(help="Where its journals are kept.")],
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often there is a new entry.")] = 30.0,
) -> None:
    """Serve a growing feed on loopback. Some others are broken."""
    from service.embedded.sample_publisher import run  # noqa: PLC0415 - see the module's docstring

    asyncio.run(run(directory, port, every))


@app.command()
def inspect(
    url: str,
    selector: Annotated[str, typer.Argument(help="Of a page, only what this CSS selector matches.")] = "",
    *,
    as_json: Json = False,
    allow_private: AllowPrivate = False,
) -> None:
    """Fetch one feed or page and show it as Coronet sees it."""
    import msgspec  # noqa: PLC0415 - see the module's docstring

    from service import settings  # noqa: PLC0415 - same
    from service.operations import inspection  # noqa: PLC0415 - same

    effective = settings.load(None, **({"allow_private": True} if allow_private else {}))
    try:
        found = asyncio.run(inspection.inspect(url, effective, selector))
    except AddressRefused as error:
        if allow_private:
            raise
        raise AddressRefused("{why} With --allow-private, from this machine's loopback too.", why=str(error)) from error
    typer.echo(msgspec.json.encode(found) if as_json else inspection.as_text(found))


@app.command()
def doctor(
    *,
    state: Annotated[Path | None, typer.Option(help="Examine the `coronet up` of this directory.")] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Only show every setting and where it came from.")
    ] = False,
) -> None:
    """Find what is wrong, and say what to do. Looks at Redis, workers, bots, console, XMPP login, clock, files.

    With CORONET_PROGRAM (worker, bot or console) only at what that program needs.
    """
    from rich.console import Console  # noqa: PLC0415 - see the module's docstring

    from service import settings as layers  # noqa: PLC0415 - same
    from service.embedded.state_directory import load_environment  # noqa: PLC0415 - same
    from service.operations import doctor as report  # noqa: PLC0415 - same

    environ = None if state is None else load_environment(state)
    effective = layers.load(environ)
    if settings:
        Console(soft_wrap=True).print(report.settings_table(effective, layers.origins(environ)), markup=False)
        return
    findings = asyncio.run(report.examine(effective))
    typer.echo(report.as_text(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def admin(
    context: typer.Context,
    *,
    state: Annotated[Path | None, typer.Option(help="Ask the console of this directory's `coronet up`.")] = None,
) -> None:
    """Look into a running Coronet, and step in. It asks the console's API."""
    from service.console import admin_cli as remote  # noqa: PLC0415 - see the module's docstring
    from service.embedded.state_directory import load_environment  # noqa: PLC0415 - same

    environ = None if state is None else load_environment(state)
    if text := asyncio.run(remote.run(context.args, environ)):
        typer.echo(text)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def simulate(context: typer.Context) -> None:
    """Experiments in simulated time, ours and others."""
    from service.embedded.deployment.cli import deploy  # noqa: PLC0415 - same
    from service.simulate import cli as experiments  # noqa: PLC0415 - see the module's docstring

    experiments.app.command()(deploy)
    experiments.run(context.args)


def _run_program(name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
    """Run a program until SIGTERM. Programs are ``async def run(settings: Settings) -> None``."""
    from service import settings  # noqa: PLC0415 - see the module's docstring
    from service.observability import logs, tracing  # noqa: PLC0415 - see the module's docstring

    found = entry_points(group="coronet.programs", name=name)
    if not found:
        raise OperationalError(f"This installation has no program {name!r}: install Coronet again.")
    effective = settings.load()
    logs.configure(effective)
    tracing.configure()
    run: Run = next(iter(found)).load()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(effective))


def main() -> None:
    """Run the command that the arguments name; exit status 1: it failed; 2: it was called wrongly."""
    try:
        sys.exit(app(prog_name="coronet", standalone_mode=False))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)  # of the command that was called wrongly
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
