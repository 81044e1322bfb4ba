"""Summaries of a node's channels that are small enough for one message (Corona §3.2).

From the summaries of all nodes, each node computes the *scale* c, the factor that determines all polls. In the
formulas, w is a channel's weight, s the cost of one poll, and n its number of polls per poll interval τ. The minimum
and the maximum of n are called least and most.

How channels are summarised:

1. To compute c, all that matters about a channel is its cost at each c: s·n = rise·clip(c, start, end), with rise =
   √(w·s), start = least·√(s/w), end = most·√(s/w). This function of c is a *clipped line*: constant below the start,
   then proportional to c, and constant above the end.
2. The sum of channels with similar starts and ends is itself approximately a clipped line. A *cluster* is such a sum.
3. For each cluster, the summary contains five numbers: how many distinct lines it adds up, the total weight, the total
   rise, the cost if all n are at their minimum, and the cost if all n are at their maximum.
4. Summaries of several nodes are merged by concatenation, and then reduced again.

A cluster is exact unless c lies between the starts, or between the ends, of its own channels. Only a few clusters
therefore cause an error, and each of them has about a thousandth of the total rise.

Deviations from the paper:

- The paper uses 16 bins of equal width in log(w/s) (:func:`summarise` with ``log_bins=16``). This module uses up to
  1,024 bins of about equal total rise. Channels with identical starts and ends always share a cluster.
- The paper's nodes send a set of clusters for each level. One set suffices here, because the cost at each level follows
  from w and s.
- In the paper's bins, channels whose size cannot change (orphans, §4) form one *slack* cluster, which only reduces the
  budget left for other channels.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from service.corona.optimizer import allocation_solver
from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.objectives import Floats

MAX_CLUSTERS = 1024
MAX_SIZE = 1e9
"""The value that replaces an infinite maximum number of polls (``most``) in summaries."""

BUDGET_MARGIN = 2e-4
"""Share of a budget that is kept in reserve for the approximation error of clusters of several lines.

A cluster overestimates the cost of its channels at scales where some of them reach their maximum size. It
underestimates the cost at scales where some leave their minimum size, by up to 10⁻⁵ (3·10⁻⁴ with bounds of all sizes).
Rounding of numbers on the wire and of sizes, and the random number of polls within a few hours, add errors of about
10⁻⁵.
"""

_ROW = np.dtype([("lines", "<u4"), ("weight", "<f4"), ("rise", "<f4"), ("least_cost", "<f4"), ("most_cost", "<f4")])
_EXACT_MARGIN = 5e-7
"""Factor of the reserve that replaces ``BUDGET_MARGIN`` if all K clusters are exact.

The reserve, a share of the budget, is this factor times √K. It covers the rounding of numbers on the wire.
"""

_IDENTICAL_DIGITS = 6
"""Decimals to which log₂ of the starts and ends of clusters are rounded before they are compared.

