"""The Honeycomb optimiser: the number of polls of each channel (Corona §3.2), as a real number.

The problem is to minimise Σ w/n subject to Σ s·n ≤ B, or the converse, with least ≤ n ≤ most for each channel. By the
method of Lagrange the optimum is n = clip(c·√(w/s), least, most) with one c for all channels, so that a fleet only has
to agree on this *scale*. Deviation: the paper chooses among the sizes n = N/bˡ of its levels
(``simulate.paper_levels``).

n is the number of polls of a channel per τ by all its nodes together. Below 1, one node polls every τ/n.

If not all constraints can be satisfied, ``most`` (what a publisher accepts) takes precedence over ``least`` (how long
subscribers may wait), and so does the budget: the longest wait is a preference, the budget a promise to publishers. A
scale may therefore be negative: -0.3 leaves every channel at 30 % below its least. Sizes grow continuously with the
scale, from -1 (no polls) upwards.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import inf
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.corona.objectives import Floats

UNBOUNDED_SCALE = inf
"""The scale of a site whose budget does not bind."""


@dataclass(frozen=True, slots=True, eq=False)
class AllocationProblem:
    """The input of the optimiser for M channels; all arrays have shape (M,) and are 64-bit floats.

    ``weights`` are those of a goal, finite and not negative. ``costs`` are the costs of one poll (1 for all, or bytes,
    …), positive. ``least`` and ``most`` bound n in polls per τ; ``most`` may be infinite.
    """

    weights: Floats
    costs: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, weights: ArrayLike, costs: ArrayLike = 1.0, *, least: ArrayLike = 0.0, most: ArrayLike = inf) -> Self:
        """Return the problem, with scalars broadcast to all channels.

        Raises:
            ValueError: A number is outside the range that :class:`AllocationProblem` states.
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
        """Return √(w/s), the growth of each channel's n with the scale."""
        return np.sqrt(self.weights / self.costs)


def sizes(problem: AllocationProblem, scale: float) -> Floats:
    """Return n of each channel in polls per τ, shape (M,), at this scale; the module describes negative scales."""
    if scale < 0:
        return np.asarray(max(0.0, 1 + scale) * np.minimum(problem.least, problem.most))
    return np.minimum(np.maximum(scale * problem.slopes(), problem.least), problem.most)


def load(problem: AllocationProblem, size: Floats) -> float:
    """Return the load Σ s·n, the cost of all polls within one τ."""
    return float((problem.costs * size).sum())


def apply_site_scales(problem: AllocationProblem, scales: Floats) -> AllocationProblem:
    """Return the problem with ``most`` (and ``least`` if necessary) reduced so that sites' budgets are kept.

    Args:
        problem: M channels.
        scales: The scale of each channel's site, shape (M,), at least -1; ``UNBOUNDED_SCALE`` for no reduction.

    Deviation: the paper bounds only the total. A constraint Σ n ≤ budget per site has an optimum of the same kind: a
    scale for each site, at which its channels use up exactly its budget. A channel's scale is then the lesser of its
    site's and c, so that a site's budget is a lower ``most`` for each of its channels, whatever c is. This is exact if
    all polls of a site's channels cost the same. If the channels' least exceeds the site's budget, all are reduced in
    proportion.
    """
    bound = np.isfinite(scales)
    if not bound.any():
        return problem
    least = np.minimum(problem.least, problem.most)
    least = np.where(bound, least * np.clip(1 + scales, 0.0, 1.0), problem.least)
    site_sizes = np.where(bound, scales, 0.0) * problem.slopes()
    most = np.where(bound, np.minimum(np.maximum(site_sizes, least), problem.most), problem.most)
    return AllocationProblem(problem.weights, problem.costs, least, most)


def scale_for_budget(problem: AllocationProblem, budget: float) -> float:
    """Return the scale of the sizes that minimise Σ w/n subject to Σ s·n ≤ budget (Corona-Lite and -Fair).

    Args:
        problem: The channels.
        budget: Maximum cost of all polls within one τ, in the unit of the costs.

    If the budget exceeds the cost of all channels at their most, the result is the least scale at which all reach it.
    If it is below the cost of all channels at their least, the result is negative. The budget is kept up to rounding
    (10⁻¹²).

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
        total_weight: Σ w, if the problem's own weights are those of clusters.

    If the delay is unattainable within ``most``, the result is the least scale at which all bounded channels reach
    their most; if all channels at their least already keep it, the result is a scale at which they are at their least.
    Channels that may not be polled at all are ignored. The delay is kept up to rounding (10⁻¹²). Combined with a
    budget, the lesser of both scales keeps the delay if the budget allows it, and always the budget.

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
    """Return (rise, start, end) of each selected channel, such that s·n = rise·clip(c, start, end)."""
    if not chosen.all():
        problem = AllocationProblem(
            *(part[chosen] for part in (problem.weights, problem.costs, problem.least, problem.most))
        )
    slopes = problem.slopes()
    ends = problem.most / slopes
    return problem.costs * slopes, np.minimum(problem.least / slopes, ends), ends


def solve_clipped_sum(rises: Floats, starts: Floats, ends: Floats, target: float) -> float:
    """Return the least x ≥ 0 at which Σ rise·clip(x, start, end) reaches ``target``.

    Every scale is the solution of an equation of this form. The sum is linear between consecutive starts and ends; the
    segment on which it reaches the target is found by bisection.

    Args:
        rises: Non-negative, finite, shape (K,).
        starts: Non-negative, finite.
        ends: May be infinite; an end below its start takes precedence.
        target: Finite. If the sum at 0 exceeds it, the result is 0; if the sum never reaches it, the least x beyond
            which the sum is constant.
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
