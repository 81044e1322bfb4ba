"""What people write of when they want to be told, as values: `quiet 22:00-07:00 mon-fri`, `every 2 hours`. Pure.

All readers return None for what they do not understand.
"""

import re
from typing import Final

from bots import times
from service.habits import DAYS, EVERY_DAY, Digest, Quiet

_TIME = re.compile(r"(\d{1,2})(?:h|[:.h](\d{2}))?")
_SPAN = re.compile(r"\s*([0-9]{1,6})\s*([a-z]+)\.?(?![a-z])")
_RHYTHMS_S: Final = {"hour": 3_600, "day": 86_400, "week": 604_800}
_HOURS: Final = 24
_MINUTES: Final = 60


def quiet(words: str) -> Quiet | None:
    """Return hours to be quiet, from ``HH:MM-HH:MM`` and perhaps days: ``mon-fri``, ``sat,sun``, ``weekdays``."""
    hours, _, days = times.TO.sub("-", times.FROM.sub("", times.bare(words))).partition(" ")
    begins, dash, ends = hours.partition("-")
    first, last, chosen = _minute(begins), _minute(ends), _days(days) if days.strip() else EVERY_DAY
    if not dash or first is None or last is None or chosen is None:
        return None
    return Quiet(first, last, chosen)


def digest(words: str) -> Digest | None:
    """Return how to gather news, from ``hourly``, ``daily HH:MM`` or ``weekly DAY HH:MM``; times may be left out."""
    plain = f"{times.bare(words)} "
    named = next((name for name in times.RHYTHMS if plain.startswith(f"{name} ")), None)
    if named is None:
        return None
    rest = times.AT.sub(" ", f" {plain.removeprefix(named).strip()}").split()
    at = _minute(rest[-1]) if rest else None
    before = rest[:-1] if at is not None else rest
    found = Digest("day") if at is None else Digest("day", at)
    match times.RHYTHMS[named], before:
        case "hour", [] if not rest:
            return Digest("hour")
        case "day", []:
            return found
        case "week", []:
            return Digest("week", found.at)
        case "week", [name] if (day := times.day(name)) is not None:
            return Digest("week", found.at, day)
    return None


def interval_s(words: str) -> int | None:
    """Return how far apart to tell, in seconds, from ``10m``, ``1h 30m``, ``every 2 days`` or ``hourly``."""
    plain = times.bare(words)
    if plain in times.RHYTHMS:
        return _RHYTHMS_S[times.RHYTHMS[plain]]
    plain = times.EVERY.sub("", plain)
    if plain in times.UNITS_S:
        return times.UNITS_S[plain]
    parts = [(int(each[1]), times.UNITS_S.get(each[2])) for each in _SPAN.finditer(plain)]
    if not parts or _SPAN.sub("", plain).strip() or any(unit_s is None for _, unit_s in parts):
        return None
    return sum(count * (unit_s or 0) for count, unit_s in parts)


def _minute(text: str) -> int | None:
    """Return a time of day in minutes; 24:00 is midnight."""
    read = _TIME.fullmatch(text.strip())
    if read is None:
        return None
    hour, minute = int(read[1]), int(read[2] or 0)
    if (hour, minute) == (_HOURS, 0):
        return 0
    return hour * _MINUTES + minute if hour < _HOURS and minute < _MINUTES else None


def _days(words: str) -> tuple[int, ...] | None:
    if (named := times.NAMED_DAYS.get(words.strip())) is not None:
        return named
    found: set[int] = set()
    for part in re.split(r"[,\s]+", words.strip()):
        first, dash, last = part.partition("-")
        begin, end = times.day(first), times.day(last) if dash else times.day(first)
        if begin is None or end is None:
            return None
        found.update((begin + number) % len(DAYS) for number in range((end - begin) % len(DAYS) + 1))
    return tuple(sorted(found))
