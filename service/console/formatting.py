"""Formatting of values for pages: durations, numbers with units, times, labels, links, and text differences.

The module also has the parser for durations in forms. Text differences compare two versions of a text word by word.
"""

import re
from calendar import month_abbr
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from service.errors import UserError
from service.feeds.publisher_polling_hints import DAY_S
from service.users.time_zones import local_datetime

_MINUTE_S = 60
_HOUR_S = 3600
_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_UNIT_NAMES: Final = {86_400: "days", 3_600: "h", 60: "min", 1: "s"}
_DURATION: Final = re.compile(r"(\d{1,9}(?:[.,]\d{1,3})?)\s*(s|sec|m|min|h|hours?|d|days?)?", re.IGNORECASE)


def duration(length_s: float) -> str:
    """Return a duration rounded to one unit: ``40 ms``, ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    if length_s < 1:
        return f"{length_s * 1000:.0f} ms"
    if length_s < _MINUTE_S:
        return f"{length_s:.0f} s"
    if length_s < _HOUR_S:
        return f"{length_s / _MINUTE_S:.0f} min"
    if length_s < 2 * DAY_S:
        return f"{length_s / _HOUR_S:.0f} h"
    return f"{length_s / DAY_S:.0f} days"


def parse_duration(text: str) -> float:
    """Return the length in seconds of a duration such as ``15 min``. A number without a unit counts as seconds.

    Raises :class:`UserError` for any other text.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UserError(f"“{text[:50]}” is not a duration. Examples: 90 s, 15 min, 12 h, 2 days.")
    return float(match[1].replace(",", ".")) * _UNITS_S[(match[2] or "s")[0].lower()]


def format_duration(length_s: float) -> str:
    """Return a duration as text, in the largest unit in which it is a whole number.

    If there is no such unit, the duration is in seconds, rounded to milliseconds. :func:`parse_duration` is the
    inverse.
    """
    unit_s = next((unit_s for unit_s in _UNIT_NAMES if length_s >= unit_s and length_s % unit_s == 0), 1)
    name = "day" if unit_s == length_s == _UNITS_S["d"] else _UNIT_NAMES[unit_s]
    return f"{length_s / unit_s:.3f}".rstrip("0").rstrip(".") + f" {name}"


_ACRONYMS = {"http": "HTTP", "tls": "TLS", "url": "URL"}
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=[^\W\d])")
_SUCCESSES = {"new": "New entries", "unchanged": "Unchanged"}


def count(number: float, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``1,204 nodes``. ``plural`` defaults to ``singular`` with an s."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,.0f} {noun}"


def ago(then_s: float, now_s: float) -> str:
    """Return the time since ``then_s`` as text, such as ``3 min ago``. Times are Unix seconds.

    Because machines' clocks differ, ``then_s`` may be in the future. The result is then ``just now``.
    """
    past_s = now_s - then_s
    return "just now" if past_s < 1 else f"{duration(past_s)} ago"


def percent(share: float, places: int = 0, sign: Literal["", "+"] = "") -> str:
    """Return the fraction ``share`` as a percentage: ``95 %``, ``12.5 %``, ``+3 %``.

    ``places`` is the number of decimal places. With the ``sign`` "+", positive values begin with a plus sign.
    """
    return f"{100 * share:{sign},.{places}f} %"


def requests(per_s: float) -> str:
    """Return a request rate as text: ``1 request/s``, ``0.5 requests/s``."""
    return f"{per_s:g} {'request' if per_s == 1 else 'requests'}/s"


def instant(unix_s: float) -> str:
    """Return a Unix time in ISO 8601 format in UTC, to the second; an em dash if it is out of range."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "—"


def clock(unix_s: float, zone: str, precision: Literal["day", "second"] = "second") -> str:
    """Return a Unix time in the time zone ``zone``: ``3 May 2026, 14:05:09 CEST``; an em dash if it is out of range.

    With the ``precision`` "day", the time of day is left out.
    """
    try:
        local = local_datetime(unix_s, zone)
    except (ValueError, OverflowError, OSError):
        return "—"
    day = f"{local.day} {month_abbr[local.month]} {local.year}"
    return day if precision == "day" else f"{day}, {local:%H:%M:%S %Z}"


def short_id(identifier: str) -> str:
    """Return the first 8 digits of a node's or channel's id."""
    return identifier[:8]


def is_success(outcome: str) -> bool:
    """Return whether a poll with this outcome succeeded, with or without new entries."""
    return outcome in _SUCCESSES


def outcome_label(outcome: str) -> str:
    """Return the label for a poll's outcome.

    The label for an error is derived from its code: ``tls-failed`` becomes ``TLS failed``.
    """
    if outcome in _SUCCESSES:
        return _SUCCESSES[outcome]
    first, *rest = (_ACRONYMS.get(word, word) for word in outcome.split("-"))
    return " ".join([first[:1].upper() + first[1:], *rest])


def web_address(link: str) -> str:
    """Return ``link`` if its scheme is http or https, else ''."""
    try:
        return link if urlsplit(link).scheme in {"http", "https"} else ""
    except ValueError:
        return ""


def keep_units(text: str) -> str:
    """Return ``text`` with non-breaking spaces between numbers and their units."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


_WORD: Final = re.compile(r"\s*\S+")
_MAX_WORDS: Final = 400
_MAX_EQUAL_PAIRS: Final = 10_000
"""Maximum number of pairs of equal words, one from each text. If two texts have more such pairs, they are not compared,
because it would take too long."""


class TextChange(NamedTuple):
    """A piece of text, and whether it is the same in both versions, was removed, or was added."""

    kind: Literal["same", "removed", "added"]
    text: str


def differences(before: str, after: str) -> list[TextChange]:
    """Return the word-by-word differences between two texts; of long texts, only the first 400 words are compared.

    Texts in which words are repeated very often are not compared. The whole of ``before`` is then returned as removed,
    and the whole of ``after`` as added.
    """
    old, new = _words(before), _words(after)
    in_old, in_new = Counter(old), Counter(new)
    if old != new and sum(count * in_new[word] for word, count in in_old.items()) > _MAX_EQUAL_PAIRS:
        return [TextChange("removed", "".join(old)), TextChange("added", "".join(new))]
    return list(_text_changes(old, new))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.rstrip())[:_MAX_WORDS]


def _text_changes(old: list[str], new: list[str]) -> Iterator[TextChange]:
    for opcode, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if opcode == "equal":
            yield TextChange("same", "".join(new[k:m]))
            continue
        if j > i:
            yield TextChange("removed", "".join(old[i:j]))
        if m > k:
            yield TextChange("added", "".join(new[k:m]))
