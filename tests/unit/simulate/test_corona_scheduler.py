"""Corona's scheduler on a trace: budget, politeness limit, goals and rhythm."""

import numpy as np
import pytest

from service.corona.fleet_policy import DEFAULT_POLICY, FleetPolicy, Goal
from service.simulate.numerics import HOUR_S, WEEK_S
from service.simulate.schedulers.corona_scheduler import FleetScheduler, run_fleet, unlimited_policy
from service.simulate.schedulers.experiment import NODES
from service.simulate.schedulers.polls import PlannedSimulation, measure_results
from service.simulate.schedulers.publication_trace import PublicationTrace, Publishers, make_trace

WINDOW_S = WEEK_S, 2 * WEEK_S
CHANNELS = 40


@pytest.fixture(scope="module")
def trace() -> PublicationTrace:
    return make_trace(CHANNELS, -WEEK_S, 2 * WEEK_S, Publishers.RHYTHMIC, np.random.default_rng(1))


def polled(trace: PublicationTrace, policy: FleetPolicy) -> PlannedSimulation:
    """Simulate one poll per channel and hour on average."""
    fleet = FleetScheduler(policy, 10**9, trace.subscribers, CHANNELS / HOUR_S)
    return run_fleet(trace, fleet, np.linspace(0, HOUR_S, CHANNELS, endpoint=False), WINDOW_S)


EVEN = unlimited_policy(Goal.FAIR, weekly_rhythm=False)
RHYTHMIC = unlimited_policy(Goal.FAIR, weekly_rhythm=True)


@pytest.mark.parametrize("policy", [EVEN, RHYTHMIC], ids=["even", "rhythmic"])
def test_the_budget_is_spent_within_one_percent(trace: PublicationTrace, policy: FleetPolicy) -> None:
    polling = polled(trace, policy)
    assert polling.requests == pytest.approx(CHANNELS * WEEK_S / HOUR_S, rel=0.01)


def test_the_politeness_limit_is_kept() -> None:
    """A single channel does not get the whole budget."""
    trace = PublicationTrace(np.array([1]), np.array([600.0]), np.arange(0.0, 2 * WEEK_S, 600.0), np.array([0, 2016]))
    fleet = FleetScheduler(DEFAULT_POLICY, NODES, trace.subscribers, 1 / 60)
    polling = run_fleet(trace, fleet, np.zeros(1), WINDOW_S)
    assert polling.requests == pytest.approx(4 * WEEK_S / HOUR_S, rel=0.01)


def test_fair_makes_notifications_faster_than_lite(trace: PublicationTrace) -> None:
    fair, lite = (
        measure_results(trace, polled(trace, unlimited_policy(goal, weekly_rhythm=False)), WINDOW_S)
        for goal in (Goal.FAIR, Goal.LITE)
    )
    assert fair.mean_notification_delay_s < lite.mean_notification_delay_s / 1.3


def test_rhythm_reduces_delays_of_rhythmic_publishers(trace: PublicationTrace) -> None:
    plain = measure_results(trace, polled(trace, EVEN), WINDOW_S)
    rhythmic = measure_results(trace, polled(trace, RHYTHMIC), WINDOW_S)
    assert rhythmic.mean_notification_delay_s < plain.mean_notification_delay_s / 1.05


def test_every_entry_of_the_window_is_detected(trace: PublicationTrace) -> None:
    inside = (trace.published_s >= WINDOW_S[0]) & (trace.published_s < WINDOW_S[1])
    assert np.isfinite(polled(trace, EVEN).found_s[inside]).all()
