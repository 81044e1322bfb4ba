"""The intervals of other readers' schedulers, compared with cases calculated from their source code."""

import numpy as np
import pytest

from service.simulate.numerics import DAY_S, HOUR_S, MINUTE_S, WEEK_S
from service.simulate.schedulers import reader_schedulers
from service.simulate.schedulers.polls import PollObservations


def seen(published_s: list[float], now_s: float, new: int | None = None) -> PollObservations:
    """Return the observations of one channel whose entries are all known."""
    count = len(published_s)
    one = np.array([count])
    return PollObservations(
        np.array([0]),
        np.array([now_s]),
        one if new is None else np.array([new]),
        np.array([0]),
        one,
        np.array(published_s or [0.0]),
    )


@pytest.mark.parametrize(
    ("published_h", "now_h", "wait_s"),
    [
        ([], 300, DAY_S),
        ([299], 300, DAY_S),  # one entry has no gap
        ([276, 288, 300], 300, 12 * HOUR_S),  # mean gap 12 h: 14 a week
        ([0, 276, 288, 300], 300, 12 * HOUR_S),  # what is older than a week does not count
        ([295, 300], 300, WEEK_S / 34),  # a count of 33.6 is rounded up
        ([299 + minute / 60 for minute in range(61)], 300, 5 * MINUTE_S),
        ([150, 300], 300, DAY_S),  # 1.12, rounded up to 2 a week: at most a day
    ],
)
def test_miniflux_divides_the_week_by_the_virtual_count(published_h: list[float], now_h: float, wait_s: float) -> None:
    entries = [hour * HOUR_S for hour in published_h]
    assert reader_schedulers.MinifluxEntryFrequency().wait_s(seen(entries, now_h * HOUR_S)) == pytest.approx([wait_s])


@pytest.mark.parametrize(
    ("published_h", "now_h", "wait_s"),
    [
        ([], 0, 4 * HOUR_S),
        ([0], 1, 4 * HOUR_S),  # no gap is known
        ([0, 1], 1, HOUR_S / 2),
        ([0, 1, 1.2], 1.5, HOUR_S * 0.3),
        ([0, 40], 41, HOUR_S),
        ([0, 0.01], 1, 5 * MINUTE_S),
        ([0, 0.01], 7 * 24, 5 * MINUTE_S),  # 6 days and some
        ([0, 0.01], 7 * 24 + 1, HOUR_S),
        ([0, 0.01], 14 * 24 + 1, 2 * HOUR_S),
        ([0, 0.01], 30 * 24 + 1, 4 * HOUR_S),
    ],
)
def test_commafeed_uses_half_the_mean_gap_until_a_feed_is_silent(
    published_h: list[float], now_h: float, wait_s: float
) -> None:
    entries = [hour * HOUR_S for hour in published_h]
    assert reader_schedulers.CommaFeed().wait_s(seen(entries, now_h * HOUR_S)) == pytest.approx([wait_s])


def test_commafeed_uses_the_entries_of_one_document() -> None:
    """Of thirty entries it uses the last twenty, a quarter of an hour apart each."""
    entries = [hour * HOUR_S for hour in (*range(10), *(20 + quarter / 4 for quarter in range(20)))]
    assert reader_schedulers.CommaFeed().wait_s(seen(entries, 25 * HOUR_S)) == pytest.approx([HOUR_S / 8])


@pytest.mark.parametrize(
    ("stories_per_day", "subscribers", "silent_days", "wait_min"),
    [
        (1, 11, 0, 6),
        (50, 10, 0, 15),
        (1, 2, 0, 15),
        (1, 1, 0, 60),
        (0.5, 2, 0, 30),
        (29 / 30, 2, 0, 2),
        (0.5, 1, 0, 360),
        (1 / 30, 1, 0, 696),
        (0, 2, 31, 372),
        (0, 2, 90, 720),
        (0, 1, 90, 720),  # 2,160, but for who pays at most 12 h
        (0, 0, 31, 1488),
        (0, 0, 90, 2880),
    ],
)
def test_newsblur_depends_on_stories_per_day_and_subscribers(
    stories_per_day: float, subscribers: int, silent_days: float, wait_min: float
) -> None:
    wait_s = reader_schedulers.by_stories_s(
        np.array([stories_per_day]), np.array([subscribers]), np.array([silent_days * DAY_S])
    )
    assert wait_s == pytest.approx([wait_min * MINUTE_S])


def test_newsblur_counts_thirty_days_and_adds_up_to_a_quarter() -> None:
    entries = [0.0] * 100 + [(1 + day) * DAY_S for day in range(30)]
    scheduler = reader_schedulers.NewsBlur(np.array([50]), np.random.default_rng(1))
    waits = [scheduler.wait_s(seen(entries, 30.5 * DAY_S))[0] / MINUTE_S for _ in range(200)]
    assert 6 <= min(waits) < 6.1
    assert 7.4 < max(waits) <= 7.5


def wait_after(finds: list[tuple[float, int]], now_h: float) -> float:
    """Return JabRSS's interval in hours after polls with new entries at these hours."""
    times_s, entries = np.zeros((1, 16)), np.zeros((1, 16))
    for place, (hour, count) in enumerate(finds):
        times_s[0, place], entries[0, place] = hour * HOUR_S, count
    interval_s = reader_schedulers.finds_interval_s(
        np.array([len(finds)]), times_s, entries, np.array([now_h * HOUR_S])
    )
    return float(interval_s[0] / HOUR_S)


@pytest.mark.parametrize(
    ("finds", "now_h", "wait_h"),
    [
        ([], 5, 8),
        ([(0, 20)], 0, 1),
        ([(0, 20)], 12, 4.5),
        ([(0, 20), (12, 1)], 12, 2),
        ([(0, 20), (12, 1)], 24, 4),  # silence counts
        ([(0, 20), (12, 4)], 12, 0.5),
        ([(0, 20), (300, 1)], 300, 12),
        ([(hour, 1) for hour in range(0, 192, 12)], 180, 2),
    ],
)
def test_jabrss_uses_a_sixth_of_the_mean_time_per_entry(
    finds: list[tuple[float, int]], now_h: float, wait_h: float
) -> None:
    assert wait_after(finds, now_h) == pytest.approx(wait_h)


def test_jabrss_uses_half_of_the_history_after_a_change_of_rate() -> None:
    few_then_many = [(10.0 * find, 1) for find in range(7)] + [(200.0 * find, 4) for find in range(1, 6)]
    assert wait_after(few_then_many, 1000) == pytest.approx(60 / 6 / 6)
    many_then_few = [(100.0 * find, 4) for find in range(7)] + [(600 + 10.0 * find, 1) for find in range(1, 6)]
    assert wait_after(many_then_few, 650) == pytest.approx(50 / 5 / 6)
    steady = [(100.0 * find, 1) for find in range(7)] + [(600 + 2.0 * find, 1) for find in range(6)]
    assert wait_after(steady, 612) == pytest.approx(612 / 12 / 6)


def test_jabrss_keeps_the_last_sixteen_successful_polls() -> None:
    """Of forty polls with one new entry each, three hours apart, the first 24 are dropped."""
    scheduler = reader_schedulers.JabRSS(1, np.random.default_rng(1))
    for find in range(40):
        scheduler.wait_s(seen([], find * 3 * HOUR_S, new=1))
    assert scheduler._finds[0] == 16
    assert list(scheduler._times_s[0]) == [find * 3 * HOUR_S for find in range(24, 40)]


def test_a_fixed_interval_is_constant() -> None:
    assert list(reader_schedulers.FixedInterval(600.0).wait_s(seen([1.0], 5.0))) == [600.0]