Rounding changes a start or end by at most 4·10⁻⁷ of its value, several times the rounding error on the wire.
"""
_CLUSTERS_PER_SINGLETON = 16
"""At most one in this many clusters is reserved for a single heavy channel."""
_CLASSES = 32
_CLASSES_PER_DOUBLING = 8
_CAPPING_ROUNDS = 8
_IDLE, _ENDLESS, _SLACK = -(1 << 20), -(1 << 19), -1


class TradeoffClusters(NamedTuple):
    """A summary of channels as K *clusters*; each cluster is the sum of similar channels.

    K is at most ``MAX_CLUSTERS``, and each array has shape (K,). In the sums, w is a channel's weight, and s is the
    cost of one poll. The minimum and the maximum number of a channel's polls per poll interval τ are called least and
    most.

    - ``lines``: how many different cost curves the cluster adds up. A channel's cost curve states what its polls cost
      at each *scale* (the factor that determines all polls). A cluster of only one curve is exact.
    - ``weight``: Σ w over the channels that may be polled.
    - ``rise``: Σ √(w·s) over the channels that may be polled.
    - ``least_cost``: Σ s·least.
    - ``most_cost``: Σ s·most.
    """

    lines: Floats
    weight: Floats
    rise: Floats
    least_cost: Floats
    most_cost: Floats

    @classmethod
    def empty(cls) -> Self:
        """Return a summary that covers no channels."""
        return cls(*(np.zeros(0) for _ in cls._fields))

    def scale_for_budget(self, budget: float) -> float:
        """Return the scale c (the factor that determines all polls) at which all channels together cost ``budget``.

        The budget is per poll interval τ. A small part of it, at most the fraction ``BUDGET_MARGIN``, is reserved for
        the error of the clusters. See :func:`allocation_solver.scale_for_budget` for budgets that are too small or too
        large.
        """
        return allocation_solver.scale_for_budget(self.to_problem(), self.usable_budget(budget))

    def usable_budget(self, budget: float) -> float:
        """Return how much of ``budget`` may be used; the rest is a reserve for the error of this summary."""
        held_back = BUDGET_MARGIN if self.lines.max(initial=1) > 1 else _EXACT_MARGIN * sqrt(len(self.lines))
        # What all cost at their least is a sum, and known exactly: it may take the whole budget.
        return max(budget * (1 - held_back), min(budget, float(self.least_cost.sum())))

    def scale_for_delay(self, delay_s: float, poll_interval_s: float) -> float:
        """Return the scale c (the factor that determines all polls) at which the weighted mean delay is ``delay_s``.

        ``poll_interval_s`` is τ, the poll interval of one node. See :func:`allocation_solver.scale_for_delay` for
        delays that cannot be reached.
        """
        return allocation_solver.scale_for_delay(
            self.to_problem(), delay_s, poll_interval_s, total_weight=float(self.weight.sum())
        )

    def to_level_problem(self) -> AllocationProblem:
        """Return an optimisation problem for ``simulate.paper_levels`` in which one channel represents each cluster.

        Every channel in the clusters must have a minimum of one poll per poll interval τ, as in the paper.
        """
        # A cluster's cost at the minimum sizes is then the sum of its channels' costs of one poll.
        costs = np.where(self.least_cost > 0, self.least_cost, 1.0)
        return AllocationProblem(self.weight, costs, np.ones_like(costs), self.most_cost / costs)

    def to_problem(self) -> AllocationProblem:
        """Return an optimisation problem in which one channel represents each cluster.

        At each scale, this channel costs about as much as all channels of the cluster together.
        """
        # Its weight equals the cost of one poll, so that its size is the scale, clipped to the cluster's bounds.
        moving = self.rise > 0
        rises = np.where(moving, self.rise, 1.0)
        return AllocationProblem(self.rise, rises, self.least_cost / rises, self.most_cost / rises)


def summarise(problem: AllocationProblem, *, limit: int = MAX_CLUSTERS, log_bins: int = 0) -> TradeoffClusters:
    """Summarise the channels in ``problem`` as sums of similar channels (clusters).

    Args:
        problem: M channels, with bounds that take the budgets of their sites into account.
        limit: Maximum number of clusters, at least 4.
        log_bins: Number of bins of equal width in log(weight/cost), as in the paper; 0 for this module's own bins.
    """
    most = np.minimum(problem.most, MAX_SIZE)
    least = np.minimum(problem.least, most)
    # No delay bound can count on a channel that may not be polled.
    weight = np.where(most > 0, problem.weights, 0.0)
    clusters = TradeoffClusters(
        np.ones_like(weight),
        weight,
        np.sqrt(weight * problem.costs),
        problem.costs * least,
        problem.costs * np.where(weight > 0, most, least),
    )
    return _reduce(clusters, limit, log_bins)


def merge(parts: Sequence[TradeoffClusters], *, limit: int = MAX_CLUSTERS, log_bins: int = 0) -> TradeoffClusters:
    """Merge the summaries in ``parts`` into one summary of all their channels.

    For ``limit`` and ``log_bins``, see :func:`summarise`.
    """
    if not parts:
        return TradeoffClusters.empty()
    return _reduce(TradeoffClusters(*map(np.concatenate, zip(*parts, strict=True))), limit, log_bins)


def encode(clusters: TradeoffClusters) -> bytes:
    """Encode the clusters as bytes, 20 bytes per cluster; :func:`decode` decodes them."""
    return pack_columns(_ROW, clusters).tobytes()


def decode(raw: bytes) -> TradeoffClusters | None:
    """Return the clusters that :func:`encode` has encoded, or None if ``raw`` is invalid.

    ``raw`` is invalid if its length is wrong, if it has too many clusters, if a number is negative, infinite or NaN, if
    a cluster has no lines, or if its ``least_cost`` exceeds its ``most_cost``.
    """
    # The sender of an invalid summary will send another one soon.
    columns = unpack_columns(_ROW, raw, MAX_CLUSTERS)
    if columns is None:
        return None
    found = TradeoffClusters(*columns)
    return found if (found.least_cost <= found.most_cost).all() else None


def pack_columns(row: np.dtype[np.void], columns: Sequence[Floats]) -> NDArray[np.void]:
    """Combine equally long arrays into one structured array of the type ``row``, for sending in a message.

    ``columns`` contains one array for each field of ``row``.
    """
    rows = np.empty(len(columns[0]), dtype=row)
    for name, column in zip(row.names or (), columns, strict=True):
        rows[name] = column
    return rows


def unpack_columns(row: np.dtype[np.void], raw: bytes, most: int) -> list[Floats] | None:
    """Return the columns of the structured array that ``raw`` encodes; None if ``raw`` is invalid.

    This is the inverse of :func:`pack_columns`. ``row`` is the type of the array.

    ``raw`` is invalid if its length is wrong, if it has more than ``most`` rows, if a number is negative, infinite or
    NaN, or if the first number of a row is zero.
    """
    if len(raw) % row.itemsize or len(raw) > most * row.itemsize:
        return None
    rows = np.frombuffer(raw, dtype=row)
    with np.errstate(invalid="ignore"):  # NaNs of the signalling kind
        columns = [rows[name].astype(np.float64) for name in row.names or ()]
    is_sound = all(np.isfinite(column).all() and (column >= 0).all() for column in columns) and (columns[0] > 0).all()
    return columns if is_sound else None


def _reduce(clusters: TradeoffClusters, limit: int, log_bins: int) -> TradeoffClusters:
    """Merge ``clusters`` into at most ``limit`` clusters.

    If ``log_bins`` is not 0, merge them as in the paper instead. There is then one cluster for each of ``log_bins``
    bins of equal width in log(weight/cost), and one for the channels whose number of polls is fixed.
    """
    if not len(clusters.rise):
        return clusters
    if log_bins:
        return _sum_by_bin(clusters, _group_by_log_ratio(clusters, log_bins))
    exact = _sum_by_bin(clusters, _group_identical(clusters), lines=np.maximum)
    return exact if len(exact.rise) <= limit else _sum_by_bin(clusters, _group_by_quantile(clusters, limit))


def _sum_by_bin(clusters: TradeoffClusters, bins: NDArray[np.intp], lines: np.ufunc = np.add) -> TradeoffClusters:
    """Add up the clusters in each bin; return one cluster per bin, ordered by bin index.

    - ``bins``: the bin index of each of ``clusters``.
    - ``lines``: the operation that combines the field ``lines`` (the number of different cost functions) of the
      clusters in a bin. It is addition, or the maximum if all clusters in a bin have the same cost function.
    """
    places, ids = np.unique(bins, return_inverse=True)
    line_counts = np.zeros(len(places))
    lines.at(line_counts, ids, clusters.lines)
    parts = (clusters.weight, clusters.rise, clusters.least_cost, clusters.most_cost)
    return TradeoffClusters(line_counts, *(np.bincount(ids, part, len(places)).astype(np.float64) for part in parts))


# The functions below assign channels to bins: each returns one number per channel, equal for channels of one bin.


def _group_identical(clusters: TradeoffClusters) -> NDArray[np.intp]:
    """Return the bin index of each cluster; clusters share a bin if their costs grow between the same two scales.

    The cost of a cluster is constant up to one scale, grows up to a second scale, and is constant beyond it.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.log2(np.stack((clusters.least_cost, clusters.most_cost)) / clusters.rise)
    bounds = np.round(np.nan_to_num(bounds, nan=_IDLE, posinf=np.inf, neginf=_ENDLESS), _IDENTICAL_DIGITS)
    starts, ends = (np.unique(bound, return_inverse=True)[1] for bound in bounds)
    return np.asarray(ends * len(starts) + starts)


