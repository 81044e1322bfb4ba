"""The command ``coronet``: subcommands for all programs and operator tasks.

Modules are imported when a subcommand runs, so that help is fast and no program loads the libraries of another.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import platformdirs
import typer
from typer.core import TyperGroup

from service.errors import AddressRefused, CoronetError, UsageError

if TYPE_CHECKING:
    from service.settings import Settings

_Result = TypeVar("_Result")

STATE = Path(platformdirs.user_state_dir("coronet"))

RUN, OPERATE, EXPLORE = "Run", "Set up and operate", "Try and measure"
"""Section headings of ``coronet --help``: each command is listed under one of them."""


class CommandGroup(TyperGroup):
    """The group of all subcommands of ``coronet``. Its help lists them under section headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with one section for each heading; typer calls this."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        limit = formatter.width - 6 - max(len(name) for name, _ in commands)
        for heading in (RUN, OPERATE, EXPLORE):
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str(limit))
                        for name, command in commands
                        if getattr(command, "rich_help_panel", None) == heading
                    ]
                )


app = typer.Typer(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML file with settings. Default: the file in CORONET_CONFIG."),
]

AllowPrivate = Annotated[
    bool, typer.Option("--allow-private", help="Allow feeds at loopback addresses. Only for trials and tests.")
]
State = Annotated[
    Path | None, typer.Option(help="Use the store of the `coronet up` with this state directory, running or not.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def _print_version(is_requested: bool) -> None:  # noqa: FBT001 - typer's signature
    if is_requested:
        typer.echo(f"coronet {version('coronet')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def coronet(
    context: typer.Context,
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Coronet monitors feeds and web pages and sends changes to subscribers by chat."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(rich_help_panel=RUN)
def up(
    *,
    state: Annotated[Path, typer.Option(help="Directory with all data; use the same one to continue.")] = STATE,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="Number of workers. Default: 3.")] = None,
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
    small: Annotated[
        bool, typer.Option("--small", help="Run one worker, the bot and the console in one process, to save memory.")
    ] = False,
    ready_file: Annotated[
        Path | None, typer.Option(help="JSON file with addresses and passwords, written when all programs are ready.")
    ] = None,
    allow_private: AllowPrivate = False,
) -> None:
    """Run all programs on this machine. These are Redis, an XMPP server, workers, bots and the console."""
    from rich.console import Console  # noqa: PLC0415 - see module docstring

    from service.embedded.up_command import UpOptions, up  # noqa: PLC0415 - same

    if small and (workers or 1, bots) != (1, 1):
        raise UsageError("--small runs one worker and one bot; omit --workers and --bots")
    options = UpOptions(
        directory=state.absolute(),
        workers=workers or (1 if small else 3),
        bots=bots,
        console_port=console_port,
        xmpp_port=xmpp_port,
        sample_feeds=allow_private if sample_feeds is None else sample_feeds,
        allow_private=allow_private or bool(sample_feeds),
        poll_interval_s=poll_interval,
        small=small,
        ready_file=ready_file,
    )
    asyncio.run(up(options, Console(file=sys.stdout)))


@app.command(rich_help_panel=RUN)
def worker(*, config: Config = None) -> None:
    """Run one worker. It polls channels and queues changes for subscribers."""
    _run_programs("worker", config=config)


@app.command(rich_help_panel=RUN)
def bot(*, config: Config = None) -> None:
    """Run one chat bot."""
    _run_programs("bot", config=config)


@app.command(rich_help_panel=RUN)
def console(*, config: Config = None) -> None:
    """Run the admin console and its API."""
    _run_programs("console", config=config)


@app.command(rich_help_panel=RUN)
def serve(*, config: Config = None) -> None:
    """Run worker, bot and console in one process. This suits a service on a single machine."""
    _run_programs("worker", "bot", "console", config=config)


@app.command(rich_help_panel=EXPLORE)
def sample_publisher(
    directory: Annotated[Path, typer.Option(help="Directory of its journals.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free port.")] = 0,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds between two new entries.")] = 30.0,
) -> None:
    """Serve sample feeds on loopback. Feed 0 publishes new entries regularly; some feeds are broken."""
    from service.embedded.sample_publisher import run  # noqa: PLC0415 - see module docstring

    asyncio.run(run(directory, port, every))


@app.command(rich_help_panel=EXPLORE)
def inspect(
    url: str,
    selector: Annotated[
        str, typer.Argument(help="Selector of the part of a page to monitor (CSS, xpath=… or json=…).")
    ] = "",
    *,
    as_json: Json = False,
    allow_private: AllowPrivate = False,
    config: Config = None,
) -> None:
    """Fetch and parse one feed or page, and show the result."""
    import msgspec  # noqa: PLC0415 - see module docstring

    from service import settings  # noqa: PLC0415 - same
    from service.operations import feed_inspection  # noqa: PLC0415 - same

    effective = settings.load(settings.environment(config), **({"allow_private": True} if allow_private else {}))
    try:
        result = asyncio.run(feed_inspection.inspect(url, effective, selector))
    except AddressRefused as error:
        if allow_private:
            raise
        raise AddressRefused(
            "{why} Loopback addresses are allowed with --allow-private, your own networks by allowed_networks, "
            "further ports by extra_ports.",
            why=str(error),
        ) from error
    typer.echo(msgspec.json.encode(result) if as_json else feed_inspection.as_text(result))


@app.command(rich_help_panel=OPERATE)
def setup(
    *,
    config: Annotated[
        Path, typer.Option(metavar="FILE", help="Settings file to write.", envvar="CORONET_CONFIG")
    ] = Path("coronet.toml"),
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON file with the answers, instead of questions.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --answers: replace a settings file that exists.")
    ] = False,
) -> None:
    """Set up your own server. Asks five questions, checks the answers, and writes the settings file."""
    from rich.console import Console  # noqa: PLC0415 - see module docstring

    from service.operations.setup_wizard import run  # noqa: PLC0415 - same

    if not run(config.absolute(), Console(soft_wrap=True), answers, overwrite=overwrite):
        raise typer.Exit(1)


