"""The killable child: reads documents from stdin, one by one, until stdin ends.

The kernel enforces the limits: the default action of SIGPROF and SIGALRM is death, which no C code can
put off. The parent's death closes stdin; a child that is busy then dies of its timers at the latest.
"""

import functools
import gc
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from service.errors import FeedError, to_fault
from service.feeds.wire import LENGTH_BYTES, Answer, Examine, Findings, Job, Read, Reading, frame

CPU_S = 5.0
WALL_S = 10.0
MEMORY_BYTES = 96 * 1024 * 1024
"""What a child may take besides what it begins with; loading the parsers takes 15 MB of it."""
_BLOATED_BYTES = 80 * 1024 * 1024


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every job of ``requests`` on ``answers``; the timers run while a job is worked on."""
    job_decoder: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(Job)
    while length := requests.read(LENGTH_BYTES):
        job = job_decoder.decode(requests.read(int.from_bytes(length, "big")))
        began_s = _processor_s()
        _set_timers(min(job.cpu_s, CPU_S) if isinstance(job, Examine) else CPU_S, WALL_S)
        answer = _answer(job)
        answered = frame(msgspec.structs.replace(answer, cpu_s=_processor_s() - began_s))
        _set_timers(0, 0)
        answers.write(answered)
        answers.flush()


def _set_timers(cpu_s: float, wall_s: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _answer(job: Job) -> Answer:
    read, examine = _readers()
    try:
        if isinstance(job, Read):
            return Answer(reading=read(job), bloated=_is_bloated())
        return Answer(findings=examine(job), bloated=_is_bloated())
    except FeedError as error:
        return Answer(fault=to_fault(error), bloated=_is_bloated())


@functools.cache
def _readers() -> tuple[Callable[[Read], Reading], Callable[[Examine], Findings]]:
    """Load feedparser and lxml: 0.2 s and 15 MB."""
    from service.feeds.examine import examine  # noqa: PLC0415 - see above
    from service.feeds.reading import read  # noqa: PLC0415 - see above

    # What is loaded lives as long as the child: no collection of garbage has to look at it again.
    gc.collect()
    gc.freeze()
    return read, examine


def _is_bloated() -> bool:
    # Not ru_maxrss: on Linux a new program inherits there the size of the process that started it.
    _, resident_bytes = _sizes_bytes()
    return resident_bytes > _BLOATED_BYTES


def _sizes_bytes() -> tuple[int, int]:
    """Return how much this process has mapped, and how much of it is resident."""
    mapped_pages, resident_pages = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split()[:2])
    return mapped_pages * resource.getpagesize(), resident_pages * resource.getpagesize()


def main() -> None:
    """Limit this process's memory and serve its parent."""
    most_bytes = _sizes_bytes()[0] + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes stdin
    _readers()  # before the first document, whose processor time is charged to its publisher
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
