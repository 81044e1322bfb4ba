"""How often a publisher wants to be asked, as its answers and its documents say.

Publishers say it in five ways: HTTP's freshness (RFC 9111 §4.2), ``Retry-After`` (RFC 9110 §10.2.3), RSS's
``ttl``, the syndication module's update period, and RSS's ``skipHours`` and ``skipDays``. Each counts up to a
day. More is ignored, because it is a copied line in a template rather than a wish: whoever means it would
not want readers. Nothing here makes a poll come sooner.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

import msgspec

from service.model import PollingHints

DAY_S = 86_400.0
_HOUR_S = 3_600
_HOURS = 24
_DAYS = 7
_MAX_DIGITS = 12
_MAX_RETRY_AFTER_S = 7 * DAY_S
_MAX_DOUBLINGS = 32
_EPOCH_WEEKDAY = 3
"""1 January 1970 was a Thursday; 0 is Monday."""

_MAX_AGE = re.compile(r"max-age\s*=\s*\"?([0-9]+)")
_UNITS = (("year", 365 * DAY_S), ("day", DAY_S), ("hour", 3_600.0), ("minute", 60.0), ("second", 1.0))


class EarliestPoll(msgspec.Struct, frozen=True):
    """When a channel may be asked next (Unix seconds), and what was heard, in short sentences for people."""

    not_before_s: float
    reasons: tuple[str, ...] = ()


def find_earliest_poll(headers: Mapping[str, str], wishes: PollingHints, now_s: float) -> EarliestPoll:
    """Return what the headers (lower-case names) of a 200 or 304 answer and the last known wishes ask for.

    ``not_before_s`` is never before now, and at most a day off, plus the skipped time it falls into.
    """
    not_before_s, reasons = now_s, []
    for speaker, wait_s in _waits(headers, wishes, now_s):
        if not wait_s <= DAY_S:  # NaN included
            reasons.append(f"{speaker} says {_in_words(wait_s)}: ignored.")
        elif wait_s > 0:
            reasons.append(f"{speaker} asks for {_in_words(wait_s)} of peace.")
            not_before_s = max(not_before_s, now_s + wait_s)
    ends_s = _end_of_skipping(not_before_s, *_sane_skips(wishes, reasons))
    if ends_s > not_before_s:
        reasons.append(f"Its skipHours or skipDays last for another {_in_words(ends_s - now_s)}.")
    return EarliestPoll(ends_s, tuple(reasons))


def backoff_s(refusals: int, interval_s: float) -> float:
    """Return how long to leave a publisher alone that refused so often in a row (429, 503) and named no time.

    Each refusal doubles the usual interval, up to a day.
    """
    return min(interval_s * 2.0 ** min(refusals, _MAX_DOUBLINGS), DAY_S)


def parse_retry_after(value: str, now_s: float) -> float | None:
    """Read ``Retry-After`` (RFC 9110 §10.2.3): seconds, or a date; at most a week, None if it means nothing."""
    wait_s = _wait_named(value, now_s)
    return None if wait_s is None else min(wait_s, _MAX_RETRY_AFTER_S)


def _waits(headers: Mapping[str, str], wishes: PollingHints, now_s: float) -> Iterator[tuple[str, float]]:
    """Yield who speaks, and the seconds it asks for."""
    if (freshness := _freshness(headers, now_s)) is not None:
        yield freshness
    if (wait_s := _wait_named(headers.get("retry-after", ""), now_s)) is not None:
        yield "Retry-After", wait_s
    if wishes.ttl_s is not None:
        yield "Its ttl", wishes.ttl_s
    if wishes.update_period_s is not None:
        yield "Its updatePeriod", wishes.update_period_s


def _wait_named(retry_after: str, now_s: float) -> float | None:
    at_s = None if (wait_s := _seconds(retry_after)) is not None else _date_s(retry_after)
    return wait_s if at_s is None else max(at_s - now_s, 0.0)


def _freshness(headers: Mapping[str, str], now_s: float) -> tuple[str, float] | None:
    """Return for how long an answer stays fresh (RFC 9111 §4.2): its lifetime less its age.

    ``max-age`` overrides ``Expires`` (§4.2.1); the first of several counts. ``s-maxage`` is for shared
    caches. Of the age only what caches on the way say counts (§4.2.3): publishers' clocks are wrong.
    """
    directives = [directive.strip() for directive in headers.get("cache-control", "").lower().split(",")]
    if any(directive.partition("=")[0].rstrip() in ("no-cache", "no-store") for directive in directives):
        return None
    age_s = _seconds(headers.get("age", "")) or 0.0
    found = next(filter(None, map(_MAX_AGE.match, directives)), None)
    if found:
        return "Cache-Control", float(found[1][:_MAX_DIGITS]) - age_s
    expires_s = _date_s(headers.get("expires", ""))
    if expires_s is None:
        return None
    date_s = _date_s(headers.get("date", ""))
    return "Expires", expires_s - (now_s if date_s is None else date_s) - age_s


def _seconds(value: str) -> float | None:
    """Read delta-seconds (RFC 9111 §1.2.2)."""
    value = value.strip()
    return float(value[:_MAX_DIGITS]) if value.isascii() and value.isdigit() else None


def _date_s(value: str) -> float | None:
    """Read an HTTP date (RFC 9110 §5.6.7). One without a zone is in UTC, as those with ``-0000`` are."""
    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo else date.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _sane_skips(wishes: PollingHints, reasons: list[str]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the hours and days to skip; not those that leave nothing of the day or the week."""
    hours, days = frozenset(wishes.skip_hours), frozenset(wishes.skip_days)
    if hours.issuperset(range(_HOURS)):
        reasons.append("Its skipHours name every hour: ignored.")
        hours = frozenset()
    if days.issuperset(range(_DAYS)):
        reasons.append("Its skipDays name every day: ignored.")
        days = frozenset()
    return hours, days


def _end_of_skipping(at_s: float, hours: frozenset[int], days: frozenset[int]) -> float:
    """Return the first moment from ``at_s`` on that is in no hour and no day to skip (UTC)."""
    now = int(at_s // _HOUR_S)
    ahead = range(now, now + _HOURS * (_DAYS + 1))
    return max(at_s, next(float(hour * _HOUR_S) for hour in ahead if not _skipped(hour, hours, days)))


def _skipped(hour: int, hours: frozenset[int], days: frozenset[int]) -> bool:
    """Say whether an hour, counted from 1970, is one to skip."""
    return hour % _HOURS in hours or (hour // _HOURS + _EPOCH_WEEKDAY) % _DAYS in days


def _in_words(seconds: float) -> str:
    for unit, size_s in _UNITS:
        if seconds >= size_s:
            number = f"{seconds / size_s:,.0f}"
            return f"{number} {unit}{'' if number == '1' else 's'}"
    return "less than a second" if seconds > 0 else "something impossible"
