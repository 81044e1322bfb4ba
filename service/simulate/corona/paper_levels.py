"""The paper's own mode: bins, polling levels, and what an owner does with levels that were chosen for bins.

In production n is any number. In the paper it is one of N/bˡ, and Honeycomb chooses each channel's level l (Corona
§3.1, §3.2). With a multiplier λ each channel has its own best level, argmin w/n + λ·s·n, and changes it at the
breakpoints λ = -Δf/Δg = (w/s)/(n·n'), n and n' being neighbouring sizes. As λ falls, channels take their steps in the
order of these breakpoints, so that the constraint is bracketed by two solutions that differ in one channel's step; the
one that keeps the constraint is taken.

*Bins* (Corona §3.2, §4): 16 clusters for every polling level that channels are at. Production's bins span all channels
together. In the paper each level has bins of its own, so that those around a level's edge grow finer from round to
round: with a single set, half of all channels would share the last bin, because by Zipf's law so many have nearly as
few subscribers as the least popular one. Clusters have no room for a level. So a channel's ``most`` tells it: it is the
number of nodes plus the level, which no option uses; that of an orphan is 1, and makes it the slack cluster's.

*Levels* (§3.2, §3.3): clusters are coarse, and an owner knows its own channels at fine grain. If it held the fleet's λ
against its own channels one by one, they would not add up to what was solved: of the cluster at a level's edge all
above its mean would take the step, whatever share of it the constraint has room for, and of a cluster beyond the edge
those that lie above the edge, although it does not step. Each round would then undo what the last one did. So a channel
does what its cluster does, and of the cluster at the edge each owner has the same share of its own take the step, those
with the greatest w/s first. All owners together then make the polls that were reckoned with, whatever the clusters'
widths.

We deviate: the paper does not say how fine and coarse grain are put together, only that they are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from service.corona.clusters import TradeoffClusters, merge, summarise
from service.corona.honeycomb import AllocationProblem, load
from service.corona.objectives import Floats
from service.simulate.corona.workload import Points
from service.simulate.schedulers.publication_trace import Bools, Ints

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


def sizes_at(problem: AllocationProblem, options: Floats, multiplier: float) -> Floats:
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


def levels_for_budget(problem: AllocationProblem, options: Floats, budget: float) -> Solution:
    """Return the sizes that minimise Σ w/n within Σ s·n ≤ budget, but for one step of one channel.

    A budget that does not allow every channel's least has the wishes for least given up; one that does not even
    allow everybody's smallest option is overdrawn: somebody has to poll each channel.
    """
    base_cost = load(problem, sizes_at(problem, options, inf))
    if base_cost > budget and problem.least.any():
        problem = AllocationProblem(problem.weights, problem.costs, np.zeros_like(problem.least), problem.most)
        base_cost = load(problem, sizes_at(problem, options, inf))
    return _taken(problem, options, problem.costs, lambda size: size, budget - base_cost, reach=False)


def levels_for_delay(problem: AllocationProblem, options: Floats, delay_s: float, poll_interval_s: float) -> Solution:
    """Return the sizes that minimise Σ s·n within Σ w·D/Σ w ≤ delay_s, D = τ/(2n), but for one step of one channel.

    A delay that the options do not allow gets every channel's most.
    """
    allowed = float(problem.weights.sum()) * 2 * delay_s / poll_interval_s
    slowest = float((problem.weights / sizes_at(problem, options, inf)).sum())
    return _taken(problem, options, problem.weights, lambda size: -1 / size, slowest - allowed, reach=True)


def _bounded(problem: AllocationProblem, options: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    """Return the options in order, and the places of each channel's lowest and highest one."""
    options = np.unique(options)
    highest = np.maximum(np.searchsorted(options, problem.most * (1 + _ROUNDING), side="right") - 1, 0)
    return options, np.minimum(np.searchsorted(options, problem.least * (1 - _ROUNDING)), highest), highest


def _taken(
    problem: AllocationProblem,
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


_ODD = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio: multiplied by it, neighbouring numbers are spread evenly."""


def followed(
    own: AllocationProblem, points: Points, told: AllocationProblem, options: Floats, solution: Solution
) -> Floats:
    """Return n of each of an owner's channels.

    Args:
        own: Its channels; their ``most`` tells their levels (see :func:`told_most`).
        points: Their ids.
        told: The fleet's clusters, as :meth:`~service.corona.clusters.TradeoffClusters.to_level_problem`.
        options: The sizes there are.
        solution: What was chosen for the clusters.
    """
    found = sizes_at(own, options, solution.multiplier)
    levels, ratios = np.rint(told.most), np.log(told.weights / told.costs)
    for level in np.unique(own.most):
        mine, clusters = np.flatnonzero(own.most == level), np.flatnonzero(levels == level)
        if level > 1 and len(clusters):
            nearest = clusters[_nearest(ratios[clusters], np.log(own.weights[mine] / own.costs[mine]))]
            found[mine] = solution.sizes[nearest]
            edge = mine[nearest == solution.undecided]
            if solution.undecided != NONE and len(edge):
                stepping = _share(own.weights[edge] / own.costs[edge], points[edge], solution)
                found[edge] = np.where(stepping, *solution.step[::-1])
    return found


def _nearest(known: Floats, asked: Floats) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Return the place of the nearest known number for each that is asked."""
    order = np.argsort(known)
    between = (known[order][1:] + known[order][:-1]) / 2
    return order[np.searchsorted(between, asked)]


def _share(ratios: Floats, points: Points, solution: Solution) -> Bools:
    """Say which of these channels are the solution's share: the first by ratio, on average as many as there should be.

    Where that is no whole number, chance decides, so that the fleet is right even if each owner has few. It is another
    one for each solution: else those who were lucky once would be so for ever, and their share never move.
    """
    rank = np.empty(len(ratios))
    rank[np.lexsort((points, -ratios))] = np.arange(len(ratios))
    chance = (points ^ np.float64(solution.share).view(np.uint64)) * _ODD / 2.0**64
    return np.asarray(rank + chance < solution.share * len(ratios))


def told_most(nodes: int, level: Ints, orphaned: Bools) -> Floats:
    """Return each channel's ``most``, by which its level is told."""
    return np.where(orphaned, 1.0, nodes + level.astype(np.float64))


def summarised(problem: AllocationProblem, bins: int) -> TradeoffClusters:
    """Return the clusters of channels whose least is 1 and whose most is as told."""
    parts = (problem.weights, problem.costs, problem.least, problem.most)
    levels = (AllocationProblem(*(part[problem.most == told] for part in parts)) for told in np.unique(problem.most))
    return _side_by_side(summarise(level, log_bins=bins) for level in levels)


def merged_by_level(found: list[TradeoffClusters], bins: int) -> TradeoffClusters:
    """Return the clusters of all these summaries' channels."""
    together = _side_by_side(found)
    told = np.rint(together.most_cost / together.least_cost)
    return _side_by_side(merge([_chosen(together, told == one)], log_bins=bins) for one in np.unique(told))


def _chosen(clusters: TradeoffClusters, which: Bools) -> TradeoffClusters:
    return TradeoffClusters(*(field[which] for field in _fields(clusters)))


def _side_by_side(parts: Iterable[TradeoffClusters]) -> TradeoffClusters:
    fields = [_fields(part) for part in parts] or [_fields(TradeoffClusters.empty())]
    return TradeoffClusters(*map(np.concatenate, zip(*fields, strict=True)))


def _fields(clusters: TradeoffClusters) -> tuple[Floats, ...]:
    return clusters.lines, clusters.weight, clusters.rise, clusters.least_cost, clusters.most_cost
