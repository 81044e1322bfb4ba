"""What an owner in the paper's mode does with levels that were chosen for clusters (Corona §3.2, §3.3).

Clusters are coarse and an owner knows its own channels at fine grain. If it held the fleet's λ against its own channels
one by one, they would not add up to what was solved: of the cluster at a level's edge all above its mean would take the
step, whatever share of it the constraint has room for, and of a cluster beyond the edge those that lie above the edge,
although it does not step. Each round would then undo what the last one did. So a channel does what its cluster does,
and of the cluster at the edge each owner has the same share of its own take the step, those with the greatest w/s
first. All owners together then make the polls that were reckoned with, whatever the clusters' widths.

We deviate: the paper does not say how fine and coarse grain are put together, only that they are.
"""

import numpy as np

from service.corona.goals import Floats
from service.corona.honeycomb import Problem
from service.corona.levels import NONE, Solution, sizes_at
from service.simulate.workload import Points

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio: multiplied by it, neighbouring numbers are spread evenly."""


def followed(own: Problem, points: Points, told: Problem, options: Floats, solution: Solution) -> Floats:
    """Return n of each of an owner's channels.

    Args:
        own: Its channels; their ``most`` tells their levels (see ``paper_bins``).
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


def _share(ratios: Floats, points: Points, solution: Solution) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Say which of these channels are the solution's share: the first by ratio, on average as many as there should be.

    Where that is no whole number, chance decides, so that the fleet is right even if each owner has few. It is another
    one for each solution: else those who were lucky once would be so for ever, and their share never move.
    """
    rank = np.empty(len(ratios))
    rank[np.lexsort((points, -ratios))] = np.arange(len(ratios))
    chance = (points ^ np.float64(solution.share).view(np.uint64)) * _ODD / 2.0**64
    return np.asarray(rank + chance < solution.share * len(ratios))
