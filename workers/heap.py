"""How a worker's process deals with memory: its own garbage, and what it gives back to the system."""

import ctypes
import gc

_COLLECTED_AFTER = 20_000, 20, 20
_ALONE_FROM_BYTES = 64 * 1024
_M_MMAP_THRESHOLD = -3


def tend_heap() -> None:
    """Settle both, for this process.

    Garbage collection walks over what tens of thousands of channels need, in which there are no cycles: every 700 new
    objects, as is usual, it takes a quarter of a busy worker's time. And once glibc has seen a large block freed, it
    takes the next from the heap, where what is gone leaves holes: with a fixed limit it does not.
    """
    gc.set_threshold(*_COLLECTED_AFTER)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _ALONE_FROM_BYTES)
