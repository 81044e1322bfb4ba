"""Polling hints: each delays the next poll by up to a day."""

import math
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.feeds.publisher_polling_hints import (
    DAY_S,
    find_earliest_poll,
    parse_retry_after,
    shortest_interval_s,
    skipped_s,
    with_freshness,
)
from service.model import PollingHints

NOW_S = 1_700_000_000.0  # Tuesday, 14 November 2023, 22:13:20 UTC
HOUR_S = 3_600.0
ELEVEN_PM_S = NOW_S + 46 * 60 + 40
NONE = PollingHints()


def date(at_s: float) -> str:
    return formatdate(at_s, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, 0),
        ({"cache-control": "max-age=600"}, 600),
        ({"cache-control": 'public, MAX-AGE="600"'}, 600),
        ({"cache-control": "max-age=600", "age": "200"}, 400),
        ({"cache-control": "max-age=600", "age": "700"}, 0),
        ({"cache-control": "max-age=600, max-age=60"}, 600),
        ({"cache-control": "s-maxage=600"}, 0),
        ({"cache-control": "max-age=600, s-maxage=9"}, 600),
        ({"cache-control": "max-age=600, no-cache"}, 0),
        ({"cache-control": "no-store, max-age=600"}, 0),
        ({"cache-control": 'no-cache="set-cookie", max-age=600'}, 0),
        ({"cache-control": "no-cache", "expires": date(NOW_S + 600)}, 0),
        ({"cache-control": "max-age=-1"}, 0),
        ({"cache-control": "max-age=soon"}, 0),
        ({"cache-control": "max-age=86400"}, DAY_S),
        ({"cache-control": "max-age=86401"}, 0),
        ({"cache-control": f"max-age={'9' * 400}"}, 0),
        ({"cache-control": "max-age=60", "expires": date(NOW_S + 600)}, 60),
        ({"expires": date(NOW_S + 600)}, 600),
        ({"expires": date(NOW_S + 600), "date": date(NOW_S - 60)}, 660),
        ({"expires": date(5000), "date": date(4400)}, 600),
        ({"expires": date(NOW_S + 600), "age": "100"}, 500),
        ({"expires": date(NOW_S - 600)}, 0),
        ({"expires": "0"}, 0),
        ({"expires": "Thu, 31 Feb 2030 99:00:00 GMT"}, 0),
        ({"retry-after": "90"}, 90),
        ({"retry-after": date(NOW_S + 90)}, 90),
    ],
)
def test_freshness_of_a_response_delays_the_next_poll(headers: dict[str, str], wait_s: float) -> None:
    assert find_earliest_poll(headers, NONE, NOW_S).not_before_s == NOW_S + wait_s


def test_the_longest_hint_applies_and_all_are_reported() -> None:
    found = find_earliest_poll(
        {"cache-control": "max-age=60"}, PollingHints(ttl_s=7_200, update_period_s=HOUR_S), NOW_S
    )
    assert found.not_before_s == NOW_S + 7_200
    assert found.reasons == (
        "Cache-Control asks to wait 1 minute.",
        "Its ttl asks to wait 2 hours.",
        "Its updatePeriod asks to wait 1 hour.",
    )


@pytest.mark.parametrize(
    ("headers", "hints", "reason"),
    [
        ({"cache-control": "max-age=31536000"}, NONE, "Cache-Control asks to wait 1 year: ignored."),
        ({"expires": date(NOW_S + 30 * DAY_S)}, NONE, "Expires asks to wait 30 days: ignored."),
        ({"retry-after": "999999999"}, NONE, "Retry-After asks to wait 32 years: ignored."),
        ({}, PollingHints(ttl_s=1e9), "Its ttl asks to wait 32 years: ignored."),
        ({}, PollingHints(ttl_s=math.nan), "Its ttl asks to wait an invalid time: ignored."),
        ({}, PollingHints(update_period_s=7 * DAY_S), "Its updatePeriod asks to wait 7 days: ignored."),
        ({}, PollingHints(skip_hours=tuple(range(24))), "Its skipHours name every hour: ignored."),
        ({}, PollingHints(skip_days=tuple(range(7))), "Its skipDays name every day: ignored."),
    ],
)
def test_a_hint_of_more_than_a_day_is_ignored_with_a_reason(
    headers: dict[str, str], hints: PollingHints, reason: str
) -> None:
    found = find_earliest_poll(headers, hints, NOW_S)
    assert (found.not_before_s, found.reasons) == (NOW_S, (reason,))


@pytest.mark.parametrize(
    ("hints", "until_s"),
    [
        (PollingHints(skip_hours=(21, 23)), NOW_S),
        (PollingHints(skip_hours=(22,)), ELEVEN_PM_S),
        (PollingHints(skip_hours=(0, 22, 23)), ELEVEN_PM_S + 2 * HOUR_S),
        (PollingHints(skip_days=(0,)), NOW_S),
        (PollingHints(skip_days=(1,)), ELEVEN_PM_S + HOUR_S),
        (PollingHints(skip_days=(1, 2), skip_hours=(0,)), ELEVEN_PM_S + 26 * HOUR_S),
        (PollingHints(skip_hours=(22,), ttl_s=HOUR_S), NOW_S + HOUR_S),
        (PollingHints(skip_hours=(23,), ttl_s=HOUR_S), ELEVEN_PM_S + HOUR_S),
    ],
)
def test_skipped_hours_and_days_delay_the_next_poll(hints: PollingHints, until_s: float) -> None:
    assert find_earliest_poll({}, hints, NOW_S).not_before_s == until_s


