"""What a fleet wants, as one weight per channel, and how long people wait (Corona §3.2, Table 1).

Every goal minimises Σ weight/n over the channels, n being a channel's polls per τ (together, of all
its polling set): with D = τ/(2n) that is the weighted mean delay, but for a constant.

    Lite       q               the mean delay of a subscription; bounded load
    Fast       q               the same delay as a bound; least load
    Fair       q·τ/u           the mean delay of a *notification*: who publishes rarely is asked rarely
    Fair-Sqrt  q·√(τ/u)        between Fair and Lite
    Fair-Log   q·log τ/log u   nearer to Lite

with q subscribers, u the mean time between a channel's updates. Logarithms are of seconds.
"""

from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.corona.fleet_policy import Goal
from service.corona.polling_schedule import size_for_wait
from service.corona.update_rates import SHORTEST_UPDATE_INTERVAL_S

__all__ = ["Floats", "Goal", "detection_s", "mean_delay_s", "size_for_wait", "weights"]

Floats = NDArray[np.float64]


def weights(goal: Goal, subscribers: ArrayLike, update_interval_s: ArrayLike, poll_interval_s: float) -> Floats:
    """Return each channel's weight, dimensionless.

    Args:
        goal: What to optimise.
        subscribers: How many each channel has, shape (M,). A channel of none weighs nothing.
        update_interval_s: Mean time between updates, shape (M,) or one for all. What is not known (zero,
            negative, NaN) counts as τ, which is neutral: then all goals give q.
        poll_interval_s: τ.

    We deviate from Table 1 in taking u, and τ beside log u, as at least ``SHORTEST_UPDATE_INTERVAL_S``,
    because log u has to stay positive.
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


def detection_s(size: ArrayLike, poll_interval_s: float) -> Floats:
    """Return D = τ/(2n), the mean time from an update to the poll that sees it; infinity for n = 0.

    Corona §3.1. It holds for polls that are evenly spaced, and for n below 1 as well.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(poll_interval_s / (2 * np.asarray(size, dtype=np.float64)))


def mean_delay_s(weight: Floats, size: Floats, poll_interval_s: float) -> float:
    """Return Σ w·D / Σ w: by subscribers the mean delay of a subscription, by q/u that of a notification.

    Channels that weigh nothing do not count, also when they are never polled. Zero if nothing weighs.
    """
    heavy = weight > 0
    if not heavy.any():
        return 0.0
    return float(np.average(detection_s(size[heavy], poll_interval_s), weights=weight[heavy]))
