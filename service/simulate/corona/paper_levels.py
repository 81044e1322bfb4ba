"""Algorithms of Corona's paper that production replaces: polling levels, bins per level, and owners' decisions.

In production, any number n of nodes can poll a channel. In the paper, n is N/bˡ for a polling level l, where N is the
number of nodes and b the base. The paper's algorithm for choosing each channel's level is called Honeycomb (Corona
§3.1, §3.2).

A node has a summary of the fleet and exact knowledge of its own channels. The paper does not say how the node combines
the two. The comments in this module describe our solution.
"""

# Honeycomb: a channel has weight w, and costs s per polling node. For a multiplier λ, the channel's best level
# minimises w/n + λ·s·n. Let n and n' be two neighbouring sizes. The channel takes the step from one to the other at the
# breakpoint λ = (w/s)/(n·n'). As λ decreases, channels take their steps in the order of their breakpoints. One of these
# steps crosses the constraint. Of the solutions with and without this step, the one that keeps the constraint is taken.
#
# Bins (Corona §3.2, §4): the paper has 16 tradeoff clusters for every polling level that is in use. Channels between
# two levels are therefore summarised ever more finely from round to round. Production's bins cover all channels
# instead. With only 16 of them, half of all channels would share the last bin, because by Zipf's law so many have
# nearly as few subscribers as the least popular one. A cluster has no field for a level. Therefore the level is encoded
# in a channel's "most", the upper limit of its size: the number of nodes plus the level, which limits nothing. The
# "most" of an orphan, a channel that only its owner can poll, is 1.
#
# Levels (§3.2, §3.3): the solution applies to clusters, but an owner has to choose the levels of its own channels. It
# might apply λ to them one by one. Then all channels above the mean of their cluster would take a step for which the
# constraint allows only a share of the cluster, and the next round would undo it. Therefore a channel takes the steps
# of its cluster. In the one cluster of which only a share can take the last step, each owner lets the same share of its
# channels take it, beginning with the greatest w/s. The total is then as in the solution.

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from service.corona.optimizer.allocation_solver import AllocationProblem, load
from service.corona.optimizer.objectives import Floats
from service.corona.optimizer.tradeoff_clusters import TradeoffClusters, merge, summarise
from service.simulate.corona.workload import Points
from service.simulate.numerics import Bools, Ints

