"""The paper's summaries: 16 clusters for every polling level that channels are at (Corona §3.2, §4).

Production's bins span all channels together. In the paper each level has bins of its own, so that those around a
level's edge grow finer from round to round: with a single set, half of all channels would share the last bin, because
by Zipf's law so many have nearly as few subscribers as the least popular one.

Clusters have no room for a level. So a channel's ``most`` tells it: it is the number of nodes plus the level, which no
option uses; that of an orphan is 1, and makes it the slack cluster's.
"""

from collections.abc import Iterable

import numpy as np

from service.corona.clusters import Clusters, merged, summarise
from service.corona.goals import Floats
from service.corona.honeycomb import Problem
from service.simulate.trace import Ints


def told_most(nodes: int, level: Ints, orphaned: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Floats:
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


def _chosen(clusters: Clusters, which: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Clusters:
    return Clusters(*(field[which] for field in _fields(clusters)))


def _side_by_side(parts: Iterable[Clusters]) -> Clusters:
    fields = [_fields(part) for part in parts] or [_fields(Clusters.none())]
    return Clusters(*map(np.concatenate, zip(*fields, strict=True)))


def _fields(clusters: Clusters) -> tuple[Floats, ...]:
    return clusters.lines, clusters.weight, clusters.rise, clusters.least_cost, clusters.most_cost
