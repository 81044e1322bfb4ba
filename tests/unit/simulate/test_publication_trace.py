"""Publication traces: the paper's intervals and popularity, and weekly patterns that keep the number of entries."""

import numpy as np
import pytest

from service.simulate.corona.workload import draw_intervals_s, zipf_subscribers
from service.simulate.numerics import DAY_S, HOUR_S, MINUTE_S, WEEK_S
from service.simulate.schedulers.publication_trace import Publishers, apply_weekly_pattern_s, make_trace, weekly_rates


def test_intervals_match_the_paper() -> None:
    intervals_s = draw_intervals_s(20_000, np.random.default_rng(1))
    fast, weekly = intervals_s < HOUR_S, intervals_s == WEEK_S
    assert fast.mean() == pytest.approx(0.1, abs=0.01)
    assert weekly.mean() == pytest.approx(0.5, abs=0.01)
    assert intervals_s.min() >= 10 * MINUTE_S
    assert intervals_s[~weekly].max() <= 120 * HOUR_S
    assert np.median(intervals_s[fast]) == pytest.approx(np.sqrt(600 * 3600), rel=0.05)


def test_popularity_is_zipf_with_the_right_total() -> None:
    people = np.sort(zipf_subscribers(10_000, np.random.default_rng(1)))[::-1]
    assert people.sum() == pytest.approx(500_000, rel=0.01)
    assert people[0] / people[99] == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize("publishers", Publishers)
def test_publishers_have_their_mean_interval(publishers: Publishers) -> None:
    trace = make_trace(300, -WEEK_S, 9 * WEEK_S, publishers, np.random.default_rng(1))
    counts = np.diff(trace.starts)
    assert counts.sum() == pytest.approx((10 * WEEK_S / trace.interval_s).sum(), rel=0.02)
    assert len(trace.published_s) == trace.starts[-1]
    assert trace.published_s.min() >= -WEEK_S
    assert trace.published_s.max() < 9 * WEEK_S
    for begin, end in zip(trace.starts, trace.starts[1:], strict=False):
        assert (np.diff(trace.published_s[begin:end]) >= 0).all()


def test_entries_are_published_in_working_hours() -> None:
    even_s = np.linspace(0, WEEK_S, 100_001)[:-1]
    busy_s = apply_weekly_pattern_s(even_s, np.zeros(len(even_s)))
    by_hour = np.bincount((busy_s // HOUR_S).astype(int), minlength=168) / len(even_s)
    assert by_hour == pytest.approx(weekly_rates() / weekly_rates().sum(), abs=1e-4)
    eastern_s = apply_weekly_pattern_s(even_s, np.full(len(even_s), 6 * HOUR_S))
    assert np.sort((busy_s + 6 * HOUR_S) % WEEK_S) == pytest.approx(np.sort(eastern_s))


def test_rhythmic_publishers_have_quiet_nights_and_bursts() -> None:
    trace = make_trace(300, 0, 4 * WEEK_S, Publishers.RHYTHMIC, np.random.default_rng(1))
    busiest = np.argmax(np.diff(trace.starts))
    entries_s = trace.published_s[trace.starts[busiest] : trace.starts[busiest + 1]]
    by_hour = np.sort(np.bincount((entries_s % DAY_S // HOUR_S).astype(int), minlength=24))
    assert by_hour[:7].sum() < len(entries_s) / 20
    gaps_s = np.diff(trace.published_s)[np.diff(trace.channel) == 0]
    steady = make_trace(300, 0, 4 * WEEK_S, Publishers.POISSON, np.random.default_rng(1))
    steady_gaps_s = np.diff(steady.published_s)[np.diff(steady.channel) == 0]
    assert (gaps_s < MINUTE_S).mean() > 1.5 * (steady_gaps_s < MINUTE_S).mean()
