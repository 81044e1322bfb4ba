"""Clocks are even until something is learnt, then fast when publishers are busy, and a week a week always."""

import numpy as np
import pytest

from service.simulate.schedulers.corona_scheduler import Rhythm
from service.simulate.schedulers.publication_trace import DAY_S, HOUR_S, WEEK_S


def lunch(weeks: int) -> Rhythm:
    """Channel 1 publishes an entry a minute from 12 to 13 o'clock; channel 0 nothing."""
    rhythm = Rhythm(2)
    days = np.repeat(np.arange(7 * weeks), 60)
    entries_s = days * DAY_S + 12 * HOUR_S + np.tile(np.arange(60), 7 * weeks) * 60.0
    rhythm.count(np.ones(len(entries_s), dtype=np.int64), entries_s)
    rhythm.learn()
    return rhythm


def test_clocks_begin_even() -> None:
    at_s = np.linspace(-WEEK_S, 2 * WEEK_S, 50)
    assert Rhythm(1).polling.shown_s(np.zeros(50, dtype=np.int64), at_s) == pytest.approx(at_s)


def test_what_a_clock_shows_leads_back_to_its_time() -> None:
    at_s = np.linspace(-WEEK_S, 2 * WEEK_S, 1001)
    which = np.arange(1001) % 2
    for clocks in (lunch(2).polling, lunch(2).publishing):
        assert clocks.time_s(which, clocks.shown_s(which, at_s)) == pytest.approx(at_s, abs=1e-3)


def test_a_week_stays_a_week() -> None:
    weeks_s = np.linspace(-2 * WEEK_S, 2 * WEEK_S, 5)
    assert lunch(1).polling.shown_s(np.ones(5, dtype=np.int64), weeks_s) == pytest.approx(weeks_s)


def test_clocks_of_who_never_published_stay_even() -> None:
    at_s = np.linspace(0, WEEK_S, 50)
    assert lunch(1).publishing.shown_s(np.zeros(50, dtype=np.int64), at_s) == pytest.approx(at_s)


def test_polls_are_denser_by_the_square_root_of_what_is_published() -> None:
    rhythm = lunch(4)
    hours_s = np.array([11.0, 12.0, 13.0]) * HOUR_S
    quiet_s, busy_s = np.diff(rhythm.polling.shown_s(np.ones(3, dtype=np.int64), hours_s))
    quiet, busy = np.diff(rhythm.publishing.shown_s(np.ones(3, dtype=np.int64), hours_s))
    assert busy / quiet == pytest.approx((4 * 7 * 60 + 2) / 2)
    assert busy_s / quiet_s == pytest.approx(np.sqrt(busy / quiet))
