"""How often the timer of a process ticks, and at which ticks a periodic task runs (:mod:`service.tick_timer`)."""

from math import ceil
from typing import Final

_LONGEST_INTERVAL_S: Final = 2.5
_TICKS_PER_MAINTENANCE: Final = 3
_TICKS_PER_LEASE: Final = 3


def tick_interval_s(maintenance_interval_s: float, lease_s: float) -> float:
    """Return the interval in seconds between the ticks of a process.

    It satisfies these conditions:

    - A lease (``lease_s`` seconds) lasts at least three ticks, because leases are renewed at each tick.
    - The maintenance interval is a whole number of ticks, at least three.
    """
    most = min(_LONGEST_INTERVAL_S, maintenance_interval_s / _TICKS_PER_MAINTENANCE, lease_s / _TICKS_PER_LEASE)
    return maintenance_interval_s / ceil(maintenance_interval_s / most - 1e-9)


def ticks_per_run(interval_s: float, tick_s: float) -> int:
    """Return after how many ticks a task that runs about every ``interval_s`` seconds runs again; at least one."""
    return max(1, round(interval_s / tick_s))