@app.command(rich_help_panel=OPERATE)
def doctor(
    *,
    state: Annotated[Path | None, typer.Option(help="Check the `coronet up` with this state directory.")] = None,
    config: Config = None,
    settings: Annotated[bool, typer.Option("--settings", help="Only show every setting and its source.")] = False,
    as_json: Json = False,
) -> None:
    """Check for problems and show advice. Checks Redis, workers, bots, console, XMPP login, clock and limits.

    If the environment variable CORONET_PROGRAM is worker, bot or console, check only what that program needs. The exit
    status is 0 if there are no problems, 1 if something does not work, and 3 if there are only warnings.
    """
    from rich.console import Console  # noqa: PLC0415 - see module docstring

    from service import settings as settings_module  # noqa: PLC0415 - same
    from service.operations.doctor import report  # noqa: PLC0415 - same
    from service.operations.doctor.all_checks import examine  # noqa: PLC0415 - same

    effective, origins = settings_module.load_with_origins(_environment(config, state))
    if settings:
        Console(soft_wrap=True).print(report.settings_table(effective, origins), markup=False)
        return
    results = asyncio.run(examine(effective))
    severity = report.worst_severity(results)
    typer.echo(report.as_json(results) if as_json else report.as_text(results))
    if severity == "error" and state is None and config is None:
        typer.echo("To check a running `coronet up`, pass its directory with --state.", err=True)
    raise typer.Exit(report.EXIT_CODES[severity])


@app.command(rich_help_panel=OPERATE)
def backup(
    file: Annotated[str, typer.Argument(help="File to write; - writes to standard output.")],
    *,
    state: State = None,
    config: Config = None,
) -> None:
    """Back up the store while Coronet runs.

    Store the file safely: it contains addresses of people.
    """
    from service.operations import backup as backups  # noqa: PLC0415 - see module docstring

    async def back_up(effective: "Settings") -> str:
        with backups.new_file(file) as target:
            return await backups.back_up(effective, target)

    typer.echo(_use_store(back_up, state, config, must_be_stopped=False), err=True)


@app.command(rich_help_panel=OPERATE)
def restore(
    file: Annotated[str, typer.Argument(help="Backup to read; - reads from standard input.")],
    *,
    state: State = None,
    config: Config = None,
    replace: Annotated[bool, typer.Option("--replace", help="Delete what the store contains.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before data is deleted.")] = False,
) -> None:
    """Restore a backup while all programs are stopped.

    The store must be empty, unless --replace is given.
    """
    from service.operations.restore import open_backup, restore_backup, seekable  # noqa: PLC0415 - see module docstring

    if file == "-" and replace and not yes:
        raise UsageError("--replace with - needs --yes, because standard input cannot answer the question")

    async def write(effective: "Settings") -> str:
        with open_backup(file) as source, seekable(source) as content:
            confirm = (lambda _: True) if yes else typer.confirm
            return await restore_backup(effective, content, replace=replace, confirm=confirm)

    typer.echo(_use_store(write, state, config, must_be_stopped=True))


