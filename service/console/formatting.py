"""Formatting of values for pages: numbers with units, times, labels of codes, and links."""

import re
from calendar import month_abbr
from datetime import UTC, datetime
from typing import Final, Literal
from urllib.parse import urlsplit

from service.console.durations import duration
from service.users.time_zones import local_datetime

_ACRONYMS = {"http": "HTTP", "tls": "TLS", "url": "URL"}
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=[^\W\d])")
_SUCCESSES = {"new": "New entries", "unchanged": "Unchanged"}


def count(number: float, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``1,204 nodes``. ``plural`` defaults to ``singular`` with an s."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,.0f} {noun}"


def ago(then_s: float, now_s: float) -> str:
    """Return the time since ``then_s`` as text: ``3 min ago``. Times are Unix seconds.

    Because machines' clocks differ, a ``then_s`` in the future is ``just now``.
    """
    past_s = now_s - then_s
    return "just now" if past_s < 1 else f"{duration(past_s)} ago"


def percent(share: float, places: int = 0, sign: Literal["", "+"] = "") -> str:
    """Return the fraction ``share`` as a percentage: ``95 %``, ``12.5 %``, ``+3 %``.

    ``places`` is the number of decimal places. ``sign`` is "+" to mark positive values.
    """
    return f"{100 * share:{sign},.{places}f} %"


def requests(per_s: float) -> str:
    """Return a request rate: ``1 request/s``, ``0.5 requests/s``."""
    return f"{per_s:g} {'request' if per_s == 1 else 'requests'}/s"


def instant(unix_s: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, to the second; an em dash if it is out of range."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "—"


def clock(unix_s: float, zone: str, precision: Literal["day", "second"] = "second") -> str:
    """Return a Unix time in the time zone ``zone``: ``3 May 2026, 14:05:09 CEST``; an em dash if it is out of range.

    The ``precision`` ``day`` leaves out the time of day.
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
    """Return the label of a poll's outcome.

    The label of an error is made from its code: ``tls-failed`` becomes ``TLS failed``.
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
    """Return ``text`` with no-break spaces between numbers and their units."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
