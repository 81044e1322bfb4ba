"""What all channels of one host may be polled together (ours: the paper bounds only the total, §3.2).

One more constraint per host, Σ n over its channels ≤ its budget, has the same kind of optimum: within
a host that has more channels than it may be polled for, n = clip(c_h·√(w/s), least, most) with a
scale c_h of its own, and c_h is min(c, c_h*), where c_h* uses up the host's budget alone. So a host's
budget is nothing but a lower ``most`` for each of its channels, whatever the fleet's c turns out to be.

This is exact where a host's channels cost the same per poll, as their requests do; where they do not,
it is within the budget and near the optimum.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from service.corona.goals import Floats
from service.corona.honeycomb import Problem

NO_HOST = -1
STEPS = 40
"""Bisections in orders of magnitude: enough for a scale that leaves less than 10⁻⁹ of a budget unused."""


def within_host_budgets(problem: Problem, hosts: NDArray[np.intp], budgets: Floats) -> Problem:
    """Return the problem with ``most`` lowered (and ``least`` where it must be) to what hosts allow.

    Args:
        problem: M channels.
        hosts: Each channel's host, shape (M,): an index into ``budgets``, or ``NO_HOST``.
        budgets: What each host may be polled per τ over all its channels, shape (H,), not negative; may be infinite.

    Politeness wins: a host whose channels' least is over its budget has them all lowered in proportion.
    """
    limited = np.flatnonzero(hosts >= 0)
    least, most = np.minimum(problem.least, problem.most), problem.most.copy()
    group, count = hosts[limited], len(budgets)
    floors = np.bincount(group, least[limited], count)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(floors > budgets, budgets / floors, 1.0)
    heavy = problem.weights[limited] > 0
    ceilings = np.bincount(group, np.where(heavy, most[limited], least[limited]), count)
    tight = (ceilings > budgets)[group]
    chosen, group = limited[tight], group[tight]
    least[chosen] *= shares[group]
    most[chosen] = _filled(problem.slopes()[chosen], least[chosen], most[chosen], group, budgets)
    return Problem(problem.weights, problem.costs, least, most)


def _filled(slopes: Floats, least: Floats, most: Floats, group: NDArray[np.intp], budgets: Floats) -> Floats:
    """Return the sizes that use up each group's budget, all groups at once."""
    count = len(budgets)

    def sizes(scales: Floats) -> Floats:
        return np.minimum(np.maximum(scales[group] * slopes, least), most)

    free = np.maximum(budgets - np.bincount(group, least, count), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.nan_to_num(free / np.bincount(group, slopes, count), nan=0.0, posinf=0.0)
        endless = np.nan_to_num(budgets / np.bincount(group, slopes * (most == inf), count), nan=0.0, posinf=0.0)
        ends = np.where((slopes > 0) & (most < inf), most / slopes, 0.0)
    high = endless
    np.maximum.at(high, group, ends)
    for _ in range(STEPS):
        middle = np.sqrt(low) * np.sqrt(high)
        over = np.bincount(group, sizes(middle), count) > budgets
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return sizes(low)
