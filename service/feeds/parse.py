"""From a feed document's bytes to a :class:`ParsedFeed`; runs in a killable child (``sandbox``).

feedparser reads RSS, Atom and RDF, tolerantly; JSON Feed is in ``jsonfeed``. What a document claims is
bounded here: the number of entries, the length of each field, dates that can be true.
"""

import calendar
import re
import sys
import time
import unicodedata
from collections.abc import Mapping
from typing import Any

import feedparser

from service.errors import BrokenFeed, EmptyBody, NotAFeed
from service.feeds import jsonfeed
from service.feeds.charset import text_of
from service.feeds.limits import (
    FIELD_CHARS,
    MAX_ENTRIES,
    NAME_CHARS,
    PROSE_CHARS,
    absolute_link,
    capped,
    names,
    sane_time_s,
    sane_ttl_s,
)
from service.feeds.prolog import root_element
from service.feeds.text import one_line, plain_text
from service.model import ParsedEntry, ParsedFeed

_FEED_ROOTS = {"rss", "feed", "rdf", "channel"}
_FEED_WITHIN = re.compile(r"<(?:[A-Za-z_][\w.-]{0,40}:)?(?:rss|feed|rdf)[\s>]", re.IGNORECASE)
_REFERENCE = re.compile(r"&#([0-9]++|[xX][0-9a-fA-F]++);")
_REFERENCE_DIGITS = 9
_ENTRY_END = re.compile(r"</(?:item|entry)\s*>")
_JUNK_CHARS = 64 * 1024


def parse(body: bytes, *, url: str, headers: Mapping[str, str]) -> ParsedFeed:
    """Return the feed that ``body``, fetched from ``url`` with these response headers, holds.

    Links are absolute; text is ``str``, capped; impossible dates are None; of more than 500
    entries the newest stay. Raises :class:`EmptyBody`, :class:`NotAFeed` or :class:`BrokenFeed`.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    text = text_of(body, lowered.get("content-type", ""))
    root = root_element(text)
    if root is None:
        raise EmptyBody("There is nothing in the document.")
    if root == "{":
        return jsonfeed.parse(text, url=url)
    if root not in _FEED_ROOTS:
        # Some servers print warnings before the feed.
        found = None if root == "html" else _FEED_WITHIN.search(text, 0, _JUNK_CHARS)
        if not found:
            raise NotAFeed("The document is not a feed.")
        text = text[found.start() :]
    return _feed(_loaded(text, url, lowered.get("content-language", "")), url)


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
    try:
        return feedparser.parse(
            _without_impossible_references(_ends_of(text)).encode(),
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


def _feed(loaded: Any, url: str) -> ParsedFeed:
    about = loaded["feed"]
    title, link = _title(about), absolute_link(about.get("link"), url)
    if not loaded["entries"] and not title and not link:
        raise BrokenFeed("The document looks like a feed, but there is nothing readable in it.")
    return ParsedFeed(
        title=title,
        link=link,
        id=capped(about.get("id"), FIELD_CHARS),
        language=capped(about.get("language"), NAME_CHARS),
        entries=tuple(_entry(raw, url) for raw in _newest(loaded["entries"])),
        ttl_s=sane_ttl_s(about.get("ttl")),
    )


def _newest(entries: list[Any]) -> list[Any]:
    """Return the newest 500, in document order; the first 500 where not every entry has a date."""
    if len(entries) <= MAX_ENTRIES:
        return entries
    dates = [_time_s(entry, "published") or _time_s(entry, "updated") for entry in entries]
    if None in dates:
        return entries[:MAX_ENTRIES]
    by_date = sorted(range(len(entries)), key=lambda place: dates[place] or 0.0, reverse=True)
    return [entries[place] for place in sorted(by_date[:MAX_ENTRIES])]


def _entry(raw: Any, url: str) -> ParsedEntry:
    contents = [capped(part.get("value"), PROSE_CHARS) for part in raw.get("content", ())]
    enclosures = (link.get("href") for link in raw.get("links", ()) if link.get("rel") == "enclosure")
    return ParsedEntry(
        id=capped(raw.get("id"), FIELD_CHARS),
        link=absolute_link(raw.get("link"), url),
        title=_title(raw),
        summary=capped(raw.get("summary"), PROSE_CHARS),
        content=max(contents, key=len, default=""),
        authors=names(author.get("name") or author.get("email") for author in raw.get("authors", ())),
        tags=names(tag.get("label") or tag.get("term") for tag in raw.get("tags", ())),
        published=_time_s(raw, "published"),
        updated=_time_s(raw, "updated"),
        enclosure=absolute_link(next(enclosures, ""), url),
    )


def _title(raw: Any) -> str:
    title = capped(raw.get("title"), PROSE_CHARS)
    is_markup = "html" in raw.get("title_detail", {}).get("type", "")
    return plain_text(title, FIELD_CHARS).replace("\n", " ") if is_markup else one_line(title, FIELD_CHARS)


def _time_s(raw: Any, name: str) -> float | None:
    # dict.get, because feedparser's own substitutes "published" for "updated" and warns.
    parsed: time.struct_time | None = dict.get(raw, f"{name}_parsed")
    try:
        return sane_time_s(float(calendar.timegm(parsed))) if parsed else None
    except (ValueError, OverflowError):
        return None
