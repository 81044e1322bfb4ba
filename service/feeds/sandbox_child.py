"""The killable child: reads documents from stdin, one by one, until stdin ends.

The kernel enforces the limits: the default action of SIGPROF and SIGALRM is death, which no C code can
put off. The parent's death closes stdin; a child that is busy then dies of its timers at the latest.
"""

import resource
import signal
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from service.errors import FeedError, to_fault
from service.feeds.wire import LENGTH_BYTES, Answer, Job, frame

CPU_S = 5.0
WALL_S = 10.0
MEMORY_BYTES = 512 * 1024 * 1024
_BLOATED_BYTES = 160 * 1024 * 1024


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every job of ``requests`` on ``answers``; the timers run while a job is worked on."""
    job_decoder = msgspec.msgpack.Decoder(Job)
    while length := requests.read(LENGTH_BYTES):
        job = job_decoder.decode(requests.read(int.from_bytes(length, "big")))
        _set_timers(CPU_S, WALL_S)
        answer = frame(_answer(job))
        _set_timers(0, 0)
        answers.write(answer)
        answers.flush()


def _set_timers(cpu_s: float, wall_s: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def _answer(job: Job) -> Answer:
    from service.feeds.reading import read  # noqa: PLC0415 - feedparser and lxml take 0.2 s and 25 MB: on first use

    try:
        reading = read(job.body, url=job.url, headers=job.headers)
    except FeedError as error:
        return Answer(fault=to_fault(error), bloated=_is_bloated())
    return Answer(reading, bloated=_is_bloated())


def _is_bloated() -> bool:
    # Not ru_maxrss: on Linux a new program inherits there the size of the process that started it.
    resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return resident_pages * resource.getpagesize() > _BLOATED_BYTES


def main() -> None:
    """Limit this process's memory and serve its parent."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes stdin
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
