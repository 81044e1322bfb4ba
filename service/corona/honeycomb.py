"""How often to poll each channel: the optimum of Honeycomb (Corona §3.2) when n may be any real number.

Minimise Σ w/n subject to Σ s·n ≤ B, or the converse, with least ≤ n ≤ most for each channel. By
Lagrange the optimum is n = clip(c·√(w/s), least, most) with one c for all channels, so that a fleet
only has to agree on that *scale*. We deviate: the paper chooses among n = N/bˡ (``simulate.paper_levels``).

n counts a channel's polls per τ, by all its nodes together. Below 1, one node polls every τ/n.

Who yields when not all can have their way: ``most`` (what a publisher may be asked) before
``least`` (what people may be made to wait), and the budget before ``least`` as well: a longest wait
is a wish, a budget a promise to publishers. So a scale may be negative: -0.3 leaves every channel
at 30 % below its least. Sizes grow steadily with the scale from -1 (nobody polls) on.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import inf
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.corona.objectives import Floats

UNBOUNDED_SCALE = inf
"""The scale of a site that its budget does not bound."""


@dataclass(frozen=True, slots=True, eq=False)
class AllocationProblem:
    """What the sizes of M channels have to weigh up; all of shape (M,), 64-bit floats.

    ``weights`` are those of a goal, finite and not negative. ``costs`` are what one poll costs (1 for all, or
    bytes, …), positive. ``least`` and ``most`` bound n in polls per τ, where ``most`` may be infinite.
    """

    weights: Floats
    costs: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, weights: ArrayLike, costs: ArrayLike = 1.0, *, least: ArrayLike = 0.0, most: ArrayLike = inf) -> Self:
        """Return the problem, each number spread over all channels.

        Raises:
            ValueError: A number is out of the range that :class:`AllocationProblem` tells.
        """
        spread = np.broadcast_arrays(*(np.asarray(given, dtype=np.float64) for given in (weights, costs, least, most)))
        problem = cls(*map(np.ascontiguousarray, spread))
        fine = (
            np.isfinite(problem.weights).all()
            and np.isfinite(problem.costs).all()
            and np.isfinite(problem.least).all()
            and (problem.weights >= 0).all()
            and (problem.costs > 0).all()
            and (problem.least >= 0).all()
            and (problem.most >= 0).all()
        )
        if not fine:
            raise ValueError("Weights and bounds must not be negative, costs be positive, and only most be infinite.")
        return problem

    def slopes(self) -> Floats:
        """Return √(w/s): what a channel's n grows by with the scale."""
        return np.sqrt(self.weights / self.costs)


def sizes(problem: AllocationProblem, scale: float) -> Floats:
    """Return n of each channel in polls per τ, shape (M,), at this scale (see the module for negative ones)."""
    if scale < 0:
        return np.asarray(max(0.0, 1 + scale) * np.minimum(problem.least, problem.most))
    return np.minimum(np.maximum(scale * problem.slopes(), problem.least), problem.most)


def load(problem: AllocationProblem, size: Floats) -> float:
    """Return Σ s·n: what all polls of one τ cost."""
    return float((problem.costs * size).sum())


def apply_site_scales(problem: AllocationProblem, scales: Floats) -> AllocationProblem:
    """Return the problem with ``most`` lowered (and ``least`` where it must be) to what sites' scales leave.

    Args:
        problem: M channels.
        scales: That of each channel's site, shape (M,), at least -1; ``UNBOUNDED_SCALE`` where nothing is to be
        lowered.

    Ours: the paper bounds only the total. One more constraint per site, Σ n ≤ its budget, has the same kind of
    optimum: a scale of the site's own, which uses its budget up alone, and a channel's scale is the lesser of that and
    c. So a site's budget is a lower ``most`` for each of its channels, whatever c turns out to be. This is exact
    where a site's channels cost the same per poll. Politeness wins: a site whose channels' least is over its budget
    has them all lowered in proportion.
    """
    bound = np.isfinite(scales)
    if not bound.any():
        return problem
    least = np.minimum(problem.least, problem.most)
    least = np.where(bound, least * np.clip(1 + scales, 0.0, 1.0), problem.least)
    wanted = np.where(bound, scales, 0.0) * problem.slopes()
    most = np.where(bound, np.minimum(np.maximum(wanted, least), problem.most), problem.most)
    return AllocationProblem(problem.weights, problem.costs, least, most)


