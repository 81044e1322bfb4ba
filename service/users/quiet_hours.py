"""A user's settings for all messages: quiet hours, digests, time zone and language. Times are arguments.

Quiet hours and digests use local time in the user's zone (PEP 495). A local time that daylight saving skips in spring
means one hour later. A local time that is repeated in autumn means its first occurrence.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

import msgspec

MINUTES_PER_HOUR = 60
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = tuple(range(len(DAYS)))

MinuteOfDay = Annotated[int, msgspec.Meta(ge=0, lt=24 * MINUTES_PER_HOUR)]
Weekday = Annotated[int, msgspec.Meta(ge=0, lt=len(DAYS))]
"""0 is Monday."""


class QuietHours(msgspec.Struct, frozen=True):
    """Hours without messages: from the time ``begins`` on each of ``days`` until the next time ``ends``.

    Both times are local.
    """

    begins: MinuteOfDay
    ends: MinuteOfDay
    days: tuple[Weekday, ...] = EVERY_DAY


class DigestSchedule(msgspec.Struct, frozen=True):
    """The times at which digests are sent: every full hour, every day, or every week.

    Daily and weekly digests are sent at ``at``, in minutes after local midnight, and weekly digests on ``day``.
    """

    every: Literal["hour", "day", "week"]
    at: MinuteOfDay = 8 * MINUTES_PER_HOUR
    day: Weekday = 0


class UserSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's settings for messages.

    ``zone`` is a name in the tz database. With ``heeds_presence``, no messages are sent while the user's presence is
    away, busy or offline, if the bot can see it. ``language`` is the tag of the language that the user has chosen, and
    ``client_language`` the language that the user's client declared last; "" means that it is unknown.
    ``announcements`` states whether the user gets announcements of the operators.
    """

    zone: str = "UTC"
    quiet: QuietHours | None = None
    digest: DigestSchedule | None = None
    heeds_presence: bool = False
    language: str = ""
    client_language: str = ""
    announcements: bool = True

    @property
    def effective_language(self) -> str:
        """The tag of the language for texts to the user; "" if it is unknown."""
        return self.language or self.client_language

    @property
    def has_delivery_delays(self) -> bool:
        """Whether any of these settings can delay messages."""
        return self.quiet is not None or self.digest is not None or self.heeds_presence


DEFAULT_USER_SETTINGS = UserSettings()
"""The settings of a user who changed none: messages are sent at any time, without delay."""


def earliest_delivery_s(user_settings: UserSettings, queued_s: float, now_s: float) -> float:
    """Return the earliest time, not before ``now_s``, at which an item may be sent to a user with these settings.

    ``queued_s`` is the time at which the item was queued. All times are Unix s.
    """
    due_s = now_s
    if user_settings.digest is not None:
        due_s = max(now_s, next_digest_s(user_settings.digest, user_settings.zone, queued_s))
    while (
        user_settings.quiet is not None
        and (ends_s := _quiet_until_s(user_settings.quiet, user_settings.zone, due_s)) is not None
    ):
        if ends_s - now_s > timedelta(weeks=1).total_seconds():
            return ends_s  # quiet hours without a gap: the settings will have changed by then
        due_s = ends_s
    return due_s


def next_digest_s(digest: DigestSchedule, zone: str, after_s: float) -> float:
    """Return the time of the first digest after ``after_s`` (both in Unix s); ``zone`` is the user's time zone."""
    if digest.every == "hour":
        local = datetime.fromtimestamp(after_s, UTC).astimezone(_zone(zone))
        since_full_hour_s = local.minute * 60 + local.second + local.microsecond / 1e6
        return after_s - since_full_hour_s + 3600
    days = (day for day in _days_from(zone, after_s) if digest.every == "day" or day.weekday() == digest.day)
    return next(at_s for day in days if (at_s := _unix_s(day, digest.at, zone)) > after_s)


def local_datetime(unix_s: float, zone: str) -> datetime:
    """Return Unix time as a datetime in the time zone ``zone``."""
    return datetime.fromtimestamp(unix_s, _zone(zone))


def find_time_zones(name: str) -> tuple[str, ...]:
    """Return the names of the time zones with this full name or city, ignoring case."""
    key = "_".join(name.split()).casefold()
    exact = [zone for zone in _zones() if zone.casefold() == key]
    return tuple(exact or (zone for zone in _zones() if zone.casefold().rpartition("/")[2] == key))


def _quiet_until_s(quiet: QuietHours, zone: str, at_s: float) -> float | None:
    """Return the end (Unix s) of the quiet hours that contain ``at_s``; None if ``at_s`` is outside quiet hours."""
    for day in _days_from(zone, at_s - timedelta(days=1).total_seconds(), 3):
        if day.weekday() not in quiet.days:
            continue
        last = day if quiet.ends > quiet.begins else day + timedelta(days=1)
        ends_s = _unix_s(last, quiet.ends, zone)
        if _unix_s(day, quiet.begins, zone) <= at_s < ends_s:
            return ends_s
    return None


def _days_from(zone: str, at_s: float, count: int = 9) -> Iterator[date]:
    first = datetime.fromtimestamp(at_s, UTC).astimezone(_zone(zone)).date()
    return (first + timedelta(days=number) for number in range(count))


def _unix_s(day: date, minute: int, zone: str) -> float:
    return datetime.combine(day, time(*divmod(minute, MINUTES_PER_HOUR)), _zone(zone)).timestamp()


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@cache
def _zones() -> tuple[str, ...]:
    return tuple(sorted(name for name in available_timezones() if "/" in name or name == "UTC"))
