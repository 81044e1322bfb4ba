"""One run of the experiment ``corona``: simulate the fleet, draw updates, and measure their detection delays.

Nodes run production code (``fleet``). The detection delay of an update is the time until the next poll of its channel
(``fleet_polls``). Two means are measured:

- *Mean detection delay*: every channel has the same number of updates, at uniformly distributed times. Channels are
  weighted by their subscribers.
- *Mean notification delay*: every channel has updates at its own rate.

The first mean does not use the channels' own updates: half of all channels are updated only once a week, which is too
rare to measure their delay. Uniformly distributed times give the same mean, because an update in a Poisson process is
equally likely at any time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from service.corona.fleet_policy import Goal
from service.corona.optimizer.objectives import mean_delay_s
from service.simulate.corona.fleet import SimulatedFleet
from service.simulate.corona.fleet_polls import EnumeratedPolls, FaultyPolls, RandomPhasePolls, ScheduledPolls
from service.simulate.corona.workload import CoronaSetup, PollPhases, SimulatedChannels, draw_channels
from service.simulate.numerics import Floats, Ints
from service.simulate.schedulers.polls import weighted_quantile

NextPollTimes = Callable[[Ints, Floats], Floats]
"""A function of two equally long arrays, channels and times. It returns, for each pair, the time of the channel's first
poll after the given time."""

UPDATES_PER_ROUND = 4
"""Number of updates per channel and maintenance interval with which the mean detection delay is measured."""
CONVERGED = 0.03
"""Load and delay have converged if their relative deviation from the final values is at most this."""
LEGACY_SUBSCRIPTIONS = 1_000_000
"""Maximum number of subscribers in the simulation without Corona. With so many, the error of their mean delay is about
one second."""


class Window(msgspec.Struct, frozen=True):
    """The polls and the mean detection delay in one polling interval of a run.

    - ``end_s`` is the simulated time at which the interval ends.
    - ``polls_per_channel`` is the number of polls, averaged over all channels.
    """

    end_s: float
    polls_per_channel: float
    mean_detection_s: float


@dataclass(frozen=True, slots=True)
class DetectedUpdates:
    """Updates to channels and their detection delays, as arrays with one element per update.

    - ``channel`` contains the index of the updated channel.
    - ``at_s`` contains the simulated time of the update.
    - ``delay_s`` contains the time in seconds from the update until the next poll of the channel.
    """

    channel: Ints
    at_s: Floats
    delay_s: Floats

    def between(self, begin_s: float, end_s: float) -> "DetectedUpdates":
        """Return the updates at ``begin_s`` or later, but before ``end_s``."""
        inside = (self.at_s >= begin_s) & (self.at_s < end_s)
        return DetectedUpdates(self.channel[inside], self.at_s[inside], self.delay_s[inside])

    def mean_s(self, weight: Floats) -> float:
        """Return the weighted mean delay in seconds. ``weight`` contains the weight of each channel's updates."""
        return float(np.average(self.delay_s, weights=weight[self.channel]))


def uniform_updates(
    numbers: Ints, setup: CoronaSetup, next_s: NextPollTimes, rng: np.random.Generator
) -> DetectedUpdates:
    """Draw updates to channels at uniformly distributed times, and return them with their detection delays.

    - ``numbers`` contains the indices of the channels. Each channel gets the same number of updates in each period
      of ``setup.maintenance_s`` seconds.
    - ``next_s`` takes an array of channels and an array of update times. It returns the time of the channel's first
      poll after each update.
    """
    channel = np.repeat(numbers, UPDATES_PER_ROUND * setup.rounds)
    rounds = np.tile(np.repeat(np.arange(setup.rounds), UPDATES_PER_ROUND), len(numbers))
    at_s = (rounds + rng.random(len(channel))) * setup.maintenance_s
    return DetectedUpdates(channel, at_s, next_s(channel, at_s) - at_s)


def poisson_updates(
    numbers: Ints,
    channels: SimulatedChannels,
    setup: CoronaSetup,
    next_s: NextPollTimes,
    rng: np.random.Generator,
) -> DetectedUpdates:
    """Draw updates to channels at random times, and return them with their detection delays.

    The updates to a channel are a Poisson process with the channel's own rate.

    - ``numbers`` contains the indices of the channels.
    - ``next_s`` takes an array of channels and an array of update times. It returns the time of the channel's first
      poll after each update.
    """
    channel = np.repeat(numbers, rng.poisson(setup.end_s / channels.update_interval_s[numbers]))
    at_s = rng.random(len(channel)) * setup.end_s
    return DetectedUpdates(channel, at_s, next_s(channel, at_s) - at_s)


