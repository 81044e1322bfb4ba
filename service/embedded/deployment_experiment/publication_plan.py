"""Publication times of a deployment's channels, drawn from a seed, and the detection delays of a run.

The publisher and the experiment both draw the times from the same seed, so they need not send each other the times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from service.simulate.corona.workload import draw_intervals_s, zipf_subscribers
from service.simulate.numerics import Floats
from service.simulate.schedulers.polls import weighted_quantile

COMPRESSION = 30.0
"""How many seconds of the paper's time a real second stands for. The poll interval is 1 minute, not 30."""

SUBSCRIBERS_PER_CHANNEL = 20
"""Mean number of subscribers per channel. Corona §5.2 has 150,000 subscriptions to 7,500 channels."""


VersionTimes = Mapping[tuple[int, str], float]
"""(index of the channel, title of the entry) → Unix time at which the entry was queued for subscribers."""


class PublicationPlan(msgspec.Struct, frozen=True):
    """The parameters of the random publication times. Equal plans always result in the same times.

    - ``seed``: the seed of the random numbers.
    - ``channels``: the number of channels.
    - ``begin_s``: the Unix time in seconds at which the publications begin.
    - ``length_s``: the duration of the publications in seconds.
    """

    seed: int
    channels: int
    begin_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class PublicationTimes:
    """The publication times, update interval and number of subscribers of each channel.

    Each field has one element per channel:

    - ``subscribers``: the number of subscribers
    - ``interval_s``: the update interval in seconds
    - ``published_s``: the publication times (Unix time in seconds), in ascending order
    """

    subscribers: tuple[int, ...]
    interval_s: Floats
    published_s: tuple[tuple[float, ...], ...]


def draw_publication_times(plan: PublicationPlan) -> PublicationTimes:
    """Choose random publication times for all channels in ``plan``.

    As in the simulations of the Corona paper, each channel is updated at a constant interval, and its first update is
    at a random time. The intervals have the distribution in Corona §5, divided by ``COMPRESSION``, because the
    experiment is accelerated.
    """
    rng = np.random.default_rng(plan.seed)
    interval_s = draw_intervals_s(plan.channels, rng) / COMPRESSION
    first_s = rng.random(plan.channels) * interval_s
    subscribers = tuple(map(int, zipf_subscribers(plan.channels, rng, SUBSCRIBERS_PER_CHANNEL)))
    times = (
        tuple(map(float, plan.begin_s + np.arange(first, plan.length_s, interval)))
        for first, interval in zip(first_s, interval_s, strict=True)
    )
    return PublicationTimes(subscribers, interval_s, tuple(times))


HOSTS = tuple(f"127.0.1.{number}" for number in range(1, 101))
"""The addresses of the publisher. Channels are spread over many addresses, because workers limit the number of
concurrent requests per host."""


SITES = {f"site-{number}.example": host for number, host in enumerate(HOSTS)}
"""The addresses in ``HOSTS`` by host name. Public channels have URLs with these names. Each name is a site, for which
workers limit the rate of requests."""


def channel_url(channel: int, port: int, *, public: bool) -> str:
    """Return the URL of the channel with the index ``channel`` on a publisher that listens on ``port``.

    - If ``public`` is true, the URL contains a host name from ``SITES``, to which request limits apply.
    - Otherwise, it contains a loopback address from ``HOSTS``, to which no request limits apply.
    """
    hosts = tuple(SITES) if public else HOSTS
    return f"http://{hosts[channel % len(hosts)]}:{port}/feeds/{channel}"


def entry_title(update: int) -> str:
    """Return the title, which is also the id, of the entry with the index ``update`` (from 0) in its channel."""
    return f"Entry {update}"


