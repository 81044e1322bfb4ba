"""Weekly clocks: even at first, faster when publishers are busy, and always a week per week."""

import numpy as np
import pytest

from service.simulate.schedulers.corona_scheduler import Rhythm
from service.simulate.schedulers.publication_trace import DAY_S, HOUR_S, WEEK_S


def lunch(weeks: int) -> Rhythm:
    """Return a rhythm in which channel 1 publishes every minute from 12:00 to 13:00, and channel 0 never."""
    rhythm = Rhythm(2)
    days = np.repeat(np.arange(7 * weeks), 60)
    entries_s = days * DAY_S + 12 * HOUR_S + np.tile(np.arange(60), 7 * weeks) * 60.0
    rhythm.count(np.ones(len(entries_s), dtype=np.int64), entries_s)
    rhythm.learn()
    return rhythm


def test_clocks_are_even_at_first() -> None:
    at_s = np.linspace(-WEEK_S, 2 * WEEK_S, 50)
    assert Rhythm(1).polling.shown_s(np.zeros(50, dtype=np.int64), at_s) == pytest.approx(at_s)


def test_time_s_is_the_inverse_of_shown_s() -> None:
    at_s = np.linspace(-WEEK_S, 2 * WEEK_S, 1001)
    which = np.arange(1001) % 2
    for clocks in (lunch(2).polling, lunch(2).publishing):
        assert clocks.time_s(which, clocks.shown_s(which, at_s)) == pytest.approx(at_s, abs=1e-3)


def test_a_clock_takes_a_week_for_a_week() -> None:
    weeks_s = np.linspace(-2 * WEEK_S, 2 * WEEK_S, 5)
    assert lunch(1).polling.shown_s(np.ones(5, dtype=np.int64), weeks_s) == pytest.approx(weeks_s)


def test_the_clock_of_a_silent_channel_stays_even() -> None:
    at_s = np.linspace(0, WEEK_S, 50)
    assert lunch(1).publishing.shown_s(np.zeros(50, dtype=np.int64), at_s) == pytest.approx(at_s)


def test_poll_density_is_proportional_to_the_square_root_of_the_rate() -> None:
    rhythm = lunch(4)
    hours_s = np.array([11.0, 12.0, 13.0]) * HOUR_S
    quiet_s, busy_s = np.diff(rhythm.polling.shown_s(np.ones(3, dtype=np.int64), hours_s))
    quiet, busy = np.diff(rhythm.publishing.shown_s(np.ones(3, dtype=np.int64), hours_s))
    assert busy / quiet == pytest.approx((4 * 7 * 60 + 2) / 2)
    assert busy_s / quiet_s == pytest.approx(np.sqrt(busy / quiet))
