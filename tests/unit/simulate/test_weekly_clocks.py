"""The weekly clocks of many channels agree with production's clocks, one by one."""

import numpy as np
import pytest

from service.corona.weekly_rhythm import FACTORS, WEEK_S, WeeklyClock, hourly_speeds
from service.simulate.schedulers.weekly_clocks import WeeklyClocks

CHANNELS = 5


def test_each_clock_shows_what_productions_clock_shows() -> None:
    steps = np.random.default_rng(1).integers(-32, 32, (CHANNELS, FACTORS)).astype(np.int8)
    clocks = WeeklyClocks(CHANNELS)
    clocks.set_speed(np.arange(CHANNELS), hourly_speeds(steps))
    at_s = np.linspace(0, 3 * WEEK_S, 1001)
    for channel in range(CHANNELS):
        one, which = WeeklyClock(steps[channel].tobytes()), np.full(len(at_s), channel)
        shown_s = [one.shown_s(each) for each in at_s.tolist()]
        assert clocks.shown_s(which, at_s) == pytest.approx(shown_s, abs=1e-3)
        assert clocks.time_s(which, np.array(shown_s)) == pytest.approx(at_s, abs=1e-3)


def test_clocks_are_even_at_first() -> None:
    at_s = np.linspace(-WEEK_S, 2 * WEEK_S, 50)
    assert WeeklyClocks(1).shown_s(np.zeros(50, dtype=np.int64), at_s) == pytest.approx(at_s)
