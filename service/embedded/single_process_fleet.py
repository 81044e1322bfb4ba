"""A worker, a bot and a console that run within the process of ``coronet up --small``.

Together they need less than half the memory of separate processes.
"""

import asyncio
import contextlib
import io
from pathlib import Path
from typing import Final

from service.asyncio_tasks import cancel_and_wait
from service.embedded import ports
from service.embedded.child_process import open_log
from service.errors import OperationalError
from service.host_process import HostedProgram, find_programs, serve_programs
from service.observability import log_configuration, tracing
from service.process_memory import configure_memory
from service.settings import Settings

PROGRAMS: Final = ("worker", "bot", "console")
_START_TIMEOUT_S: Final = 30.0
_READINESS_INTERVAL_S: Final = 0.02


class SingleProcessFleet:
    """Runs a worker, a bot and a console as tasks of this process."""

    def __init__(self, log: Path) -> None:
        """Create the object without starting the programs. Their output will be written to the file ``log``."""
        self._log = log
        self._kinds: list[type[HostedProgram]] = []
        self._output = contextlib.ExitStack()
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Import the programs in a thread, because importing them takes about a second."""
        self._kinds = await asyncio.to_thread(find_programs, *PROGRAMS)

    async def start(self, settings: Settings) -> None:
        """Start the programs, and wait until they are ready or are only waiting for a decision by the operator.

        If the store has lost data or belongs to another fleet, the programs wait until the operator accepts the store's
        data. Raises :class:`OperationalError` if the programs fail, or if they are not ready in time.
        """
        output = self._output.enter_context(io.TextIOWrapper(open_log(self._log), "utf-8", line_buffering=True))
        self._output.enter_context(contextlib.redirect_stdout(output))
        self._output.enter_context(contextlib.redirect_stderr(output))
        log_configuration.configure(settings)
        tracing.configure()
        configure_memory()
        self._task = asyncio.create_task(serve_programs(settings, self._kinds))
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while not await ports.has_started(settings.console_port):
                    if self._task.done():
                        await self.wait()
                    await asyncio.sleep(_READINESS_INTERVAL_S)
        except TimeoutError:
            raise OperationalError(
                f"The {', '.join(PROGRAMS)} were not ready within {_START_TIMEOUT_S:g} s. Log: {self._log}"
            ) from None

    async def wait(self) -> None:
        """Wait until the programs end by themselves.

        Raises :class:`OperationalError` with the reason if one of them fails.
        """
        assert self._task is not None, "the programs have not started"  # noqa: S101 - a bug
        try:
            await self._task
        except OperationalError as error:
            raise OperationalError(f"{error}. Log: {self._log}") from error

    async def stop(self) -> None:
        """Stop the programs, and restore this process's standard output and standard error."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        self._output.close()
