"""The clock interface: monotonic time for durations, wall time for dates.

Leases, timers and measurements use ``monotonic_s``, which is not affected by adjustments of the system time.
``wall_s`` (Unix time) is only for dates that people or publishers see, such as in messages and HTTP headers.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The time source of packages that do I/O; pure packages take times as arguments."""

    def monotonic_s(self) -> float:
        """Return seconds since an arbitrary fixed instant; never decreases."""
        ...

    def wall_s(self) -> float:
        """Return the system's Unix time in seconds."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def monotonic_s(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Return ``time.time()``."""
        return time.time()
