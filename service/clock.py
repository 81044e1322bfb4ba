"""Two clocks, because they answer different questions.

``monotonic_s`` measures how long something takes and is what leases and timers use: a jump of
the wall clock must not matter. ``wall_s`` (Unix time) is only for what people and publishers
see: dates in messages, HTTP dates.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where an I/O room gets the time; pure rooms get times as arguments instead."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed, arbitrary instant; never goes back."""
        ...

    def wall_s(self) -> float:
        """Unix time in seconds, as the machine believes it to be."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic_s(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Return ``time.time()``."""
        return time.time()
