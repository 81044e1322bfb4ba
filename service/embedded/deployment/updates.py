"""Times at which the channels of a deployment publish, drawn from a seed, and the figures of a run. Pure.

Publisher and judge draw the same times, so that they need not communicate.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from service.simulate.schedulers.publication_trace import Floats, draw_intervals_s, zipf_subscribers

COMPRESSION = 30.0
"""Seconds of the paper per second of the clock: its 30 minutes between polls are one minute here."""

SUBSCRIBERS_PER_CHANNEL = 20
"""Corona §5.2: 150,000 subscriptions to 7,500 channels."""


Versioned = Mapping[tuple[int, str], float]
"""(channel, title of the entry) → when it was versioned and on its way to people (Unix s)."""


class Plan(msgspec.Struct, frozen=True):
    """What is published from ``begin_s`` (Unix s) on, for ``length_s`` seconds."""

    seed: int
    channels: int
    begin_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class Updates:
    """Subscribers of each channel, and the times (Unix s, ascending) at which it publishes an entry."""

    subscribers: tuple[int, ...]
    interval_s: Floats
    published_s: tuple[tuple[float, ...], ...]


def updates_of(plan: Plan) -> Updates:
    """Draw a plan's updates: intervals of Corona §5 in compressed time, each from a random moment on.

    Fixed intervals, as the paper's simulations have them: what varies is how long a poll comes after them.
    """
    rng = np.random.default_rng(plan.seed)
    interval_s = draw_intervals_s(plan.channels, rng) / COMPRESSION
    first_s = rng.random(plan.channels) * interval_s
    subscribers = tuple(map(int, zipf_subscribers(plan.channels, rng, SUBSCRIBERS_PER_CHANNEL)))
    times = (
        tuple(map(float, plan.begin_s + np.arange(first, plan.length_s, interval)))
        for first, interval in zip(first_s, interval_s, strict=True)
    )
    return Updates(subscribers, interval_s, tuple(times))


HOSTS = tuple(f"127.0.1.{number}" for number in range(1, 101))
"""A worker asks no host for much at a time, so the channels live on many, as they do elsewhere."""


def url(channel: int, port: int) -> str:
    """Return where a channel is, on the publisher's port."""
    return f"http://{HOSTS[channel % len(HOSTS)]}:{port}/feeds/{channel}"


def entry_title(update: int) -> str:
    """Return the title of a channel's entry of this number (from 0), which is its id as well."""
    return f"Entry {update}"


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
