"""The program of a parser process: it handles requests from stdin one by one, until stdin is closed.

The kernel enforces the limits: the default action of SIGPROF and SIGALRM is to terminate the process, which no C code
can delay. If the parent dies, stdin is closed; a busy process then ends by its timers at the latest. After all modules
are loaded and before the first request is read, the process gives up access to files, network and other programs (see
``confinement``).
"""

import contextlib
import encodings
import functools
import gc
import importlib
import os
import pkgutil
import resource
import signal
import sys
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, FrozenImporter
from typing import Any, BinaryIO

import msgspec

from service.errors import FeedError, UserError, to_fault
from service.feeds.sandbox.confinement import confine
from service.feeds.sandbox.protocol import (
    LENGTH_BYTES,
    DetectChanges,
    ParseDocument,
    ParseOpml,
    ParserReady,
    ParserRequest,
    ParserResponse,
    encode_frame,
)

CPU_S = 5.0
WALL_S = 10.0
MEMORY_BYTES = 96 * 1024 * 1024
"""Address space that the process may map in addition to that at its start; loading the parsers takes 18 MB of it."""
_RESTART_BYTES = 80 * 1024 * 1024
_STATM_BYTES = 200
_LAZY_IMPORTS = ("idna.uts46data", "lxml.cssselect", "xml.sax.expatreader")


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Write the response to each of ``requests`` to ``responses``. The timers run while a request is handled."""
    decoder: msgspec.msgpack.Decoder[ParserRequest] = msgspec.msgpack.Decoder(ParserRequest)
    while length := requests.read(LENGTH_BYTES):
        request = decoder.decode(requests.read(int.from_bytes(length, "big")))
        began_s = _cpu_time_s()
        _set_timers(min(request.cpu_s, CPU_S) if isinstance(request, DetectChanges) else CPU_S, WALL_S)
        response = _handle(request)
        response_frame = encode_frame(msgspec.structs.replace(response, cpu_s=_cpu_time_s() - began_s))
        _set_timers(0, 0)
        responses.write(response_frame)
        responses.flush()


def _set_timers(cpu_s: float, wall_s: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def _cpu_time_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _handle(request: ParserRequest) -> ParserResponse[Any]:
    try:
        return ParserResponse(_load_handlers()[type(request)](request), needs_restart=_needs_restart())
    except (FeedError, UserError) as error:
        return ParserResponse(fault=to_fault(error), needs_restart=_needs_restart())


@functools.cache
def _load_handlers() -> dict[type[ParserRequest], Callable[[Any], Any]]:
    """Return the handlers by type of request. The first call loads all modules that any document needs (0.3 s)."""
    # Imported here, because other programs import this module for its limits and must not load the parsers.
    from service.feeds.entries.change_detection import detect_changes, parse_document  # noqa: PLC0415 - see above
    from service.feeds.opml_parser import parse as parse_opml  # noqa: PLC0415 - see above

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


def _needs_restart() -> bool:
    # Not ru_maxrss: on Linux, a new program inherits the value of the process that started it.
    _, resident_bytes = _memory_bytes()
    return resident_bytes > _RESTART_BYTES


def _memory_bytes() -> tuple[int, int]:
    """Return the mapped and the resident memory of this process in bytes."""
    mapped_pages, resident_pages = map(int, os.pread(_statm_descriptor(), _STATM_BYTES, 0).split()[:2])
    return mapped_pages * resource.getpagesize(), resident_pages * resource.getpagesize()


@functools.cache
def _statm_descriptor() -> int:
    """Return an open descriptor of ``/proc/self/statm``; it is kept, because a confined process opens no files."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def main() -> None:
    """Limit this process's memory, load the parsers, confine the process, and serve the parent."""
    limit_bytes = _memory_bytes()[0] + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the parent closes stdin
    _load_handlers()  # before the first document, because the publisher's budget pays for its processor time
    # No module is searched for in directories, which the confined process cannot read.
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    sys.stdout.buffer.write(encode_frame(ParserReady(confine())))
    sys.stdout.buffer.flush()
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
