"""Looking at processes, by Linux's /proc."""

import contextlib
import resource
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def children_of(pid: int) -> list[int]:
    """Return the ids of the processes that this one started itself."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has; 0 if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return 0
