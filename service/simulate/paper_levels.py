"""The paper's own way to sum channels up, and what an owner does with levels that were chosen for such sums.

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

from collections.abc import Iterable

import numpy as np

from service.corona.clusters import Clusters, merged, summarise
from service.corona.goals import Floats
from service.corona.honeycomb import Problem
from service.corona.levels import NONE, Solution, sizes_at
from service.simulate.trace import Bools, Ints
from service.simulate.workload import Points

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio: multiplied by it, neighbouring numbers are spread evenly."""


def followed(own: Problem, points: Points, told: Problem, options: Floats, solution: Solution) -> Floats:
    """Return n of each of an owner's channels.

    Args:
        own: Its channels; their ``most`` tells their levels (see :func:`told_most`).
        points: Their ids.
        told: The fleet's clusters, as :meth:`~service.corona.clusters.Clusters.levelled`.
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


def summarised(problem: Problem, bins: int) -> Clusters:
    """Return the clusters of channels whose least is 1 and whose most is as told."""
    parts = (problem.weights, problem.costs, problem.least, problem.most)
    levels = (Problem(*(part[problem.most == told] for part in parts)) for told in np.unique(problem.most))
    return _side_by_side(summarise(level, log_bins=bins) for level in levels)


def merged_by_level(found: list[Clusters], bins: int) -> Clusters:
    """Return the clusters of all these summaries' channels."""
    together = _side_by_side(found)
    told = np.rint(together.most_cost / together.least_cost)
    return _side_by_side(merged([_chosen(together, told == one)], log_bins=bins) for one in np.unique(told))


def _chosen(clusters: Clusters, which: Bools) -> Clusters:
    return Clusters(*(field[which] for field in _fields(clusters)))


def _side_by_side(parts: Iterable[Clusters]) -> Clusters:
    fields = [_fields(part) for part in parts] or [_fields(Clusters.none())]
    return Clusters(*map(np.concatenate, zip(*fields, strict=True)))


def _fields(clusters: Clusters) -> tuple[Floats, ...]:
    return clusters.lines, clusters.weight, clusters.rise, clusters.least_cost, clusters.most_cost
