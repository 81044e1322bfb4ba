"""Tradeoff clusters: summaries of a node's channels that are small enough for one message (Corona §3.2).

A channel affects the fleet's scale c only by its cost at each c: s·n = rise·clip(c, start, end), with rise = √(w·s),
start = least·√(s/w), end = most·√(s/w). The sum over channels with similar starts and ends is approximately such a
clipped line again, so a cluster is a sum of channels: number of distinct lines, weight, rise, and cost at their least
and at their most. Summaries of several nodes are merged by concatenation and another reduction.

Deviation: the paper uses 16 bins of equal width in log(w/s). This module uses up to 1,024 bins of equal mass (by rise)
among channels with similar ratios of least to most, ordered by their ends. Channels with identical starts and ends are
one line and always share a cluster: where costs are polls and weights are subscribers, most channels do. A cluster is
exact unless c lies between the starts or ends of its own channels, so the error is that of a few clusters of a
thousandth each.

The paper's bins are :func:`summarise` with ``log_bins=16`` (one set of clusters for all levels, because the cost at
each level follows from w and s). There, channels whose size cannot change (orphans, §4) form one *slack* cluster, which
only reduces the budget left for the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from service.corona import honeycomb
from service.corona.honeycomb import AllocationProblem
from service.corona.objectives import Floats

MAX_CLUSTERS = 1024
CLUSTER_BYTES = 20
MAX_SIZE = 1e9
"""Replaces an infinite ``most`` in summaries."""

BUDGET_MARGIN = 2e-4
"""Share of a budget that is kept in reserve for the approximation error of clusters of several lines.

