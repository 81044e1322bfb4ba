"""The paper's own mode: n is one of N/bˡ, and Honeycomb chooses each channel's level l (Corona §3.1, §3.2).

With a multiplier λ each channel has its own best level, argmin w/n + λ·s·n, and changes it at the
breakpoints λ = -Δf/Δg = (w/s)/(n·n'), n and n' being neighbouring sizes. As λ falls, channels take
their steps in the order of these breakpoints, so that the constraint is bracketed by two solutions
that differ in one channel's step; the one that keeps the constraint is taken.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from service.corona.goals import Floats
from service.corona.honeycomb import Problem, load

NONE = -1
_ROUNDING = 1e-6
"""Bounds may have travelled as 32-bit numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What Honeycomb has chosen.

    ``sizes`` are n by channel, shape (M,). ``multiplier`` is λ: all steps with greater breakpoints are taken, and
    of equal ones the first that fit. ``undecided`` is the channel whose step makes the bracket's two sides differ
    (``NONE`` if all steps are taken, or none can be); the step is from the one size to the other. If it is a cluster of
    many channels, the constraint is met exactly when this ``share`` of them takes it.
    """

    sizes: Floats
    multiplier: float
    undecided: int = NONE
    step: tuple[float, float] = (0.0, 0.0)
    share: float = 0.0


def level_sizes(nodes: int, base: int) -> Floats:
    """Return how many nodes poll at each level, on average: N/bˡ for l = 0, 1, … K, and 1 at the last.

    Raises:
        ValueError: There is no node, or the base is below 2.
    """
    if nodes < 1 or base < 2:  # noqa: PLR2004 - no number system has a smaller base
        raise ValueError(f"There are no levels of {nodes} nodes to base {base}.")
    found = [float(nodes)]
    while found[-1] > 1:
        found.append(max(1.0, found[-1] / base))
    return np.array(found)


def sizes_at(problem: Problem, options: Floats, multiplier: float) -> Floats:
    """Return each channel's best size at this λ, shape (M,): what a node does with the λ that the fleet agrees on.

    Args:
        problem: The channels. Of ``options``, each takes those between its least and most; ``most`` wins, and a
            channel that no option suits takes the nearest.
        options: The sizes there are, such as :func:`level_sizes`, in any order.
        multiplier: λ, not negative.
    """
    options, lowest, highest = _bounded(problem, options)
    ratios = problem.weights / problem.costs
    taken = sum((ratios > multiplier * product for product in options[:-1] * options[1:]), np.zeros_like(lowest))
    return np.asarray(options[np.clip(taken, lowest, highest)])


def levels_for_budget(problem: Problem, options: Floats, budget: float) -> Solution:
    """Return the sizes that minimise Σ w/n within Σ s·n ≤ budget, but for one step of one channel.

    A budget that does not allow every channel's least has the wishes for least given up; one that does not even
    allow everybody's smallest option is overdrawn: somebody has to poll each channel.
    """
    base_cost = load(problem, sizes_at(problem, options, inf))
    if base_cost > budget and problem.least.any():
        problem = Problem(problem.weights, problem.costs, np.zeros_like(problem.least), problem.most)
        base_cost = load(problem, sizes_at(problem, options, inf))
    return _taken(problem, options, problem.costs, lambda size: size, budget - base_cost, reach=False)


def levels_for_delay(problem: Problem, options: Floats, delay_s: float, poll_interval_s: float) -> Solution:
    """Return the sizes that minimise Σ s·n within Σ w·D/Σ w ≤ delay_s, D = τ/(2n), but for one step of one channel.

    A delay that the options do not allow gets every channel's most.
    """
    allowed = float(problem.weights.sum()) * 2 * delay_s / poll_interval_s
    slowest = float((problem.weights / sizes_at(problem, options, inf)).sum())
    return _taken(problem, options, problem.weights, lambda size: -1 / size, slowest - allowed, reach=True)


def _bounded(problem: Problem, options: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    """Return the options in order, and the places of each channel's lowest and highest one."""
    options = np.unique(options)
    highest = np.maximum(np.searchsorted(options, problem.most * (1 + _ROUNDING), side="right") - 1, 0)
    return options, np.minimum(np.searchsorted(options, problem.least * (1 - _ROUNDING)), highest), highest


def _taken(
    problem: Problem,
    options: Floats,
    amounts: Floats,
    measure: Callable[[Floats], Floats],
    allowance: float,
    *,
    reach: bool,
) -> Solution:
    """Take channels' steps from one option to the next in the order of their breakpoints, as long as they fit.

    A step uses up a channel's amount times the difference of the options' measures. To ``reach`` the allowance, the
    next step is taken, too.
    """
    options, lowest, highest = _bounded(problem, options)
    ratios, steps = problem.weights / problem.costs, np.arange(len(options) - 1)
    can_take = (lowest[:, None] <= steps) & (steps < highest[:, None]) & (ratios[:, None] > 0)
    channels, steps = np.nonzero(can_take)
    breakpoints = ratios[channels] / (options[steps] * options[steps + 1])
    order = np.lexsort((channels, steps, -breakpoints))
    channels, steps, breakpoints = channels[order], steps[order], breakpoints[order]
    uses = amounts[channels] * np.diff(measure(options))[steps]
    used = np.cumsum(uses)
    count = int(np.searchsorted(used, allowance, side="right")) if allowance > 0 else 0
    choices = lowest + np.bincount(channels[:count], minlength=len(lowest))
    if allowance <= 0 or count == len(used):
        return Solution(options[choices], inf if allowance <= 0 else 0.0)
    left = allowance - (float(used[count - 1]) if count else 0.0)
    undecided, step = int(channels[count]), int(steps[count])
    choices[undecided] += reach and left > 0
    sides = float(options[step]), float(options[step + 1])
    # However the product is rounded, at this λ the undecided step is not taken.
    multiplier = float(np.nextafter(breakpoints[count], inf))
    return Solution(options[choices], multiplier, undecided, sides, left / float(uses[count]))