NO_CHANNEL = -1
_ROUNDING = 1e-6
"""Relative tolerance of comparisons with the bounds ``least`` and ``most`` of a channel's number of polling nodes. It
is necessary because messages encode these bounds as 32-bit floats."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelSolution:
    """A choice of how many nodes poll each channel, made by Honeycomb, the paper's algorithm.

    Honeycomb increases these numbers step by step, the most useful step first. It stops at the step that reaches
    the limit, which is a budget or a mean delay.

    - ``sizes`` contains the number of polling nodes of each channel, shape (M,).
    - ``multiplier`` is λ: a step is taken if its benefit per unit of cost is greater than λ.
    - ``undecided`` is the index of the channel whose step reaches the limit. It is ``NO_CHANNEL`` if all steps or
      no steps are taken.
    - ``step`` is the step of the undecided channel, as a pair of sizes (from, to).
    - ``share`` is for the case that the undecided channel stands for a cluster of many channels. The limit is met
      exactly if this fraction of them takes the step.
    """

    sizes: Floats
    multiplier: float
    undecided: int = NO_CHANNEL
    step: tuple[float, float] = (0.0, 0.0)
    share: float = 0.0


def level_sizes(nodes: int, base: int) -> Floats:
    """Return, for each polling level l, the mean number of nodes that poll a channel: N/bˡ, but at least 1.

    N is ``nodes``, and b is ``base``. The levels end with the first one at which this number is 1.

    Raises:
        ValueError: ``nodes`` is below 1 or ``base`` is below 2.
    """
    if nodes < 1 or base < 2:  # noqa: PLR2004 - no number system has a smaller base
        raise ValueError(f"There are no levels of {nodes} nodes to base {base}.")
    found = [float(nodes)]
    while found[-1] > 1:
        found.append(max(1.0, found[-1] / base))
    return np.array(found)


def sizes_at(problem: AllocationProblem, options: Floats, multiplier: float) -> Floats:
    """Return, for each channel, the number n of polling nodes that minimises w/n + λ·s·n, shape (M,).

    A channel has weight w and costs s per polling node. n is one of the options between the channel's limits
    ``least`` and ``most``. If there is no such option, n is the greatest option up to ``most``, or the smallest
    option if all are greater.

    Args:
        problem: The channels, with their weights, costs and limits.
        options: The available numbers of nodes, for example those from :func:`level_sizes`, in any order.
        multiplier: λ, not negative. The greater λ is, the fewer nodes poll each channel.
    """
    options, lowest, highest = _option_ranges(problem, options)
    ratios = problem.weights / problem.costs
    taken = sum((ratios > multiplier * product for product in options[:-1] * options[1:]), np.zeros_like(lowest))
    return np.asarray(options[np.clip(taken, lowest, highest)])


def levels_for_budget(problem: AllocationProblem, options: Floats, budget: float) -> LevelSolution:
    """Choose how many nodes poll each channel, so that the total cost stays within ``budget`` (Corona §3.1).

    A channel has weight w and costs s per polling node. The numbers n of nodes are chosen from ``options``. They
    minimise Σ w/n over all channels, with Σ s·n ≤ ``budget``. The result is optimal, except that one channel may
    get the next smaller option than in the optimum.

    - If the budget does not suffice to give each channel its lower limit ``least``, all lower limits are ignored.
    - If the budget does not even suffice for the smallest option, each channel nevertheless gets the smallest
      option, so that at least one node polls each channel.
    """
    base_cost = load(problem, sizes_at(problem, options, inf))
    if base_cost > budget and problem.least.any():
        problem = AllocationProblem(problem.weights, problem.costs, np.zeros_like(problem.least), problem.most)
        base_cost = load(problem, sizes_at(problem, options, inf))
    return _take_steps(problem, options, problem.costs, lambda size: size, budget - base_cost, overshoot=False)


def levels_for_delay(
    problem: AllocationProblem, options: Floats, delay_s: float, poll_interval_s: float
) -> LevelSolution:
    """Choose how many nodes poll each channel, so that the mean delay is at most ``delay_s``, at minimum cost.

    A channel has weight w and costs s per polling node. The numbers n of nodes are chosen from ``options``. They
    minimise the cost Σ s·n. A channel's mean delay is D = ``poll_interval_s`` / (2n), and the mean over all
    channels is Σ w·D / Σ w. The result is optimal, except that one channel may get the next greater option than in
    the optimum. If the limit cannot be met, every channel gets its greatest n.
    """
    allowed = float(problem.weights.sum()) * 2 * delay_s / poll_interval_s
    slowest = float((problem.weights / sizes_at(problem, options, inf)).sum())
    return _take_steps(problem, options, problem.weights, lambda size: -1 / size, slowest - allowed, overshoot=True)


def _option_ranges(problem: AllocationProblem, options: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    """Return (options, smallest, largest): the options in ascending order, and which of them each channel can use.

    A channel can use the options between its limits ``least`` and ``most``. ``smallest`` and ``largest`` contain,
    for each channel, the indices of the first and the last of these options.
    """
    options = np.unique(options)
    highest = np.maximum(np.searchsorted(options, problem.most * (1 + _ROUNDING), side="right") - 1, 0)
    return options, np.minimum(np.searchsorted(options, problem.least * (1 - _ROUNDING)), highest), highest


def _take_steps(
    problem: AllocationProblem,
    options: Floats,
    amounts: Floats,
    measure: Callable[[Floats], Floats],
    allowance: float,
    *,
    overshoot: bool,
) -> LevelSolution:
    """Increase the channels' numbers of polling nodes step by step, within ``allowance``.

    A step increases the number of one channel from one option to the next. The most useful step is taken first. For
    channel i, a step from option a to option b uses ``amounts[i] * (measure(b) - measure(a))`` of the allowance.
    The steps end at the first step that would exceed the allowance. This step is taken only if ``overshoot`` is
    true.
    """
    # Steps are in the order of their breakpoints (see the comment at the top of the module).
    options, lowest, highest = _option_ranges(problem, options)
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
        return LevelSolution(options[choices], inf if allowance <= 0 else 0.0)
    left = allowance - (float(used[count - 1]) if count else 0.0)
    undecided, step = int(channels[count]), int(steps[count])
    choices[undecided] += overshoot and left > 0
    sides = float(options[step]), float(options[step + 1])
    # At this λ the undecided step is not taken, regardless of rounding.
    multiplier = float(np.nextafter(breakpoints[count], inf))
    return LevelSolution(options[choices], multiplier, undecided, sides, left / float(uses[count]))


_ODD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, 2⁶⁴ divided by the golden ratio. By Fibonacci hashing, its multiples modulo 2⁶⁴ are spread evenly."""


