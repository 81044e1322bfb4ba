"""The experiment ``corona``: the simulations of Corona §5, in the paper's way and in ours.

Nodes run production's rooms (``fleet``, ``owners``), their rotas are a timetable of all polls, and what is measured are
updates that are drawn and then found by these polls (``measures``).

A channel's mean delay needs updates of that channel, and half of all channels are updated once a week. So each channel
is given the same number of updates at random moments of every round: with Poisson publishers, whose updates do not
care for polls, any update of a channel meets the schedule at such a moment. They are weighed by subscribers. The delay
of a *notification* is measured on other updates, as often as each channel has them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from service.corona.objectives import Goal, mean_delay_s
from service.simulate.corona.fleet import Fleet
from service.simulate.corona.fleet_polls import Calm, RandomPhases, Restless
from service.simulate.corona.workload import Channels, Phases, Setup, draw_channels
from service.simulate.schedulers.polls import weighted_quantile
from service.simulate.schedulers.publication_trace import Floats, Ints

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


STEPS = 3
ONE_OF = 16
"""Of so many channels, in the order of popularity, one is followed where polls must be enumerated."""
PROFILED = 400
"""Channels that a result tells one by one, for the plots."""


Polls = Calm | Restless


class Profile(msgspec.Struct, frozen=True):
    """One channel, by its place in the order of popularity (1 is the most popular)."""

    place: int
    subscribers: int
    update_interval_s: float
    polls_per_tau: float
    mean_wait_s: float


class Outcome(msgspec.Struct, frozen=True):
    """One run. Figures without a time of their own are of its second half.

    ``polls_per_channel_per_tau`` and ``node_load_max_over_mean`` are counted, delays are measured.
    ``formula_detection_s`` is what the fleet believes to reach: Σ q·τ/(2n) / Σ q with the n that it has asked for.
    ``detection_of_poisson_updates_s`` estimates ``mean_detection_s`` from the other updates, each weighed by its
    channel's update interval; few tell of rare channels. ``longest_mean_wait_s`` is that of the worst channel.
    """

    experiment: str
    seed: int
    setup: Setup
    mean_detection_s: float
    p99_detection_s: float
    polls_per_channel_per_tau: float
    legacy_detection_s: float
    converged_after_rounds: int | None
    max_overshoot: float
    orphans: int
    empty_wedges: int
    node_load_max_over_mean: float
    mean_notification_delay_s: float
    detection_of_poisson_updates_s: float
    formula_detection_s: float
    longest_mean_wait_s: float
    windows: tuple[Window, ...]
    profile: tuple[Profile, ...]


def run(setup: Setup, seed: int, report: Callable[[str], None]) -> Outcome:
    """Return what a run of this setup comes to."""
    rng = np.random.default_rng(seed)
    channels = draw_channels(setup, rng)
    numbers = followed(channels, setup)
    fleet = Fleet(setup, channels, numbers, rng)
    timetable = fleet.run()
    report("the fleet has run")
    measured: Polls
    if setup.restless:
        measured = Restless(fleet, timetable, numbers, seed)
    else:
        measured = RandomPhases(timetable, rng) if setup.phases is Phases.RANDOM else Calm(timetable)
    even = even_updates(numbers, setup, measured.next_s, rng)
    poisson = poisson_updates(numbers, channels, setup, measured.next_s, rng)
    report("updates are found")
    legacy_s = legacy_detection_s(channels, setup, rng)
    outcome = _outcome(fleet, measured, even, poisson)
    report("polls are counted")
    return msgspec.structs.replace(outcome, seed=seed, legacy_detection_s=legacy_s)


def _outcome(fleet: Fleet, measured: Polls, even: Found, poisson: Found) -> Outcome:
    setup, channels = fleet.setup, fleet.channels
    people = channels.subscribers.astype(np.float64)
    begin_s, end_s = setup.end_s / 2, setup.end_s
    settled, notified = even.between(begin_s, end_s), poisson.between(begin_s, end_s)
    shown = windows(setup, measured.polls_per_channel, even, people)
    load, delay_s = (
        measured.polls_per_channel(begin_s, end_s) * setup.poll_interval_s / (end_s - begin_s),
        settled.mean_s(people),
    )
    budget = load if setup.goal is Goal.FAST else float(people.mean())
    waits_s = measured.mean_waits_s(begin_s, end_s)
    return Outcome(
        experiment="corona",
        seed=0,
        setup=setup,
        mean_detection_s=delay_s,
        p99_detection_s=settled.quantile_s(channels.subscribers, 0.99),
        polls_per_channel_per_tau=load,
        legacy_detection_s=0.0,
        converged_after_rounds=converged_after_rounds(setup, shown, load, delay_s),
        max_overshoot=max(0.0, max(window.polls_per_channel for window in shown) / budget - 1),
        orphans=fleet.owners.orphans(fleet.trie),
        empty_wedges=fleet.owners.empty_wedges(fleet.trie),
        node_load_max_over_mean=measured.busiest_node(fleet, begin_s, end_s),
        mean_notification_delay_s=notified.mean_s(people),
        detection_of_poisson_updates_s=notified.mean_s(people * channels.update_interval_s),
        formula_detection_s=mean_delay_s(people, fleet.owners.wanted, setup.poll_interval_s),
        longest_mean_wait_s=float(waits_s.max()),
        windows=shown,
        profile=_profile(fleet, measured.numbers, waits_s),
    )


def followed(channels: Channels, setup: Setup) -> Ints:
    """Return the channels that are measured: all, or in restless times each sixteenth in the order of popularity."""
    if not setup.restless or setup.channels < ONE_OF * PROFILED:
        return np.arange(setup.channels)
    return np.sort(np.argsort(-channels.subscribers, kind="stable")[ONE_OF // 2 :: ONE_OF])


def _profile(fleet: Fleet, numbers: Ints, waits_s: Floats) -> tuple[Profile, ...]:
    """Tell of some channels, evenly over the order of popularity."""
    channels = fleet.channels
    order = np.argsort(-channels.subscribers[numbers], kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, PROFILED).astype(np.int64))
    return tuple(
        Profile(
            place=int(place * (fleet.setup.channels / len(order))) + 1,
            subscribers=int(channels.subscribers[numbers[at]]),
            update_interval_s=float(channels.update_interval_s[numbers[at]]),
            polls_per_tau=float(fleet.sizes[numbers[at]]),
            mean_wait_s=float(waits_s[at]),
        )
        for place, at in zip(places.tolist(), order[places].tolist(), strict=True)
    )
