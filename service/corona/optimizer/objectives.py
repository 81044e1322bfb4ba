"""The weight of each channel under an optimisation goal, and the model of detection delay (Corona §3.2, Table 1).

All goals except Fast minimise Σ weight/n while the load stays within a limit. Fast minimises the load while Σ weight/n
stays within a limit. Here n is the number of polls of a channel per poll interval τ, made by all nodes together. An
update is detected after D = τ/(2n) on average, so Σ weight/n is proportional to a weighted mean delay.

The table shows each goal's weight, and what the goal minimises or limits. Here q is the number of subscribers, and u
the mean time between a channel's updates:

    Lite       q               the mean delay of a subscription; bounded load
    Fast       q               the same delay as a bound; minimum load
    Fair       q·τ/u           the mean delay of a *notification*: channels that rarely publish are rarely polled
    Fair-Sqrt  q·√(τ/u)        between Fair and Lite
    Fair-Log   q·log τ/log u   nearer to Lite

The arguments of logarithms are in seconds.
"""

from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.corona.fleet_policy import Goal
from service.corona.update_rates import SHORTEST_UPDATE_INTERVAL_S

Floats = NDArray[np.float64]


def weights(goal: Goal, subscribers: ArrayLike, update_interval_s: ArrayLike, poll_interval_s: float) -> Floats:
    """Return the weight (importance) of each channel under a goal, dimensionless (Corona Table 1).

    Args:
        goal: The optimisation goal.
        subscribers: Number of subscribers of each channel, shape (M,). A channel without subscribers has weight 0.
        update_interval_s: u, the mean time between updates in seconds, shape (M,) or one value for all channels. If
            u is unknown (zero, negative, NaN), τ is used instead; the weight is then the number of subscribers
            under every goal.
        poll_interval_s: τ, in seconds.

    Deviation from Table 1: because log u has to be positive, u is raised to ``SHORTEST_UPDATE_INTERVAL_S`` if it is
    shorter. In the formula for Fair-Log, τ has the same lower bound.
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
    """Return the number of polls per poll interval τ that results in a mean wait of ``longest_wait_s``.

    With n polls, an update waits for D = τ/(2n) on average (Corona §3.1). ``poll_interval_s`` is τ. Both times are in
    seconds.
    """
    return poll_interval_s / (2 * longest_wait_s)


def detection_s(size: ArrayLike, poll_interval_s: float) -> Floats:
    """Return the mean time in seconds from an update to its detection, D = τ/(2n), for each channel (Corona §3.1).

    - ``size``: n, the number of polls of each channel per τ, evenly spaced. It may be below 1. Where n is 0, the result
      is infinite.
    - ``poll_interval_s``: τ, in seconds.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(poll_interval_s / (2 * np.asarray(size, dtype=np.float64)))


def mean_delay_s(weight: Floats, size: Floats, poll_interval_s: float) -> float:
    """Return the weighted mean delay Σ w·D / Σ w in seconds; zero if all weights are zero.

    - ``weight``: w of each channel. If it is the number of subscribers, the result is the mean delay of a subscription.
      If it is the number of subscribers divided by the update interval, the result is the mean delay of a notification.
    - ``size``: n, the number of polls of each channel per τ. The channel's delay is D = τ/(2n).
    - ``poll_interval_s``: τ, in seconds.

    Channels of weight 0 are ignored, even if they are never polled.
    """
    heavy = weight > 0
    if not heavy.any():
        return 0.0
    return float(np.average(detection_s(size[heavy], poll_interval_s), weights=weight[heavy]))
