"""Delivery times in a user's zone: quiet hours and digests across daylight saving, leap days and zone changes."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.users.quiet_hours_and_digests import DigestSchedule, QuietHours, next_digest_s
from service.users.time_zones import find_time_zones
from service.users.user_settings import DEFAULT_USER_SETTINGS, UserSettings, earliest_delivery_s

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
DAILY = DigestSchedule("day", 2 * 60 + 30)


def utc_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def utc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(" ", "minutes")[:16]


@pytest.mark.parametrize(
    ("digest", "zone", "queued", "due"),
    [
        (DigestSchedule("hour"), BERLIN, "2026-11-22 10:15", "2026-11-22 11:00"),
        (DigestSchedule("hour"), BERLIN, "2026-11-22 11:00", "2026-11-22 12:00"),
        (DigestSchedule("hour"), "Asia/Kolkata", "2026-11-22 10:15", "2026-11-22 10:30"),
        (DigestSchedule("day", 8 * 60), BERLIN, "2026-11-22 06:59", "2026-11-22 07:00"),
        (DigestSchedule("day", 8 * 60), BERLIN, "2026-11-22 07:00", "2026-11-23 07:00"),
        (DigestSchedule("day", 8 * 60), NEW_YORK, "2026-11-22 07:00", "2026-11-22 13:00"),
        (DigestSchedule("week", 9 * 60, 4), BERLIN, "2026-11-22 07:00", "2026-11-27 08:00"),
        (DigestSchedule("week", 9 * 60, 6), BERLIN, "2026-11-22 08:00", "2026-11-29 08:00"),
    ],
)
def test_the_next_digest_is_at_the_next_matching_local_time(
    digest: DigestSchedule, zone: str, queued: str, due: str
) -> None:
    assert utc(next_digest_s(digest, zone, utc_s(queued))) == due


@pytest.mark.parametrize(
    ("zone", "queued", "dues"),
    [
        # 02:30 does not exist on 29 March in Berlin: 03:30 instead, 24 hours after the last digest.
        (BERLIN, "2026-03-27 12:00", ["2026-03-28 01:30", "2026-03-29 01:30", "2026-03-30 00:30"]),
        # 02:30 occurs twice on 25 October: only the first counts.
        (BERLIN, "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30", "2026-10-27 01:30"]),
        (NEW_YORK, "2026-03-07 12:00", ["2026-03-08 07:30", "2026-03-09 06:30"]),
        # Half an hour of daylight saving: clocks go from 02:00 to 02:30.
        (LORD_HOWE, "2026-10-03 00:00", ["2026-10-03 15:30", "2026-10-04 15:30"]),
        ("UTC", "2028-02-28 12:00", ["2028-02-29 02:30", "2028-03-01 02:30"]),
    ],
)
def test_a_daily_digest_is_sent_once_a_day_across_daylight_saving(zone: str, queued: str, dues: list[str]) -> None:
    at_s, found = utc_s(queued), []
    for _ in dues:
        at_s = next_digest_s(DAILY, zone, at_s)
        found.append(utc(at_s))
    assert found == dues


NIGHT = QuietHours(22 * 60, 7 * 60)


@pytest.mark.parametrize(
    ("quiet", "zone", "now", "due"),
    [
        (NIGHT, BERLIN, "2026-11-22 20:59", "2026-11-22 20:59"),
        (NIGHT, BERLIN, "2026-11-22 21:00", "2026-11-23 06:00"),
        (NIGHT, BERLIN, "2026-11-23 05:59", "2026-11-23 06:00"),
        (NIGHT, BERLIN, "2026-11-23 06:00", "2026-11-23 06:00"),
        # The night in which clocks go forward is an hour shorter, the one in which they go back an hour longer.
        (NIGHT, BERLIN, "2026-03-28 21:30", "2026-03-29 05:00"),
        (NIGHT, BERLIN, "2026-10-24 21:30", "2026-10-25 06:00"),
        # Friday and Saturday evenings until the next morning, but not Sunday evening.
        (QuietHours(22 * 60, 7 * 60, (4, 5)), BERLIN, "2026-11-22 05:00", "2026-11-22 06:00"),
        (QuietHours(22 * 60, 7 * 60, (4, 5)), BERLIN, "2026-11-22 22:00", "2026-11-22 22:00"),
        (QuietHours(9 * 60, 17 * 60, (0, 1, 2, 3, 4)), NEW_YORK, "2026-11-23 15:00", "2026-11-23 22:00"),
        # Around the clock on weekends.
        (QuietHours(0, 0, (5, 6)), BERLIN, "2026-11-21 12:00", "2026-11-22 23:00"),
    ],
)
def test_quiet_hours_delay_messages_until_they_end(quiet: QuietHours, zone: str, now: str, due: str) -> None:
    assert utc(earliest_delivery_s(UserSettings(zone, quiet), utc_s(now), utc_s(now))) == due


def test_a_digest_during_quiet_hours_is_delayed_until_they_end() -> None:
    user_settings = UserSettings(BERLIN, NIGHT, DigestSchedule("day", 6 * 60))
    assert (
        utc(earliest_delivery_s(user_settings, utc_s("2026-11-22 12:00"), utc_s("2026-11-22 12:00")))
        == "2026-11-23 06:00"
    )


def test_a_changed_time_zone_applies_to_queued_items() -> None:
    queued_s, now_s = utc_s("2026-11-22 12:00"), utc_s("2026-11-22 12:05")
    due = [utc(earliest_delivery_s(UserSettings(zone, None, DAILY), queued_s, now_s)) for zone in (BERLIN, NEW_YORK)]
    assert due == ["2026-11-23 01:30", "2026-11-23 07:30"]


def test_an_overdue_item_is_due_now() -> None:
    now_s = utc_s("2026-11-22 12:00")
    assert earliest_delivery_s(UserSettings(BERLIN, None, DAILY), now_s - 5 * 86_400, now_s) == now_s
    assert earliest_delivery_s(DEFAULT_USER_SETTINGS, now_s, now_s) == now_s


def test_quiet_hours_without_a_gap_delay_by_more_than_a_week() -> None:
    now_s = utc_s("2026-11-22 12:00")
    assert earliest_delivery_s(UserSettings(BERLIN, QuietHours(0, 0)), now_s, now_s) - now_s > 7 * 86_400


minutes = st.integers(0, 24 * 60 - 1)
zones = st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kolkata", "Pacific/Apia", "America/St_Johns"])
moments_s = st.floats(utc_s("2020-01-01 00:00"), utc_s("2035-01-01 00:00"))
digests = st.builds(DigestSchedule, st.sampled_from(["hour", "day", "week"]), minutes, st.integers(0, 6))
quiets = st.builds(QuietHours, minutes, minutes, st.lists(st.integers(0, 6), unique=True).map(tuple))


@given(digests, zones, moments_s)
def test_the_next_digest_is_later_and_no_further_than_its_period(
    digest: DigestSchedule, zone: str, at_s: float
) -> None:
    period_s = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}[digest.every]
    assert 0 < next_digest_s(digest, zone, at_s) - at_s <= period_s + 2 * 3600


@given(st.builds(UserSettings, zones, st.none() | quiets, st.none() | digests), moments_s, st.floats(0, 1e6))
def test_an_item_is_due_at_its_earliest_delivery_time(
    user_settings: UserSettings, queued_s: float, waited_s: float
) -> None:
    now_s = queued_s + waited_s
    due_s = earliest_delivery_s(user_settings, queued_s, now_s)
    assert due_s >= now_s
    if due_s - now_s <= 7 * 86_400:
        assert earliest_delivery_s(user_settings, queued_s, due_s) == due_s


def test_time_zones_are_found_by_name_and_city() -> None:
    assert find_time_zones("europe/berlin") == find_time_zones(" Berlin ") == (BERLIN,)
    assert find_time_zones("new york") == (NEW_YORK,)
    assert find_time_zones("UTC") == ("UTC",)
    assert find_time_zones("Atlantis") == ()
    assert len(find_time_zones("Louisville")) == 2
