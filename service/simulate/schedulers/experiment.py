"""One run of the experiment ``schedulers``: Corona's goal and other readers' schedulers at equal numbers of requests.

All schedulers use the same publication trace. Each reader's scheduler polls as its source code specifies, which
determines its number of requests; Corona then spends the same number on the same channels. All start without knowledge
at time 0, and see the same first documents. They are measured after a warm-up that is as long as the measurement.

Each reader is compared with four results of Corona:

- ``ours``: production's goal, optimiser, estimates and schedules;
- ``ours_polite``: the same, but within the product's default limits on polls per channel;
- ``ours_with_rhythm``: the same as ``ours``, but with clocks that learn when publishers publish;
- ``known``: no scheduler, but the optimum of the goal if the publishers' true intervals are known. For Fair and Poisson
  publishers no use of these requests has a lower mean notification delay, so that the possible ratio is bounded.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np

from service.corona.fleet_policy import DEFAULT_POLICY
from service.corona.honeycomb import AllocationProblem, scale_for_budget, sizes
from service.corona.objectives import Goal, weights
from service.simulate.schedulers.corona_scheduler import POLL_INTERVAL_S, FleetScheduler, Rhythm, run_fleet
from service.simulate.schedulers.polls import PollObservations, PollSimulation, SchedulerResults, measure_results
from service.simulate.schedulers.publication_trace import (
    HOUR_S,
    WEEK_S,
    Floats,
    Ints,
    PublicationTrace,
    Publishers,
    make_trace,
)
from service.simulate.schedulers.reader_schedulers import PEERS

HISTORY_S = 4 * WEEK_S
"""Age of the oldest entries in feeds at time 0."""
FIRST_POLLS_S = HOUR_S
"""Every scheduler polls each channel once within this time."""
STEPS = len(PEERS) * 5
"""Number of progress reports of a run."""


def polite_per_hour(subscribers: Ints) -> Floats:
    """Return the most polls per hour of channels with these numbers of subscribers, with the product's defaults."""
    return np.array([DEFAULT_POLICY.most_polls_per_hour(count) for count in subscribers.tolist()])


class SchedulersSetup(msgspec.Struct, frozen=True):
    """The parameters of one run."""

    channels: int = 2000
    weeks: int = 2
    """Weeks of measurement, after as many weeks of warm-up."""
    publishers: Publishers = Publishers.POISSON
    goal: Goal = Goal.FAIR


class CoronaResults(SchedulerResults, frozen=True):
    """The results of Corona with as many requests as a reader.

    ``ratio`` is the reader's mean notification delay divided by Corona's.
    """

    ratio: float


class ReaderResults(SchedulerResults, frozen=True):
    """The results of a reader's scheduler, and four results of Corona with the same number of requests.

    The module's description explains the four.
    """

    name: str
    ours: CoronaResults
    ours_polite: CoronaResults
    ours_with_rhythm: CoronaResults
    known: CoronaResults


class Comparison(msgspec.Struct, frozen=True):
    """The results of one run; the output of ``coronet simulate schedulers --json``."""

    experiment: str
    seed: int
    setup: SchedulersSetup
    entries: int
    """Entries published within the measurement."""
    schedulers: tuple[ReaderResults, ...]


Report = Callable[[str], None]
"""Called after each simulation with its name."""


def run(setup: SchedulersSetup, seed: int, report: Report) -> Comparison:
    """Run all readers' schedulers on one trace, and Corona with the number of requests of each."""
    window_s = setup.weeks * WEEK_S, 2 * setup.weeks * WEEK_S
    trace_rng, phase_rng, *peer_rngs = np.random.default_rng(seed).spawn(2 + len(PEERS))
    trace = make_trace(setup.channels, -HISTORY_S, window_s[1], setup.publishers, trace_rng)
    bench = _CoronaRunner(trace, setup.goal, phase_rng.random(setup.channels), window_s, report)
    peers = []
    for (name, make), rng in zip(PEERS.items(), peer_rngs, strict=True):
        polling = PollSimulation(trace, make(trace, rng), bench.first_s, window_s)
        polling.advance(np.inf)
        found = measure_results(trace, polling, window_s)
        report(name)
        peers.append(ReaderResults(**msgspec.structs.asdict(found), name=name, **bench.compare_with(found)))
    entries = int((trace.published_s >= window_s[0]).sum())
    return Comparison("schedulers", seed, setup, entries, tuple(peers))


class _CoronaRunner:
    """Runs Corona with given numbers of requests, and caches the results."""

    def __init__(
        self, trace: PublicationTrace, goal: Goal, phases: Floats, window_s: tuple[float, float], report: Report
    ) -> None:
        self.first_s = phases * FIRST_POLLS_S
        self._trace, self._goal, self._phases = trace, goal, phases
        self._window_s, self._report = window_s, report
        self._figures = cache(self._measured)

    def compare_with(self, peer: SchedulerResults) -> dict[str, Any]:
        """Return four results of Corona for the number of requests that a reader made, ``peer``.

        The keys are the fields ``ours``, ``ours_polite``, ``ours_with_rhythm`` and ``known`` of :class:`ReaderResults`.
        """
        compare_with = {}
        for what in ("ours", "ours_polite", "ours_with_rhythm", "known"):
            found = self._figures(what, peer.requests)
            ratio = peer.mean_notification_delay_s / found.mean_notification_delay_s
            compare_with[what] = CoronaResults(**msgspec.structs.asdict(found), ratio=ratio)
            self._report(what)
        return compare_with

    def _measured(self, what: str, requests: int) -> SchedulerResults:
        subscribers, requests_per_s = self._trace.subscribers, requests / (self._window_s[1] - self._window_s[0])
        if what == "known":
            polling = self._run_with_true_intervals(requests_per_s)
        else:
            most_per_hour = polite_per_hour(subscribers) if what == "ours_polite" else np.inf
            rhythm = Rhythm(len(subscribers)) if what == "ours_with_rhythm" else None
            fleet = FleetScheduler(subscribers, self._goal, requests_per_s, most_per_hour=most_per_hour, rhythm=rhythm)
            polling = run_fleet(self._trace, fleet, self.first_s, self._window_s)
        return measure_results(self._trace, polling, self._window_s)

    def _run_with_true_intervals(self, requests_per_s: float) -> PollSimulation:
        problem = AllocationProblem.of(
            weights(self._goal, self._trace.subscribers, self._trace.interval_s, POLL_INTERVAL_S)
        )
        gap_s = POLL_INTERVAL_S / sizes(problem, scale_for_budget(problem, requests_per_s * POLL_INTERVAL_S))
        polling = PollSimulation(self._trace, _FixedGaps(gap_s), self._phases * gap_s, self._window_s)
        polling.advance(np.inf)
        return polling


class _FixedGaps:
    """A scheduler that polls each channel at a constant interval."""

    def __init__(self, gap_s: Floats) -> None:
        self._gap_s = gap_s

    def wait_s(self, seen: PollObservations) -> Floats:
        return self._gap_s[seen.channel]
