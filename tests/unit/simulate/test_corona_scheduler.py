"""Corona's scheduler on a trace: budget, politeness limit, goals and rhythm."""

import numpy as np
import pytest

from service.corona.objectives import Goal
from service.simulate.schedulers.corona_scheduler import FleetScheduler, Rhythm, run_fleet
from service.simulate.schedulers.experiment import polite_per_hour
from service.simulate.schedulers.polls import PollSimulation, measure_results
from service.simulate.schedulers.publication_trace import HOUR_S, WEEK_S, PublicationTrace, Publishers, make_trace

WINDOW_S = WEEK_S, 2 * WEEK_S
CHANNELS = 40


@pytest.fixture(scope="module")
def trace() -> PublicationTrace:
    return make_trace(CHANNELS, -WEEK_S, 2 * WEEK_S, Publishers.RHYTHMIC, np.random.default_rng(1))


def polled(trace: PublicationTrace, goal: Goal = Goal.FAIR, **of_fleet: object) -> PollSimulation:
    """Simulate one poll per channel and hour on average."""
    fleet = FleetScheduler(trace.subscribers, goal, CHANNELS / HOUR_S, **of_fleet)  # type: ignore[arg-type]  # passed on
    return run_fleet(trace, fleet, np.linspace(0, HOUR_S, CHANNELS, endpoint=False), WINDOW_S)


@pytest.mark.parametrize("clocks", ["even", "learnt"])
def test_the_budget_is_spent_within_one_percent(trace: PublicationTrace, clocks: str) -> None:
    polling = polled(trace, rhythm=Rhythm(CHANNELS) if clocks == "learnt" else None)
    assert polling.requests == pytest.approx(CHANNELS * WEEK_S / HOUR_S, rel=0.01)


def test_the_politeness_limit_is_kept() -> None:
    """A single channel does not get the whole budget."""
    trace = PublicationTrace(np.array([1]), np.array([600.0]), np.arange(0.0, 2 * WEEK_S, 600.0), np.array([0, 2016]))
    fleet = FleetScheduler(trace.subscribers, Goal.FAIR, 1 / 60, most_per_hour=polite_per_hour(trace.subscribers))
    polling = run_fleet(trace, fleet, np.zeros(1), WINDOW_S)
    assert polling.requests == pytest.approx(4 * WEEK_S / HOUR_S, rel=0.01)


def test_fair_makes_notifications_faster_than_lite(trace: PublicationTrace) -> None:
    fair, lite = (measure_results(trace, polled(trace, goal), WINDOW_S) for goal in (Goal.FAIR, Goal.LITE))
    assert fair.mean_notification_delay_s < lite.mean_notification_delay_s / 1.3


def test_rhythm_reduces_delays_of_rhythmic_publishers(trace: PublicationTrace) -> None:
    plain = measure_results(trace, polled(trace), WINDOW_S)
    rhythmic = measure_results(trace, polled(trace, rhythm=Rhythm(CHANNELS)), WINDOW_S)
    assert rhythmic.mean_notification_delay_s < plain.mean_notification_delay_s / 1.05


def test_every_entry_of_the_window_is_detected(trace: PublicationTrace) -> None:
    inside = (trace.published_s >= WINDOW_S[0]) & (trace.published_s < WINDOW_S[1])
    assert np.isfinite(polled(trace).found_s[inside]).all()
