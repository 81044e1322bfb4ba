"""The clock interface: monotonic time for durations, wall time for dates.

Leases, timers and measurements use ``monotonic_s``, which is not affected by adjustments of the system time.
``wall_s`` (Unix time) is only for dates that are stored, or that people or publishers see, such as in messages and HTTP
headers. Workers take it from the store's clock (:class:`FleetClock`), because their own clocks may differ.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time for packages that do I/O; pure packages get times as arguments."""

    def monotonic_s(self) -> float:
        """Return the seconds since an arbitrary fixed instant, which never decrease."""
        ...

    def wall_s(self) -> float:
        """Return the Unix time in seconds."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def monotonic_s(self) -> float:
        """Return the operating system's monotonic time in seconds."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Return the operating system's Unix time in seconds."""
        return time.time()


class FleetClock(SystemClock):
    """A clock whose Unix time follows the clock of the Redis server, on which all workers agree.

    Until the first call of :meth:`set_wall`, the Unix time is the operating system's.
    """

    def __init__(self) -> None:
        """Create a clock that shows the operating system's time."""
        self._ahead_s = time.time() - time.monotonic()

    def wall_s(self) -> float:
        """Return the fleet's common time (Unix seconds)."""
        return self.monotonic_s() + self._ahead_s

    def set_wall(self, wall_s: float, at_monotonic_s: float) -> None:
        """Set the Unix time: it was ``wall_s`` when the monotonic clock showed ``at_monotonic_s``, both in seconds."""
        self._ahead_s = wall_s - at_monotonic_s
