"""One run of the experiment ``schedulers``: Corona and other feed readers, compared with the same request budgets.

Each reader polls as its source code specifies, which determines its number of requests. Corona then makes the same
number of requests to the same channels. All schedulers start without knowledge about the channels. They are measured
after a warm-up that is as long as the measurement.

Each reader is compared with five results of Corona:

- ``ours``: production code with the goal of the run. The poll rates of single channels are not limited, and polls are
  evenly spaced.
- ``ours_with_rhythm``: as ``ours``, but the polls of a channel follow its learnt weekly rhythm.
- ``as_shipped``: production code with the goal, the limits for single channels and the weekly rhythms of the default
  settings.
- ``known``: the best fixed schedule for the goal of the run, if the true publication rates are known.
- ``known_as_shipped``: as ``known``, but with the goal and the limits of the default settings.

In addition, ``as_shipped`` is compared with a uniform schedule, which polls every channel every 5 minutes.
"""

# All schedulers use the same publication trace, start at time 0, and receive the same first documents. For the goal
# Fair, no other fixed schedule with the same number of requests has a lower mean notification delay than "known". The
# limits of "known_as_shipped" are the longest mean wait, and the most polls of a channel in each hour.

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np

from service.corona.fleet_policy import DEFAULT_POLICY, FleetPolicy, Goal
from service.corona.optimizer.allocation_solver import AllocationProblem, scale_for_budget, sizes
from service.corona.optimizer.node_allocation import ChannelFactors, affordable_policy, allocation_problem, factor_table
from service.corona.weekly_rhythm import HOURS_OF_WEEK
from service.simulate.numerics import HOUR_S, WEEK_S, Floats
from service.simulate.schedulers.corona_scheduler import FleetScheduler, run_fleet, unlimited_policy, with_budget
from service.simulate.schedulers.polls import (
    PlannedSimulation,
    PollPlan,
    PollSimulation,
    SchedulerResults,
    WeeklyClocks,
    measure_results,
)
from service.simulate.schedulers.publication_trace import PublicationTrace, Publishers, make_trace
from service.simulate.schedulers.reader_schedulers import READERS

HISTORY_S = 4 * WEEK_S
"""Entries are published from this long before time 0 on, so that feeds have entries at the first polls."""
FIRST_POLLS_S = HOUR_S
"""Every scheduler polls each channel once within this time."""
NODES = 60
"""Number of nodes of the fleet in runs with the default settings, which limit the polls per node."""
UNIFORM_GAP_S = 300.0
"""Time between two polls of a channel in the uniform schedule: three polls per 15 minutes."""
_UNLIMITED_NODES = 1_000_000_000
_REFINEMENTS = 4
"""Number of simulations that approximate ``requests_at_equal_delay``. Each is a better approximation than the one
before."""

STEPS = len(READERS) * 6 + 1 + _REFINEMENTS
"""Number of progress reports of a run."""


class SchedulersSetup(msgspec.Struct, frozen=True):
    """The parameters of one run of the experiment ``schedulers``, which compares Corona with other feed readers."""

    channels: int = 2000
    weeks: int = 2
    """Weeks of measurement, after as many weeks of warm-up."""
    publishers: Publishers = Publishers.POISSON
    goal: Goal = Goal.FAIR


class CoronaResults(SchedulerResults, frozen=True):
    """The results of Corona when it makes as many requests as another scheduler.

    ``ratio`` is the other scheduler's mean notification delay, divided by Corona's.
    """

    ratio: float


class ReaderResults(SchedulerResults, frozen=True):
    """The results of one feed reader, and five results with which they are compared.

    The five results come from simulations with a request budget equal to the reader's number of requests:

    - ``ours``: Corona with the goal of the run, without limits for single channels
    - ``ours_with_rhythm``: as ``ours``, but the polls of a channel follow its learnt weekly rhythm
    - ``as_shipped``: Corona with the default settings
    - ``known``: the best fixed schedule for the goal of the run, computed from the true publication rates, without
      limits for single channels
    - ``known_as_shipped``: as ``known``, but with the goal and the limits of the default settings
    """

    name: str
    ours: CoronaResults
    ours_with_rhythm: CoronaResults
    as_shipped: CoronaResults
    known: CoronaResults
    known_as_shipped: CoronaResults


