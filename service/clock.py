"""The clock interface: monotonic time for durations, wall time for dates.

- ``monotonic_s`` is for leases, timers and measurements. Adjustments of the system time do not affect it.
- ``wall_s`` (Unix time) is only for dates that are stored or shown, for example in messages and HTTP headers.

The clocks of workers' machines may differ. Workers therefore use the clock of the Redis server as wall time
(:class:`FleetClock`).
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time for code that does I/O.

    Code without I/O does not use a clock. It receives times as arguments.
    """

    def monotonic_s(self) -> float:
        """Return the seconds since an arbitrary fixed point in time; the value never decreases."""
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
    """A clock whose Unix time follows the clock of the Redis server, so that all workers agree on it.

    Until the first call of :meth:`set_wall`, it uses the operating system's Unix time.
    """

    def __init__(self) -> None:
        """Create a clock that initially shows the operating system's time."""
        self._ahead_s = time.time() - time.monotonic()

    def wall_s(self) -> float:
        """Return the Unix time (in seconds) that all workers of the fleet share."""
        return self.monotonic_s() + self._ahead_s

    def set_wall(self, wall_s: float, at_monotonic_s: float) -> None:
        """Set the Unix time from a reading of the Redis server's clock.

        - ``wall_s``: the Unix time in seconds that the server returned.
        - ``at_monotonic_s``: the value of :meth:`monotonic_s` at the moment when the server read its clock.
        """
        self._ahead_s = wall_s - at_monotonic_s
