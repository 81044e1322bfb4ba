"""Simulated polls: detection times, observations of schedulers, counts within the window, and weekly clocks."""

import numpy as np
import pytest

from service.corona.weekly_rhythm import FACTORS, WEEK_S, WeeklyClock, hourly_speeds
from service.simulate.numerics import Floats
from service.simulate.schedulers.polls import (
    ENTRIES_IN_DOCUMENT,
    PollObservations,
    PollSimulation,
    WeeklyClocks,
    measure_results,
    weighted_quantile,
)
from service.simulate.schedulers.publication_trace import PublicationTrace


class Every:
    """A scheduler with one interval that keeps its observations."""

    def __init__(self, interval_s: float) -> None:
        self.shown: list[PollObservations] = []
        self._interval_s = interval_s

    def wait_s(self, seen: PollObservations) -> Floats:
        self.shown.append(seen)
        return np.full(len(seen.channel), self._interval_s)


def trace(*published_s: list[float], subscribers: list[int] | None = None) -> PublicationTrace:
    """Return a trace with one channel per list of times."""
    starts = np.cumsum([0, *map(len, published_s)])
    counts = np.array(subscribers or [1] * len(published_s))
    return PublicationTrace(
        counts, np.ones(len(counts)), np.array([at for channel in published_s for at in channel]), starts
    )


def test_an_entry_is_detected_by_the_first_poll_after_it() -> None:
    polling = PollSimulation(trace([1.0, 10.0, 10.5], [], [25.0]), Every(10.0), np.array([0.0, 2.0, 5.0]), (0.0, 30.0))
    polling.advance(np.inf)
    assert list(polling.found_s) == [10.0, 10.0, 20.0, 25.0]


def test_entries_before_the_end_are_detected_by_a_poll_that_is_not_counted() -> None:
    polling = PollSimulation(trace([29.0]), Every(10.0), np.array([0.0]), (10.0, 30.0))
    polling.advance(np.inf)
    assert list(polling.found_s) == [30.0]
    assert (polling.requests, polling.successful) == (2, 0)


def test_a_simulation_can_be_advanced_in_several_steps() -> None:
    entries = trace([1.0, 12.0, 13.0], [7.0])
    whole, parts = (PollSimulation(entries, Every(3.0), np.array([0.0, 1.0]), (0.0, 20.0)) for _ in range(2))
    whole.advance(np.inf)
    for until_s in (4.0, 9.5, np.inf):
        parts.advance(until_s)
    assert list(whole.found_s) == list(parts.found_s)
    assert (whole.requests, whole.successful) == (parts.requests, parts.successful)


def test_the_first_poll_returns_a_document_and_later_polls_new_entries() -> None:
    old = [float(-second) for second in range(100, 0, -1)]
    scheduler = Every(10.0)
    PollSimulation(trace([*old, 5.0, 6.0]), scheduler, np.array([0.0]), (0.0, 20.0)).advance(20.0)
    first, second = scheduler.shown
    assert (first.new[0], first.known[0], first.newest_s[0]) == (100, ENTRIES_IN_DOCUMENT, -1.0)
    assert (second.new[0], second.known[0], second.newest_s[0]) == (2, ENTRIES_IN_DOCUMENT + 2, 6.0)


@pytest.mark.parametrize(("from_s", "left"), [(-1000.0, 22), (-20.0, 22), (-19.5, 21), (5.0, 2), (5.5, 1), (7.0, 0)])
def test_since_returns_the_first_known_entry_after_a_time(from_s: float, left: int) -> None:
    old = [float(-second) for second in range(100, 0, -1)]
    scheduler = Every(10.0)
    PollSimulation(trace([0.5], [*old, 5.0, 6.0]), scheduler, np.zeros(2), (0.0, 20.0)).advance(20.0)
    seen = scheduler.shown[-1]
    assert seen.upto[1] - seen.first_since(np.full(2, from_s))[1] == left


def test_delays_are_weighted_by_subscribers() -> None:
    entries = trace([8.0], [2.0], subscribers=[3, 1])
    polling = PollSimulation(entries, Every(10.0), np.zeros(2), (0.0, 20.0))
    polling.advance(np.inf)
    found = measure_results(entries, polling, (0.0, 20.0))
    assert (found.requests, found.wasted_share) == (4, 0.5)
    assert found.mean_notification_delay_s == pytest.approx((3 * 2.0 + 8.0) / 4)
    assert found.p95_s == 8.0


def test_a_weighted_quantile_uses_weights() -> None:
    assert weighted_quantile(np.array([9.0, 1.0, 5.0]), np.array([1, 90, 9]), 0.95) == 5.0


def test_simulated_weekly_clocks_equal_production_clocks() -> None:
    steps = np.random.default_rng(1).integers(-32, 32, (5, FACTORS)).astype(np.int8)
    clocks = WeeklyClocks(5)
    clocks.set_speed(np.arange(5), hourly_speeds(steps))
    at_s = np.linspace(0, 3 * WEEK_S, 1001)
    for channel in range(5):
        one, which = WeeklyClock(steps[channel].tobytes()), np.full(len(at_s), channel)
        shown_s = [one.shown_s(each) for each in at_s.tolist()]
        assert clocks.shown_s(which, at_s) == pytest.approx(shown_s, abs=1e-3)
        assert clocks.time_s(which, np.array(shown_s)) == pytest.approx(at_s, abs=1e-3)


def test_weekly_clocks_run_at_real_time_initially() -> None:
    at_s = np.linspace(-WEEK_S, 2 * WEEK_S, 50)
    assert WeeklyClocks(1).shown_s(np.zeros(50, dtype=np.int64), at_s) == pytest.approx(at_s)
