"""Confines a parser process, so that even an exploited parser has no access to files, network and other programs.

:func:`confine` is called after all modules are loaded and before the first document is read. The process cannot undo
the confinement. There are two mechanisms:

- A seccomp filter (seccomp(2)) permits the few system calls that parsing needs. All others fail with ``EPERM``.
- Resource limits (setrlimit(2)) prevent new file descriptors, and therefore access to further files and sockets. They
  are always set, because not every kernel or architecture supports the filter.
"""

import ctypes
import errno
import os
import resource
import struct
import sys
from typing import Final

from service.feeds.sandbox.protocol import Confinement

_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2

_ZERO_LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)

_AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers of the permitted system calls on x86_64 and aarch64; None where a call does not exist.
_PERMITTED_CALLS: Final[dict[str, tuple[int, int | None]]] = {
    "read": (0, 63),
    "write": (1, 64),
    "pread64": (17, 67),
    "lseek": (8, 62),
    "fstat": (5, 80),
    "close": (3, 57),
    "brk": (12, 214),
    "mmap": (9, 222),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "madvise": (28, 233),
    "mprotect": (10, 226),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "setitimer": (38, 103),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "exit": (60, 93),
    "exit_group": (231, 94),
}

# Instructions of classic BPF, offsets in struct seccomp_data, and return values of the filter.
_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_NUMBER_OFFSET: Final = 0
_ARCHITECTURE_OFFSET: Final = 4
_ALLOW: Final = 0x7FFF0000
_FAIL_WITH_EPERM: Final = 0x00050000 | errno.EPERM
_KILL_PROCESS: Final = 0x80000000


def confine() -> Confinement:
    """Give up access to everything except open file descriptors; return the kernel feature that enforces this.

    The result is "seccomp", or "rlimits" if the system does not support the seccomp filter.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit in _ZERO_LIMITS:
        resource.setrlimit(limit, (0, 0))
    instructions = _filter_for(os.uname().machine)
    if instructions is None:
        return "rlimits"
    # The C types struct sock_filter, of which each instruction is one, and struct sock_fprog.
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))
    program = struct.pack("HP", len(instructions), ctypes.addressof(code))
    is_filtered = libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0) == 0
    return "seccomp" if is_filtered else "rlimits"


def _filter_for(machine: str) -> list[tuple[int, int, int, int]] | None:
    """Return the seccomp filter for the machine architecture ``machine``; None if the architecture is not supported.

    The filter is a list of BPF instructions: (code, jump if true, jump if false, operand). A jump is the number of
    instructions to skip after a comparison.
    """
    if machine not in _AUDIT_ARCH or sys.maxsize < 2**32:
        return None
    column = 0 if machine == "x86_64" else 1
    numbers = [number for each in _PERMITTED_CALLS.values() if (number := each[column]) is not None]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_JUMP_IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        # Jump to the last instruction, past the remaining comparisons and the refusal.
        *((_JUMP_IF_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)),
        (_RETURN, 0, 0, _FAIL_WITH_EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
