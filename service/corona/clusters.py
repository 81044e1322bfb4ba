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
from service.corona.honeycomb import Problem
from service.corona.objectives import Floats

MAX_CLUSTERS = 1024
CLUSTER_BYTES = 20
MAX_SIZE = 1e9
"""An infinite ``most`` is summarised as this."""

HELD_BACK = 2e-4
"""The share of a budget that is not given away where clusters hold several lines, for what they do not tell.

Where channels reach their most, a cluster costs more than they do, by concavity; where they leave their least, up to
10⁻⁵ less (with bounds of all sizes, 3·10⁻⁴). Numbers on the wire, rounded sizes and the polls that happen to fall into
any few hours are some 10⁻⁵ off either way.
"""

_ROW = np.dtype([("lines", "<u4"), ("weight", "<f4"), ("rise", "<f4"), ("least_cost", "<f4"), ("most_cost", "<f4")])
_ROUNDED = 5e-7
"""The same for a cluster that is one line, as numbers on the wire are rounded; K are off by √K times as much."""

_ALIKE_DIGITS = 6
"""Decimals of log₂ of a start or an end: 4·10⁻⁷ apart at most, and several times what numbers on the wire are off."""
_ALONE = 16
"""One cluster in this many may be kept for a channel alone."""
_CLASSES = 32
_CLASSES_PER_DOUBLING = 8
_EVENING_OUT = 8
_IDLE, _ENDLESS, _SLACK = -(1 << 20), -(1 << 19), -1


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
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
        """Return the scale at which all channels together keep within this budget; see ``HELD_BACK``.

        It is :func:`honeycomb.scale_for_budget`, on the feasible side.
        """
        held_back = HELD_BACK if self.lines.max(initial=1) > 1 else _ROUNDED * sqrt(len(self.lines))
        # What all cost at their least is a sum, and known exactly: it may take the whole budget.
        given = max(budget * (1 - held_back), min(budget, float(self.least_cost.sum())))
        return honeycomb.scale_for_budget(self._lines(), given)

    def scale_for_delay(self, delay_s: float, poll_interval_s: float) -> float:
        """Return the scale that all channels together need; see :func:`honeycomb.scale_for_delay`."""
        return honeycomb.scale_for_delay(self._lines(), delay_s, poll_interval_s, total_weight=float(self.weight.sum()))

    def levelled(self) -> Problem:
        """Return each cluster as if it were one channel, for the paper's levels (``simulate.paper_levels``).

        The channels' least must have been 1, one node, as it is in the paper: so what they cost at their least is
        the sum of their costs.
        """
        costs = np.where(self.least_cost > 0, self.least_cost, 1.0)
        return Problem(self.weight, costs, np.ones_like(costs), self.most_cost / costs)

    def _lines(self) -> Problem:
        """Return the clusters as channels with √(w/s) = 1, whose n is then clip(c, start, end)."""
        moving = self.rise > 0
        rises = np.where(moving, self.rise, 1.0)
        return Problem(self.rise, rises, self.least_cost / rises, self.most_cost / rises)


def summarise(problem: Problem, *, limit: int = MAX_CLUSTERS, log_bins: int = 0) -> Clusters:
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
    each = Clusters(
        np.ones_like(weight),
        weight,
        np.sqrt(weight * problem.costs),
        problem.costs * least,
        problem.costs * np.where(weight > 0, most, least),
    )
    return _summed(each, limit, log_bins)


def merged(parts: Sequence[Clusters], *, limit: int = MAX_CLUSTERS, log_bins: int = 0) -> Clusters:
    """Return the clusters of all these summaries' channels; arguments as for :func:`summarise`."""
    if not parts:
        return Clusters.none()
    fields = zip(*((p.lines, p.weight, p.rise, p.least_cost, p.most_cost) for p in parts), strict=True)
    return _summed(Clusters(*map(np.concatenate, fields)), limit, log_bins)


def encode(clusters: Clusters) -> bytes:
    """Return what :func:`decode` understands, 20 bytes for each cluster."""
    rows = np.empty(len(clusters.rise), dtype=_ROW)
    for name in _ROW.names or ():
        rows[name] = getattr(clusters, name)
    return rows.tobytes()


