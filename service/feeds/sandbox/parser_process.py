"""The killable child: reads documents from stdin, one by one, until stdin ends.

The kernel enforces the limits: the default action of SIGPROF and SIGALRM is death, which no C code can
put off. The parent's death closes stdin; a child that is busy then dies of its timers at the latest.
Once everything is loaded, and before the first document is read, files, network and other programs are given up
(``confinement``).
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
"""What a child may take besides what it begins with; loading the parsers takes 18 MB of it."""
_BLOATED_BYTES = 80 * 1024 * 1024
_STATM_BYTES = 200
_IMPORTED_ON_FIRST_USE = ("idna.uts46data", "lxml.cssselect", "xml.sax.expatreader")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every job of ``requests`` on ``answers``; the timers run while a job is worked on."""
    job_decoder: msgspec.msgpack.Decoder[ParserRequest] = msgspec.msgpack.Decoder(ParserRequest)
    while length := requests.read(LENGTH_BYTES):
        job = job_decoder.decode(requests.read(int.from_bytes(length, "big")))
        began_s = _processor_s()
        _set_timers(min(job.cpu_s, CPU_S) if isinstance(job, DetectChanges) else CPU_S, WALL_S)
        answer = _answer(job)
        answered = encode_frame(msgspec.structs.replace(answer, cpu_s=_processor_s() - began_s))
        _set_timers(0, 0)
        answers.write(answered)
        answers.flush()


def _set_timers(cpu_s: float, wall_s: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _answer(job: ParserRequest) -> ParserResponse[Any]:
    try:
        return ParserResponse(_readers()[type(job)](job), needs_restart=_is_bloated())
    except (FeedError, UserError) as error:
        return ParserResponse(fault=to_fault(error), needs_restart=_is_bloated())


@functools.cache
def _readers() -> dict[type[ParserRequest], Callable[[Any], Any]]:
    """Return what reads each kind of job; the first call loads all that any document may need (0.3 s)."""
    # The programs import this module, too, for its limits: they must not load the parsers.
    from service.feeds.entries.change_detection import detect_changes, parse_document  # noqa: PLC0415 - see above
    from service.feeds.opml_parser import parse as parse_opml  # noqa: PLC0415 - see above

    for name in _IMPORTED_ON_FIRST_USE:
        importlib.import_module(name)
    for encoding in pkgutil.iter_modules(encodings.__path__, "encodings."):
        with contextlib.suppress(ImportError):  # some are Windows's
            importlib.import_module(encoding.name)
    # What is loaded lives as long as the child: no collection of garbage has to look at it again.
    gc.collect()
    gc.freeze()
    return {ParseDocument: parse_document, DetectChanges: detect_changes, ParseOpml: lambda job: parse_opml(job.body)}


def _is_bloated() -> bool:
    # Not ru_maxrss: on Linux a new program inherits there the size of the process that started it.
    _, resident_bytes = _sizes_bytes()
    return resident_bytes > _BLOATED_BYTES


def _sizes_bytes() -> tuple[int, int]:
    """Return how much this process has mapped, and how much of it is resident."""
    mapped_pages, resident_pages = map(int, os.pread(_statm(), _STATM_BYTES, 0).split()[:2])
    return mapped_pages * resource.getpagesize(), resident_pages * resource.getpagesize()


@functools.cache
def _statm() -> int:
    """Return a descriptor that stays open: a confined process opens no files."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def main() -> None:
    """Limit this process's memory, load the parsers, give up everything else, and serve the parent."""
    most_bytes = _sizes_bytes()[0] + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes stdin
    _readers()  # before the first document, whose processor time is charged to its publisher
    # What is not loaded is not there: nothing is looked for in directories that cannot be read.
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    sys.stdout.buffer.write(encode_frame(ParserReady(confine())))
    sys.stdout.buffer.flush()
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
