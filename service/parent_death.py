"""Ends a process when its parent dies for any reason, also with SIGKILL (``PR_SET_PDEATHSIG``, prctl(2))."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
# Loaded here, because a process that has just been forked should do as little as possible.
_libc = ctypes.CDLL(None)


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent process, ``parent``, dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died between fork and prctl
        os._exit(1)
