"""Limits on the processor time, wall time and memory of a parser process, which are enforced by the kernel.

The timers send SIGPROF and SIGALRM, which terminate the process even while C code runs. Memory is limited relative to
what the process uses when it starts.
"""

import functools
import os
import resource
import signal

CPU_S = 5.0
WALL_S = 10.0
MEMORY_BYTES = 78 * 1024 * 1024
"""How much memory a parser process may map in addition to what it has mapped after loading the parsers."""
_MOST_RESIDENT_BYTES = 80 * 1024 * 1024
_STATM_BYTES = 200


def set_timers(cpu_s: float, wall_s: float) -> None:
    """Make the kernel end this process after ``cpu_s`` seconds of processor time or ``wall_s`` seconds of wall time.

    A value of 0 stops the corresponding timer.
    """
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def cpu_time_s() -> float:
    """Return the processor time that this process has used, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def limit_memory() -> None:
    """Limit this process's mapped memory to ``MEMORY_BYTES`` more than it uses now."""
    limit_bytes = _memory_bytes()[0] + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def is_too_large() -> bool:
    """Return whether this process uses so much memory that it should be replaced."""
    # Not ru_maxrss: on Linux, a new program inherits the value of the process that started it.
    _, resident_bytes = _memory_bytes()
    return resident_bytes > _MOST_RESIDENT_BYTES


def _memory_bytes() -> tuple[int, int]:
    """Return (mapped memory, resident memory) of this process in bytes."""
    mapped_pages, resident_pages = map(int, os.pread(_statm_descriptor(), _STATM_BYTES, 0).split()[:2])
    return mapped_pages * resource.getpagesize(), resident_pages * resource.getpagesize()


@functools.cache
def _statm_descriptor() -> int:
    """Return a file descriptor that is open for reading ``/proc/self/statm``, the memory usage of this process."""
    # The descriptor stays open, because a confined process cannot open files.
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
