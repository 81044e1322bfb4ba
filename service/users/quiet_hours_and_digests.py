"""Quiet hours and digests: when a user's quiet hours end, and when the next digest is sent.

The functions do not read a clock; times are passed as arguments. Local times are in the user's time zone (PEP 495),
with two rules for daylight saving time:

- A local time that is skipped in spring is interpreted as one hour later.
- A local time that occurs twice in autumn is interpreted as its first occurrence.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Literal

import msgspec

from service.users.time_zones import zone_info

MINUTES_PER_HOUR = 60
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = tuple(range(len(DAYS)))

MinuteOfDay = Annotated[int, msgspec.Meta(ge=0, lt=24 * MINUTES_PER_HOUR)]
Weekday = Annotated[int, msgspec.Meta(ge=0, lt=len(DAYS))]
"""A day of the week as a number; 0 is Monday."""


class QuietHours(msgspec.Struct, frozen=True):
    """Hours during which no messages are sent. They begin at ``begins`` on each of ``days`` and last until ``ends``.

    Both times are local, in minutes after midnight. If ``ends`` is not later than ``begins``, it is on the next day.
    """

    begins: MinuteOfDay
    ends: MinuteOfDay
    days: tuple[Weekday, ...] = EVERY_DAY


class DigestSchedule(msgspec.Struct, frozen=True):
    """The times at which digests are sent: every full hour, every day, or every week.

    - ``every``: "hour", "day" or "week".
    - ``at``: the time of daily and weekly digests, in minutes after local midnight.
    - ``day``: the weekday of weekly digests.
    """

    every: Literal["hour", "day", "week"]
    at: MinuteOfDay = 8 * MINUTES_PER_HOUR
    day: Weekday = 0


def next_digest_s(digest: DigestSchedule, zone: str, after_s: float) -> float:
    """Return when the first digest after ``after_s`` is due, for a user in the time zone ``zone``.

    Both ``after_s`` and the result are Unix times in seconds.
    """
    if digest.every == "hour":
        local = datetime.fromtimestamp(after_s, UTC).astimezone(zone_info(zone))
        since_full_hour_s = local.minute * 60 + local.second + local.microsecond / 1e6
        return after_s - since_full_hour_s + 3600
    days = (day for day in _days_from(zone, after_s) if digest.every == "day" or day.weekday() == digest.day)
    return next(at_s for day in days if (at_s := _unix_s(day, digest.at, zone)) > after_s)


def quiet_until_s(quiet: QuietHours, zone: str, at_s: float) -> float | None:
    """Return when the quiet hours in progress at ``at_s`` end; None if no quiet hours are in progress then.

    Both ``at_s`` and the result are Unix times in seconds. ``zone`` is the user's time zone.
    """
    for day in _days_from(zone, at_s - timedelta(days=1).total_seconds(), 3):
        if day.weekday() not in quiet.days:
            continue
        last = day if quiet.ends > quiet.begins else day + timedelta(days=1)
        ends_s = _unix_s(last, quiet.ends, zone)
        if _unix_s(day, quiet.begins, zone) <= at_s < ends_s:
            return ends_s
    return None


def _days_from(zone: str, at_s: float, count: int = 9) -> Iterator[date]:
    first = datetime.fromtimestamp(at_s, UTC).astimezone(zone_info(zone)).date()
    return (first + timedelta(days=number) for number in range(count))


def _unix_s(day: date, minute: int, zone: str) -> float:
    return datetime.combine(day, time(*divmod(minute, MINUTES_PER_HOUR)), zone_info(zone)).timestamp()
