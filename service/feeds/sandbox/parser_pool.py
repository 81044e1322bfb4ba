"""A pool of parser processes, so that a malicious document can only end one process (guarantee I7).

The process that has the pool loads neither feedparser nor lxml. Parser processes are started on demand, parse one
document after the other, end when there was no document for two minutes, and are killed if a document exceeds its time
or memory (the limits are in ``parser_process``).
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import structlog

import service
from service.errors import FeedError, OperationalError, ParseKilled, from_fault
from service.feeds.opml import OpmlDocument
from service.feeds.sandbox.protocol import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    Confinement,
    DetectChanges,
    DetectionResult,
    Document,
    ParsedDocument,
    ParseDocument,
    ParseOpml,
    ParserReady,
    ParserRequest,
    ParserResponse,
    Result,
    encode_frame,
)
from service.observability.metrics import PARSE_KILLS, PARSER_WITHOUT_SECCOMP

PARSE_TIMEOUT_S = 12.0
"""Longer than the process's own timer of 10 s, for a process whose timer does not run (stopped, or starved)."""
_EXIT_TIMEOUT_S = 1.0
_IDLE_TIMEOUT_S = 120.0
"""A process takes about 37 MB, and 0.2 s of processor time to start."""
_PACKAGES = str(Path(service.__file__).parent.parent)
_Message = TypeVar("_Message")
_log = structlog.get_logger(__name__)
_EXIT_REASONS = {
    -signal.SIGPROF: "took more processor time than one document gets",
    -signal.SIGALRM: "took longer than one document may",
}


class ParserPool:
    """A pool of at most ``size`` parser processes; an async context manager that stops them on exit.

    ``niceness`` is the scheduling priority of the processes, as in ``nice(1)``. ``cpu_s`` is the processor time of all
    requests so far.
    """

    def __init__(self, size: int, niceness: int = 0) -> None:
        self.cpu_s = 0.0
        self._free = asyncio.Semaphore(size)
        self._niceness = niceness
        self._idle: list[_ParserProcess] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self.confinement: Confinement | None = None
        """The confinement of the last process that responded; None before the first response."""

    async def __aenter__(self) -> Self:
        """Return the pool. No process is started yet, because each takes about 30 MB."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the processes."""
        while process := self._pop_idle():
            await process.stop()
        await asyncio.gather(*self._stopping)

    async def parse_document(self, document: Document, selector: str = "") -> ParsedDocument:
        """Parse a document of unknown type in a process, after waiting for a free process.

        ``selector`` (CSS) limits a page to the matching elements. Raises the errors of
        :func:`~service.feeds.entries.change_detection.parse_document`, :class:`ParseKilled` if the document exceeded
        its time or memory, and :class:`OperationalError` if no process can be started.
        """
        return await self._request(ParseDocument(document, selector), ParserResponse[ParsedDocument])

    async def detect_changes(self, request: DetectChanges, timeout_s: float = PARSE_TIMEOUT_S) -> DetectionResult:
        """Detect the changes that documents of a channel show, in a process, after waiting for a free process.

        Raises :class:`ParseKilled` if it takes longer than ``timeout_s``, not counting the wait for a free process. The
        other errors are those of :meth:`parse_document`.
        """
        return await self._request(request, ParserResponse[DetectionResult], timeout_s)

    async def parse_opml(self, body: bytes) -> OpmlDocument:
        """Parse an OPML file in a process, after waiting for a free process.

        Raises :class:`UserError` for a file that is not OPML. The other errors are those of :meth:`parse_document`.
        """
        return await self._request(ParseOpml(body), ParserResponse[OpmlDocument])

    async def _request(
        self, request: ParserRequest, kind: type[ParserResponse[Result]], timeout_s: float = PARSE_TIMEOUT_S
    ) -> Result:
        async with self._free:
            process = self._pop_idle() or await _ParserProcess.start(self._niceness)
            began_s = time.monotonic()
            try:
                response = await process.request(request, kind, timeout_s)
            except BaseException as error:
                limit_s = request.cpu_s if isinstance(request, DetectChanges) else PARSE_TIMEOUT_S
                self.cpu_s += min(time.monotonic() - began_s, limit_s)
                # Also if cancelled: the process would go on with a document whose result nobody awaits.
                await process.kill()
                if isinstance(error, ParseKilled):
                    PARSE_KILLS.inc()
                raise
            self.confinement = process.confinement
            self.cpu_s += response.cpu_s
            if response.needs_restart:
                await process.stop()
            else:
                self._idle.append(process)
                process.idle_timer = asyncio.get_running_loop().call_later(_IDLE_TIMEOUT_S, self._stop_idle, process)
        if response.fault is not None:
            raise from_fault(response.fault)
        if response.result is None:
            raise FeedError("The parser gave no answer.")
        return response.result

    def _pop_idle(self) -> "_ParserProcess | None":
        while self._idle:
            process = self._idle.pop()
            if process.idle_timer is not None:
                process.idle_timer.cancel()
            if process.is_alive:
                return process
        return None

    def _stop_idle(self, process: "_ParserProcess") -> None:
        self._idle.remove(process)
        task = asyncio.create_task(process.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


async def _read_message(stdout: asyncio.StreamReader, kind: type[_Message]) -> _Message:
    length = int.from_bytes(await stdout.readexactly(LENGTH_BYTES), "big")
    if length > MAX_FRAME_BYTES:
        raise ParseKilled("The document made the parser send an invalid response.")
    return msgspec.msgpack.decode(await stdout.readexactly(length), type=kind)


def _report_confinement(confinement: Confinement) -> None:
    PARSER_WITHOUT_SECCOMP.set(confinement != "seccomp")
    if confinement != "seccomp":
        _log.warning("parser confined by resource limits only", advice="Use a kernel with seccomp filters.")


class _ParserProcess:
    """A child process that runs ``parser_process``, and the pipes to and from it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.confinement: Confinement | None = None
        self.idle_timer: asyncio.TimerHandle | None = None
        """Stops the process, unless it is used before."""

    @classmethod
    async def start(cls, niceness: int) -> Self:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # do not import modules from the current directory
                "-m",
                "service.feeds.sandbox.parser_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PYTHONPATH": _PACKAGES, "LANG": "C.UTF-8"},  # without this process's secrets
            )
        except OSError as error:
            raise OperationalError(f"A parser process cannot be started: {error.strerror}.") from error
        if niceness:
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        return cls(process)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def request(
        self, request: ParserRequest, kind: type[ParserResponse[Result]], timeout_s: float
    ) -> ParserResponse[Result]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the child was started without pipes")
        try:
            async with asyncio.timeout(timeout_s):
                stdin.write(encode_frame(request))
                await stdin.drain()
                if self.confinement is None:
                    self.confinement = (await _read_message(stdout, ParserReady)).confinement
                    _report_confinement(self.confinement)
                return await _read_message(stdout, kind)
        except TimeoutError as error:
            raise ParseKilled("The document took longer than one document may.") from error
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError) as error:
            await self.stop()
            reason = _EXIT_REASONS.get(self._process.returncode or 0, "crashed the parser or used too much memory")
            raise ParseKilled(f"The document {reason}.") from error

    async def kill(self) -> None:
        if self.is_alive:
            # Not Process.kill(), which may collect the exit status that the event loop waits for.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """Close the process's stdin, whereupon the process exits. If it does not exit in time, kill it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