def scale_for_budget(problem: AllocationProblem, budget: float) -> float:
    """Return the scale of the sizes that minimise Σ w/n within Σ s·n ≤ budget (Corona-Lite and -Fair).

    Args:
        problem: The channels.
        budget: What all polls of one τ may cost, in the unit of the costs.

    A budget that not even all channels at their most use up gives the least scale that has them there. A
    budget below what their least costs gives a negative scale. The budget is kept but for rounding (10⁻¹²).

    Raises:
        ValueError: The budget is negative or NaN.
    """
    if not budget >= 0:
        raise ValueError(f"A budget must not be negative: {budget}.")
    floors = problem.costs * np.minimum(problem.least, problem.most)
    floor = float(floors.sum())
    if budget < floor:
        return budget / floor - 1
    heavy = problem.weights > 0
    fixed = floor - float(floors.sum(where=heavy))
    rises, starts, ends = _clipped_lines(problem, heavy)
    return solve_clipped_sum(rises, starts, ends, budget - fixed)


def scale_for_delay(
    problem: AllocationProblem, delay_s: float, poll_interval_s: float, *, total_weight: float | None = None
) -> float:
    """Return the scale of the sizes that minimise Σ s·n within a mean delay (Corona-Fast).

    Args:
        problem: The channels; with Fast's weights the delay is that of a subscription.
        delay_s: T, the bound on Σ w·D/Σ w with D = τ/(2n).
        poll_interval_s: τ.
        total_weight: Σ w, where the problem's own weights are those of clusters.

    A delay that the bounds ``most`` do not allow gives the least scale that has all bounded channels at them, and
    one that all at their least keep a scale that has them there. Channels that may not be polled at all do
    not count. The delay is kept but for rounding (10⁻¹²). Where there is a budget as well, the lesser scale keeps both
    bounds, or the budget alone.

    Raises:
        ValueError: The delay or τ is not positive.
    """
    if not (delay_s > 0 and poll_interval_s > 0):
        raise ValueError(f"A delay and a poll interval must be positive: {delay_s}, {poll_interval_s}.")
    helpable = (problem.weights > 0) & (problem.most > 0)
    total = float(problem.weights.sum(where=helpable)) if total_weight is None else total_weight
    target = total * 2 * delay_s / poll_interval_s
    rises, starts, ends = _clipped_lines(problem, helpable)
    if float((rises / ends).sum()) >= target:
        return float(ends.max(initial=0.0, where=(starts < ends) & (ends < inf)))
    # Σ w/n = Σ rise/clip(c, start, end): the same equation as a budget's, in 1/c.
    with np.errstate(divide="ignore"):
        reciprocal = solve_clipped_sum(rises, 1 / ends, 1 / starts, target)
    return 1 / reciprocal if 0 < reciprocal < inf else 0.0


def _clipped_lines(problem: AllocationProblem, chosen: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Return rise, start and end of each chosen channel, such that s·n = rise·clip(c, start, end)."""
    if not chosen.all():
        problem = AllocationProblem(
            *(part[chosen] for part in (problem.weights, problem.costs, problem.least, problem.most))
        )
    slopes = problem.slopes()
    ends = problem.most / slopes
    return problem.costs * slopes, np.minimum(problem.least / slopes, ends), ends


def solve_clipped_sum(rises: Floats, starts: Floats, ends: Floats, target: float) -> float:
    """Return the least x ≥ 0 at which Σ rise·clip(x, start, end) reaches ``target``: the equation behind every scale.

    The sum is straight between the starts and ends; the piece on which it reaches the target is found by bisection.

    Args:
        rises: Non-negative, finite, shape (K,).
        starts: Non-negative, finite.
        ends: Where they are below their starts, they win; may be infinite.
        target: Finite. What the sum exceeds at 0 gives 0; what it never reaches, the x from which it stays as it is.
    """

    def sum_at(x: float) -> float:
        return float((rises * np.minimum(np.maximum(starts, x), ends)).sum())

    if sum_at(0.0) >= target:
        return 0.0
    moving = (rises > 0) & (starts < ends)
    bends = np.unique(np.concatenate((starts[moving], ends[moving & (ends < inf)], (0.0,))))
    piece = bisect_left(bends, target, key=sum_at)
    low = float(bends[max(piece - 1, 0)])
    slope = float(rises.sum(where=moving & (starts <= low) & (ends > low)))
    high = float(bends[piece]) if piece < len(bends) else inf
    if slope > 0:
        return min(low + (target - sum_at(low)) / slope, high)
    return high if high < inf else low
