"""What people write of when they want to be told, as values: `quiet 22:00-07:00 mon-fri`, `digest daily 08:00`. Pure.

Both readers return None for what they do not understand.
"""

import re
from typing import Final

from service.habits import DAYS, EVERY_DAY, Digest, Quiet

_TIME = re.compile(r"(\d{1,2})(?:[:.h](\d{2}))?")
_HOURS: Final = 24
_MINUTES: Final = 60
_WEEKDAYS: Final = EVERY_DAY[:5]
_NAMED_DAYS: Final = {"weekdays": _WEEKDAYS, "weekends": EVERY_DAY[5:], "daily": EVERY_DAY, "always": EVERY_DAY}


def quiet(words: str) -> Quiet | None:
    """Return hours to be quiet, from ``HH:MM-HH:MM`` and perhaps days: ``mon-fri``, ``sat,sun``, ``weekdays``."""
    hours, _, days = re.sub(r"\s*(?:-|–|\bto\b)\s*", "-", words.strip().lower()).partition(" ")  # noqa: RUF001 - people type it
    begins, dash, ends = hours.partition("-")
    first, last, chosen = _minute(begins), _minute(ends), _days(days) if days.strip() else EVERY_DAY
    if not dash or first is None or last is None or chosen is None:
        return None
    return Quiet(first, last, chosen)


def digest(words: str) -> Digest | None:
    """Return how to gather news, from ``hourly``, ``daily HH:MM`` or ``weekly DAY HH:MM``; times may be left out."""
    every, *rest = words.lower().replace(" at ", " ").split() or [""]
    at = _minute(rest[-1]) if rest else None
    before = rest[:-1] if at is not None else rest
    found = Digest("day") if at is None else Digest("day", at)
    match every, before:
        case "hourly", [] if not rest:
            return Digest("hour")
        case "daily", []:
            return found
        case "weekly", []:
            return Digest("week", found.at)
        case "weekly", [name] if (day := _day(name)) is not None:
            return Digest("week", found.at, day)
    return None


def _minute(text: str) -> int | None:
    """Return a time of day in minutes; 24:00 is midnight."""
    read = _TIME.fullmatch(text.strip())
    if read is None:
        return None
    hour, minute = int(read[1]), int(read[2] or 0)
    if (hour, minute) == (_HOURS, 0):
        return 0
    return hour * _MINUTES + minute if hour < _HOURS and minute < _MINUTES else None


def _day(name: str) -> int | None:
    """Return a day of the week by its first three letters, or more of them."""
    full = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    found = [number for number, day in enumerate(full) if len(name) >= len(DAYS[0]) and day.startswith(name)]
    return found[0] if found else None


def _days(words: str) -> tuple[int, ...] | None:
    if (named := _NAMED_DAYS.get(words.strip())) is not None:
        return named
    found: set[int] = set()
    for part in re.split(r"[,\s]+", words.strip()):
        first, dash, last = part.partition("-")
        begin, end = _day(first), _day(last) if dash else _day(first)
        if begin is None or end is None:
            return None
        found.update((begin + number) % len(DAYS) for number in range((end - begin) % len(DAYS) + 1))
    return tuple(sorted(found))
