"""The Honeycomb optimiser: the number of polls of each channel, as a real number (Corona §3.2).

A channel's *size* n is the number of its polls per poll interval τ by all nodes together. If n is below 1, one node
polls every τ/n. A channel has a weight w (its importance), a cost s of one poll, and bounds: ``least`` ≤ n ≤ ``most``.
The optimiser minimises Σ w/n under an upper bound of the load Σ s·n, or the load under an upper bound of Σ w/n.

By the method of Lagrange, the optimum is n = clip(c·√(w/s), least, most) with one number c for all channels, the
*scale*. A fleet only has to agree on c.

If not all constraints can be satisfied, ``most`` (what a publisher accepts) takes precedence over ``least`` (how long
subscribers may wait). The budget takes precedence over ``least`` too: it is a promise to publishers, the longest wait a
preference. A scale may therefore be negative, down to -1: at -0.3, every channel has 70 % of its minimum size, and at
-1 there are no polls. Sizes grow continuously with the scale.

Deviation from the paper: the paper chooses among the sizes n = N/bˡ of its levels (``simulate.paper_levels``).
"""

from bisect import bisect_left
from math import inf
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.corona.optimizer.objectives import Floats

UNBOUNDED_SCALE = inf
"""The scale of a site whose request budget is not reached by the polls of its channels: no channel is limited."""


class AllocationProblem(NamedTuple):
    """The input of the optimiser for M channels; all arrays have shape (M,) and are 64-bit floats.

    - ``weights``: the importance of each channel, finite and not negative.
    - ``costs``: the cost of one poll of each channel, positive and in any unit.
    - ``least``, ``most``: the minimum and the maximum of each channel's polls per poll interval τ. The maximum may be
      infinite.
    """

    weights: Floats
    costs: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, weights: ArrayLike, costs: ArrayLike = 1.0, *, least: ArrayLike = 0.0, most: ArrayLike = inf) -> Self:
        """Return the problem with these fields; each is an array with one number per channel, or one number for all.

        Raises:
            ValueError: A number is outside the range that :class:`AllocationProblem` states.
        """
        spread = np.broadcast_arrays(*(np.asarray(given, dtype=np.float64) for given in (weights, costs, least, most)))
        problem = cls(*map(np.ascontiguousarray, spread))
        finite = (problem.weights, problem.costs, problem.least)
        is_valid = all(np.isfinite(part).all() for part in finite) and all((part >= 0).all() for part in problem)
        if not is_valid or not (problem.costs > 0).all():
            raise ValueError("Weights and bounds must not be negative, costs be positive, and only most be infinite.")
        return problem

    def slopes(self) -> Floats:
        """Return √(weight/cost) of each channel.

        Between its bounds, a channel's number of polls is proportional to this value.
        """
        return np.sqrt(self.weights / self.costs)


def sizes(problem: AllocationProblem, scale: float) -> Floats:
    """Return each channel's number of polls per poll interval τ at this scale, shape (M,).

    It is ``scale``·√(weight/cost), within the channel's bounds. A negative scale, down to -1, reduces all channels
    below their minimum: at -0.3, each has 70 % of it.
    """
    if scale < 0:
        return np.asarray(max(0.0, 1 + scale) * np.minimum(problem.least, problem.most))
    return np.minimum(np.maximum(scale * problem.slopes(), problem.least), problem.most)


def load(problem: AllocationProblem, size: Floats) -> float:
    """Return the cost of all polls within one poll interval τ.

    ``size`` has the number of polls of each channel of ``problem`` per τ.
    """
    return float((problem.costs * size).sum())