def owner_sizes(
    own: AllocationProblem, points: Points, clusters: AllocationProblem, options: Floats, solution: LevelSolution
) -> Floats:
    """Return how many nodes poll each of the channels that one node owns.

    Args:
        own: The node's channels; their ``most`` encodes their polling levels (see :func:`encode_levels`).
        points: The channels' ids.
        clusters: A summary of all channels of the fleet, from ``TradeoffClusters.to_level_problem``.
        options: The available numbers of polling nodes.
        solution: The solution for ``clusters``.
    """
    chosen = sizes_at(own, options, solution.multiplier)
    levels, ratios = np.rint(clusters.most), np.log(clusters.weights / clusters.costs)
    for level in np.unique(own.most):
        at_level, candidates = np.flatnonzero(own.most == level), np.flatnonzero(levels == level)
        if level > 1 and len(candidates):
            nearest = candidates[_nearest(ratios[candidates], np.log(own.weights[at_level] / own.costs[at_level]))]
            chosen[at_level] = solution.sizes[nearest]
            edge = at_level[nearest == solution.undecided]
            if solution.undecided != NO_CHANNEL and len(edge):
                stepping = _take_last_step(own.weights[edge] / own.costs[edge], points[edge], solution)
                chosen[edge] = np.where(stepping, *solution.step[::-1])
    return chosen


def _nearest(known: Floats, values: Floats) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Return, for each number in ``values``, the index of the nearest number in ``known``."""
    order = np.argsort(known)
    between = (known[order][1:] + known[order][:-1]) / 2
    return order[np.searchsorted(between, values)]


def _take_last_step(ratios: Floats, points: Points, solution: LevelSolution) -> Bools:
    """Return, for each of the given channels, whether it takes the step ``solution.step``.

    All these channels are owned by one node. They belong to the cluster of channels that ``solution`` calls
    undecided: only the fraction ``solution.share`` of them takes the step. The channels with the greatest ratios of
    weight to cost are chosen.

    ``ratios`` contains this ratio for each channel, and ``points`` contains the channels' ids.
    """
    # The number of channels is rounded up or down at random, so that the total over all owners is right on average. The
    # random number depends on the channels' ids and on the solution, so that it is not always the same owners who round
    # up.
    rank = np.empty(len(ratios))
    rank[np.lexsort((points, -ratios))] = np.arange(len(ratios))
    chance = (points ^ np.float64(solution.share).view(np.uint64)) * _ODD / 2.0**64
    return np.asarray(rank + chance < solution.share * len(ratios))


def encode_levels(nodes: int, level: Ints, orphaned: Bools) -> Floats:
    """Encode each channel's polling level as a value for the field ``most`` of an allocation problem.

    The value is ``nodes`` plus the channel's ``level``, or 1 for an orphan, a channel that only its owner can poll.
    """
    return np.where(orphaned, 1.0, nodes + level.astype(np.float64))


def summarise_by_level(problem: AllocationProblem, bins: int) -> TradeoffClusters:
    """Group the channels of each polling level into up to ``bins`` clusters of similar channels.

    The result summarises each cluster. The channels' ``least`` must be 1, and their ``most`` must encode the level (see
    :func:`encode_levels`).
    """
    parts = (problem.weights, problem.costs, problem.least, problem.most)
    levels = (AllocationProblem(*(part[problem.most == level] for part in parts)) for level in np.unique(problem.most))
    return _side_by_side(summarise(channels, log_bins=bins) for channels in levels)


def merge_by_level(summaries: list[TradeoffClusters], bins: int) -> TradeoffClusters:
    """Merge several summaries of channels into one, with up to ``bins`` groups of channels for each polling level."""
    together = _side_by_side(summaries)
    levels = np.rint(together.most_cost / together.least_cost)
    return _side_by_side(
        merge([_select_clusters(together, levels == level)], log_bins=bins) for level in np.unique(levels)
    )


def _select_clusters(clusters: TradeoffClusters, which: Bools) -> TradeoffClusters:
    return TradeoffClusters(*(field[which] for field in _fields(clusters)))


def _side_by_side(parts: Iterable[TradeoffClusters]) -> TradeoffClusters:
    fields = [_fields(part) for part in parts] or [_fields(TradeoffClusters.empty())]
    return TradeoffClusters(*map(np.concatenate, zip(*fields, strict=True)))


def _fields(clusters: TradeoffClusters) -> tuple[Floats, ...]:
    return clusters.lines, clusters.weight, clusters.rise, clusters.least_cost, clusters.most_cost
