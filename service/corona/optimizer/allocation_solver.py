"""The Honeycomb optimiser: the number of polls of each channel, as a real number (Corona §3.2).

A channel's *size* n is the number of its polls per poll interval τ, made by all nodes together. If n is below 1, one
node polls the channel every τ/n seconds. A channel has a weight w (its importance), a cost s per poll, and bounds:
``least`` ≤ n ≤ ``most``. The optimiser either minimises Σ w/n with an upper bound on the load Σ s·n, or minimises the
load with an upper bound on Σ w/n.

By the method of Lagrange multipliers, the optimum is n = clip(c·√(w/s), least, most), with one factor c for all
channels, the *scale*. This is why the nodes of a fleet only have to agree on c.

If not all constraints can be satisfied, ``most`` (what a publisher accepts) takes precedence over ``least`` (how long
subscribers may wait). So does the budget, because it is a promise to publishers, while the longest wait is only a
preference. A scale may therefore be negative: at -0.3, every channel has 70 % of its minimum size, and at -1 there are
no polls. Sizes grow continuously with the scale.

Deviation from the paper: the paper allows only the sizes of its polling levels, n = N/bˡ for N nodes, base b and level
l (``simulate.paper_levels``).
"""

from bisect import bisect_left
from math import inf
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.corona.optimizer.objectives import Floats

UNBOUNDED_SCALE = inf
"""The scale of a site whose channels stay within its request budget: no channel is limited."""


class AllocationProblem(NamedTuple):
    """The input of the optimiser for M channels; all arrays have shape (M,) and contain 64-bit floats.

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
        """Create a problem; each argument is an array with one value per channel, or one value for all channels.

        Raises:
            ValueError: A value is outside the range that :class:`AllocationProblem` states.
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

        A channel's number of polls is proportional to this value, within the channel's minimum and maximum.
        """
        return np.sqrt(self.weights / self.costs)


def sizes(problem: AllocationProblem, scale: float) -> Floats:
    """Return each channel's number of polls per poll interval τ at the scale ``scale``; shape (M,).

    It is ``scale``·√(weight/cost), limited to the channel's bounds. A negative scale, down to -1, reduces all channels
    below their minimum: at -0.3, each channel has 70 % of its minimum.
    """
    if scale < 0:
        return np.asarray(max(0.0, 1 + scale) * np.minimum(problem.least, problem.most))
    return np.minimum(np.maximum(scale * problem.slopes(), problem.least), problem.most)


def load(problem: AllocationProblem, size: Floats) -> float:
    """Return the total cost of all polls within one poll interval τ.

    ``size`` contains the number of polls of each channel of ``problem`` per τ.
    """
    return float((problem.costs * size).sum())


def apply_site_scales(problem: AllocationProblem, scales: Floats) -> AllocationProblem:
    """Return the problem with ``most`` (and ``least`` if necessary) reduced so that no site exceeds its request budget.

    Args:
        problem: M channels.
        scales: For each channel, the scale at which the channels of its site use exactly the site's budget; shape
            (M,), at least -1. ``UNBOUNDED_SCALE`` means that the channel's bounds are not reduced.

    Each channel's maximum is reduced to ``scale``·√(weight/cost) if it is higher. If a site's budget does not suffice
    for the ``least`` of all its channels, each ``least`` is reduced by the same factor. The result is optimal if all
    polls of a site's channels cost the same.

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
        budget: Maximum total cost of all polls within one τ, in the same unit as ``problem.costs``. The result
            keeps to it up to rounding errors (10⁻¹²).

    If the budget suffices for the maximum size of every channel, the result is the lowest scale at which all channels
    reach their maximum. If it does not suffice for the minimum sizes, the result is negative.

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
    """Return the scale that minimises the cost of polls subject to a maximum mean delay (Corona-Fast).

    At this scale, the sizes n (polls per poll interval τ) minimise the cost Σ s·n, while the mean delay Σ w·D/Σ w is at
    most ``delay_s``. Here w is a channel's weight, s the cost of one poll, and D = τ/(2n) the channel's delay.

    Args:
        problem: The channels. Channels that may not be polled at all are ignored.
        delay_s: The upper limit of the mean delay in seconds. The result keeps to it up to rounding errors (10⁻¹²).
        poll_interval_s: τ, in seconds.
        total_weight: Σ w. It is required if each channel of ``problem`` stands for a cluster of channels, because
            its weight is then not the sum of the weights in the cluster.

    - If even the maximum sizes do not achieve the delay, the result is the lowest scale at which all channels with a
      finite maximum reach that maximum.
    - If the minimum sizes already achieve the delay, the result is a scale at which all channels have their minimum.
    - If there is a budget too, use the lower of this scale and the result of :func:`scale_for_budget`. The lower scale
      respects the budget, and comes as close to the delay as the budget allows.

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
    """Return arrays (rises, starts, ends) that describe the costs of the channels for which ``chosen`` is true.

    At the scale c, all polls of a channel together cost rise·clip(c, start, end) per poll interval τ.
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
        ends: Shape (K,), may be infinite. If an end is below its start, the term is rise·end for every x.
        target: Finite. If the sum at x = 0 already exceeds it, the result is 0. If the sum never reaches it, the
            result is the lowest x beyond which the sum is constant.
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