class DeploymentResult(msgspec.Struct, frozen=True):
    """The results of one run of the deployment experiment.

    The experiment is accelerated: one real second stands for ``COMPRESSION`` seconds in the Corona paper. Time on the
    scale of the paper is called the *paper's time*. Detection delays are in seconds of the paper's time. Their mean
    and percentile are weighted by the channels' numbers of subscribers.

    - ``measured_s``: the real duration of the measurement in seconds
    - ``updates``: how many entries were published during the measurement
    - ``missed``: how many of these entries were never detected
    - ``mean_detection_s``, ``p95_detection_s``: mean and 95th percentile of the detection delay
    - ``legacy_detection_s``: the mean detection delay if each subscriber polled separately, as without Corona
    - ``polls_per_min``: the polls of all workers per minute of the paper's time
    - ``worker_cores``: the mean number of processor cores that all workers together use
    - ``recovered_after_s``: how many real seconds the polling rate took to recover after a worker was killed
      (:func:`recovery_s`); None if no worker was killed, or if the rate did not recover
    """

    nodes: int
    channels: int
    subscriptions: int
    workers: int
    public: bool
    killed_worker: bool
    measured_s: float
    updates: int
    missed: int
    mean_detection_s: float
    p95_detection_s: float
    legacy_detection_s: float
    polls_per_min: float
    worker_cores: float
    recovered_after_s: float | None


RECOVERED_SHARE, RECOVERED_FOR_S = 0.95, 5.0


def recovery_s(served: Sequence[tuple[float, int]], killed_s: float) -> float | None:
    """Return how many seconds the rate of requests took to recover after a worker was killed.

    The rate has recovered when its mean over the following five seconds is at least 95 % of its mean before the kill.
    The result is None if the rate did not recover, or if its mean before the kill is unknown.

    - ``served``: tuples (Unix time, number of requests served so far), in ascending order.
    - ``killed_s``: the Unix time at which the worker was killed.
    """
    before = [sample for sample in served if sample[0] <= killed_s]
    if len(before) < 2:  # noqa: PLR2004 - no rate without two samples
        return None
    former = RECOVERED_SHARE * (before[-1][1] - before[0][1]) / (before[-1][0] - before[0][0])
    for at_s, count in served:
        later = next((sample for sample in served if sample[0] >= at_s + RECOVERED_FOR_S), None)
        if at_s >= killed_s and later is not None and later[1] - count >= former * (later[0] - at_s):
            return at_s - killed_s
    return None


def detection_delays(
    updates: PublicationTimes, versioned: VersionTimes, from_s: float, until_s: float
) -> tuple[Floats, Floats, int]:
    """Return (delays of the detected entries, weights of these entries, number of undetected entries).

    Delays are in real seconds. An entry's weight is the number of its channel's subscribers, divided by the number of
    the channel's detected entries.

    - ``updates``: the publication times of all entries.
    - ``versioned``: the time at which each detected entry was queued for delivery.
    - ``from_s``, ``until_s``: only entries published in this period are included (Unix times in seconds).
    """
    # Channels with many entries therefore do not weigh more (Corona §3.1).
    delays: list[float] = []
    weights: list[float] = []
    missed = 0
    for channel, times in enumerate(updates.published_s):
        entries = [
            (published_s, versioned.get((channel, entry_title(number))))
            for number, published_s in enumerate(times)
            if from_s <= published_s < until_s
        ]
        detected = [queued_s - published_s for published_s, queued_s in entries if queued_s is not None]
        missed += len(entries) - len(detected)
        delays += detected
        weights += [updates.subscribers[channel] / max(1, len(detected))] * len(detected)
    return np.array(delays), np.array(weights), missed


def paper_delay_statistics(delays_s: Floats, weights: Floats) -> tuple[float, float]:
    """Return (weighted mean, weighted 95th percentile) of the detection delays, converted to the paper's time.

    The experiment is accelerated: one real second stands for ``COMPRESSION`` seconds in the Corona paper.

    - ``delays_s``: the delays in real seconds.
    - ``weights``: the weight of each delay.
    """
    mean_s = float(np.average(delays_s, weights=weights))
    return mean_s * COMPRESSION, weighted_quantile(delays_s, weights, 0.95) * COMPRESSION
