"""Child processes, and a supervisor that restarts them.

Every child runs in its own session and logs to a file. The kernel kills it when its parent dies for any reason
(``PR_SET_PDEATHSIG``, prctl(2)). After a kill -9 of ``coronet up``, no child therefore keeps files in use that the next
start needs. The supervisor restarts a child that exits, the first time immediately, then with increasing delays.
"""

import abc
import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from service.errors import OperationalError

_PR_SET_PDEATHSIG = 1
_MAX_LOG_BYTES = 20_000_000
_TAIL_LINES = 8
_READINESS_INTERVAL_S = 0.02
_START_TIMEOUT_S = 30.0
_STABLE_AFTER_S = 20.0
"""A child that ran for this long resets the count of its consecutive exits."""
_GRACE_S = 5.0
_LAST_GRACE_S = 3.0

_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Program:
    """A program to run: its command line, the file for its output, and a check whether it is ready."""

    name: str
    argv: tuple[str, ...]
    log: Path
    is_ready: Callable[[], Awaitable[bool]]
    """Returns whether the program serves requests; must not raise, or block for more than seconds."""
    environ: Mapping[str, str] | None = None
    """The child's complete environment; None means that of this process."""


class Child:
    """A running :class:`Program`."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process) -> None:
        self.program = program
        self._process = process

    @classmethod
    async def start(cls, program: Program) -> Self:
        """Start the program without waiting until it is ready. Raises :class:`OperationalError` if it cannot be run."""
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent died between fork and prctl
                os._exit(1)

        try:
            with open_log(program.log) as log:
                process = await asyncio.create_subprocess_exec(
                    *program.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=program.environ,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
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
        """Wait until the program is ready.

        Raises :class:`OperationalError` with the end of its log if it exits or is not ready in time.
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

    async def stop(self, grace_s: float = _GRACE_S) -> None:
        """Send SIGTERM to the process; after its exit or ``grace_s`` seconds, kill its process group (SIGKILL)."""
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


class EmbeddedServer(abc.ABC):
    """A server process that runs, without a supervisor, while an async context manager is open.

    All files of the server are in one directory.
    """

    start_timeout_s = _START_TIMEOUT_S

    def __init__(self, directory: Path) -> None:
        """Create the object; the server keeps all its files in ``directory``. Nothing is started yet."""
        self.directory = directory
        self._child: Child | None = None

    @abc.abstractmethod
    async def program(self) -> Program:
        """Create the server's files, and return the program that runs it with them.

        Raises :class:`OperationalError` if it cannot run.
        """

    @property
    def pid(self) -> int:
        """The process id. Raises :class:`OperationalError` if the program is not running."""
        if self._child is None:
            raise OperationalError(f"The {type(self).__name__} of {self.directory} is not running.")
        return self._child.pid

    async def start(self) -> None:
        """Start the program and wait until it is ready.

        Raises :class:`OperationalError` with the end of its log if it exits or is not ready in time.
        """
        self._child = await Child.start(await self.program())
        try:
            await self._child.wait_until_ready(self.start_timeout_s)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the program if it is running, and keep its directory."""
        if self._child is not None:
            await self._child.stop()
            self._child = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def describe_exit(status: int) -> str:
    """Return a phrase such as "was killed by signal 9" for the exit status of a process.

    A negative status means that the signal with this number (without the sign) killed the process.
    """
    return f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"


def child_environment(inherited: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return ``inherited`` with the variables in ``overrides`` replaced or added.

    ``NAME_FILE`` names a file with the value of ``NAME``. An override of one of the two variables therefore removes the
    other.
    """
    names = {name.removesuffix("_FILE") for name in overrides}
    return {name: value for name, value in inherited.items() if name.removesuffix("_FILE") not in names} | dict(
        overrides
    )


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending with mode 0600; rotate it first if it exceeds 20 MB."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        path.replace(path.with_suffix(".1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def restart_delay_s(exits: int) -> float:
    """Return the delay before a restart after ``exits`` consecutive exits: 0, 0.5, 1, 2, 4, 8, 8, … seconds."""
    return 0.0 if exits <= 1 else min(8.0, 0.5 * 2.0 ** min(exits - 2, 8))


class Supervisor:
    """Keeps programs running.

    ``report`` is called with a line of text after each exit and each restart.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._children: dict[str, Child] = {}
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> Mapping[str, int]:
        """The process id of each program by name; for a program that is not running, the id of its last process."""
        return {name: child.pid for name, child in self._children.items()}

    async def add(self, program: Program) -> None:
        """Start a program, wait until it is ready, and restart it whenever it exits.

        Raises :class:`OperationalError` with the end of its log if this first start fails.
        """
        child = await self._start(program)
        await child.wait_until_ready(_START_TIMEOUT_S)
        self._watchers.append(asyncio.create_task(self._restart_on_exit(child), name=f"supervise {program.name}"))

    async def stop(self, last: Collection[str]) -> None:
        """Stop all programs within 8 s.

        The programs named in ``last``, on which the others depend, are stopped after all others.
        """
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for is_last, grace_s in ((False, _GRACE_S), (True, _LAST_GRACE_S)):
            children = (child for name, child in self._children.items() if (name in last) == is_last)
            await asyncio.gather(*(child.stop(grace_s) for child in children))

    async def _start(self, program: Program) -> Child:
        child = self._children[program.name] = await Child.start(program)
        return child

    async def _restart_on_exit(self, child: Child) -> None:
        now_s = asyncio.get_running_loop().time
        program, exits = child.program, 0
        while True:
            start_s = now_s()
            status = await child.wait_for_exit()
            exits = 1 if now_s() - start_s > _STABLE_AFTER_S else exits + 1
            self._report(f"{program.name} {describe_exit(status)}; restarting. Log: {program.log}")
            await asyncio.sleep(restart_delay_s(exits))
            try:
                child = await self._start(program)
                await child.wait_until_ready(_START_TIMEOUT_S)
                self._report(f"{program.name} is back.")
            except OperationalError as error:
                self._report(str(error))
                await child.stop()
