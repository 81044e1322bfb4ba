"""Which channels share a tradeoff cluster (see ``clusters``).

Every function takes channels as arrays of shape (K,), as ``clusters.Clusters`` has them, and returns a number for
each: those with the same number share a cluster.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.corona.goals import Floats

_ALIKE_DIGITS = 6
"""Decimals of log₂ of a start or an end: 4·10⁻⁷ apart at most, and several times what numbers on the wire are off."""
_ALONE = 16
"""One cluster in this many may be kept for a channel alone."""
_CLASSES = 32
_CLASSES_PER_DOUBLING = 8
_EVENING_OUT = 8
_IDLE, _ENDLESS, _SLACK = -(1 << 20), -(1 << 19), -1


class Channels(Protocol):
    """What channels, or clusters of them, are by; sums over a cluster's channels."""

    @property
    def weight(self) -> Floats:
        """Σ w."""
        ...

    @property
    def rise(self) -> Floats:
        """Σ √(w·s)."""
        ...

    @property
    def least_cost(self) -> Floats:
        """Σ s·least."""
        ...

    @property
    def most_cost(self) -> Floats:
        """Σ s·most."""
        ...


def alike(each: Channels) -> NDArray[np.intp]:
    """Return which channels are one line: those with the same start and the same end."""
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.log2(np.stack((each.least_cost, each.most_cost)) / each.rise)
    bounds = np.round(np.nan_to_num(bounds, nan=_IDLE, posinf=np.inf, neginf=_ENDLESS), _ALIKE_DIGITS)
    starts, ends = (np.unique(bound, return_inverse=True)[1] for bound in bounds)
    return np.asarray(ends * len(starts) + starts)


def quantiles(each: Channels, limit: int) -> NDArray[np.intp]:
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


def _mass(each: Channels) -> Floats:
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


def _classes(each: Channels, mass: Floats, limit: int) -> NDArray[np.intp]:
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


def log_bins_of(each: Channels, bins: int) -> NDArray[np.intp]:
    """Return each channel's cluster as in the paper: bins equally wide in log(w/s), and the slack cluster."""
    fixed = (each.rise == 0) | (each.least_cost == each.most_cost)
    found = np.full(len(each.rise), _SLACK, dtype=np.intp)
    if not fixed.all():
        ratios = np.log(each.weight[~fixed] / each.rise[~fixed])
        low, high = float(ratios.min()), float(ratios.max())
        width = (high - low) / bins
        found[~fixed] = np.minimum((ratios - low) / width, bins - 1).astype(np.intp) if width > 0 else 0
    return found