def test_the_end_of_skipped_hours_is_reported() -> None:
    assert find_earliest_poll({}, PollingHints(skip_days=(1,)), NOW_S).reasons == (
        "Its skipHours or skipDays last for another 2 hours.",
    )


@pytest.mark.parametrize(
    ("hints", "interval_s"),
    [
        (NONE, 0.0),
        (PollingHints(ttl_s=HOUR_S), HOUR_S),
        (PollingHints(ttl_s=HOUR_S, update_period_s=2 * HOUR_S, max_age_s=60.0), 2 * HOUR_S),
        (PollingHints(ttl_s=HOUR_S, update_period_s=30 * DAY_S), HOUR_S),
        (PollingHints(max_age_s=math.nan, ttl_s=-1.0, update_period_s=math.inf), 0.0),
    ],
)
def test_the_longest_interval_of_up_to_a_day_is_kept(hints: PollingHints, interval_s: float) -> None:
    assert shortest_interval_s(hints) == interval_s


@pytest.mark.parametrize(
    ("headers", "max_age_s"),
    [
        ({"cache-control": "max-age=600", "age": "500"}, 600.0),
        ({"cache-control": "max-age=0"}, None),
        ({"cache-control": "no-cache"}, 60.0),
        ({}, 60.0),
    ],
)
def test_the_lifetime_of_a_response_is_a_hint_whatever_its_age(
    headers: dict[str, str], max_age_s: float | None
) -> None:
    assert with_freshness(PollingHints(max_age_s=60.0), headers, NOW_S).max_age_s == max_age_s


def test_skipped_hours_last_until_their_end() -> None:
    hints = PollingHints(skip_hours=(22, 23))
    assert skipped_s(hints, ELEVEN_PM_S + 600) == HOUR_S - 600
    assert skipped_s(hints, ELEVEN_PM_S + HOUR_S) == skipped_s(NONE, ELEVEN_PM_S) == 0.0


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("9" * 30, 7 * DAY_S),
        (date(NOW_S - 5), 0),
        (date(NOW_S + 9e8), 7 * DAY_S),
        *((nothing, None) for nothing in ("soon", "-5", "", "²", "1.5")),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_of_at_most_a_week(value: str, wait_s: float | None) -> None:
    assert parse_retry_after(value, NOW_S) == wait_s


dates = st.one_of(st.text(max_size=30), st.floats(-1e12, 1e12).map(lambda at_s: date(max(0, min(at_s, 2e11)))))
some_headers = st.fixed_dictionaries(
    {},
    optional={
        "cache-control": st.one_of(
            st.text(max_size=30),
            st.from_regex(r"(max-age|s-maxage|no-cache|public) ?= ?\"?[0-9]{0,20}\"?(, ?max-age=[0-9]{1,6})?"),
        ),
        "age": st.one_of(st.text(max_size=9), st.integers(-9, 10**15).map(str)),
        "expires": dates,
        "date": dates,
        "retry-after": st.one_of(dates, st.integers(-9, 10**15).map(str)),
    },
)
some_hints = st.builds(
    PollingHints,
    ttl_s=st.none() | st.floats(),
    update_period_s=st.none() | st.floats(),
    skip_hours=st.lists(st.integers(-1, 24)).map(tuple),
    skip_days=st.lists(st.integers(-1, 7)).map(tuple),
)
moments = st.integers(0, 4 * 10**9).map(float)


@given(some_headers, some_hints, moments)
def test_the_delay_is_at_most_a_day_and_a_week_of_skipped_days(
    headers: dict[str, str], hints: PollingHints, now_s: float
) -> None:
    not_before_s = find_earliest_poll(headers, hints, now_s).not_before_s
    skips = bool(hints.skip_hours or hints.skip_days)
    assert now_s <= not_before_s <= now_s + DAY_S + (7 * DAY_S if skips else 0)


@given(some_headers, some_hints, moments, moments)
def test_the_earliest_poll_never_moves_back_as_time_passes(
    headers: dict[str, str], hints: PollingHints, first_s: float, second_s: float
) -> None:
    first_s, second_s = sorted((first_s, second_s))
    assert (
        find_earliest_poll(headers, hints, first_s).not_before_s
        <= find_earliest_poll(headers, hints, second_s).not_before_s
    )


@given(some_headers, st.floats(0, DAY_S), st.floats(0, DAY_S), moments)
def test_a_longer_hint_never_shortens_the_delay(
    headers: dict[str, str], less_s: float, more_s: float, now_s: float
) -> None:
    less_s, more_s = sorted((less_s, more_s))
    less, more = (
        find_earliest_poll(headers, PollingHints(ttl_s=wish_s), now_s).not_before_s for wish_s in (less_s, more_s)
    )
    assert less <= more


@given(some_headers, some_hints, moments)
def test_the_earliest_poll_is_in_no_skipped_hour(headers: dict[str, str], hints: PollingHints, now_s: float) -> None:
    not_before_s = find_earliest_poll(headers, hints, now_s).not_before_s
    assert find_earliest_poll(
        {}, PollingHints(skip_hours=hints.skip_hours, skip_days=hints.skip_days), not_before_s
    ).not_before_s == (not_before_s)
