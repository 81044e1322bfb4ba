"""When each channel of the deployment publishes: drawn from a seed, so that publisher and judge need not talk."""

from dataclasses import dataclass

import msgspec
import numpy as np

from service.simulate.trace import Floats, draw_intervals_s, zipf_subscribers

COMPRESSION = 30.0
"""Seconds of the paper per second of the clock: its 30 minutes between polls are one minute here."""

SUBSCRIBERS_PER_CHANNEL = 20
"""Corona §5.2: 150,000 subscriptions to 7,500 channels."""


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
