"""Garbage collection and memory allocation of a process with tens of thousands of channels."""

import ctypes
import gc
from typing import Final

_GC_THRESHOLDS: Final = 20_000, 20, 20
_MMAP_THRESHOLD_BYTES: Final = 64 * 1024
_M_MMAP_THRESHOLD: Final = -3


def configure_memory() -> None:
    """Configure garbage collection and the memory allocator. A program calls this before it imports its modules.

    - Garbage collection runs less often than by default.
    - glibc allocates each block above a certain size as a separate memory mapping. This size is fixed here, because
      glibc would otherwise increase it while the process runs.
    """
    # Garbage collection traverses the channels' state, which has no reference cycles. At Python's default threshold of
    # 700 new objects, this takes a quarter of a busy worker's time, and a tenth of the time of starting a program.
    #
    # glibc raises the size for separate mappings whenever such a block is freed. Later blocks would then come from the
    # heap and leave holes in it.
    gc.set_threshold(*_GC_THRESHOLDS)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
