"""The clock interface: monotonic time for durations, wall time for dates.

Leases, timers and measurements use ``monotonic_s``, which is not affected by adjustments of the system time.
``wall_s`` (Unix time) is only for dates that people or publishers see, such as in messages and HTTP headers.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time for packages that do I/O; pure packages get times as arguments."""

    def monotonic_s(self) -> float:
        """Return the seconds since an arbitrary fixed instant, which never decrease."""
        ...

    def wall_s(self) -> float:
        """Return the system's Unix time in seconds."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def monotonic_s(self) -> float:
        """Return the operating system's monotonic time in seconds."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Return the operating system's Unix time in seconds."""
        return time.time()
