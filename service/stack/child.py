"""One child process: in a session of its own, logging to a file, and never outliving us.

The kernel kills the child when its parent dies by whatever cause (``PR_SET_PDEATHSIG``, prctl(2)),
so that a kill -9 of ``coronet up`` leaves no Redis behind that would hold the next one's files.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from service.errors import OperationalError

_PR_SET_PDEATHSIG = 1
_LOG_CAP_BYTES = 20_000_000
_TAIL_LINES = 8
_ASK_EVERY_S = 0.02

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
