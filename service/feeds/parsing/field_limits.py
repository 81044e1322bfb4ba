"""Limits on the fields of a parsed feed: longer values are truncated, and invalid ones are ignored."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar
from urllib.parse import urljoin

from service.feeds.parsing.html_text import markup_line, one_line

_Entry = TypeVar("_Entry")

MAX_ENTRIES = 500
FIELD_CHARS = 1_000
NAME_CHARS = 100
_MAX_RAW_NAME_CHARS = 4 * NAME_CHARS
LINK_CHARS = 2_000
TEXT_CHARS = 50_000
LIST_LENGTH = 20

# Feeds did not exist before 1995; dates from 2100 on are errors or manipulations.
_EARLIEST_S = 788_918_400.0
_LATEST_S = 4_102_444_800.0

# Absolute URLs that urljoin returns unchanged, whatever the base.
ABSOLUTE_URL = re.compile(
    r"https?://[a-zA-Z0-9][a-zA-Z0-9.-]*(?::[0-9]{1,5})?"
    r"(?:/[a-zA-Z0-9._~/:@!$&'()*+,=%-]*)?(?:\?[a-zA-Z0-9._~/:@!$&'()*+,=%-]+)?(?:#[a-zA-Z0-9._~/:@!$&'()*+,=%-]+)?"
)

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML 1.0 §2.2 forbids."""


def limit_text(value: object, max_chars: int) -> str:
    """Return the first ``max_chars`` characters of a text, stripped and without characters that XML forbids.

    The result is "" if ``value`` is not a string.
    """
    return NOT_XML.sub("", value[:max_chars]).strip() if isinstance(value, str) else ""


def absolute_link(value: object, url: str) -> str:
    """Return a link as an absolute URL; "" if the link is missing, invalid or too long.

    ``url`` is the address of the document that contains the link.
    """
    if not value:
        return ""
    if isinstance(value, str) and len(value) <= LINK_CHARS and ABSOLUTE_URL.fullmatch(value):
        return value
    link = limit_text(value, LINK_CHARS + 1)
    if not link or len(link) > LINK_CHARS:
        return ""
    try:
        return urljoin(url, link)
    except ValueError:
        return ""


def unique_names(values: Iterable[object]) -> tuple[str, ...]:
    """Return at most 20 distinct names (of authors or tags), each on one line."""
    named = dict.fromkeys([_name(value[:_MAX_RAW_NAME_CHARS]) for value in values if isinstance(value, str)])
    named.pop("", None)
    return tuple(named)[:LIST_LENGTH]


@lru_cache(maxsize=64)  # entries of a feed share authors and tags
def _name(value: str) -> str:
    return one_line(value, NAME_CHARS)


def title_line(title: str, *, is_markup: bool) -> str:
    """Return a title as plain text on one line. ``is_markup`` is true if the title is HTML."""
    return markup_line(title, FIELD_CHARS) if is_markup else one_line(title, FIELD_CHARS)


def newest_entries(entries: Sequence[_Entry], date_s: Callable[[_Entry], float | None]) -> Sequence[_Entry]:
    """Return the 500 newest entries, in document order.

    If there are at most 500 entries, all of them are returned. If any entry has no date, the first 500 are returned.
    ``date_s`` returns the Unix time of an entry, or None if the entry has no date.
    """
    if len(entries) <= MAX_ENTRIES:
        return entries
    dates = list(map(date_s, entries))
    if None in dates:
        return entries[:MAX_ENTRIES]
    by_date = sorted(range(len(entries)), key=lambda place: dates[place] or 0.0, reverse=True)
    return [entries[place] for place in sorted(by_date[:MAX_ENTRIES])]


def valid_time_s(unix_s: float) -> float | None:
    """Return ``unix_s`` if it lies in the years 1995 to 2099, else None."""
    return unix_s if _EARLIEST_S <= unix_s < _LATEST_S else None


def parse_count(value: object, largest: int) -> int | None:
    """Return the positive integer written in ``value``; None if it is missing, invalid or above ``largest``."""
    text = value.strip() if isinstance(value, str) else ""
    number = int(text[:12]) if text.isascii() and text.isdigit() else 0
    return number if 0 < number <= largest else None
