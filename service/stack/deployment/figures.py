"""What a deployment came to, in the paper's seconds. Pure."""

from collections.abc import Mapping

import msgspec
import numpy as np

from service.simulate.trace import Floats
from service.stack.deployment.updates import COMPRESSION, Updates, entry_title

Versioned = Mapping[tuple[int, str], float]
"""(channel, title of the entry) → when it was versioned and on its way to people (Unix s)."""


class Deployment(msgspec.Struct, frozen=True):
    """Figures of one run; ``…_s`` are seconds of the paper, subscription-weighted where they are means.

    ``polls_per_min`` is the whole fleet's load, per minute of the paper. ``legacy_detection_s`` is what polling
    by every subscriber on its own would give. ``missed`` entries were published in time and never seen.
    """

    nodes: int
    channels: int
    subscriptions: int
    workers: int
    killed_worker: bool
    measured_s: float
    updates: int
    missed: int
    mean_detection_s: float
    p95_detection_s: float
    legacy_detection_s: float
    polls_per_min: float
    worker_cores: float


def detection(updates: Updates, versioned: Versioned, from_s: float, until_s: float) -> tuple[Floats, Floats, int]:
    """Return of the entries published within a window the delays (s of the clock), their weights, how many are missed.

    A channel weighs what it has subscribers, however many of its entries fall into the window (Corona §3.1).
    """
    delays: list[float] = []
    weights: list[float] = []
    missed = 0
    for channel, times in enumerate(updates.published_s):
        told = [
            (published_s, versioned.get((channel, entry_title(number))))
            for number, published_s in enumerate(times)
            if from_s <= published_s < until_s
        ]
        seen = [told_s - published_s for published_s, told_s in told if told_s is not None]
        missed += len(told) - len(seen)
        delays += seen
        weights += [updates.subscribers[channel] / max(1, len(seen))] * len(seen)
    return np.array(delays), np.array(weights), missed


def in_paper_seconds(delays_s: Floats, weights: Floats) -> tuple[float, float]:
    """Return the weighted mean and the delay that 95 % of the weight stays below."""
    order = np.argsort(delays_s)
    weight = np.cumsum(weights[order])
    p95_s = delays_s[order][np.searchsorted(weight, 0.95 * weight[-1])]
    return float(np.average(delays_s, weights=weights)) * COMPRESSION, float(p95_s) * COMPRESSION
