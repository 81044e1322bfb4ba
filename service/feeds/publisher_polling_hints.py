"""Determines the earliest next poll of a feed or page from its publisher's hints in responses and documents.

Hints can only delay a poll. A requested delay of up to a day is followed; a longer one is ignored, because it was
probably copied from a template. There are five kinds of hints:

- HTTP freshness (RFC 9111 §4.2)
- ``Retry-After`` (RFC 9110 §10.2.3)
- ``ttl`` in RSS
- the update period of the RSS 1.0 syndication module
- ``skipHours`` and ``skipDays`` in RSS, the hours and days on which the publisher wants no polls
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

import msgspec
from msgspec.structs import replace

from service.model import PollingHints

DAY_S = 86_400.0
_HOUR_S = 3_600
_HOURS = 24
_DAYS = 7
_MAX_DIGITS = 12
_MAX_RETRY_AFTER_S = 7 * DAY_S
_EPOCH_WEEKDAY = 3
"""The weekday of 1 January 1970, which was a Thursday. Monday is 0."""

_MAX_AGE = re.compile(r"max-age\s*=\s*\"?([0-9]+)")
_UNITS = (("year", 365 * DAY_S), ("day", DAY_S), ("hour", 3_600.0), ("minute", 60.0), ("second", 1.0))


class EarliestPoll(msgspec.Struct, frozen=True):
    """The earliest time at which a feed or page may be polled next.

    - ``not_before_s`` is the earliest time, as a Unix time.
    - ``reasons`` are the publisher's hints that were considered, as short English sentences.
    - ``is_skipping`` is true if the earliest time is the end of a period in which the publisher wants no polls
      (``skipHours`` or ``skipDays``).
    """

    not_before_s: float
    reasons: tuple[str, ...] = ()
    is_skipping: bool = False


def find_earliest_poll(headers: Mapping[str, str], hints: PollingHints, now_s: float) -> EarliestPoll:
    """Return the earliest time at which a feed or page may be polled next.

    - ``headers`` are the headers of a response with the status 200 or 304. Their names are in lower case.
    - ``hints`` are the publisher's hints in the last document.
    - ``now_s`` is the current Unix time.

    A requested delay is followed if it is at most a day, and ignored otherwise. If the resulting time falls into hours
    or days on which the publisher wants no polls, the time is moved to the end of these hours or days.
    """
    not_before_s, reasons = now_s, []
    for source, wait_s in _requested_waits(headers, hints, now_s):
        if not wait_s <= DAY_S:  # NaN included
            reasons.append(f"{source} asks to wait {_describe(wait_s)}: ignored.")
        elif wait_s > 0:
            reasons.append(f"{source} asks to wait {_describe(wait_s)}.")
            not_before_s = max(not_before_s, now_s + wait_s)
    if len(hints.skip_hours) == _HOURS:
        reasons.append("Its skipHours name every hour: ignored.")
    if len(hints.skip_days) == _DAYS:
        reasons.append("Its skipDays name every day: ignored.")
    ends_s = _end_of_skips(not_before_s, hints)
    if ends_s > not_before_s:
        reasons.append(f"Its skipHours or skipDays last for another {_describe(ends_s - now_s)}.")
    return EarliestPoll(ends_s, tuple(reasons), ends_s > not_before_s)


def shortest_interval_s(hints: PollingHints) -> float:
    """Return the minimum interval between polls that ``hints`` request, in seconds; 0.0 if they request none.

    A requested interval of more than a day is ignored, as in :func:`find_earliest_poll`.
    """
    stated_s = (hints.ttl_s, hints.update_period_s, hints.max_age_s)
    return max((wait_s for wait_s in stated_s if wait_s is not None and 0 < wait_s <= DAY_S), default=0.0)


def skipped_s(hints: PollingHints, now_s: float) -> float:
    """Return for how many seconds after ``now_s`` (Unix time) the publisher wants no polls.

    ``hints`` contain the hours and days on which the publisher wants no polls. The result is 0.0 if ``now_s`` is
    outside these hours and days.
    """
    return _end_of_skips(now_s, hints) - now_s


def with_freshness(hints: PollingHints, headers: Mapping[str, str], now_s: float) -> PollingHints:
    """Return ``hints`` with ``max_age_s`` set to the freshness lifetime of a response (RFC 9111 §4.2).

    - ``headers`` are the headers of the response. Their names must be in lower case.
    - ``now_s`` is the current Unix time.

    If the headers state no lifetime, ``hints`` is returned unchanged, as a cache keeps its stored values (RFC 9111
    §4.3.4). If the lifetime is not positive, ``max_age_s`` becomes None.
    """
    lifetime = _lifetime(headers, now_s)
    return hints if lifetime is None else replace(hints, max_age_s=lifetime[1] if lifetime[1] > 0 else None)


def parse_retry_after(value: str, now_s: float) -> float | None:
    """Return the delay in seconds that a ``Retry-After`` header requests (RFC 9110 §10.2.3), at most a week.

    ``value`` is the header's value. The result is None if it is invalid. ``now_s`` is the current Unix time.
    """
    wait_s = _retry_after_s(value, now_s)
    return None if wait_s is None else min(wait_s, _MAX_RETRY_AFTER_S)


def _requested_waits(headers: Mapping[str, str], hints: PollingHints, now_s: float) -> Iterator[tuple[str, float]]:
    """Yield the delays requested by headers and hints, as pairs (name of the header or hint, delay in seconds)."""
    if (lifetime := _lifetime(headers, now_s)) is not None:
        # The age is taken from the Age header alone (RFC 9111 §4.2.3), because publishers' clocks are wrong.
        yield lifetime[0], lifetime[1] - (_parse_seconds(headers.get("age", "")) or 0.0)
    if (wait_s := _retry_after_s(headers.get("retry-after", ""), now_s)) is not None:
        yield "Retry-After", wait_s
    if hints.ttl_s is not None:
        yield "Its ttl", hints.ttl_s
    if hints.update_period_s is not None:
        yield "Its updatePeriod", hints.update_period_s


def _retry_after_s(retry_after: str, now_s: float) -> float | None:
    at_s = None if (wait_s := _parse_seconds(retry_after)) is not None else _parse_http_date(retry_after)
    return wait_s if at_s is None else max(at_s - now_s, 0.0)


def _lifetime(headers: Mapping[str, str], now_s: float) -> tuple[str, float] | None:
    """Return the freshness lifetime of a response (RFC 9111 §4.2.1) as the pair (header name, seconds).

    The result is None if the headers state no lifetime or forbid caching. ``max-age`` overrides ``Expires``. If there
    are several ``max-age`` directives, the first is used.
    """
    # ``s-maxage`` is ignored, because it is for shared caches.
    directives = [directive.strip() for directive in headers.get("cache-control", "").lower().split(",")]
    if any(directive.partition("=")[0].rstrip() in ("no-cache", "no-store") for directive in directives):
        return None
    found = next(filter(None, map(_MAX_AGE.match, directives)), None)
    if found:
        return "Cache-Control", float(found[1][:_MAX_DIGITS])
    expires_s = _parse_http_date(headers.get("expires", ""))
    if expires_s is None:
        return None
    date_s = _parse_http_date(headers.get("date", ""))
    return "Expires", expires_s - (now_s if date_s is None else date_s)


def _parse_seconds(value: str) -> float | None:
    """Return the value of a header that states a number of seconds (RFC 9111 §1.2.2); None if it is not a number."""
    value = value.strip()
    return float(value[:_MAX_DIGITS]) if value.isascii() and value.isdigit() else None


def _parse_http_date(value: str) -> float | None:
    """Return the Unix time of an HTTP date (RFC 9110 §5.6.7); None if it is invalid.

    A date without a time zone is taken as UTC.
    """
    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo else date.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _end_of_skips(at_s: float, hints: PollingHints) -> float:
    """Return the first Unix time, at or after ``at_s``, that is not in a skipped hour or on a skipped day (in UTC).

    The skipped hours and days are listed in ``hints``. If all 24 hours are listed, the hours are ignored; if all 7 days
    of the week are listed, the days are ignored.
    """
    hours = hints.skip_hours if len(hints.skip_hours) < _HOURS else ()
    days = hints.skip_days if len(hints.skip_days) < _DAYS else ()
    now = int(at_s // _HOUR_S)
    for hour in range(now, now + _HOURS * (_DAYS + 1)):
        if hour % _HOURS not in hours and (hour // _HOURS + _EPOCH_WEEKDAY) % _DAYS not in days:
            return max(at_s, float(hour * _HOUR_S))
    return at_s


def _describe(seconds: float) -> str:
    for unit, size_s in _UNITS:
        if seconds >= size_s:
            number = f"{seconds / size_s:,.0f}"
            return f"{number} {unit}{'' if number == '1' else 's'}"
    return "less than a second" if seconds > 0 else "an invalid time"
