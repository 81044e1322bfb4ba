"""Where Σ rise·clip(x, start, end) crosses a target: the one equation behind every scale.

The sum grows with x, linearly between the starts and ends. Newton's step is therefore exact as soon
as it is taken on the right piece, and usually is after a handful; a bisection after every third
keeps odd sums from costing more than some dozens. Lines that start or end nowhere between the best
bounds so far are added up once and left out, so that all steps together cost a few passes over the
channels, without a sort: O(M) in practice where the paper's bracketing is O(M log M).
"""

from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from service.corona.goals import Floats

MAX_STEPS = 400
EXACT = 1e-13
"""Relative distance from the target that rounding alone may leave."""


def crossing(rises: Floats, starts: Floats, ends: Floats, target: float) -> float:
    """Return the least x ≥ 0 at which the sum reaches ``target``.

    Args:
        rises: Non-negative, finite, shape (K,).
        starts: Non-negative, finite.
        ends: Where they are below their starts, they win; may be infinite.
        target: Finite. What the sum exceeds at 0 gives 0; what it never reaches, the x from which it stays as it is.
    """
    lines = _Lines(rises, starts, ends)
    low, high = 0.0, lines.last_end()
    if lines.sum_at(low) >= target:
        return low
    if high < inf and lines.sum_at(high) <= target:
        return high
    x = min(target / float(rises.sum()), high)
    for step in range(1, MAX_STEPS):
        short = target - lines.sum_at(x)
        if abs(short) <= EXACT * abs(target):
            break
        slope = lines.slope_at(x, upwards=short > 0)
        low, high = (x, high) if short > 0 else (low, x)
        lines = lines.between(low, high)
        new = x + short / slope if slope > 0 else inf
        if not low < new < high or step % 4 == 0:
            new = _between(low, high)
        if new in (low, high):
            break
        x = new
    return x


class _Lines:
    """The sum and its slope between two bounds: what is settled there, and the lines that start or end in between.

    Without new memory for each step: room for a million numbers takes longer to get than they take to add. And
    without BLAS, whose threads add in any order: the same numbers are to give the same scale every time.
    """

    def __init__(
        self, rises: Floats, starts: Floats, ends: Floats, settled: float = 0.0, settled_slope: float = 0.0
    ) -> None:
        self._rises, self._starts, self._ends = rises, starts, ends
        self._settled, self._settled_slope = settled, settled_slope
        self._clipped = np.empty_like(rises)

    def sum_at(self, x: float) -> float:
        np.maximum(self._starts, x, out=self._clipped)
        np.minimum(self._clipped, self._ends, out=self._clipped)
        np.multiply(self._clipped, self._rises, out=self._clipped)
        return float(self._clipped.sum()) + self._settled + self._settled_slope * x

    def slope_at(self, x: float, *, upwards: bool) -> float:
        """Return the slope of the piece after x, or before it."""
        moving = (self._starts <= x) & (x < self._ends) if upwards else (self._starts < x) & (x <= self._ends)
        return self._total(moving) + self._settled_slope

    def between(self, low: float, high: float) -> "_Lines":
        """Return what is the same from ``low`` to ``high``, with the lines settled that are straight there."""
        bent = ((self._starts > low) & (self._starts < high)) | ((self._ends > low) & (self._ends < high))
        if 2 * np.count_nonzero(bent) > len(bent):
            return self
        rising = (self._starts <= low) & (self._ends >= high)
        np.minimum(np.maximum(self._starts, low, out=self._clipped), self._ends, out=self._clipped)
        flat = float((self._clipped * self._rises).sum(where=~(bent | rising)))
        return _Lines(
            self._rises[bent],
            self._starts[bent],
            self._ends[bent],
            self._settled + flat,
            self._settled_slope + self._total(rising),
        )

    def last_end(self) -> float:
        moving = (self._rises > 0) & (self._starts < self._ends)
        return float(self._ends.max(where=moving, initial=0.0))

    def _total(self, chosen: NDArray[np.bool_]) -> float:
        np.multiply(self._rises, chosen, out=self._clipped)
        return float(self._clipped.sum())


def _between(low: float, high: float) -> float:
    """Return the middle, in orders of magnitude where both ends have one."""
    if high == inf:
        return 2 * low
    return sqrt(low) * sqrt(high) if low > 0 else high / 2
