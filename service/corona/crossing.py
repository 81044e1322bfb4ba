"""Where Σ rise·clip(x, start, end) crosses a target: the one equation behind every scale.

The sum grows with x, linearly between the starts and ends. Newton's step is therefore exact as soon
as it is taken on the right piece, and usually is after a handful; a bisection after every third
keeps odd sums from costing more than some dozens. Each step is one pass over the channels, and none
sorts: O(M) in practice where the paper's bracketing is O(M log M).
"""

from math import inf, sqrt

import numpy as np

from service.corona.goals import Floats

MAX_STEPS = 400
EXACT = 1e-14
"""Relative distance from the target that rounding alone may leave."""


def crossing(rises: Floats, starts: Floats, ends: Floats, target: float) -> float:
    """Return the least x ≥ 0 at which the sum reaches ``target``.

    Args:
        rises: Non-negative, finite, shape (K,).
        starts: Non-negative, finite.
        ends: Where they are below their starts, they win; may be infinite.
        target: Finite. What the sum exceeds at 0 gives 0; what it never reaches, the x from which it stays as it is.
    """
    low, high = 0.0, _last_end(rises, starts, ends)
    if _sum(rises, starts, ends, low) >= target:
        return low
    if high < inf and _sum(rises, starts, ends, high) <= target:
        return high
    x = min(target / float(rises.sum()), high)
    for step in range(1, MAX_STEPS):
        short = target - _sum(rises, starts, ends, x)
        if abs(short) <= EXACT * abs(target):
            break
        low, high = (x, high) if short > 0 else (low, x)
        slope = _slope(rises, starts, ends, x, upwards=short > 0)
        newton = x + short / slope if slope > 0 else inf
        if not low < newton < high or step % 4 == 0:
            newton = _between(low, high)
        if newton in (low, high):
            break
        x = newton
    return x


def _sum(rises: Floats, starts: Floats, ends: Floats, x: float) -> float:
    return float(rises @ np.minimum(np.maximum(starts, x), ends))


def _slope(rises: Floats, starts: Floats, ends: Floats, x: float, *, upwards: bool) -> float:
    moving = (starts <= x) & (x < ends) if upwards else (starts < x) & (x <= ends)
    return float(rises @ moving)


def _last_end(rises: Floats, starts: Floats, ends: Floats) -> float:
    moving = (rises > 0) & (starts < ends)
    return float(ends.max(where=moving, initial=0.0))


def _between(low: float, high: float) -> float:
    """Return the middle, in orders of magnitude where both ends have one."""
    if high == inf:
        return 2 * low
    return sqrt(low) * sqrt(high) if low > 0 else high / 2
