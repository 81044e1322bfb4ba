"""What a run came to: updates that are drawn, the polls that find them, and how many polls there were.

A channel's mean delay needs updates of that channel, and half of all channels are updated once a week. So each channel
is given the same number of updates at random moments of every round: with Poisson publishers, whose updates do not
care for polls, any update of a channel meets the schedule at such a moment. They are weighed by subscribers. The delay
of a *notification* is measured on other updates, as often as each channel has them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from service.simulate.figures import weighted_quantile
from service.simulate.trace import Floats, Ints
from service.simulate.workload import Channels, Setup

Next = Callable[[Ints, Floats], Floats]
"""Says when each of these channels is polled first after its moment."""

UPDATES_PER_ROUND = 4
"""Of each channel, for the delay of a subscription."""
CONVERGED = 0.03
LEGACY_SUBSCRIPTIONS = 1_000_000
"""At most: so many clients of their own are enough to know the mean to one second."""


class Window(msgspec.Struct, frozen=True):
    """One τ of a run."""

    end_s: float
    polls_per_channel: float
    mean_detection_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """Updates, when they came, and how long they took to be found."""

    channel: Ints
    at_s: Floats
    delay_s: Floats

    def between(self, begin_s: float, end_s: float) -> "Found":
        """Return those that came in this time."""
        inside = (self.at_s >= begin_s) & (self.at_s < end_s)
        return Found(self.channel[inside], self.at_s[inside], self.delay_s[inside])

    def mean_s(self, weight: Floats) -> float:
        """Return the mean delay, each update weighing what its channel weighs."""
        return float(np.average(self.delay_s, weights=weight[self.channel]))

    def quantile_s(self, weight: Ints, share: float) -> float:
        """Return the delay that this share of the updates, so weighed, kept below."""
        return weighted_quantile(self.delay_s, weight[self.channel], share)


def even_updates(numbers: Ints, setup: Setup, next_s: Next, rng: np.random.Generator) -> Found:
    """Return as many updates of each of these channels, and how long they took."""
    channel = np.repeat(numbers, UPDATES_PER_ROUND * setup.rounds)
    rounds = np.tile(np.repeat(np.arange(setup.rounds), UPDATES_PER_ROUND), len(numbers))
    at_s = (rounds + rng.random(len(channel))) * setup.maintenance_s
    return Found(channel, at_s, next_s(channel, at_s) - at_s)


def poisson_updates(numbers: Ints, channels: Channels, setup: Setup, next_s: Next, rng: np.random.Generator) -> Found:
    """Return updates of these channels, each as often as it is updated, and how long they took."""
    channel = np.repeat(numbers, rng.poisson(setup.end_s / channels.update_interval_s[numbers]))
    at_s = rng.random(len(channel)) * setup.end_s
    return Found(channel, at_s, next_s(channel, at_s) - at_s)


def legacy_detection_s(channels: Channels, setup: Setup, rng: np.random.Generator) -> float:
    """Return the mean delay of subscribers who all poll for themselves, every τ from some moment on."""
    total = int(channels.subscribers.sum())
    subscriptions = rng.integers(total, size=min(total, LEGACY_SUBSCRIPTIONS))
    channel = np.searchsorted(np.cumsum(channels.subscribers), subscriptions, side="right")
    update_s = rng.random(len(channels.subscribers)) * setup.end_s
    first_s = rng.random(len(channel)) * setup.poll_interval_s
    return float(((first_s - update_s[channel]) % setup.poll_interval_s).mean())


def windows(
    setup: Setup, polls: Callable[[float, float], float], even: Found, subscribers: Floats
) -> tuple[Window, ...]:
    """Return each τ; ``polls`` says how many there are of a channel in a time."""
    tau_s, found = setup.poll_interval_s, []
    for place in range(int(setup.end_s / tau_s)):
        begin_s, end_s = place * tau_s, (place + 1) * tau_s
        found.append(Window(end_s, polls(begin_s, end_s), even.between(begin_s, end_s).mean_s(subscribers)))
    return tuple(found)


def converged_after_rounds(setup: Setup, found: tuple[Window, ...], load: float, delay_s: float) -> int | None:
    """Return after how many maintenance rounds load and delay stay within 3 % of what they are measured to be.

    A round begins with every node's maintenance, which takes until its first tick; the next whole τ shows it.
    """
    windows_per_round = setup.maintenance_s / setup.poll_interval_s
    off = [
        place
        for place, window in enumerate(found)
        if max(abs(window.polls_per_channel / load - 1), abs(window.mean_detection_s / delay_s - 1)) > CONVERGED
    ]
    rounds = int((max(off, default=0)) / windows_per_round) + 1
    return rounds if rounds < setup.rounds else None
