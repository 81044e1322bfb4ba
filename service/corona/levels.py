"""The paper's own mode: n is one of N/bˡ, and Honeycomb chooses each channel's level l (Corona §3.1, §3.2).

With a multiplier λ each channel has its own best level, argmin w/n + λ·s·n, and changes it at the
breakpoints λ = -Δf/Δg = (w/s)/(n·n'), n and n' being neighbouring sizes. As λ falls, channels take
their steps in the order of these breakpoints, so that the constraint is bracketed by two solutions
that differ in one channel's step; the one that keeps the constraint is taken.

All breakpoints follow from one order, that of w/s. So one sort and a running sum per level are enough
to tell what any λ costs, and bracketing looks things up in them: O(M log M + M log N).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from service.corona.goals import Floats
from service.corona.honeycomb import Problem

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
    return _Steps.of(problem, options).sizes_at(multiplier)


def levels_for_budget(problem: Problem, options: Floats, budget: float) -> Solution:
    """Return the sizes that minimise Σ w/n within Σ s·n ≤ budget, but for one step of one channel.

    A budget that does not allow every channel's least has the wishes for least given up; one that does not even
    allow everybody's smallest option is overdrawn: somebody has to poll each channel.
    """
    steps = _Steps.of(problem, options)
    if steps.base_cost > budget and problem.least.any():
        steps = _Steps.of(Problem(problem.weights, problem.costs, np.zeros_like(problem.least), problem.most), options)
    return steps.walk(steps.costs, np.diff(steps.options), budget - steps.base_cost, reach=False)


def levels_for_delay(problem: Problem, options: Floats, delay_s: float, poll_interval_s: float) -> Solution:
    """Return the sizes that minimise Σ s·n within Σ w·D/Σ w ≤ delay_s, D = τ/(2n), but for one step of one channel.

    A delay that the options do not allow gets every channel's most.
    """
    steps = _Steps.of(problem, options)
    allowed = float(problem.weights.sum()) * 2 * delay_s / poll_interval_s
    slowest = float((problem.weights / steps.sizes_at(inf)).sum())
    return steps.walk(steps.weights, -np.diff(1 / steps.options), slowest - allowed, reach=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """All steps between neighbouring options, of channels in falling order of w/s.

    Step j leads from ``options[j]`` to the next; channels may take those from ``lowest`` up to ``highest``.
    """

    options: Floats
    order: NDArray[np.intp]
    weights: Floats
    costs: Floats
    falling: Floats
    """-w/s, hence rising: what can be searched."""
    lowest: NDArray[np.intp]
    highest: NDArray[np.intp]

    @classmethod
    def of(cls, problem: Problem, options: Floats) -> "_Steps":
        options = np.unique(options)
        ratios = problem.weights / problem.costs
        order = np.argsort(-ratios, kind="stable")
        highest = np.maximum(np.searchsorted(options, problem.most[order] * (1 + _ROUNDING), side="right") - 1, 0)
        lowest = np.minimum(np.searchsorted(options, problem.least[order] * (1 - _ROUNDING)), highest)
        return cls(options, order, problem.weights[order], problem.costs[order], -ratios[order], lowest, highest)

    @property
    def base_cost(self) -> float:
        """What the smallest sizes cost."""
        return float((self.costs * self.options[self.lowest]).sum())

    def sizes_at(self, multiplier: float) -> Floats:
        return self._sizes(self._choices_at(multiplier))

    def walk(self, amounts: Floats, lengths: Floats, allowance: float, *, reach: bool) -> Solution:
        """Take steps in the order of their breakpoints, as long as they fit into the allowance.

        A channel's step j uses up ``amounts·lengths[j]``. To ``reach`` the allowance, the next step is taken, too.
        """
        sums = [np.cumsum(amounts * length * self._has(step)) for step, length in enumerate(lengths)]

        def used(multiplier: float) -> float:
            counts = (self._taken(step, multiplier) for step in range(len(sums)))
            return sum(float(row[count - 1]) for row, count in zip(sums, counts, strict=True) if count)

        if allowance <= 0 or used(0.0) <= allowance:
            multiplier = inf if allowance <= 0 else 0.0
            return Solution(self.sizes_at(multiplier), multiplier)
        low, high = self._bracket(lambda multiplier: used(multiplier) <= allowance)
        choices, left = self._choices_at(high), allowance - used(high)
        for step, length in enumerate(lengths):
            # Breakpoints that are equal but for rounding: these steps differ between the bracket's two sides.
            tied = np.arange(self._taken(step, high), self._taken(step, low))
            tied = tied[self._has(step)[tied]]
            total = np.cumsum(amounts[tied] * length)
            fitting = int(np.searchsorted(total, left, side="right"))
            choices[tied[:fitting]] += 1
            left -= float(total[fitting - 1]) if fitting else 0.0
            if fitting < len(tied):
                last = tied[fitting]
                choices[last] += reach and left > 0
                sides = float(self.options[step]), float(self.options[step + 1])
                share = left / float(amounts[last] * length)
                return Solution(self._sizes(choices), high, int(self.order[last]), sides, share)
        return Solution(self._sizes(choices), high)

    def _has(self, step: int) -> NDArray[np.bool_]:
        return (self.lowest <= step) & (step < self.highest)

    def _threshold(self, step: int, multiplier: float) -> float:
        """Return the w/s above which a channel takes this step: λ·n·n'."""
        return multiplier * float(self.options[step] * self.options[step + 1])

    def _taken(self, step: int, multiplier: float) -> int:
        return int(np.searchsorted(self.falling, -self._threshold(step, multiplier)))

    def _choices_at(self, multiplier: float) -> NDArray[np.intp]:
        choices = np.zeros(len(self.order), dtype=np.intp)
        for step in range(len(self.options) - 1):
            choices[: self._taken(step, multiplier)] += 1
        return np.minimum(np.maximum(choices, self.lowest), self.highest)

    def _sizes(self, choices: NDArray[np.intp]) -> Floats:
        found = np.empty(len(self.order))
        found[self.order] = self.options[choices]
        return found

    def _bracket(self, fits: Callable[[float], bool]) -> tuple[float, float]:
        """Return neighbouring numbers: a multiplier at which too many steps are taken, and one at which they fit."""
        ratios = -self.falling[self.falling < 0]
        low = float(ratios[-1] / (self.options[-1] * self.options[-2])) / 2
        high = float(ratios[0] / (self.options[0] * self.options[1])) * 2
        while low < (middle := sqrt(low) * sqrt(high)) < high:
            low, high = (low, middle) if fits(middle) else (middle, high)
        return low, high