def legacy_detection_s(channels: SimulatedChannels, setup: CoronaSetup, rng: np.random.Generator) -> float:
    """Return the mean detection delay in seconds without Corona, if each subscriber polls once per polling interval.

    The time of each subscriber's first poll is random.
    """
    total = int(channels.subscribers.sum())
    subscriptions = rng.integers(total, size=min(total, LEGACY_SUBSCRIPTIONS))
    channel = np.searchsorted(np.cumsum(channels.subscribers), subscriptions, side="right")
    update_s = rng.random(len(channels.subscribers)) * setup.end_s
    first_s = rng.random(len(channel)) * setup.poll_interval_s
    return float(((first_s - update_s[channel]) % setup.poll_interval_s).mean())


def converged_after_rounds(setup: CoronaSetup, windows: Sequence[Window], load: float, delay_s: float) -> int | None:
    """Return the number of maintenance intervals after which a run has converged, or None if it has not converged.

    A run has converged when the load and the delay of every later window are within 3 % of their final values.

    - ``windows`` has one window per polling interval.
    - ``load`` is the final load in polls per channel and polling interval.
    - ``delay_s`` is the final delay.
    """
    windows_per_round = setup.maintenance_s / setup.poll_interval_s
    off = [
        place
        for place, window in enumerate(windows)
        if max(abs(window.polls_per_channel / load - 1), abs(window.mean_detection_s / delay_s - 1)) > CONVERGED
    ]
    rounds = int((max(off, default=0)) / windows_per_round) + 1
    return rounds if rounds < setup.rounds else None


STEPS = 3
SAMPLING_STEP = 16
"""In a run with faults, polls are listed one by one, for every 16th channel in order of popularity."""
PROFILED = 400
"""Number of channels whose measurements are part of the results, for the plots."""


class ChannelProfile(msgspec.Struct, frozen=True):
    """The measurements of one channel.

    - ``place`` is the channel's rank by popularity; the most popular channel has rank 1.
    - ``mean_wait_s`` is the mean time from a random moment until the channel's next poll.
    """

    place: int
    subscribers: int
    update_interval_s: float
    polls_per_tau: float
    mean_wait_s: float


class DetectionResults(msgspec.Struct, frozen=True):
    """Measurements of the second half of a run; only ``windows`` and ``converged_after_rounds`` cover the whole run.

    - ``formula_detection_s`` is the mean detection delay that theory predicts.
    - ``longest_mean_wait_s`` is the longest mean wait of any channel. A channel's mean wait is the mean time from a
      random moment until the channel's next poll.
    - ``node_load_max_over_mean`` is the number of polls by the busiest node, divided by the mean over all nodes.
    """

    # The prediction is Σ q·τ/(2n) / Σ q over all channels, with q subscribers and n polling nodes.

    experiment: str
    seed: int
    setup: CoronaSetup
    mean_detection_s: float
    p99_detection_s: float
    polls_per_channel_per_tau: float
    converged_after_rounds: int | None
    node_load_max_over_mean: float
    mean_notification_delay_s: float
    formula_detection_s: float
    longest_mean_wait_s: float
    windows: tuple[Window, ...]


class CoronaOutcome(DetectionResults, frozen=True):
    """The results of one run.

    - ``max_overshoot`` is the greatest excess of polls over the budget in any polling interval, as a fraction of the
      budget; 0 if the budget is never exceeded.
    - ``orphans`` is the number of channels that only their owner can poll, because no other node's id is near enough
      (Corona §4).
    - ``detection_of_poisson_updates_s`` is another estimate of the mean detection delay, based on updates at each
      channel's own rate. It is less precise, because most channels are rarely updated.
    """

    legacy_detection_s: float
    max_overshoot: float
    orphans: int
    empty_wedges: int
    detection_of_poisson_updates_s: float
    profile: tuple[ChannelProfile, ...]