@app.command(rich_help_panel=OPERATE)
def upgrade(
    *,
    check: Annotated[bool, typer.Option("--check", help="Only check; required, as there is nothing else yet.")] = False,
    state: State = None,
    config: Config = None,
) -> None:
    """Check whether this version can use the store.

    The output also explains how to upgrade to this version. The check changes nothing.
    """
    from service.operations import upgrade_check as upgrades  # noqa: PLC0415 - see module docstring

    if not check:
        raise UsageError("coronet upgrade needs --check: programs migrate the data themselves when they start")
    result = _use_store(upgrades.check, state, config, must_be_stopped=False)
    typer.echo("\n".join(result.lines))
    if not result.ok:
        raise typer.Exit(1)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    rich_help_panel=OPERATE,
)
def admin(
    context: typer.Context,
    *,
    state: Annotated[
        Path | None, typer.Option(help="Use the console of the `coronet up` with this state directory.")
    ] = None,
    config: Config = None,
) -> None:
    """Administer a running Coronet. Uses the console's API."""
    from service.console import admin_cli as remote  # noqa: PLC0415 - see module docstring

    if text := asyncio.run(remote.run(context.args, _environment(config, state))):
        typer.echo(text)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    rich_help_panel=EXPLORE,
)
def simulate(context: typer.Context) -> None:
    """Run experiments. These are simulations of the papers' algorithms and a deployment of real processes."""
    from service.embedded.deployment_experiment.cli import deploy  # noqa: PLC0415 - same
    from service.simulate import cli as experiments  # noqa: PLC0415 - see module docstring

    experiments.app.command()(deploy)
    raise typer.Exit(experiments.run(context.args))


def _use_store(
    use: Callable[["Settings"], Coroutine[None, None, _Result]],
    state: Path | None,
    config: Path | None,
    *,
    must_be_stopped: bool,
) -> _Result:
    """Call ``use`` with the settings of a Coronet installation, and return the result.

    - ``use``: a function that gets the settings, and works on the store that they refer to.
    - ``state``: the state directory of a ``coronet up``. If it is given, the settings are those of that command. If
      the command is not running, its private Redis is started for the duration of the call.
    - ``config``: the settings file. It must be None if ``state`` is given. Otherwise, None means the file named by
      ``CORONET_CONFIG``, if any.
    - ``must_be_stopped``: whether to raise :class:`service.errors.UserError` if the ``coronet up`` is running.
    """
    from service import settings  # noqa: PLC0415 - see module docstring
    from service.embedded.private_redis import PrivateRedis  # noqa: PLC0415 - same
    from service.embedded.state_directory import is_locked, lock_directory  # noqa: PLC0415 - same

    effective = settings.load(_environment(config, state))
    if state is None or (is_locked(state) and not must_be_stopped):
        return asyncio.run(use(effective))
    directory = state.absolute()

    async def use_private_redis() -> _Result:
        async with PrivateRedis(directory / "redis"):
            return await use(effective)

    with lock_directory(directory):
        return asyncio.run(use_private_redis())


def _environment(config: Path | None, state: Path | None) -> Mapping[str, str]:
    """Return the environment variables from which the settings are read.

    With ``state``, these are the variables of the ``coronet up`` that has this state directory. Without it, they are
    the variables of this process, with ``config`` as the settings file.
    """
    from service.embedded.state_directory import load_environment  # noqa: PLC0415 - see module docstring
    from service.settings import environment  # noqa: PLC0415 - same

    if state is None:
        return environment(config)
    if config is not None:
        raise UsageError("Use either --state, which names a `coronet up` with its settings, or --config")
    return load_environment(state)


def _run_programs(*names: str, config: Path | None) -> None:
    """Run the programs called ``names`` together in this process until SIGTERM or SIGINT.

    ``config`` is the settings file; None means the file named by ``CORONET_CONFIG``, if any.
    """
    from service.process_memory import configure_memory  # noqa: PLC0415 - see module docstring

    configure_memory()
    import uvloop  # noqa: PLC0415 - same

    from service import settings  # noqa: PLC0415 - same
    from service.asyncio_tasks import run_until_stopped  # noqa: PLC0415 - same
    from service.host_process import find_programs, serve_programs  # noqa: PLC0415 - same
    from service.observability import log_configuration, tracing  # noqa: PLC0415 - same

    effective = settings.load(settings.environment(config))
    log_configuration.configure(effective)
    tracing.configure()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_until_stopped(serve_programs(effective, find_programs(*names))))


def main() -> None:
    """Run the command line.

    The exit status is 1 if the command failed, 2 for a usage error, and 130 after Ctrl-C.
    """
    try:
        sys.exit(app(prog_name="coronet", standalone_mode=False))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)  # of the command with the usage error
        path = context.command_path if context else "coronet"
        _fail(f"{error.format_message().rstrip('.')}. See {path} --help.", 2)
    except typer.Abort:  # the end of input at a prompt
        _fail("Cancelled.", 1)
    except UsageError as error:
        _fail(f"{error}.", 2)
    except CoronetError as error:
        _fail(str(error), 1)


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"coronet: {message}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
