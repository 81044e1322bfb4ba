"""When a person wants to hear from us, and in which language: quiet hours and digests, by the clocks of their zone.

Pure: times are arguments.

Local times follow the zone's rules (PEP 495): what falls into the hour that is skipped in spring happens an hour
later, what falls into the one that is repeated in autumn happens the first time only.
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


class Quiet(msgspec.Struct, frozen=True):
    """Hours in which nothing is told, from a minute of these days until the next time that the clock shows ``ends``."""

    begins: MinuteOfDay
    ends: MinuteOfDay
    days: tuple[Weekday, ...] = EVERY_DAY


class Digest(msgspec.Struct, frozen=True):
    """News are told together, at the full hour, or at a minute of each day, or of one ``day`` of the week."""

    every: Literal["hour", "day", "week"]
    at: MinuteOfDay = 8 * MINUTES_PER_HOUR
    day: Weekday = 0


class Habits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one person wants; ``zone`` is a name of the tz database.

    ``heeds_presence``: nothing is told while they are away, busy or offline, as far as they let us see it.
    ``language`` is the tag of the language they chose, ``client_language`` of the one their client last said it speaks;
    "" where nothing was said.
    """

    zone: str = "UTC"
    quiet: Quiet | None = None
    digest: Digest | None = None
    heeds_presence: bool = False
    language: str = ""
    client_language: str = ""

    @property
    def speaks(self) -> str:
        """The tag of their language, as far as we know."""
        return self.language or self.client_language

    @property
    def waits(self) -> bool:
        """Whether there is anything that they are not told at once."""
        return self.quiet is not None or self.digest is not None or self.heeds_presence


NONE = Habits()
"""Who has none is told at once, at any time."""


def may_be_told_s(habits: Habits, queued_s: float, now_s: float) -> float:
    """Return when what was queued at ``queued_s`` may be told, not before now (Unix s)."""
    due_s = now_s
    if habits.digest is not None:
        due_s = max(now_s, next_digest_s(habits.digest, habits.zone, queued_s))
    while habits.quiet is not None and (ends_s := _quiet_until_s(habits.quiet, habits.zone, due_s)) is not None:
        if ends_s - now_s > timedelta(weeks=1).total_seconds():
            return ends_s  # quiet around the clock: something will have changed by then
        due_s = ends_s
    return due_s


def next_digest_s(digest: Digest, zone: str, after_s: float) -> float:
    """Return when the first digest after this moment is due (Unix s)."""
    if digest.every == "hour":
        local = datetime.fromtimestamp(after_s, UTC).astimezone(_zone(zone))
        begun_s = local.minute * 60 + local.second + local.microsecond / 1e6
        return after_s - begun_s + 3600
    days = (day for day in _days_from(zone, after_s) if digest.every == "day" or day.weekday() == digest.day)
    return next(at_s for day in days if (at_s := _unix_s(day, digest.at, zone)) > after_s)


def zoned(unix_s: float, zone: str) -> datetime:
    """Return a moment by the clocks of a zone."""
    return datetime.fromtimestamp(unix_s, _zone(zone))


def zone_named(words: str) -> tuple[str, ...]:
    """Return the zones that are meant: by their whole name, or by the city's; none if there is no such one."""
    wanted = "_".join(words.split()).casefold()
    exact = [name for name in _zones() if name.casefold() == wanted]
    return tuple(exact or (name for name in _zones() if name.casefold().rpartition("/")[2] == wanted))


def _quiet_until_s(quiet: Quiet, zone: str, at_s: float) -> float | None:
    """Return when the quiet hours end in which this moment lies; None if it lies in none."""
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