def decode(raw: bytes) -> Clusters | None:
    """Return what was sent, or None if it is not a summary: this is soft state, and will be repeated.

    Not a summary is what has a wrong length or too many clusters, numbers that are negative, infinite or NaN,
    or a cluster of no lines, or that costs more at its least than at its most.
    """
    if len(raw) % CLUSTER_BYTES or len(raw) > MAX_CLUSTERS * CLUSTER_BYTES:
        return None
    rows = np.frombuffer(raw, dtype=_ROW)
    with np.errstate(invalid="ignore"):  # NaNs of the signalling kind
        found = Clusters(*(rows[name].astype(np.float64) for name in _ROW.names or ()))
    numbers = np.concatenate((found.weight, found.rise, found.least_cost, found.most_cost))
    sound = np.isfinite(numbers).all() and (numbers >= 0).all() and (found.lines > 0).all()
    return found if sound and (found.least_cost <= found.most_cost).all() else None


def _summed(each: Clusters, limit: int, log_bins: int) -> Clusters:
    if not len(each.rise):
        return each
    if log_bins:
        return _sums(each, _log_bins_of(each, log_bins))
    exact = _sums(each, _alike(each), lines=np.maximum)
    return exact if len(exact.rise) <= limit else _sums(each, _quantiles(each, limit))


def _sums(each: Clusters, bins: NDArray[np.intp], lines: np.ufunc = np.add) -> Clusters:
    """Return one cluster for each of the bins, in their order; ``lines`` tells how many lines two become."""
    places, ids = np.unique(bins, return_inverse=True)
    told = np.zeros(len(places))
    lines.at(told, ids, each.lines)
    parts = (each.weight, each.rise, each.least_cost, each.most_cost)
    return Clusters(told, *(np.bincount(ids, part, len(places)).astype(np.float64) for part in parts))


# Which channels share a cluster: each of these returns a number for every channel, equal for those that do.


def _alike(each: Clusters) -> NDArray[np.intp]:
    """Return which channels are one line: those with the same start and the same end."""
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.log2(np.stack((each.least_cost, each.most_cost)) / each.rise)
    bounds = np.round(np.nan_to_num(bounds, nan=_IDLE, posinf=np.inf, neginf=_ENDLESS), _ALIKE_DIGITS)
    starts, ends = (np.unique(bound, return_inverse=True)[1] for bound in bounds)
    return np.asarray(ends * len(starts) + starts)


def _quantiles(each: Clusters, limit: int) -> NDArray[np.intp]:
    """Return each channel's cluster: as many as may be, equally heavy, each within one class.

    The heaviest are one alone, so that they are told exactly.
    """
    mass = _mass(each)
    alone = _alone(mass, limit)
    mass = _evened_out(np.where(alone, 0.0, mass), limit)
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


def _mass(each: Clusters) -> Floats:
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


def _alone(mass: Floats, limit: int) -> NDArray[np.bool_]:
    """Return which channels are so heavy that they are a cluster each."""
    heaviest = np.zeros(len(mass), dtype=bool)
    heaviest[np.argsort(-mass, kind="stable")[: limit // _ALONE]] = True
    return heaviest & (mass * limit > 1)


def _evened_out(mass: Floats, limit: int) -> Floats:
    """Return these masses, in shares of the whole, with none that would take the place of several clusters."""
    for _ in range(_EVENING_OUT):
        mass = np.minimum(mass, mass.sum() / limit)
    return np.asarray(mass / max(float(mass.sum()), np.finfo(float).tiny))


def _classes(each: Clusters, mass: Floats, limit: int) -> NDArray[np.intp]:
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


def _log_bins_of(each: Clusters, bins: int) -> NDArray[np.intp]:
    """Return each channel's cluster as in the paper: bins equally wide in log(w/s), and the slack cluster."""
    fixed = (each.rise == 0) | (each.least_cost == each.most_cost)
    found = np.full(len(each.rise), _SLACK, dtype=np.intp)
    if not fixed.all():
        ratios = np.log(each.weight[~fixed] / each.rise[~fixed])
        low, high = float(ratios.min()), float(ratios.max())
        width = (high - low) / bins
        found[~fixed] = np.minimum((ratios - low) / width, bins - 1).astype(np.intp) if width > 0 else 0
    return found
