"""Weekly rhythms are learnt from publication times, and polls follow them within bounds."""

from collections.abc import Callable

import numpy as np
import pytest

from service.corona.weekly_rhythm import (
    DAY_S,
    HOUR_S,
    RHYTHM_BYTES,
    WEEK_S,
    WeeklyClock,
    are_similar,
    decode_rates,
    decode_speeds,
    delay_factors,
    encode_speeds,
    learn_rhythm,
    polling_speeds,
    publishing_clock,
    weight_factors,
)

NO_BOUNDS = 0.0, np.inf


def _learnt(rate: Callable[[float], float], weeks: int, *, rhythm: bytes = b"", start_s: float = 0.0) -> bytes:
    """Return the rhythm of a channel with ``rate`` publications in each hour, which may be below 1."""
    due, since_s = 0.0, start_s
    for hour in range(weeks * 168):
        at_s = start_s + (hour + 0.5) * HOUR_S
        due += rate(at_s)
        if due >= 1:
            rhythm = learn_rhythm(rhythm, [at_s] * int(due), since_s, at_s)
            due, since_s = due % 1, at_s
    return rhythm


def _in_office_hours(at_s: float) -> float:
    is_open = 9 <= at_s % DAY_S / HOUR_S < 17 and at_s % WEEK_S < 5 * DAY_S
    return 3.0 if is_open else 0.1


def _speeds(rhythm: bytes) -> bytes:
    return _bounded_speeds(rhythm, *NO_BOUNDS)


def _bounded_speeds(rhythm: bytes, lowest: float, highest: float) -> bytes:
    (speeds,) = encode_speeds(polling_speeds(decode_rates([rhythm]), np.array([lowest]), np.array([highest])))
    return speeds


def _factor(rhythm: bytes) -> float:
    """Return the factor of the mean delay."""
    return float(weight_factors(decode_rates([rhythm]))[0])


def test_polls_of_a_channel_with_office_hours_are_dense_in_these() -> None:
    clock = WeeklyClock(_speeds(_learnt(_in_office_hours, 6)))
    assert clock.speed(50 * WEEK_S + 12 * HOUR_S) > 3 * clock.speed(50 * WEEK_S + 2 * HOUR_S)
    assert clock.speed(50 * WEEK_S + 12 * HOUR_S) > 1.5 * clock.speed(50 * WEEK_S + 6 * DAY_S + 12 * HOUR_S)


def test_the_publishing_clock_runs_at_the_rate_of_publications() -> None:
    clock = publishing_clock(_learnt(_in_office_hours, 8))
    assert clock is not None
    rates = np.array([_in_office_hours(hour * HOUR_S) for hour in range(168)])
    speeds = np.array([clock.speed(hour * HOUR_S) for hour in range(168)])
    assert np.corrcoef(rates, speeds)[0, 1] > 0.95
    assert speeds.mean() == pytest.approx(1)


def test_a_channel_without_a_pattern_is_polled_evenly() -> None:
    rhythm = _learnt(lambda _: 0.7, 6)
    assert _factor(rhythm) > 0.995


def test_a_rarely_updated_channel_is_polled_almost_evenly() -> None:
    rhythm = _learnt(lambda at_s: 1.0 if at_s % WEEK_S == 0.5 * HOUR_S else 0.0, 3)
    assert 0.95 < _factor(rhythm) <= 1


def test_few_days_of_a_busy_channel_are_no_rhythm() -> None:
    """The hours and days that were not observed yet are not silent."""
    for hours in (3, 30, 80):
        rhythm = learn_rhythm(b"", [100.0 * place for place in range(36 * hours)], 0.0, hours * HOUR_S)
        assert _factor(rhythm) > 0.99


def test_a_new_rhythm_replaces_an_old_one() -> None:
    by_day = _learnt(_in_office_hours, 8)
    by_night = _learnt(lambda at_s: _in_office_hours(at_s + DAY_S / 2), 24, rhythm=by_day, start_s=8 * WEEK_S)
    clock = WeeklyClock(_speeds(by_night))
    assert clock.speed(12 * HOUR_S) < clock.speed(0.5 * HOUR_S)


def test_a_rhythm_is_small_and_a_malformed_one_is_even() -> None:
    assert len(learn_rhythm(b"", [5.0], 1.0, 9.0)) == RHYTHM_BYTES <= 200
    assert publishing_clock(b"x") is publishing_clock(b"") is None
    assert _factor(b"x") == _factor(b"") == 1
    assert _speeds(b"x") == b""
    strange = learn_rhythm(b"\xff" * RHYTHM_BYTES, [1e300, -1e300, 7e9], 1e9, 2e9)
    assert publishing_clock(strange) is None or 0 < _factor(strange) <= 1


@pytest.mark.parametrize(("lowest", "highest"), [(0.9, 9.0), (0.0, 1.2), (0.5, 1.5), (1.0, 1.0), (0.0, 0.9)])
def test_the_bounds_hold_in_every_hour(lowest: float, highest: float) -> None:
    rhythm = _learnt(_in_office_hours, 8)
    speeds = _bounded_speeds(rhythm, lowest, highest)
    rates = [WeeklyClock(speeds).speed(hour * HOUR_S) for hour in range(168)] if speeds else [1.0]
    assert (lowest <= min(rates) and max(rates) <= highest) or speeds == b""


def test_the_clocks_of_a_hardly_changed_rhythm_are_similar() -> None:
    rhythm = _learnt(_in_office_hours, 8)
    later = learn_rhythm(rhythm, [8 * WEEK_S + 12 * HOUR_S], 8 * WEEK_S, 8 * WEEK_S + 12.5 * HOUR_S)
    speeds, present = (decode_speeds([_speeds(each)]) for each in (later, rhythm))
    assert are_similar(speeds, present)[0]


def test_the_polling_clock_shortens_the_mean_delay() -> None:
    rhythm = _learnt(_in_office_hours, 8)
    factor = _factor(rhythm)
    assert delay_factors([rhythm], [_speeds(rhythm)]) == pytest.approx(factor, rel=0.02)
    assert factor < 0.8
    assert delay_factors([rhythm, b""], [b"", b""]) == pytest.approx([1, 1])
