"""Feeds of any dialect and in any state, by feedparser: the judge of what a document says.

What a document claims is bounded: the number of entries, the length of each field, dates that can be true.
"""

import calendar
import re
import sys
import time
import unicodedata
from types import SimpleNamespace
from typing import Any

import feedparser

from service.errors import BrokenFeed
from service.feeds.parsing.feed_metadata import relations, wishes
from service.feeds.parsing.limits import (
    FIELD_CHARS,
    MAX_ENTRIES,
    NAME_CHARS,
    PROSE_CHARS,
    absolute_link,
    capped,
    imprint,
    names,
    newest,
    sane_time_s,
    title_line,
)
from service.model import FeedMetadata, ParsedEntry, ParsedFeed

_REFERENCE = re.compile(r"&#([0-9]++|[xX][0-9a-fA-F]++);")
_REFERENCE_DIGITS = 9
_ENTRY_END = re.compile(r"</(?:item|entry)\s*>")


def parse(text: str, *, url: str, language: str) -> ParsedFeed:
    """Return the feed that ``text``, fetched from ``url`` with this ``Content-Language``, holds.

    Raises :class:`BrokenFeed`.
    """
    loaded = _loaded(text, url, language)
    about = loaded["feed"]
    title, link = _title(about), absolute_link(about.get("link"), url)
    if not loaded["entries"] and not title and not link:
        raise BrokenFeed("The document looks like a feed, but there is nothing readable in it.")
    related = relations(((each.get("rel"), each.get("href")) for each in _each(about, "links")), url)
    return ParsedFeed(
        title=title,
        link=link,
        id=capped(about.get("id"), FIELD_CHARS),
        language=capped(about.get("language"), NAME_CHARS),
        entries=tuple(_entry(raw, url) for raw in newest(loaded["entries"], _date_s)),
        polling_hints=wishes(text, about),
        **related,
        metadata=_imprint(about),
    )


def _imprint(about: Any) -> FeedMetadata:
    detail = about.get("generator_detail")
    version = detail.get("version") if isinstance(detail, dict) else None
    return imprint(
        (tag.get("label") or tag.get("term") for tag in _each(about, "tags")), about.get("generator"), version
    )


def _ends_of(text: str) -> str:
    """Return the document with only its first and last 500 entries: the newest are at one of its ends.

    feedparser would take 10 s for 100,000 entries.
    """
    ends = [found.end() for found in _ENTRY_END.finditer(text)]
    return text[: ends[MAX_ENTRIES - 1]] + text[ends[-MAX_ENTRIES - 1] :] if len(ends) > 2 * MAX_ENTRIES else text


def _without_impossible_references(text: str) -> str:
    """Drop references to what is no character (XML 1.0 §4.1); one of them makes feedparser give up the feed."""
    return _REFERENCE.sub(lambda found: found[0] if _is_character(found) else "", text)


def _is_character(reference: re.Match[str]) -> bool:
    digits = reference[1]
    if len(digits) > _REFERENCE_DIGITS:
        return False
    number = int(digits[1:], 16) if digits[0] in "xX" else int(digits)
    return 0 < number <= sys.maxunicode and unicodedata.category(chr(number)) != "Cs"


def _loaded(text: str, url: str, language: str) -> Any:
    body = _without_impossible_references(_ends_of(text)).encode()
    try:
        return feedparser.parse(
            # An open file: feedparser would take bytes for a file's name first, and open that.
            SimpleNamespace(read=lambda: body),
            response_headers={
                "content-type": "application/xml; charset=utf-8",
                "content-language": language,
                "content-location": url,  # the base of relative links
            },
            sanitize_html=False,  # done where text is shown, on the little that is shown
            resolve_relative_uris=False,
        )
    except MemoryError:
        raise
    except Exception as error:
        raise BrokenFeed(f"The feed cannot be read ({type(error).__name__}).") from error


def _entry(raw: Any, url: str) -> ParsedEntry:
    contents = [capped(part.get("value"), PROSE_CHARS) for part in _each(raw, "content")]
    enclosures = (link.get("href") for link in _each(raw, "links") if link.get("rel") == "enclosure")
    return ParsedEntry(
        id=capped(raw.get("id"), FIELD_CHARS),
        link=absolute_link(raw.get("link"), url),
        title=_title(raw),
        summary=capped(raw.get("summary"), PROSE_CHARS),
        content=max(contents, key=len, default=""),
        authors=names(author.get("name") or author.get("email") for author in _each(raw, "authors")),
        tags=names(tag.get("label") or tag.get("term") for tag in _each(raw, "tags")),
        published=_time_s(raw, "published"),
        updated=_time_s(raw, "updated"),
        enclosure=absolute_link(next(enclosures, ""), url),
    )


def _each(raw: Any, name: str) -> list[Any]:
    """Return the values of a field that has several; an element of that name makes text of it in feedparser."""
    found = raw.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _title(raw: Any) -> str:
    detail = raw.get("title_detail")
    is_markup = isinstance(detail, dict) and "html" in detail.get("type", "")
    return title_line(capped(raw.get("title"), PROSE_CHARS), is_markup=is_markup)


def _date_s(raw: Any) -> float | None:
    return _time_s(raw, "published") or _time_s(raw, "updated")


def _time_s(raw: Any, name: str) -> float | None:
    # dict.get, because feedparser's own substitutes "published" for "updated" and warns.
    parsed: object = dict.get(raw, f"{name}_parsed")
    try:
        return sane_time_s(float(calendar.timegm(parsed))) if isinstance(parsed, time.struct_time) else None
    except (ValueError, OverflowError):
        return None
