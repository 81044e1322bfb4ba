"""A clock of simulated seconds that calls functions at simulated times."""

import heapq
from collections.abc import Callable
from itertools import count


class VirtualClock:
    """The simulated time, and a queue of function calls that are due at later times."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call ``act`` in ``delay_s`` simulated seconds.

        Calls at the same time are made in the order in which they were added.
        """
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._order), act))

    def run_until(self, end_s: float) -> None:
        """Advance the simulated time to ``end_s``, and make all calls that are due until then, in order of time."""
        while self._due and self._due[0][0] <= end_s:
            self.now_s, _, act = heapq.heappop(self._due)
            act()
        self.now_s = end_s