def apply_site_scales(problem: AllocationProblem, scales: Floats) -> AllocationProblem:
    """Return the problem with ``most`` (and ``least`` if necessary) reduced so that no site exceeds its request budget.

    Args:
        problem: M channels.
        scales: For each channel, the scale at which the channels of its site use exactly the site's budget; shape (M,),
            at least -1. ``UNBOUNDED_SCALE`` stands for no reduction.

    The maximum of a channel becomes at most ``scale``·√(weight/cost). If the budget does not suffice for the minimum
    sizes of a site's channels, all of them are reduced in proportion. The result is optimal if all polls of a site's
    channels cost the same.

    Deviation from the paper: the paper bounds only the total.
    """
    # With a budget for each site, a channel's optimal scale is the minimum of its site's scale and the fleet's scale. A
    # site's scale therefore amounts to a lower maximum size of each of its channels, whatever the fleet's scale is.
    bound = np.isfinite(scales)
    if not bound.any():
        return problem
    least = np.minimum(problem.least, problem.most)
    least = np.where(bound, least * np.clip(1 + scales, 0.0, 1.0), problem.least)
    site_sizes = np.where(bound, scales, 0.0) * problem.slopes()
    most = np.where(bound, np.minimum(np.maximum(site_sizes, least), problem.most), problem.most)
    return problem._replace(least=least, most=most)


def scale_for_budget(problem: AllocationProblem, budget: float) -> float:
    """Return the scale that minimises the mean delay of the channels within a budget (Corona-Lite and -Fair).

    At this scale, the sizes n (polls per poll interval τ) minimise Σ w/n subject to Σ s·n ≤ budget. Here w is a
    channel's weight and s the cost of one poll.

    Args:
        problem: The channels.
        budget: Maximum cost of all polls within one τ, in the unit of the costs. It is satisfied up to rounding
            (10⁻¹²).

    If the budget suffices for all maximum sizes, the result is the lowest scale at which all channels reach these. If
    it does not suffice for all minimum sizes, the result is negative.

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
    """Return the scale that minimises the cost of polls within a mean delay (Corona-Fast).

    At this scale, the sizes n (polls per poll interval τ) minimise Σ s·n. Here w is a channel's weight and s the cost
    of one poll.

    Args:
        problem: The channels; with Fast's weights the delay is that of a subscription.
        delay_s: The upper limit of the mean delay Σ w·D/Σ w in seconds, with D = τ/(2n). It is satisfied up to rounding
            (10⁻¹²).
        poll_interval_s: τ, in seconds.
        total_weight: Σ w. It is required if the channels of ``problem`` stand for clusters, because their weights are
            not the sums of the clusters' weights.

    - If the maximum sizes do not suffice for the delay, the result is the lowest scale at which all channels with a
      finite maximum reach it.
    - If the minimum sizes suffice, the result is a scale at which all channels have these.
    - Channels that may not be polled at all are ignored.
    - If there is a budget too, use the lower of the two scales. It satisfies the budget, and the delay as far as
      possible.

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
    """Return the arrays (rises, starts, ends) of the channels for which ``chosen`` is true.

    At the scale c, the polls of such a channel cost rise·clip(c, start, end) per poll interval τ.
    """
    if not chosen.all():
        problem = AllocationProblem(*(part[chosen] for part in problem))
    slopes = problem.slopes()
    ends = problem.most / slopes
    return problem.costs * slopes, np.minimum(problem.least / slopes, ends), ends


def solve_clipped_sum(rises: Floats, starts: Floats, ends: Floats, target: float) -> float:
    """Return the lowest x ≥ 0 at which Σ rise·clip(x, start, end) reaches ``target``.

    Args:
        rises: Non-negative, finite, shape (K,).
        starts: Non-negative, finite, shape (K,).
        ends: Shape (K,), may be infinite. If an end is below its start, the term is always rise·end.
        target: Finite. If the sum at 0 exceeds it, the result is 0. If the sum never reaches it, the result is the
            lowest x beyond which the sum is constant.
    """
    # Every scale is the solution of an equation of this form. The sum is linear between consecutive starts and ends;
    # the segment on which it reaches the target is found by bisection.

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
