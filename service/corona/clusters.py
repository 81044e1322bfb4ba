"""Tradeoff clusters: what a node tells others of its channels, small enough for a message (Corona §3.2).

A channel matters to everybody's scale c only by what it costs at each c: s·n = rise·clip(c, start, end), with
rise = √(w·s), start = least·√(s/w), end = most·√(s/w). The sum over channels with similar starts and ends is
such a line again, so a cluster is a sum of channels: how many lines, weight, rise, and cost at their least and at
their most. Summaries of several nodes are merged by putting them side by side and summing again.

We deviate: the paper takes 16 bins, equally wide in log(w/s). We take up to 1,024, equally *heavy*
(by rise), of channels with similar ratios of least to most, ordered by their ends. Channels that start and end alike
are one line, so they are one cluster before anything else is: where costs are polls and weights are subscribers, that
is most of them. A cluster is exact unless c falls between its own channels' starts or ends, so that the error is that
of a few clusters of a thousandth each. The paper's bins are :func:`summarise` with ``log_bins=16`` (for all levels
together: what a channel costs at each follows from w and s); in them, channels that cannot change (orphans, §4) are
one *slack* cluster, which only lowers what there is to share.
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
"""An infinite ``most`` is summarised as this."""

BUDGET_MARGIN = 2e-4
"""The share of a budget that is not given away where clusters hold several lines, for what they do not tell.

Where channels reach their most, a cluster costs more than they do, by concavity; where they leave their least, up to
10⁻⁵ less (with bounds of all sizes, 3·10⁻⁴). Numbers on the wire, rounded sizes and the polls that happen to fall into
any few hours are some 10⁻⁵ off either way.
"""

_ROW = np.dtype([("lines", "<u4"), ("weight", "<f4"), ("rise", "<f4"), ("least_cost", "<f4"), ("most_cost", "<f4")])
_EXACT_MARGIN = 5e-7
"""The same for a cluster that is one line, as numbers on the wire are rounded; K are off by √K times as much."""

_IDENTICAL_DIGITS = 6
"""Decimals of log₂ of a start or an end: 4·10⁻⁷ apart at most, and several times what numbers on the wire are off."""
_CLUSTERS_PER_SINGLETON = 16
"""One cluster in this many may be kept for a channel alone."""
_CLASSES = 32
_CLASSES_PER_DOUBLING = 8
_CAPPING_ROUNDS = 8
_IDLE, _ENDLESS, _SLACK = -(1 << 20), -(1 << 19), -1


@dataclass(frozen=True, slots=True, eq=False)
class TradeoffClusters:
    """K tradeoff clusters, at most ``MAX_CLUSTERS``; each array of shape (K,), sums over a cluster's channels.

    ``lines`` is how many different lines it is the sum of (1: exact), ``weight`` Σ w and ``rise`` Σ √(w·s) of those
    that may be polled, ``least_cost`` and ``most_cost`` Σ s·least and Σ s·most per τ.
    """

    lines: Floats
    weight: Floats
    rise: Floats
    least_cost: Floats
    most_cost: Floats

    @classmethod
    def none(cls) -> Self:
        """Return no clusters."""
        return cls(*(np.zeros(0) for _ in range(5)))

    def scale_for_budget(self, budget: float) -> float:
        """Return the scale at which all channels together keep within this budget; see ``BUDGET_MARGIN``.

        It is :func:`honeycomb.scale_for_budget`, on the feasible side.
        """
        held_back = BUDGET_MARGIN if self.lines.max(initial=1) > 1 else _EXACT_MARGIN * sqrt(len(self.lines))
        # What all cost at their least is a sum, and known exactly: it may take the whole budget.
        given = max(budget * (1 - held_back), min(budget, float(self.least_cost.sum())))
        return honeycomb.scale_for_budget(self._lines(), given)

    def scale_for_delay(self, delay_s: float, poll_interval_s: float) -> float:
        """Return the scale that all channels together need; see :func:`honeycomb.scale_for_delay`."""
        return honeycomb.scale_for_delay(self._lines(), delay_s, poll_interval_s, total_weight=float(self.weight.sum()))

    def levelled(self) -> AllocationProblem:
        """Return each cluster as if it were one channel, for the paper's levels (``simulate.paper_levels``).

        The channels' least must have been 1, one node, as it is in the paper: so what they cost at their least is
        the sum of their costs.
        """
        costs = np.where(self.least_cost > 0, self.least_cost, 1.0)
        return AllocationProblem(self.weight, costs, np.ones_like(costs), self.most_cost / costs)

    def _lines(self) -> AllocationProblem:
        """Return the clusters as channels with √(w/s) = 1, whose n is then clip(c, start, end)."""
        moving = self.rise > 0
        rises = np.where(moving, self.rise, 1.0)
        return AllocationProblem(self.rise, rises, self.least_cost / rises, self.most_cost / rises)


def summarise(problem: AllocationProblem, *, limit: int = MAX_CLUSTERS, log_bins: int = 0) -> TradeoffClusters:
    """Return the clusters of these channels.

    Args:
        problem: M channels, within their hosts' budgets already.
        limit: How many clusters there may be, at least 4.
        log_bins: The paper's number of bins; 0 for ours.
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
    """Return the clusters of all these summaries' channels; arguments as for :func:`summarise`."""
    if not parts:
        return TradeoffClusters.none()
    fields = zip(*((p.lines, p.weight, p.rise, p.least_cost, p.most_cost) for p in parts), strict=True)
    return _reduce(TradeoffClusters(*map(np.concatenate, fields)), limit, log_bins)