Where channels reach their most, a cluster overestimates their cost, by concavity; where they leave their least, it
underestimates it by up to 10⁻⁵ (3·10⁻⁴ with bounds of all sizes). Rounding of numbers on the wire and of sizes, and the
random number of polls within a few hours, add errors of about 10⁻⁵.
"""

_ROW = np.dtype([("lines", "<u4"), ("weight", "<f4"), ("rise", "<f4"), ("least_cost", "<f4"), ("most_cost", "<f4")])
_EXACT_MARGIN = 5e-7
"""The same margin for clusters of one line, due to rounding on the wire; K rounded numbers are off by √K times as much.
"""

_IDENTICAL_DIGITS = 6
"""Decimals of log₂ of a start or end at which two count as identical: 4·10⁻⁷, several times the rounding on the wire.
"""
_CLUSTERS_PER_SINGLETON = 16
"""At most one cluster in this many is reserved for a single channel."""
_CLASSES = 32
_CLASSES_PER_DOUBLING = 8
_CAPPING_ROUNDS = 8
_IDLE, _ENDLESS, _SLACK = -(1 << 20), -(1 << 19), -1


@dataclass(frozen=True, slots=True, eq=False)
class TradeoffClusters:
    """K tradeoff clusters, at most ``MAX_CLUSTERS``; each array has shape (K,) and sums over a cluster's channels.

    ``lines`` is the number of distinct clipped lines in the sum (1: exact), ``weight`` Σ w and ``rise`` Σ √(w·s) over
    the channels that may be polled, ``least_cost`` and ``most_cost`` Σ s·least and Σ s·most per τ.
    """

    lines: Floats
    weight: Floats
    rise: Floats
    least_cost: Floats
    most_cost: Floats

    @classmethod
    def empty(cls) -> Self:
        """Return zero clusters."""
        return cls(*(np.zeros(0) for _ in range(5)))

    def scale_for_budget(self, budget: float) -> float:
        """Return the scale at which all channels together keep this budget, less ``BUDGET_MARGIN``.

        It is :func:`honeycomb.scale_for_budget` on the feasible side.
        """
        held_back = BUDGET_MARGIN if self.lines.max(initial=1) > 1 else _EXACT_MARGIN * sqrt(len(self.lines))
        # What all cost at their least is a sum, and known exactly: it may take the whole budget.
        given = max(budget * (1 - held_back), min(budget, float(self.least_cost.sum())))
        return honeycomb.scale_for_budget(self._lines(), given)

    def scale_for_delay(self, delay_s: float, poll_interval_s: float) -> float:
        """Return the scale at which all channels together keep a mean delay; see :func:`honeycomb.scale_for_delay`."""
        return honeycomb.scale_for_delay(self._lines(), delay_s, poll_interval_s, total_weight=float(self.weight.sum()))

    def to_level_problem(self) -> AllocationProblem:
        """Return the clusters as single channels, for the optimiser of the paper's levels (``simulate.paper_levels``).

        The channels' least must be 1 (one node), as it is in the paper, so that their cost at their least is the sum of
        their costs.
        """
        costs = np.where(self.least_cost > 0, self.least_cost, 1.0)
        return AllocationProblem(self.weight, costs, np.ones_like(costs), self.most_cost / costs)

    def _lines(self) -> AllocationProblem:
        """Return the clusters as channels with √(w/s) = 1, whose n is clip(c, start, end)."""
        moving = self.rise > 0
        rises = np.where(moving, self.rise, 1.0)
        return AllocationProblem(self.rise, rises, self.least_cost / rises, self.most_cost / rises)


def summarise(problem: AllocationProblem, *, limit: int = MAX_CLUSTERS, log_bins: int = 0) -> TradeoffClusters:
    """Return the tradeoff clusters of these channels.

    Args:
        problem: M channels, with sites' budgets already applied.
        limit: Maximum number of clusters, at least 4.
        log_bins: Number of bins for the paper's binning; 0 for bins of equal mass.
    """
    most = np.minimum(problem.most, MAX_SIZE)
    least = np.minimum(problem.least, most)
    # No delay bound can count on a channel that may not be polled.
    weight = np.where(most > 0, problem.weights, 0.0)
    each = TradeoffClusters(
        np.ones_like(weight),
        weight,
        np.sqrt(weight * problem.costs),
        problem.costs * least,
        problem.costs * np.where(weight > 0, most, least),
    )
    return _reduce(each, limit, log_bins)


def merge(parts: Sequence[TradeoffClusters], *, limit: int = MAX_CLUSTERS, log_bins: int = 0) -> TradeoffClusters:
    """Return the clusters of the channels of several summaries; arguments as for :func:`summarise`."""
    if not parts:
        return TradeoffClusters.empty()
    fields = zip(*((p.lines, p.weight, p.rise, p.least_cost, p.most_cost) for p in parts), strict=True)
    return _reduce(TradeoffClusters(*map(np.concatenate, fields)), limit, log_bins)


def encode(clusters: TradeoffClusters) -> bytes:
    """Return the wire format that :func:`decode` reads, 20 bytes per cluster."""
    rows = np.empty(len(clusters.rise), dtype=_ROW)
    for name in _ROW.names or ():
        rows[name] = getattr(clusters, name)
    return rows.tobytes()


def decode(raw: bytes) -> TradeoffClusters | None:
    """Return the clusters, or None if ``raw`` is not a valid summary; soft state is sent again anyway.

    Invalid are a wrong length, too many clusters, numbers that are negative, infinite or NaN, a cluster of no lines,
    and a cluster with a higher cost at its least than at its most.
    """
    if len(raw) % CLUSTER_BYTES or len(raw) > MAX_CLUSTERS * CLUSTER_BYTES:
        return None
    rows = np.frombuffer(raw, dtype=_ROW)
    with np.errstate(invalid="ignore"):  # NaNs of the signalling kind
        found = TradeoffClusters(*(rows[name].astype(np.float64) for name in _ROW.names or ()))
    numbers = np.concatenate((found.weight, found.rise, found.least_cost, found.most_cost))
    sound = np.isfinite(numbers).all() and (numbers >= 0).all() and (found.lines > 0).all()
    return found if sound and (found.least_cost <= found.most_cost).all() else None


def _reduce(each: TradeoffClusters, limit: int, log_bins: int) -> TradeoffClusters:
    """Return at most ``limit`` clusters, or the paper's bins, that sum up these channels or clusters."""
    if not len(each.rise):
        return each
    if log_bins:
        return _sum_by_bin(each, _group_by_log_ratio(each, log_bins))
    exact = _sum_by_bin(each, _group_identical(each), lines=np.maximum)
    return exact if len(exact.rise) <= limit else _sum_by_bin(each, _group_by_quantile(each, limit))


def _sum_by_bin(each: TradeoffClusters, bins: NDArray[np.intp], lines: np.ufunc = np.add) -> TradeoffClusters:
    """Return one cluster per bin, in the bins' order; ``lines`` combines the line counts of a bin's members."""
    places, ids = np.unique(bins, return_inverse=True)
    line_counts = np.zeros(len(places))
    lines.at(line_counts, ids, each.lines)
    parts = (each.weight, each.rise, each.least_cost, each.most_cost)
    return TradeoffClusters(line_counts, *(np.bincount(ids, part, len(places)).astype(np.float64) for part in parts))


# The functions below assign channels to bins: each returns one number per channel, equal for channels of one bin.


