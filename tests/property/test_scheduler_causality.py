"""No scheduler sees the future: what is published after a moment changes no poll before it."""

from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.corona.fleet_policy import Goal
from service.simulate.numerics import DAY_S, HOUR_S, WEEK_S, Floats, Ints
from service.simulate.schedulers.corona_scheduler import FleetScheduler, run_fleet, unlimited_policy
from service.simulate.schedulers.polls import PollObservations, PollSimulation, Scheduler
from service.simulate.schedulers.publication_trace import PublicationTrace, Publishers, make_trace
from service.simulate.schedulers.reader_schedulers import READERS

CHANNELS = 12
END_S = WEEK_S


class Watched:
    """A scheduler that is watched: which channels it was shown, when."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.polls: list[tuple[float, int]] = []
        self._scheduler = scheduler

    def wait_s(self, seen: PollObservations) -> Floats:
        self.polls += zip(seen.now_s.tolist(), seen.channel.tolist(), strict=True)
        return self._scheduler.wait_s(seen)

    def before(self, moment_s: float) -> list[tuple[float, int]]:
        return sorted(poll for poll in self.polls if poll[0] <= moment_s)


class WatchedFleet(FleetScheduler):
    """A fleet that is watched: its polls and when each is made."""

    polls: tuple[tuple[float, int], ...] = ()

    def poll_times_s(self, channel: Ints, due_s: Floats, number: Ints) -> Floats:
        times_s = super().poll_times_s(channel, due_s, number)
        self.polls += tuple(zip(times_s.tolist(), channel.tolist(), strict=True))
        return times_s

    def before(self, moment_s: float) -> list[tuple[float, int]]:
        return sorted({poll for poll in self.polls if poll[0] <= moment_s})


def other_future(trace: PublicationTrace, moment_s: float) -> PublicationTrace:
    """The same up to a moment; after it everybody publishes once, at a time of its own, and then never again."""
    channel, kept = trace.channel, trace.published_s <= moment_s
    later_s = moment_s + (np.arange(CHANNELS) + 1) * 500.0
    published_s = np.concatenate((trace.published_s[kept], later_s))
    channel = np.concatenate((channel[kept], np.arange(CHANNELS)))
    order = np.lexsort((published_s, channel))
    starts = np.concatenate(([0], np.cumsum(np.bincount(channel, minlength=CHANNELS))))
    return PublicationTrace(trace.subscribers, trace.interval_s, published_s[order], starts)


def traces(seed: int, moment_s: float) -> tuple[PublicationTrace, PublicationTrace]:
    trace = make_trace(CHANNELS, -WEEK_S, END_S, Publishers.RHYTHMIC, np.random.default_rng(seed))
    return trace, other_future(trace, moment_s)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), moment_s=st.floats(HOUR_S, END_S - DAY_S))
def test_polls_of_reader_schedulers_do_not_depend_on_later_publications(name: str, seed: int, moment_s: float) -> None:
    known = []
    for trace in traces(seed, moment_s):
        # Noise is drawn poll by poll for all feeds at once, so that other polls would draw other noise: none here.
        watched = Watched(READERS[name](trace, cast("np.random.Generator", Silent())))
        PollSimulation(trace, watched, np.linspace(0, HOUR_S, CHANNELS), (0.0, END_S)).advance(np.inf)
        known.append(watched.before(moment_s))
    assert known[0] == known[1]


@pytest.mark.parametrize("clocks", ["even", "learnt"])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), moment_s=st.floats(HOUR_S, END_S - DAY_S))
def test_polls_of_the_corona_scheduler_do_not_depend_on_later_publications(
    clocks: str, seed: int, moment_s: float
) -> None:
    known = []
    for trace in traces(seed, moment_s):
        policy = unlimited_policy(Goal.FAIR, weekly_rhythm=clocks == "learnt")
        watched = WatchedFleet(policy, 10**9, trace.subscribers, CHANNELS / HOUR_S)
        run_fleet(trace, watched, np.linspace(0, HOUR_S / 2, CHANNELS), (0.0, END_S))
        known.append(watched.before(moment_s))
    assert known[0] == known[1]


class Silent:
    """A generator without noise."""

    def random(self, size: int) -> Floats:
        return np.zeros(size)

    def normal(self, mean: float, deviation: Floats) -> Floats:
        return np.full(len(deviation), mean)