class UniformResults(SchedulerResults, frozen=True):
    """The results of the uniform schedule, which polls all channels at the same rate, compared with Corona's.

    - ``as_shipped`` contains the results of Corona with the default settings. Corona makes at most as many requests as
      the uniform schedule.
    - ``requests_at_equal_delay`` is the number of requests that Corona would need for the same mean notification delay
      as the uniform schedule.
    """

    as_shipped: CoronaResults
    requests_at_equal_delay: int


class Comparison(msgspec.Struct, frozen=True):
    """The results of one run; the output of ``coronet simulate schedulers --json``."""

    experiment: str
    seed: int
    setup: SchedulersSetup
    entries: int
    """Entries published within the measurement."""
    schedulers: tuple[ReaderResults, ...]
    uniform: UniformResults


Report = Callable[[str], None]
"""A function that is called after each simulation with the simulation's name."""


def run(setup: SchedulersSetup, seed: int, report: Report) -> Comparison:
    """Run the experiment once: simulate each feed reader, and Corona with the same number of requests.

    All simulations use the same publications. The results also include those of a uniform schedule.

    ``report`` is called after each simulation with the simulation's name.
    """
    window_s = setup.weeks * WEEK_S, 2 * setup.weeks * WEEK_S
    trace_rng, phase_rng, *peer_rngs = np.random.default_rng(seed).spawn(2 + len(READERS))
    trace = make_trace(setup.channels, -HISTORY_S, window_s[1], setup.publishers, trace_rng)
    bench = _CoronaRunner(trace, setup.goal, phase_rng.random(setup.channels), window_s, report)
    peers = []
    for (name, make), rng in zip(READERS.items(), peer_rngs, strict=True):
        polling = PollSimulation(trace, make(trace, rng), bench.first_s, window_s)
        polling.advance(np.inf)
        found = measure_results(trace, polling, window_s)
        report(name)
        peers.append(ReaderResults(**msgspec.structs.asdict(found), name=name, **bench.compare_with(found)))
    entries = int((trace.published_s >= window_s[0]).sum())
    return Comparison("schedulers", seed, setup, entries, tuple(peers), bench.compare_with_uniform())


