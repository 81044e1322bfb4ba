"""Child processes: started, awaited, ended, and kept running by a supervisor.

A child has a session of its own and logs to a file. The kernel kills it when its parent dies by whatever cause
(``PR_SET_PDEATHSIG``, prctl(2)), so that a kill -9 of ``coronet up`` leaves no Redis behind that would hold the next
one's files. The supervisor starts again what dies, at once at first, then with growing pauses.
"""

import abc
import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from service.errors import OperationalError

_PR_SET_PDEATHSIG = 1
_LOG_CAP_BYTES = 20_000_000
_TAIL_LINES = 8
_ASK_EVERY_S = 0.02
_START_TIMEOUT_S = 30.0
_STEADY_S = 20.0
"""A program that ran this long is healthy: its next death is a first one."""
_GRACE_S = 5.0
_LAST_GRACE_S = 3.0

_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Program:
    """What to run, where its output goes, and how to tell that it is ready."""

    name: str
    argv: tuple[str, ...]
    log: Path
    answers: Callable[[], Awaitable[bool]]
    """Whether it serves already; must neither raise nor block for long."""
    environ: Mapping[str, str] | None = None
    """The child's whole environment; None means ours."""


class Child:
    """A running :class:`Program`."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process) -> None:
        self.program = program
        self._process = process

    @classmethod
    async def start(cls, program: Program) -> Self:
        """Start the program; it need not answer yet. Raises :class:`OperationalError` if it cannot be run."""
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died between fork and prctl
                os._exit(1)

        try:
            with _open_log(program.log) as log:
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
        """The process id, which is also its group's."""
        return self._process.pid

    async def exited(self) -> int:
        """Wait until it has ended, sweep up what it left in its group, and return its exit status."""
        status = await self._process.wait()
        self._signal_group(signal.SIGKILL)
        return status

    async def ready(self, timeout_s: float) -> None:
        """Wait until it answers. Raises :class:`OperationalError` with its last words when it does not."""
        exited = asyncio.ensure_future(self.exited())
        try:
            async with asyncio.timeout(timeout_s):
                while not await self.program.answers():
                    await asyncio.wait([exited], timeout=_ASK_EVERY_S)
                    if exited.done():
                        raise OperationalError(self._obituary(ending(exited.result())))
        except TimeoutError:
            raise OperationalError(self._obituary(f"did not answer within {timeout_s:g} s")) from None
        finally:
            exited.cancel()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Ask it to end (SIGTERM); after ``grace_s`` seconds end its whole group (SIGKILL)."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self.exited(), grace_s)
        except TimeoutError:
            self._signal_group(signal.SIGKILL)
            await self.exited()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _obituary(self, what: str) -> str:
        tail = self.program.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n  ".join([f"{self.program.name} {what}. The end of {self.program.log}:", *tail])


class Server(abc.ABC):
    """A program with a directory of its own that is started and stopped alone; an async context manager."""

    start_timeout_s = 30.0

    def __init__(self, directory: Path) -> None:
        """Keep everything in this directory."""
        self.directory = directory
        self._child: Child | None = None

    @abc.abstractmethod
    async def program(self) -> Program:
        """Return how to run it, with its files made. Raises :class:`OperationalError` if that cannot work."""

    @property
    def pid(self) -> int:
        """Process id while it runs."""
        if self._child is None:
            raise OperationalError(f"The {type(self).__name__} of {self.directory} is not running.")
        return self._child.pid

    async def start(self) -> None:
        """Start it and wait until it answers. Raises :class:`OperationalError` with the end of its log."""
        self._child = await Child.start(await self.program())
        try:
            await self._child.ready(self.start_timeout_s)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End it; what it wrote stays in the directory. Harmless when it has ended already."""
        if self._child is not None:
            await self._child.stop()
            self._child = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def ending(status: int) -> str:
    """Say how a process ended that has this exit status; negative: the signal that ended it."""
    return f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"


def environment(inherited: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
    """Return a child's environment; of ``NAME`` and ``NAME_FILE`` only the one it is told is left."""
    names = {name.removesuffix("_FILE") for name in told}
    return {name: value for name, value in inherited.items() if name.removesuffix("_FILE") not in names} | dict(told)


def _open_log(path: Path) -> BinaryIO:
    """Open a log for appending, readable by us only; one that has grown large is set aside first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_CAP_BYTES:
        path.replace(path.with_suffix(".1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def pause_s(deaths: int) -> float:
    """Return how long to wait before the restart after so many deaths in a row: 0, 0.5, 1, 2, 4, 8, 8, … s."""
    return 0.0 if deaths <= 1 else min(8.0, 0.5 * 2.0 ** min(deaths - 2, 8))


class Supervisor:
    """The running programs, by name. ``told`` hears a line for each death and each return."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self._children: dict[str, Child] = {}
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> Mapping[str, int]:
        """Each program's process id; a dead one's until it is started again."""
        return {name: child.pid for name, child in self._children.items()}

    async def add(self, program: Program) -> None:
        """Start a program, wait until it answers, and keep it running from then on.

        Raises :class:`OperationalError` with the end of its log when this first start fails.
        """
        child = await self._start(program)
        await child.ready(_START_TIMEOUT_S)
        self._keepers.append(asyncio.create_task(self._keep(child), name=f"keep {program.name}"))

    async def stop(self, last: Collection[str]) -> None:
        """End everything within 8 s; what is named ``last`` only after the others, which need it."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await _stop((child for name, child in self._children.items() if name not in last), _GRACE_S)
        await _stop((child for name, child in self._children.items() if name in last), _LAST_GRACE_S)

    async def _start(self, program: Program) -> Child:
        child = self._children[program.name] = await Child.start(program)
        return child

    async def _keep(self, child: Child) -> None:
        now_s = asyncio.get_running_loop().time
        program, deaths = child.program, 0
        while True:
            since_s = now_s()
            status = await child.exited()
            deaths = 1 if now_s() - since_s > _STEADY_S else deaths + 1
            self._told(f"{program.name} {ending(status)}; starting it again. Its log: {program.log}")
            await asyncio.sleep(pause_s(deaths))
            try:
                child = await self._start(program)
                await child.ready(_START_TIMEOUT_S)
                self._told(f"{program.name} is back.")
            except OperationalError as error:
                self._told(str(error))
                await child.stop()


async def _stop(children: Iterable[Child], grace_s: float) -> None:
    await asyncio.gather(*(child.stop(grace_s) for child in children))