def _group_identical(each: TradeoffClusters) -> NDArray[np.intp]:
    """Return bins of channels with the same start and the same end, which are one line."""
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.log2(np.stack((each.least_cost, each.most_cost)) / each.rise)
    bounds = np.round(np.nan_to_num(bounds, nan=_IDLE, posinf=np.inf, neginf=_ENDLESS), _IDENTICAL_DIGITS)
    starts, ends = (np.unique(bound, return_inverse=True)[1] for bound in bounds)
    return np.asarray(ends * len(starts) + starts)


def _group_by_quantile(each: TradeoffClusters, limit: int) -> NDArray[np.intp]:
    """Return bins of equal mass, as many as ``limit`` allows, each within one class of ratios.

    The heaviest channels have a bin each, so that they are summarised exactly.
    """
    mass = _relative_mass(each)
    alone = _find_heaviest(mass, limit)
    mass = _cap_mass(np.where(alone, 0.0, mass), limit)
    kinds, classes = np.unique(_classes(each, mass, min(_CLASSES, limit // 4)), return_inverse=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.lexsort((each.most_cost / each.rise, classes))
    middle = np.cumsum(mass[order]) - mass[order] / 2
    alone = alone[order]
    apart = np.cumsum(alone) + np.cumsum(np.concatenate(([False], alone[:-1])))
    # A boundary lies at each share of the total, at each class, and on both sides of a singleton, so that there are at
    # most ``limit`` bins.
    shares = limit - len(kinds) - 2 * np.count_nonzero(alone)
    found = np.empty(len(order), dtype=np.intp)
    found[order] = (middle * shares).astype(np.intp) + classes[order] + apart
    return found


def _relative_mass(each: TradeoffClusters) -> Floats:
    """Return the resolution that each channel needs, as a share of the total.

    It is the mean of the channel's shares in the sums that clusters are used for: the rise between the bounds, the cost
    at the most, and the delays w/n at both bounds.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = (each.rise, each.most_cost, each.rise**2 / each.most_cost, each.rise**2 / each.least_cost)
        finite = [np.nan_to_num(part, nan=0.0, posinf=0.0) for part in sums]
    mass = np.zeros_like(each.rise)
    for part in finite:
        if part.any():
            mass += part / part.sum()
    return np.asarray(mass / max(float(mass.sum()), np.finfo(float).tiny))


def _find_heaviest(mass: Floats, limit: int) -> NDArray[np.bool_]:
    """Return which channels are so heavy that each gets a bin of its own."""
    heaviest = np.zeros(len(mass), dtype=bool)
    heaviest[np.argsort(-mass, kind="stable")[: limit // _CLUSTERS_PER_SINGLETON]] = True
    return heaviest & (mass * limit > 1)


def _cap_mass(mass: Floats, limit: int) -> Floats:
    """Return the masses, as shares of the total, with none larger than the mass of one bin."""
    for _ in range(_CAPPING_ROUNDS):
        mass = np.minimum(mass, mass.sum() / limit)
    return np.asarray(mass / max(float(mass.sum()), np.finfo(float).tiny))


def _classes(each: TradeoffClusters, mass: Floats, limit: int) -> NDArray[np.intp]:
    """Return classes of channels with similar ratios of least to most; weightless channels are a class of their own."""
    with np.errstate(divide="ignore", invalid="ignore"):
        doublings = np.log2(each.least_cost / each.most_cost)
    codes = np.nan_to_num(np.round(doublings * _CLASSES_PER_DOUBLING), nan=_IDLE, neginf=_ENDLESS).astype(np.intp)
    codes[each.rise == 0] = _IDLE
    present, inverse = np.unique(codes, return_inverse=True)
    if len(present) > limit:
        reached = np.cumsum(np.bincount(inverse, mass))
        codes = np.minimum(reached * (limit - 1), limit - 2).astype(np.intp)[inverse]
        codes[each.rise == 0] = _IDLE
    return codes


def _group_by_log_ratio(each: TradeoffClusters, bins: int) -> NDArray[np.intp]:
    """Return the paper's bins: equal width in log(w/s), and the slack cluster."""
    fixed = (each.rise == 0) | (each.least_cost == each.most_cost)
    found = np.full(len(each.rise), _SLACK, dtype=np.intp)
    if not fixed.all():
        ratios = np.log(each.weight[~fixed] / each.rise[~fixed])
        low, high = float(ratios.min()), float(ratios.max())
        width = (high - low) / bins
        found[~fixed] = np.minimum((ratios - low) / width, bins - 1).astype(np.intp) if width > 0 else 0
    return found
