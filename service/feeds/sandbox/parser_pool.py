"""Reading documents in killable children, so that one bad publisher costs one child and nothing else.

This process loads neither feedparser nor lxml. Children start when they are needed, read one document
after the other, and are killed when a document uses up its time or memory (limits: ``parser_process``).
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import structlog

import service
from service.errors import FeedError, OperationalError, ParseKilled, ParserBusy, UserError, from_fault
from service.feeds.opml import MAX_OPML_BYTES, OpmlDocument
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

# The child dies of its own timer at 10 s; this is for one that cannot (stopped, or starved).
PARSE_TIMEOUT_S = 12.0
_GOODBYE_S = 1.0
_MOST_LISTS = 8
"""Lists of feeds that are held at once, of 5 MiB each: one is read, the others wait or are on their way."""
_TURN_WITHIN_S = 7.0
_PACKAGES = str(Path(service.__file__).parent.parent)
_Message = TypeVar("_Message")
_log = structlog.get_logger(__name__)
_DEATHS = {
    -signal.SIGPROF: "took more processor time than one document gets",
    -signal.SIGALRM: "took longer than one document may",
}


class ParserPool:
    """At most ``size`` children at work; an async context manager that ends them all.

    ``niceness`` is the children's, as in ``nice(1)``. ``cpu_s`` is the processor time that documents have taken so far.
    """

    def __init__(self, size: int, niceness: int = 0) -> None:
        self.cpu_s = 0.0
        self._free = asyncio.Semaphore(size)
        self._niceness = niceness
        self._idle: list[_Child] = []
        self.confinement: Confinement | None = None
        """What keeps the last child from files and network; None before the first document."""

    async def __aenter__(self) -> Self:
        """Start nothing yet: a child costs about 30 MB."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the children."""
        while self._idle:
            await self._idle.pop().end()

    async def parse_document(self, document: Document, selector: str = "") -> ParsedDocument:
        """Return what the document is; waits for a free child.

        Raises what ``change_detection.parse_document`` raises, :class:`ParseKilled` when the document
        used up its time or memory, and :class:`OperationalError` when no child can be started.
        """
        return await self._ask(ParseDocument(document, selector), ParserResponse[ParsedDocument])

    async def detect_changes(self, job: DetectChanges, patience_s: float = PARSE_TIMEOUT_S) -> DetectionResult:
        """Return what documents of a channel say that is new; waits and raises as :meth:`parse_document` does.

        They are given up when they take longer than ``patience_s`` to read; the wait for a child is not counted.
        """
        return await self._ask(job, ParserResponse[DetectionResult], patience_s)

    async def parse_opml(self, body: bytes) -> OpmlDocument:
        """Return what an OPML file lists; waits and raises as :meth:`parse_document` does, or :class:`UserError`."""
        return await self._ask(ParseOpml(body), ParserResponse[OpmlDocument])

    async def _ask(
        self, job: ParserRequest, kind: type[ParserResponse[Result]], patience_s: float = PARSE_TIMEOUT_S
    ) -> Result:
        async with self._free:
            child = self._take() or await _Child.start(self._niceness)
            began_s = time.monotonic()
            try:
                answer = await child.ask(job, kind, patience_s)
            except BaseException as error:
                self.cpu_s += min(
                    time.monotonic() - began_s, job.cpu_s if isinstance(job, DetectChanges) else PARSE_TIMEOUT_S
                )
                # Also when cancelled: the child is amid a document nobody waits for.
                await child.kill()
                if isinstance(error, ParseKilled):
                    PARSE_KILLS.inc()
                raise
            self.confinement = child.confinement
            self.cpu_s += answer.cpu_s
            if answer.needs_restart:
                await child.end()
            else:
                self._idle.append(child)
        if answer.fault is not None:
            raise from_fault(answer.fault)
        if answer.result is None:
            raise FeedError("The parser gave no answer.")
        return answer.result

    def _take(self) -> "_Child | None":
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
        return None


class OpmlReader:
    """Reads lists of feeds (OPML), one at a time in this process, in a child that ends with the list.

    Nobody else's documents wait for such a child. A list that cannot be read soon is refused.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)
        self._under_way = 0

    async def read(self, load: Callable[[], Awaitable[bytes]]) -> OpmlDocument:
        """Return the feeds that a file lists, which ``load`` is called for once there is room for it.

        Raises what ``load`` raises, :class:`ParserBusy`, and :class:`UserError` for what is no OPML, or takes too long.
        """
        if self._under_way >= _MOST_LISTS:
            raise ParserBusy("Other lists of feeds are being read. Try again in a minute.")
        self._under_way += 1
        try:
            body = await load()
            if len(body) > MAX_OPML_BYTES:
                raise UserError(f"The file is larger than {MAX_OPML_BYTES:,} bytes.")
            await self._wait()
            try:
                async with ParserPool(1) as parser:
                    return await parser.parse_opml(body)
            finally:
                self._turn.release()
        except ParseKilled as error:
            raise UserError("The file takes more time or memory to read than a list of feeds gets.") from error
        finally:
            self._under_way -= 1

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_TURN_WITHIN_S):
                await self._turn.acquire()
        except TimeoutError:
            raise ParserBusy("Other lists of feeds are being read. Try again in a minute.") from None


async def _received(stdout: asyncio.StreamReader, kind: type[_Message]) -> _Message:
    length = int.from_bytes(await stdout.readexactly(LENGTH_BYTES), "big")
    if length > MAX_FRAME_BYTES:
        raise ParseKilled("The document made the parser say nonsense.")
    return msgspec.msgpack.decode(await stdout.readexactly(length), type=kind)


def _note(confinement: Confinement) -> None:
    """Let operators know what keeps parsers from files and network."""
    PARSER_WITHOUT_SECCOMP.set(confinement != "seccomp")
    if confinement != "seccomp":
        _log.warning("parser confined by resource limits only", advice="Use a kernel with seccomp filters.")


class _Child:
    """One process and the two pipes to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.confinement: Confinement | None = None

    @classmethod
    async def start(cls, niceness: int) -> Self:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # not the current directory's modules
                "-m",
                "service.feeds.sandbox.parser_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PYTHONPATH": _PACKAGES, "LANG": "C.UTF-8"},  # and none of our secrets
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

    async def ask(
        self, job: ParserRequest, kind: type[ParserResponse[Result]], patience_s: float
    ) -> ParserResponse[Result]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the child was started without pipes")
        try:
            async with asyncio.timeout(patience_s):
                stdin.write(encode_frame(job))
                await stdin.drain()
                if self.confinement is None:
                    self.confinement = (await _received(stdout, ParserReady)).confinement
                    _note(self.confinement)
                return await _received(stdout, kind)
        except TimeoutError as error:
            raise ParseKilled("The document took longer than one document may.") from error
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError) as error:
            await self.end()
            reason = _DEATHS.get(self._process.returncode or 0, "crashed the parser or used too much memory")
            raise ParseKilled(f"The document {reason}.") from error

    async def kill(self) -> None:
        if self.is_alive:
            # Not Process.kill(), which may collect the exit status that the event loop waits for.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def end(self) -> None:
        """Let a child end that has no more to do, which it does when nothing more can come."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
