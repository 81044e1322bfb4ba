"""The program of a parser process, which handles requests from stdin one by one until stdin is closed.

The process loads the parsers and then forks a child, which handles the requests. If the child dies because of a
document, or uses too much memory, the process forks another one. This takes milliseconds, while loading the parsers
takes at least 0.15 s, during which other documents would have to wait.

The time and memory of the child are limited (see ``resource_limits``). The child gives up access to files, network and
other programs before it reads the first request (see ``confinement``). The process that forks reads nothing.

If the program that sends the requests dies, stdin is closed. The child then ends after the current request. If the
request takes too long, the timers end the child.
"""

import contextlib
import encodings
import functools
import gc
import importlib
import mmap
import os
import pkgutil
import signal
import struct
import sys
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, FrozenImporter
from typing import Any, BinaryIO, Final

import msgspec

from service.errors import FeedError, ParseKilled, UserError, to_fault
from service.feeds.sandbox.confinement import confine
from service.feeds.sandbox.protocol import (
    LENGTH_BYTES,
    Confinement,
    DetectChanges,
    ParseDocument,
    ParseOpml,
    ParserRequest,
    ParserResponse,
    encode_frame,
)
from service.feeds.sandbox.resource_limits import CPU_S, WALL_S, cpu_time_s, is_too_large, limit_memory, set_timers
from service.parent_death import die_with

_LAZY_IMPORTS = ("idna.uts46data", "lxml.cssselect", "xml.sax.expatreader")
_END_OF_INPUT, _TOO_LARGE, _FAILED = 0, 3, 4
"""Exit statuses of a child: stdin was closed, the child uses too much memory, or it raised an unexpected exception."""
_DEATHS: Final[dict[int, str]] = {
    signal.SIGPROF: "took more processor time than one document gets",
    signal.SIGALRM: "took longer than one document may",
}


class ChildState:
    """What a child process is doing, in memory that it shares with its parent."""

    # The memory contains the processor time at which the present request began, or one of two negative numbers.

    _TRANSFERRING: Final = -2.0
    _WAITING: Final = -1.0
    _TIME: Final = struct.Struct("d")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._TIME.size)
        self.set_transferring()

    def set_transferring(self) -> None:
        """Record that the child starts, or reads a request or writes a response. Another child could not continue."""
        self._set(self._TRANSFERRING)

    def set_waiting(self) -> None:
        """Record that the child waits for a request."""
        self._set(self._WAITING)

    def set_working(self, cpu_s: float) -> None:
        """Record that the child works on a request, and has used ``cpu_s`` seconds of processor time until now."""
        self._set(cpu_s)

    @property
    def is_transferring(self) -> bool:
        """Whether the child starts, or reads a request or writes a response."""
        return self._get() == self._TRANSFERRING

    @property
    def began_s(self) -> float | None:
        """The processor time (s) that the child had used when its present request began; None between requests."""
        began_s = self._get()
        return began_s if began_s >= 0 else None

    def _set(self, value: float) -> None:
        self._TIME.pack_into(self._memory, 0, value)

    def _get(self) -> float:
        value: float
        (value,) = self._TIME.unpack_from(self._memory)
        return value


def serve(requests: BinaryIO, responses: BinaryIO, confinement: Confinement, state: ChildState) -> bool:
    """Handle each request from ``requests`` and write its response to ``responses``.

    Return True when ``requests`` is closed, or False when this process uses too much memory.

    - ``confinement``: the kernel feature that confines this process; each response contains it.
    - ``state``: shows the parent process what this process is doing.
    """
    # The timers that limit the process's time run while a request is handled.
    decoder: msgspec.msgpack.Decoder[ParserRequest] = msgspec.msgpack.Decoder(ParserRequest)
    state.set_waiting()
    while length := requests.read(LENGTH_BYTES):
        state.set_transferring()
        body = requests.read(int.from_bytes(length, "big"))
        began_s = cpu_time_s()
        state.set_working(began_s)
        request = decoder.decode(body)
        set_timers(min(request.cpu_s, CPU_S) if isinstance(request, DetectChanges) else CPU_S, WALL_S)
        result = fault = None
        try:
            result = _load_handlers()[type(request)](request)
        except (FeedError, UserError) as error:
            fault = to_fault(error)
        frame = encode_frame(ParserResponse(result, fault, confinement, cpu_time_s() - began_s))
        set_timers(0, 0)
        state.set_transferring()
        responses.write(frame)
        responses.flush()
        state.set_waiting()
        if is_too_large():
            return False
    return True


@functools.cache
def _load_handlers() -> dict[type[ParserRequest], Callable[[Any], Any]]:
    """Import the parsers; map each type of request to the function that handles it."""
    # The first call loads all modules that any document needs (0.3 s).

    # Imported here, because memory is limited before the parsers are loaded.
    from service.feeds.opml_parser import parse as parse_opml  # noqa: PLC0415 - see above
    from service.feeds.sandbox.parser_handlers import detect_changes, parse_document  # noqa: PLC0415 - see above

    for name in _LAZY_IMPORTS:
        importlib.import_module(name)
    for encoding in pkgutil.iter_modules(encodings.__path__, "encodings."):
        with contextlib.suppress(ImportError):  # some exist on Windows only
            importlib.import_module(encoding.name)
    # Loaded modules live as long as the process: exclude them from further garbage collections.
    gc.collect()
    gc.freeze()
    return {
        ParseDocument: parse_document,
        DetectChanges: detect_changes,
        ParseOpml: lambda request: parse_opml(request.body),
    }


def main() -> None:
    """Run a parser process: load the parsers, and let child processes handle the requests.

    The arguments are the niceness of the process, as in ``nice(1)``, and modules to load.
    """
    niceness, *modules = sys.argv[1:]
    os.nice(int(niceness))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the program that sends the requests closes stdin
    for name in modules:
        importlib.import_module(name)
    _load_handlers()  # before the first document, because the publisher's budget pays for its processor time
    # No module is searched for in directories, which a confined process cannot read.
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    state = ChildState()
    while _run_child(state):
        pass


def _run_child(state: ChildState) -> bool:
    """Let a child process handle requests until it ends; return whether another child has to follow.

    If the child dies while it works on a request, this process writes the response.
    """
    state.set_transferring()
    parent = os.getpid()
    child = os.fork()
    if not child:
        exit_status = _FAILED
        try:
            die_with(parent)
            limit_memory()
            is_at_end = serve(sys.stdin.buffer, sys.stdout.buffer, confine(), state)
            exit_status = _END_OF_INPUT if is_at_end else _TOO_LARGE
        finally:
            os._exit(exit_status)  # nothing is flushed or finalized that belongs to the parent
    _, status, used = os.wait4(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _END_OF_INPUT:
        return False
    if state.is_transferring:
        sys.exit(f"The parser process ends, because its child ended with the wait status {status}.")
    if state.began_s is not None:
        signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        death = _DEATHS.get(signal_number, "crashed the parser or used too much memory")
        fault = to_fault(ParseKilled(f"The document {death}."))
        took_s = used.ru_utime + used.ru_stime - state.began_s
        sys.stdout.buffer.write(encode_frame(ParserResponse(None, fault, None, took_s)))
        sys.stdout.buffer.flush()
    return True


if __name__ == "__main__":
    main()
