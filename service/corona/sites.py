"""What all channels of one site may be polled together (ours: the paper bounds only the total, §3.2).

One more constraint per site, Σ n over its channels ≤ its budget, has the same kind of optimum: within a site
that has more channels than it may be polled for, n = clip(c_s·√(w/s), least, most) with a scale c_s of its
own, which uses up the site's budget alone, and a channel's scale is min(c, c_s). So a site's budget is nothing
but a lower ``most`` for each of its channels, whatever the fleet's c turns out to be.

This is exact where a site's channels cost the same per poll, as their requests do; where they do not,
it is within the budget and near the optimum.
"""

from math import inf

import numpy as np

from service.corona.goals import Floats
from service.corona.honeycomb import Problem

UNBOUND = inf
"""The scale of a site that its budget does not bound."""


def within_sites(problem: Problem, scales: Floats) -> Problem:
    """Return the problem with ``most`` lowered (and ``least`` where it must be) to what sites' scales leave.

    Args:
        problem: M channels.
        scales: That of each channel's site, shape (M,), at least -1; ``UNBOUND`` where nothing is to be lowered.

    Politeness wins: a site whose channels' least is over its budget has them all lowered in proportion.
    """
    bound = np.isfinite(scales)
    if not bound.any():
        return problem
    least = np.minimum(problem.least, problem.most)
    least = np.where(bound, least * np.clip(1 + scales, 0.0, 1.0), problem.least)
    wanted = np.where(bound, scales, 0.0) * problem.slopes()
    most = np.where(bound, np.minimum(np.maximum(wanted, least), problem.most), problem.most)
    return Problem(problem.weights, problem.costs, least, most)
