"""What one feed document may claim: more is cut off, wrong types and impossible values are ignored."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar
from urllib.parse import urljoin

from service.feeds.parsing.html_text import markup_line, one_line
from service.model import FeedMetadata

_Entry = TypeVar("_Entry")

MAX_ENTRIES = 500
FIELD_CHARS = 1_000
NAME_CHARS = 100
_READ_OF_NAME_CHARS = 4 * NAME_CHARS
_VERSION_CHARS = 20
LINK_CHARS = 2_000
PROSE_CHARS = 50_000
LIST_LENGTH = 20

# Feeds did not exist before 1995; dates from 2100 on are typing errors or tricks.
_EARLIEST_S = 788_918_400.0
_LATEST_S = 4_102_444_800.0
_MAX_TTL_MINUTES = 7 * 24 * 60

# URLs that urljoin returns as they are, whatever the base: absolute, with nothing empty or odd in them.
ABSOLUTE_URL = re.compile(
    r"https?://[a-zA-Z0-9][a-zA-Z0-9.-]*(?::[0-9]{1,5})?"
    r"(?:/[a-zA-Z0-9._~/:@!$&'()*+,=%-]*)?(?:\?[a-zA-Z0-9._~/:@!$&'()*+,=%-]+)?(?:#[a-zA-Z0-9._~/:@!$&'()*+,=%-]+)?"
)

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0 §2.2


def capped(value: object, max_chars: int) -> str:
    """Return the text without surrounding white space and what XML cannot carry, cut off; "" for what is no text."""
    return _NOT_XML.sub("", value[:max_chars]).strip() if isinstance(value, str) else ""


def absolute_link(value: object, url: str) -> str:
    """Return the link as it stands in a document fetched from ``url``, absolute; "" for what is none."""
    if not value:
        return ""
    if isinstance(value, str) and len(value) <= LINK_CHARS and ABSOLUTE_URL.fullmatch(value):
        return value
    link = capped(value, LINK_CHARS + 1)
    if not link or len(link) > LINK_CHARS:
        return ""
    try:
        return urljoin(url, link)
    except ValueError:
        return ""


def names(values: Iterable[object]) -> tuple[str, ...]:
    """Return at most 20 names (authors, tags), each on one line, none twice."""
    named = dict.fromkeys([_name(value[:_READ_OF_NAME_CHARS]) for value in values if isinstance(value, str)])
    named.pop("", None)
    return tuple(named)[:LIST_LENGTH]


def imprint(tags: Iterable[object], software: object, version: object) -> FeedMetadata:
    """Return what a feed says of itself: ``version`` is that of the software, if it stands apart."""
    name, number = capped(software, NAME_CHARS), capped(version, _VERSION_CHARS)
    return FeedMetadata(names(tags), f"{name} {number}" if name and number and number not in name else name)


@lru_cache(maxsize=64)  # a feed's entries have their authors and tags in common
def _name(value: str) -> str:
    return one_line(value, NAME_CHARS)


def title_line(title: str, *, is_markup: bool) -> str:
    """Return a title in plain text, on one line."""
    return markup_line(title, FIELD_CHARS) if is_markup else one_line(title, FIELD_CHARS)


def newest(entries: Sequence[_Entry], date_s: Callable[[_Entry], float | None]) -> Sequence[_Entry]:
    """Return the newest 500, in document order; the first 500 where not every entry has a date."""
    if len(entries) <= MAX_ENTRIES:
        return entries
    dates = list(map(date_s, entries))
    if None in dates:
        return entries[:MAX_ENTRIES]
    by_date = sorted(range(len(entries)), key=lambda place: dates[place] or 0.0, reverse=True)
    return [entries[place] for place in sorted(by_date[:MAX_ENTRIES])]


def sane_time_s(unix_s: float) -> float | None:
    """Return the date if something can have been published then, else None."""
    return unix_s if _EARLIEST_S <= unix_s < _LATEST_S else None


def sane_ttl_s(minutes: object) -> float | None:
    """Return an RSS ``ttl`` (minutes, as text) in seconds; None if absent, not positive, or above a week."""
    text = minutes.strip() if isinstance(minutes, str) else ""
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:12]) <= _MAX_TTL_MINUTES:
        return None
    return int(text) * 60.0