class _CoronaRunner:
    """Runs Corona with the same request budgets as other schedulers, for a fair comparison, and caches the results."""

    def __init__(
        self, trace: PublicationTrace, goal: Goal, phases: Floats, window_s: tuple[float, float], report: Report
    ) -> None:
        self.first_s = phases * FIRST_POLLS_S
        self._trace, self._phases = trace, phases
        self._window_s, self._report = window_s, report
        unlimited = (unlimited_policy(goal, weekly_rhythm=is_rhythmic) for is_rhythmic in (False, True))
        even, rhythmic = ((policy, _UNLIMITED_NODES) for policy in unlimited)
        shipped = DEFAULT_POLICY, NODES
        self._policies = {
            "ours": even,
            "ours_with_rhythm": rhythmic,
            "as_shipped": shipped,
            "known": rhythmic,
            "known_as_shipped": shipped,
        }
        """The policy and the number of nodes of each result."""
        self._measure = cache(self._measure_uncached)

    def compare_with(self, peer: SchedulerResults) -> dict[str, Any]:
        """Return five results of Corona with the same number of requests as a feed reader.

        ``peer`` contains the results of the reader. The keys of the returned dict are the fields of
        :class:`ReaderResults`: ``ours``, ``ours_with_rhythm``, ``as_shipped``, ``known`` and ``known_as_shipped``.
        """
        results = {}
        for name in self._policies:
            results[name] = self._compare(peer, self._measure(name, peer.requests))
            self._report(name)
        return results

    def compare_with_uniform(self) -> UniformResults:
        """Return the results of the uniform schedule and those of Corona with the default settings."""
        uniform = self._measure_plan(PollPlan(np.full(self._trace.channels, UNIFORM_GAP_S)))
        ours = self._measure("as_shipped", uniform.requests)
        self._report("as_shipped")
        wanted_s, found = uniform.mean_notification_delay_s, ours
        for _ in range(_REFINEMENTS):
            # The delay is almost inversely proportional to the number of requests.
            found = self._measure("as_shipped", round(found.requests * found.mean_notification_delay_s / wanted_s))
            self._report("as_shipped")
        return UniformResults(
            **msgspec.structs.asdict(uniform),
            as_shipped=self._compare(uniform, ours),
            requests_at_equal_delay=round(found.requests * found.mean_notification_delay_s / wanted_s),
        )

    def _compare(self, other: SchedulerResults, ours: SchedulerResults) -> CoronaResults:
        ratio = other.mean_notification_delay_s / ours.mean_notification_delay_s
        return CoronaResults(**msgspec.structs.asdict(ours), ratio=ratio)

    def _measure_uncached(self, name: str, requests: int) -> SchedulerResults:
        policy, nodes = self._policies[name]
        requests_per_s = requests / (self._window_s[1] - self._window_s[0])
        if name.startswith("known"):
            return self._measure_optimum(policy, nodes, requests_per_s)
        fleet = FleetScheduler(policy, nodes, self._trace.subscribers, requests_per_s)
        return measure_results(self._trace, run_fleet(self._trace, fleet, self.first_s, self._window_s), self._window_s)

    def _measure_optimum(self, policy: FleetPolicy, nodes: int, requests_per_s: float) -> SchedulerResults:
        """Simulate the best fixed schedule, and return its results.

        The schedule is computed from the true publication rates, which a real scheduler does not know.

        - ``policy``: its goal defines which schedule is the best. The schedule observes the limits that the policy
          sets for single channels.
        - ``nodes``: the number of nodes in the fleet. Some of the limits depend on it.
        - ``requests_per_s``: how many requests per second the schedule makes in total.
        """
        # For each channel and each hour of the week, it has the number of polls with which the mean delay by the goal
        # is lowest.
        trace, interval_s = self._trace, policy.poll_interval_s
        policy = affordable_policy(with_budget(policy, requests_per_s), trace.channels)
        factors = zip(trace.subscribers.tolist(), trace.interval_s.tolist(), strict=True)
        table = factor_table((ChannelFactors(*each, private=False) for each in factors), trace.channels)
        bounds = allocation_problem(policy, nodes, table)
        problem = AllocationProblem.of(
            (bounds.weights[:, None] * trace.hourly_rates).ravel() / HOURS_OF_WEEK,
            1 / HOURS_OF_WEEK,
            least=np.repeat(bounds.least, HOURS_OF_WEEK),
            most=np.repeat(bounds.most, HOURS_OF_WEEK),
        )
        polls = sizes(problem, scale_for_budget(problem, requests_per_s * interval_s)).reshape(-1, HOURS_OF_WEEK)
        clocks = WeeklyClocks(trace.channels)
        clocks.set_speed(np.arange(trace.channels), polls)
        return self._measure_plan(PollPlan(interval_s / polls.mean(axis=1), clocks))

    def _measure_plan(self, plan: PollPlan) -> SchedulerResults:
        polling = PlannedSimulation(self._trace, plan, self._phases * plan.gap_s, self._window_s)
        for until_s in np.arange(WEEK_S, self._window_s[1], WEEK_S):
            polling.advance(float(until_s))
        polling.finish()
        return measure_results(self._trace, polling, self._window_s)