def run(setup: CoronaSetup, seed: int, report: Callable[[str], None]) -> CoronaOutcome:
    """Run the simulation with ``setup`` and ``seed``, and return its results.

    ``report`` is called after each step with the name of the step.
    """
    rng = np.random.default_rng(seed)
    channels = draw_channels(setup, rng)
    numbers = sampled_channels(channels, setup)
    fleet = SimulatedFleet(setup, channels, numbers, rng)
    timetable = fleet.run()
    report("fleet simulated")
    polls: ScheduledPolls | FaultyPolls
    if setup.has_faults:
        polls = FaultyPolls(fleet, timetable, numbers, seed)
    else:
        polls = RandomPhasePolls(timetable, rng) if setup.phases is PollPhases.RANDOM else ScheduledPolls(timetable)
    even = uniform_updates(numbers, setup, polls.next_s, rng)
    own = poisson_updates(numbers, channels, setup, polls.next_s, rng)
    report("updates detected")
    legacy_s = legacy_detection_s(channels, setup, rng)
    begin_s, end_s = setup.end_s / 2, setup.end_s
    busiest, sizes = polls.max_over_mean(fleet, begin_s, end_s), fleet.owners.requested
    found = measure("corona", seed, setup, channels, polls, even=even, own=own, busiest=busiest, sizes=sizes)
    budget = found.polls_per_channel_per_tau if setup.goal is Goal.FAST else fleet.owners.budget()
    settled = own.between(begin_s, end_s)
    outcome = CoronaOutcome(
        **msgspec.structs.asdict(found),
        legacy_detection_s=legacy_s,
        max_overshoot=max(0.0, max(window.polls_per_channel for window in found.windows) / budget - 1),
        orphans=fleet.owners.orphans(),
        empty_wedges=fleet.owners.empty_wedges(fleet.trie),
        detection_of_poisson_updates_s=settled.mean_s(channels.subscribers * channels.update_interval_s),
        profile=_profile(fleet, polls.numbers, polls.mean_waits_s(begin_s, end_s)),
    )
    report("polls counted")
    return outcome


def measure(
    experiment: str,
    seed: int,
    setup: CoronaSetup,
    channels: SimulatedChannels,
    polls: ScheduledPolls | EnumeratedPolls,
    *,
    even: DetectedUpdates,
    own: DetectedUpdates,
    busiest: float,
    sizes: Floats,
) -> DetectionResults:
    """Return the results of a run in which the ``channels`` were polled at the times in ``polls``.

    - ``experiment`` and ``seed`` are copied to the results.
    - ``even`` contains updates with their detection delays; each channel has the same number of updates.
    - ``own`` contains updates with their detection delays; each channel is updated at its own rate.
    - ``busiest`` is the number of polls by the busiest node, divided by the mean over all nodes.
    - ``sizes`` contains, for each channel, how many nodes poll it.
    """
    subscribers = channels.subscribers.astype(np.float64)
    begin_s, end_s, tau_s = setup.end_s / 2, setup.end_s, setup.poll_interval_s
    settled = even.between(begin_s, end_s)
    load = polls.polls_per_channel(begin_s, end_s) * tau_s / (end_s - begin_s)
    delay_s = settled.mean_s(subscribers)
    windows = []
    for place in range(int(end_s / tau_s)):
        from_s, to_s = place * tau_s, (place + 1) * tau_s
        found_s = even.between(from_s, to_s).mean_s(subscribers)
        windows.append(Window(to_s, polls.polls_per_channel(from_s, to_s), found_s))
    return DetectionResults(
        experiment=experiment,
        seed=seed,
        setup=setup,
        mean_detection_s=delay_s,
        p99_detection_s=weighted_quantile(settled.delay_s, channels.subscribers[settled.channel], 0.99),
        polls_per_channel_per_tau=load,
        converged_after_rounds=converged_after_rounds(setup, windows, load, delay_s),
        node_load_max_over_mean=busiest,
        mean_notification_delay_s=own.between(begin_s, end_s).mean_s(subscribers),
        formula_detection_s=mean_delay_s(subscribers, sizes, tau_s),
        longest_mean_wait_s=float(polls.mean_waits_s(begin_s, end_s).max()),
        windows=tuple(windows),
    )


def sampled_channels(channels: SimulatedChannels, setup: CoronaSetup) -> Ints:
    """Return the indices of the channels to measure.

    In a large run with faults, every sixteenth channel in order of popularity is measured. In other runs, all channels
    are measured.
    """
    if not setup.has_faults or setup.channels < SAMPLING_STEP * PROFILED:
        return np.arange(setup.channels)
    return np.sort(np.argsort(-channels.subscribers, kind="stable")[SAMPLING_STEP // 2 :: SAMPLING_STEP])


def _profile(fleet: SimulatedFleet, numbers: Ints, waits_s: Floats) -> tuple[ChannelProfile, ...]:
    """Return the measurements of up to 400 channels that are evenly spaced by popularity.

    ``numbers`` contains the indices of the channels to choose from. ``waits_s`` contains, for each of these channels,
    the mean time until its next poll.
    """
    channels = fleet.channels
    order = np.argsort(-channels.subscribers[numbers], kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, PROFILED).astype(np.int64))
    return tuple(
        ChannelProfile(
            place=int(place * (fleet.setup.channels / len(order))) + 1,
            subscribers=int(channels.subscribers[numbers[at]]),
            update_interval_s=float(channels.update_interval_s[numbers[at]]),
            polls_per_tau=float(fleet.sizes[numbers[at]]),
            mean_wait_s=float(waits_s[at]),
        )
        for place, at in zip(places.tolist(), order[places].tolist(), strict=True)
    )