def _group_by_quantile(clusters: TradeoffClusters, limit: int) -> NDArray[np.intp]:
    """Divide clusters into at most ``limit`` bins of about equal importance; return the bin index of each cluster.

    Each of the most important clusters gets its own bin, so that it remains exact.
    """
    # They are divided in the order of their ends; a bin contains only clusters with similar ratios of minimum to
    # maximum cost.
    mass = _relative_mass(clusters)
    alone = _find_heaviest(mass, limit)
    mass = _cap_mass(np.where(alone, 0.0, mass), limit)
    kinds, classes = np.unique(_ratio_classes(clusters, mass, min(_CLASSES, limit // 4)), return_inverse=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.lexsort((clusters.most_cost / clusters.rise, classes))
    middle = np.cumsum(mass[order]) - mass[order] / 2
    alone = alone[order]
    apart = np.cumsum(alone) + np.cumsum(np.concatenate(([False], alone[:-1])))
    # A boundary lies at each share of the total, at each class, and on both sides of a singleton, so that there are at
    # most ``limit`` bins.
    shares = limit - len(kinds) - 2 * np.count_nonzero(alone)
    found = np.empty(len(order), dtype=np.intp)
    found[order] = (middle * shares).astype(np.intp) + classes[order] + apart
    return found


def _relative_mass(clusters: TradeoffClusters) -> Floats:
    """Return each cluster's *mass*: how much it matters to the accuracy of the summary. The masses add up to 1."""
    # The mass is the mean of the cluster's shares in four sums over all clusters: the rise, the cost with all channels
    # at their maximum sizes, and the delay Σ w/n with all channels at their minimum and at their maximum sizes.
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = (
            clusters.rise,
            clusters.most_cost,
            clusters.rise**2 / clusters.most_cost,
            clusters.rise**2 / clusters.least_cost,
        )
        finite = [np.nan_to_num(part, nan=0.0, posinf=0.0) for part in sums]
    mass = np.zeros_like(clusters.rise)
    for part in finite:
        if part.any():
            mass += part / part.sum()
    return np.asarray(mass / max(float(mass.sum()), np.finfo(float).tiny))


def _find_heaviest(mass: Floats, limit: int) -> NDArray[np.bool_]:
    """Return, for each cluster, whether it is important enough to get its own bin if there are ``limit`` bins.

    ``mass`` contains each cluster's importance.
    """
    heaviest = np.zeros(len(mass), dtype=bool)
    heaviest[np.argsort(-mass, kind="stable")[: limit // _CLUSTERS_PER_SINGLETON]] = True
    return heaviest & (mass * limit > 1)


def _cap_mass(mass: Floats, limit: int) -> Floats:
    """Limit each mass to 1/``limit`` of the total, and return the masses as fractions of the reduced total."""
    # That is the mass of one bin.
    for _ in range(_CAPPING_ROUNDS):
        mass = np.minimum(mass, mass.sum() / limit)
    return np.asarray(mass / max(float(mass.sum()), np.finfo(float).tiny))


def _ratio_classes(clusters: TradeoffClusters, mass: Floats, limit: int) -> NDArray[np.intp]:
    """Group clusters with similar ratios of minimum to maximum cost; return the index of each cluster's group.

    ``mass`` contains each cluster's importance. Neighbouring groups are joined until there are at most ``limit``. All
    clusters without weight form one group.
    """
    # The joined classes have about equal mass.
    with np.errstate(divide="ignore", invalid="ignore"):
        doublings = np.log2(clusters.least_cost / clusters.most_cost)
    codes = np.nan_to_num(np.round(doublings * _CLASSES_PER_DOUBLING), nan=_IDLE, neginf=_ENDLESS).astype(np.intp)
    codes[clusters.rise == 0] = _IDLE
    present, inverse = np.unique(codes, return_inverse=True)
    if len(present) > limit:
        reached = np.cumsum(np.bincount(inverse, mass))
        codes = np.minimum(reached * (limit - 1), limit - 2).astype(np.intp)[inverse]
        codes[clusters.rise == 0] = _IDLE
    return codes


def _group_by_log_ratio(clusters: TradeoffClusters, bins: int) -> NDArray[np.intp]:
    """Return the bin index of each cluster, for ``bins`` bins of equal width in log(weight/cost), as in the paper.

    Clusters whose number of polls is fixed are in the bin ``_SLACK``.
    """
    fixed = (clusters.rise == 0) | (clusters.least_cost == clusters.most_cost)
    found = np.full(len(clusters.rise), _SLACK, dtype=np.intp)
    if not fixed.all():
        ratios = np.log(clusters.weight[~fixed] / clusters.rise[~fixed])
        low, high = float(ratios.min()), float(ratios.max())
        width = (high - low) / bins
        found[~fixed] = np.minimum((ratios - low) / width, bins - 1).astype(np.intp) if width > 0 else 0
    return found
