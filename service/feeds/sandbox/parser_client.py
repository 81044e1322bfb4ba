"""Clients of the parser processes. A malicious document can crash only its parser process (guarantee I7).

The client's own process loads neither feedparser nor lxml. A parser process is a child process that runs the module
``parser_process``:

- It is started on demand and handles one request after the other.
- Its own child, which reads the documents, is killed and replaced if a document takes too much time or memory
  (``resource_limits``).
- It is killed if there has been no request for two minutes.
- OPML files are parsed one at a time, each in a process of its own.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self, cast

import msgspec
import structlog

import service
from service.errors import OperationalError, ParseKilled, ParserBusy, UserError, from_fault
from service.feeds.opml_writer import MAX_OPML_BYTES, OpmlDocument
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
    ParserRequest,
    ParserResponse,
    Result,
    encode_frame,
)
from service.observability.metrics import PARSE_KILLS, PARSER_WITHOUT_SECCOMP

PARSE_TIMEOUT_S = 12.0
"""Time after which the client kills a parser process that has not responded. Normally a timer ends the work on a
document after 10 s. This timeout is needed if that timer does not run, because the process is stopped or gets no
processor time."""
_IDLE_TIMEOUT_S = 120.0
"""Time after which a parser process without requests is killed. An idle process takes 46 MB of memory; starting a new
one takes 0.2 s."""
_PACKAGES = str(Path(service.__file__).parent.parent)
_log = structlog.get_logger(__name__)


class ParserClient:
    """Parses documents in a child process, one at a time. As an async context manager, it kills the process on exit.

    - ``niceness`` is the scheduling priority of the process, as in ``nice(1)``.
    - ``modules`` are names of modules that the process loads in addition to the usual ones.
    - ``cpu_s`` is the processor time used by all requests so far, in seconds.
    - ``confinement`` is the kernel feature that confines the process; None before the first response.
    """

    def __init__(self, niceness: int = 0, *modules: str) -> None:
        self.cpu_s = 0.0
        self.confinement: Confinement | None = None
        self._niceness = niceness
        self._modules = modules
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        """Return the client. The process is started by the first request."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill the process."""
        await self._end_process()

    async def parse_document(self, document: Document, selector: str = "") -> ParsedDocument:
        """Parse a document of unknown type, after waiting for earlier requests to finish.

        ``selector`` limits a page to what matches it (:func:`service.feeds.canonical_urls.selector_of`). Raises:

        - the errors of :func:`~service.feeds.sandbox.parser_handlers.parse_document`
        - :class:`ParseKilled` if the document took too much time or memory
        - :class:`OperationalError` if the process cannot be started
        """
        return await self._request(ParseDocument(document, selector), ParserResponse[ParsedDocument])

    async def detect_changes(self, request: DetectChanges, timeout_s: float = PARSE_TIMEOUT_S) -> DetectionResult:
        """Compare documents of a feed or page with its baseline; return the changes and the next baseline.

        The baseline is the encoded state after the last poll. The comparison begins when all earlier requests have
        finished.

        Raises :class:`ParseKilled` if the comparison itself takes longer than ``timeout_s``. Also raises the errors of
        :meth:`parse_document`.
        """
        return await self._request(request, ParserResponse[DetectionResult], timeout_s)

    async def parse_opml(self, body: bytes) -> OpmlDocument:
        """Parse an OPML file, after waiting for earlier requests to finish.

        Raises :class:`UserError` if the file is not OPML. Also raises :class:`ParseKilled` and
        :class:`OperationalError` in the same cases as :meth:`parse_document`.
        """
        return await self._request(ParseOpml(body), ParserResponse[OpmlDocument])

    async def _request(
        self, request: ParserRequest, kind: type[ParserResponse[Result]], timeout_s: float = PARSE_TIMEOUT_S
    ) -> Result:
        async with self._turn:
            self._cancel_idle_timer()
            began_s = time.monotonic()
            try:
                response = await self._exchange(request, kind, timeout_s)
            except BaseException as error:
                limit_s = request.cpu_s if isinstance(request, DetectChanges) else PARSE_TIMEOUT_S
                self.cpu_s += min(time.monotonic() - began_s, limit_s)
                # Also if cancelled: the process would go on with a document whose result nobody awaits.
                await self._end_process()
                if isinstance(error, ParseKilled):
                    PARSE_KILLS.inc()
                raise
            if response.confinement is not None:
                self._record_confinement(response.confinement)
            self.cpu_s += response.cpu_s
            self._idle_timer = asyncio.get_running_loop().call_later(_IDLE_TIMEOUT_S, self._on_idle)
        if response.fault is not None:
            fault = from_fault(response.fault)
            if isinstance(fault, ParseKilled):
                PARSE_KILLS.inc()
            raise fault
        return cast("Result", response.result)

    async def _exchange(
        self, request: ParserRequest, kind: type[ParserResponse[Result]], timeout_s: float
    ) -> ParserResponse[Result]:
        if self._process is None or self._process.returncode is not None:
            self._process = await _start_process(self._niceness, self._modules)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 - the process was started with pipes
        assert stdout is not None  # noqa: S101 - see above
        try:
            async with asyncio.timeout(timeout_s):
                stdin.write(encode_frame(request))
                await stdin.drain()
                length = int.from_bytes(await stdout.readexactly(LENGTH_BYTES), "big")
                if length > MAX_FRAME_BYTES:
                    raise ParseKilled("The document made the parser send an invalid response.")
                return msgspec.msgpack.decode(await stdout.readexactly(length), type=kind)
        except TimeoutError as error:
            raise ParseKilled("The document took longer than one document may.") from error
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError) as error:
            raise ParseKilled("The document crashed the parser or used too much memory.") from error

    def _record_confinement(self, confinement: Confinement) -> None:
        if confinement != self.confinement:
            self.confinement = confinement
            PARSER_WITHOUT_SECCOMP.set(confinement != "seccomp")
            if confinement != "seccomp":
                _log.warning(
                    "parser sandbox degraded, resource limits only", advice="Use a kernel with seccomp filters."
                )

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _on_idle(self) -> None:
        self._kill()
        self._process = None

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            # Not Process.kill(), which may collect the exit status that the event loop waits for.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def _end_process(self) -> None:
        """Kill the process, if there is one, and wait until it has ended."""
        self._cancel_idle_timer()
        self._kill()
        if self._process is not None:
            await self._process.wait()