def encode(clusters: TradeoffClusters) -> bytes:
    """Return what :func:`decode` understands, 20 bytes for each cluster."""
    rows = np.empty(len(clusters.rise), dtype=_ROW)
    for name in _ROW.names or ():
        rows[name] = getattr(clusters, name)
    return rows.tobytes()


def decode(raw: bytes) -> TradeoffClusters | None:
    """Return what was sent, or None if it is not a summary: this is soft state, and will be repeated.

    Not a summary is what has a wrong length or too many clusters, numbers that are negative, infinite or NaN,
    or a cluster of no lines, or that costs more at its least than at its most.
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
    if not len(each.rise):
        return each
    if log_bins:
        return _sum_by_bin(each, _group_by_log_ratio(each, log_bins))
    exact = _sum_by_bin(each, _group_identical(each), lines=np.maximum)
    return exact if len(exact.rise) <= limit else _sum_by_bin(each, _group_by_quantile(each, limit))


def _sum_by_bin(each: TradeoffClusters, bins: NDArray[np.intp], lines: np.ufunc = np.add) -> TradeoffClusters:
    """Return one cluster for each of the bins, in their order; ``lines`` tells how many lines two become."""
    places, ids = np.unique(bins, return_inverse=True)
    told = np.zeros(len(places))
    lines.at(told, ids, each.lines)
    parts = (each.weight, each.rise, each.least_cost, each.most_cost)
    return TradeoffClusters(told, *(np.bincount(ids, part, len(places)).astype(np.float64) for part in parts))


# Which channels share a cluster: each of these returns a number for every channel, equal for those that do.


def _group_identical(each: TradeoffClusters) -> NDArray[np.intp]:
    """Return which channels are one line: those with the same start and the same end."""
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.log2(np.stack((each.least_cost, each.most_cost)) / each.rise)
    bounds = np.round(np.nan_to_num(bounds, nan=_IDLE, posinf=np.inf, neginf=_ENDLESS), _IDENTICAL_DIGITS)
    starts, ends = (np.unique(bound, return_inverse=True)[1] for bound in bounds)
    return np.asarray(ends * len(starts) + starts)


def _group_by_quantile(each: TradeoffClusters, limit: int) -> NDArray[np.intp]:
    """Return each channel's cluster: as many as may be, equally heavy, each within one class.

    The heaviest are one alone, so that they are told exactly.
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
    # A cut falls at each share of the whole, at each class, and on both sides of what is alone: hence no more
    # clusters than allowed.
    shares = limit - len(kinds) - 2 * np.count_nonzero(alone)
    found = np.empty(len(order), dtype=np.intp)
    found[order] = (middle * shares).astype(np.intp) + classes[order] + apart
    return found


def _relative_mass(each: TradeoffClusters) -> Floats:
    """Return how finely each channel has to be told, in shares of the whole.

    It is the mean of its shares in what clusters are asked for: the rise between the bounds, the cost at the most,
    and the delays w/n at either bound.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        asked = (each.rise, each.most_cost, each.rise**2 / each.most_cost, each.rise**2 / each.least_cost)
        finite = [np.nan_to_num(part, nan=0.0, posinf=0.0) for part in asked]
    mass = np.zeros_like(each.rise)
    for part in finite:
        if part.any():
            mass += part / part.sum()
    return np.asarray(mass / max(float(mass.sum()), np.finfo(float).tiny))


def _find_heaviest(mass: Floats, limit: int) -> NDArray[np.bool_]:
    """Return which channels are so heavy that they are a cluster each."""
    heaviest = np.zeros(len(mass), dtype=bool)
    heaviest[np.argsort(-mass, kind="stable")[: limit // _CLUSTERS_PER_SINGLETON]] = True
    return heaviest & (mass * limit > 1)


def _cap_mass(mass: Floats, limit: int) -> Floats:
    """Return these masses, in shares of the whole, with none that would take the place of several clusters."""
    for _ in range(_CAPPING_ROUNDS):
        mass = np.minimum(mass, mass.sum() / limit)
    return np.asarray(mass / max(float(mass.sum()), np.finfo(float).tiny))


def _classes(each: TradeoffClusters, mass: Floats, limit: int) -> NDArray[np.intp]:
    """Return which channels may share a cluster: those of similar ratios of least to most, idle ones apart."""
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
    """Return each channel's cluster as in the paper: bins equally wide in log(w/s), and the slack cluster."""
    fixed = (each.rise == 0) | (each.least_cost == each.most_cost)
    found = np.full(len(each.rise), _SLACK, dtype=np.intp)
    if not fixed.all():
        ratios = np.log(each.weight[~fixed] / each.rise[~fixed])
        low, high = float(ratios.min()), float(ratios.max())
        width = (high - low) / bins
        found[~fixed] = np.minimum((ratios - low) / width, bins - 1).astype(np.intp) if width > 0 else 0
    return found
