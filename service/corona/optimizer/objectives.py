"""Optimisation objectives: a goal as one weight per channel, and the model of detection delay (Corona §3.2, Table 1).

Every goal minimises Σ weight/n over the channels, where n is a channel's number of polls per τ by its whole polling
set. With D = τ/(2n) that is the weighted mean delay, up to a constant factor.

    Lite       q               the mean delay of a subscription; bounded load
    Fast       q               the same delay as a bound; minimum load
    Fair       q·τ/u           the mean delay of a *notification*: channels that rarely publish are rarely polled
    Fair-Sqrt  q·√(τ/u)        between Fair and Lite
    Fair-Log   q·log τ/log u   nearer to Lite

q is the number of subscribers, u the mean time between a channel's updates. Logarithms are of seconds.
"""

from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.corona.fleet_policy import Goal
from service.corona.update_rates import SHORTEST_UPDATE_INTERVAL_S

Floats = NDArray[np.float64]


def weights(goal: Goal, subscribers: ArrayLike, update_interval_s: ArrayLike, poll_interval_s: float) -> Floats:
    """Return the weight of each channel, dimensionless (Corona Table 1).

    Args:
        goal: The optimisation goal.
        subscribers: Number of subscribers of each channel, shape (M,). A channel without any has weight 0.
        update_interval_s: u, the mean time between updates in seconds, shape (M,) or one for all. An unknown value
            (zero, negative, NaN) counts as τ, at which the weight is the number of subscribers under every goal.
        poll_interval_s: τ, in seconds.

    Deviation from Table 1: u is taken as at least ``SHORTEST_UPDATE_INTERVAL_S``, because log u has to be positive. In
    the formula of Fair-Log, τ has the same lower bound.
    """
    counts = np.asarray(subscribers, dtype=np.float64)
    stated_s = np.asarray(update_interval_s, dtype=np.float64)
    update_s = np.maximum(np.where(stated_s > 0, stated_s, poll_interval_s), SHORTEST_UPDATE_INTERVAL_S)
    match goal:
        case Goal.LITE | Goal.FAST:
            return counts + np.zeros_like(update_s)
        case Goal.FAIR:
            return np.asarray(counts * poll_interval_s / update_s)
        case Goal.FAIR_SQRT:
            return np.asarray(counts * np.sqrt(poll_interval_s / update_s))
        case Goal.FAIR_LOG:
            return np.asarray(counts * log(max(poll_interval_s, SHORTEST_UPDATE_INTERVAL_S)) / np.log(update_s))


def size_for_wait(longest_wait_s: float, poll_interval_s: float) -> float:
    """Return the number n of polls per τ whose mean wait D = τ/(2n) is ``longest_wait_s`` (Corona §3.1).

    ``poll_interval_s`` is τ. With fewer polls, a channel's mean wait exceeds ``longest_wait_s``. Both are in seconds.
    """
    return poll_interval_s / (2 * longest_wait_s)


def detection_s(size: ArrayLike, poll_interval_s: float) -> Floats:
    """Return D = τ/(2n), the mean time in seconds from an update to its detection (Corona §3.1).

    ``size`` is n, the number of polls of each channel per τ, and ``poll_interval_s`` is τ. The result is infinite where
    n is 0. The formula assumes evenly spaced polls; it also holds for n below 1.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(poll_interval_s / (2 * np.asarray(size, dtype=np.float64)))


def mean_delay_s(weight: Floats, size: Floats, poll_interval_s: float) -> float:
    """Return the weighted mean delay Σ w·D / Σ w in seconds; zero if all weights are zero.

    ``weight`` is w of each channel, ``size`` its n in polls per τ, ``poll_interval_s`` is τ, and D = τ/(2n). With w =
    number of subscribers, the result is the mean delay of a subscription. With w = number of subscribers / update
    interval, it is the mean delay of a notification. Channels of weight 0 are ignored, even if they are never polled.
    """
    heavy = weight > 0
    if not heavy.any():
        return 0.0
    return float(np.average(detection_s(size[heavy], poll_interval_s), weights=weight[heavy]))