async def _start_process(niceness: int, modules: Sequence[str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # do not import modules from the current directory
            "-m",
            "service.feeds.sandbox.parser_process",
            str(niceness),
            *modules,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PYTHONPATH": _PACKAGES, "LANG": "C.UTF-8"},  # without this process's secrets
        )
    except OSError as error:
        raise OperationalError(f"A parser process cannot be started: {error.strerror}.") from error


_MAX_PENDING_FILES = 8
"""Maximum number of pending files, which are being loaded, waiting or being parsed. Each is up to 5 MiB in size."""
_MAX_WAIT_S = 7.0
_BUSY = "Other lists of feeds are being read. Try again in a minute."


class OpmlParserClient:
    """Parses OPML files one at a time, each in a new process.

    A file is rejected if it has to wait more than 7 seconds for earlier files.
    """

    # The documents of feeds and pages never wait for an OPML file.

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._pending = 0

    async def read(self, load: Callable[[], Awaitable[bytes]]) -> OpmlDocument:
        """Call ``load`` to get the content of an OPML file; return the feeds in the file.

        Raises:
        - :class:`ParserBusy` if 8 files are already pending (``load`` is then not called), or if earlier files take too
          long
        - :class:`UserError` for a file that is not OPML, is too large, or takes too much time or memory
        - the errors of ``load``
        """
        if self._pending >= _MAX_PENDING_FILES:
            raise ParserBusy(_BUSY)
        self._pending += 1
        try:
            body = await load()
            if len(body) > MAX_OPML_BYTES:
                raise UserError(f"The file is larger than {MAX_OPML_BYTES:,} bytes.")
            return await self._parse(body)
        except ParseKilled as error:
            raise UserError("The file takes more time or memory to read than a list of feeds gets.") from error
        finally:
            self._pending -= 1

    async def _parse(self, body: bytes) -> OpmlDocument:
        try:
            async with asyncio.timeout(_MAX_WAIT_S) as wait, self._turn, ParserClient() as parser:
                wait.reschedule(None)
                return await parser.parse_opml(body)
        except TimeoutError:
            raise ParserBusy(_BUSY) from None
