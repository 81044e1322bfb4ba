"""A process that runs one or more of the programs worker, bot and console in one event loop.

The programs share one store, one health server and one set of metrics. If a program ends unexpectedly, the process
stops the others and fails. A service manager then restarts the whole process, so that no program stays missing.
"""

import abc
import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import ClassVar

import structlog
from aiohttp import web

from service.asyncio_tasks import cancel_and_wait
from service.errors import CoronetError, OperationalError
from service.net.health_endpoints import ReadinessCheck, serve_health
from service.settings import Settings
from service.store import Store, open_store
from service.systemd_notifications import SystemdNotifier
from service.tick_timer import TickTimer, create_tick_timer

log = structlog.get_logger(__name__)


class NotReady(OperationalError, code="not-ready"):
    """Raised if a program of this process has not begun its work yet."""


@dataclass(frozen=True)
class HostProcess:
    """The objects that all programs in a process share: the readiness check, the metrics URL and the timer."""

    check_ready: ReadinessCheck
    """A function that raises a :class:`CoronetError` with the reason if any program of the process is not ready."""
    metrics_url: str
    """URL of the process's metrics for other processes; "" if the process has no health server."""
    timer: TickTimer
    """The timer that wakes all periodic tasks of the process at the same moments."""


class HostedProgram(abc.ABC):
    """A worker, a bot or the console, run as part of a process. Its work is done by :meth:`run`."""

    name: ClassVar[str]
    needs_health_server: ClassVar[bool] = True
    """Whether the process must serve health checks on ``metrics_port``. The console serves them on its own server."""

    def __init__(self, settings: Settings, store: Store) -> None:
        """Create the program. The caller must close ``store`` after the program has ended."""
        self._settings = settings
        self._store = store

    @abc.abstractmethod
    async def run(self, process: HostProcess) -> None:
        """Do the program's work until cancelled, even while Redis or the XMPP server is unavailable."""

    @abc.abstractmethod
    def check_ready(self) -> None:
        """Raise a :class:`CoronetError` that states the reason if the program cannot do its work.

        The caller must have checked that Redis responds.
        """

    def routes(self) -> Iterable[web.RouteDef]:
        """Return this program's routes on the process's health server, for requests from other processes."""
        return ()


def find_programs(*names: str) -> list[type[HostedProgram]]:
    """Return the classes of the programs called ``names``. A name is "worker", "bot" or "console".

    Raises :class:`OperationalError` if a program is not installed.
    """
    # The classes are found through entry points of the installed package, because this package must not import workers
    # and bots.
    found = {each.name: each for each in entry_points(group="coronet.hosted_programs")}
    if missing := ", ".join(name for name in names if name not in found):
        raise OperationalError(f"This installation has no program {missing}: reinstall Coronet.")
    return [found[name].load() for name in names]


async def serve_programs(settings: Settings, kinds: Sequence[type[HostedProgram]]) -> None:
    """Run one program of each class in ``kinds`` until cancelled. Notify systemd when all of them are ready.

    Raises :class:`OperationalError` if a program ends by itself, or if the health server cannot listen.
    """
    store = open_store(settings)
    try:
        programs = [kind(settings, store) for kind in kinds]

        async def check_ready() -> None:
            await store.ping()
            for program in programs:
                program.check_ready()

        async with contextlib.AsyncExitStack() as stack:
            metrics_url = ""
            if any(program.needs_health_server for program in programs):
                routes = [route for program in programs for route in program.routes()]
                serving = serve_health(
                    settings.metrics_bind, settings.metrics_port, check_ready, routes, settings=settings
                )
                health = await stack.enter_async_context(serving)
                metrics_url = f"{health.url}/metrics"
            await stack.enter_async_context(SystemdNotifier().notifying(check_ready))
            process = HostProcess(check_ready, metrics_url, create_tick_timer(settings))
            await _run_until_one_ends(programs, process, store)
    finally:
        await store.close()


async def _run_until_one_ends(programs: Sequence[HostedProgram], process: HostProcess, store: Store) -> None:
    """Run the programs until cancelled or until one of them ends; then stop all of them at the same time.

    Raises :class:`OperationalError` if a program ends.
    """
    tasks = [asyncio.create_task(_run_program(program, process), name=program.name) for program in programs]
    tasks.append(asyncio.create_task(store.identity.run(process.timer), name="store identity monitor"))
    tasks.append(asyncio.create_task(process.timer.run(), name="timer"))
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        _raise_failure(next(iter(ended)))
    finally:
        await asyncio.gather(*(cancel_and_wait(task) for task in tasks))


async def _run_program(program: HostedProgram, process: HostProcess) -> None:
    structlog.contextvars.bind_contextvars(program=program.name)
    await program.run(process)


def _raise_failure(task: "asyncio.Task[None]") -> None:
    """Log why the task of a program has ended, and raise :class:`OperationalError`."""
    name = task.get_name()
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    is_bug = error is not None and not isinstance(error, (CoronetError, OSError))
    log.error("program ended unexpectedly", program=name, error=repr(error), exc_info=error if is_bug else None)
    reason = "nobody stopped it" if error is None else str(error) or type(error).__name__
    raise OperationalError(f"The {name} ended unexpectedly: {reason}") from error
