"""Child processes: starting and stopping them, checking that they are ready, and a base class for embedded servers.

Every child runs in its own session and logs to a file. The kernel kills a child when its parent dies for any reason
(``PR_SET_PDEATHSIG``, prctl(2)). If ``coronet up`` is killed with SIGKILL, its children therefore do not keep using
files that the next start needs.
"""

import abc
import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

from service.errors import OperationalError
from service.parent_death import die_with

_MAX_LOG_BYTES = 20_000_000
_TAIL_LINES = 8
_READINESS_INTERVAL_S = 0.02
START_TIMEOUT_S = 30.0
GRACE_S = 5.0
LAST_GRACE_S = 3.0


@dataclass(frozen=True)
class Program:
    """A program to run.

    - ``name``: the name of the program.
    - ``argv``: the command line.
    - ``log``: the file for the program's output.
    - ``is_ready``: function that returns whether the program is ready.
    - ``environ``: the complete environment; None means the environment of this process.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    is_ready: Callable[[], Awaitable[bool]]
    """Returns whether the program serves requests; must not raise, and must return within a few seconds."""
    environ: Mapping[str, str] | None = None
    """The child's complete environment; None means the environment of this process."""


class Child:
    """A running :class:`Program`."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process) -> None:
        self.program = program
        self._process = process

    @classmethod
    async def start(cls, program: Program) -> Self:
        """Start the program without waiting until it is ready. Raises :class:`OperationalError` if it cannot be run."""
        parent = os.getpid()

        try:
            with open_log(program.log) as log:
                process = await asyncio.create_subprocess_exec(
                    *program.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=program.environ,
                    start_new_session=True,
                    preexec_fn=partial(die_with, parent),
                )
        except OSError as error:
            raise OperationalError(f"{program.name} cannot be started: {error}") from error
        return cls(program, process)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        return self._process.pid

    async def wait_for_exit(self) -> int:
        """Wait for the process to exit, kill the rest of its process group, and return its exit status."""
        status = await self._process.wait()
        self._signal_group(signal.SIGKILL)
        return status

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the program is ready, at most ``timeout_s`` seconds.

        Raises :class:`OperationalError` with the end of the program's log if the program exits or is not ready in time.
        """
        exited = asyncio.ensure_future(self.wait_for_exit())
        try:
            async with asyncio.timeout(timeout_s):
                while not await self.program.is_ready():
                    await asyncio.wait([exited], timeout=_READINESS_INTERVAL_S)
                    if exited.done():
                        raise OperationalError(self._failure_text(describe_exit(exited.result())))
        except TimeoutError:
            raise OperationalError(self._failure_text(f"was not ready within {timeout_s:g} s")) from None
        finally:
            exited.cancel()

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Send SIGTERM, wait up to ``grace_s`` seconds for the process to exit, then kill the process group."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self.wait_for_exit(), grace_s)
        except TimeoutError:
            self._signal_group(signal.SIGKILL)
            await self.wait_for_exit()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _failure_text(self, failure: str) -> str:
        tail = self.program.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n  ".join([f"{self.program.name} {failure}. The end of {self.program.log}:", *tail])


def describe_exit(status: int) -> str:
    """Return a phrase such as "was killed by signal 9" for the exit status of a process.

    A negative status -N means that the process was killed by signal N.
    """
    return f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"


def child_environment(inherited: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the environment ``inherited`` with the variables in ``overrides`` replaced or added.

    A secret can be given as the variable ``NAME``, or as ``NAME_FILE``, the name of a file that contains the value. If
    ``overrides`` contains one of the two, the other is removed from the inherited variables.
    """
    names = {name.removesuffix("_FILE") for name in overrides}
    return {name: value for name, value in inherited.items() if name.removesuffix("_FILE") not in names} | dict(
        overrides
    )


def open_log(path: Path) -> BinaryIO:
    """Open a log file for appending, after rotating it if it exceeds 20 MB. A new file gets mode 0600."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        path.replace(path.with_suffix(".1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


class EmbeddedServer(abc.ABC):
    """A server that runs as a child process and keeps all its files in one directory.

    The object is an async context manager that starts the server on entry and stops it on exit. A server that dies is
    not restarted.
    """

    start_timeout_s = START_TIMEOUT_S

    def __init__(self, directory: Path) -> None:
        """Create the object without starting the server. The server will keep all its files in ``directory``."""
        self.directory = directory
        self._child: Child | None = None

    @abc.abstractmethod
    async def program(self) -> Program:
        """Create the server's files, and return the command that starts the server.

        Raises :class:`OperationalError` if the server cannot run on this machine.
        """

    @property
    def pid(self) -> int:
        """The process id. Raises :class:`OperationalError` if the program is not running."""
        if self._child is None:
            raise OperationalError(f"The {type(self).__name__} of {self.directory} is not running.")
        return self._child.pid

    async def start(self) -> None:
        """Start the program and wait until it is ready.

        Raises :class:`OperationalError` with the end of the program's log if the program exits or is not ready in time.
        """
        self._child = await Child.start(await self.program())
        try:
            await self._child.wait_until_ready(self.start_timeout_s)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the program if it is running. Its directory is kept."""
        if self._child is not None:
            await self._child.stop()
            self._child = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
