"""An adapter for feedparser, which parses RSS and Atom of any dialect, well-formed or not.

The adapter limits the number of entries and the length of each field, and rejects implausible dates. ``fast_parser``
returns the same result for the documents that it supports.
"""

import calendar
import re
import time
from types import SimpleNamespace
from typing import Any

import feedparser

from service.errors import BrokenFeed
from service.feeds.parsing.enclosures import read_files
from service.feeds.parsing.feed_metadata import read_link_relations, read_metadata, read_polling_hints
from service.feeds.parsing.field_limits import (
    FIELD_CHARS,
    MAX_ENTRIES,
    NAME_CHARS,
    TEXT_CHARS,
    absolute_link,
    limit_text,
    newest_entries,
    title_line,
    unique_names,
    valid_time_s,
)
from service.model import ParsedEntry, ParsedFeed

_REFERENCE = re.compile(r"&#([0-9]++|[xX][0-9a-fA-F]++);")
_ENTRY_END = re.compile(r"</(?:item|entry)\s*>")


def parse(text: str, *, url: str, language: str) -> ParsedFeed:
    """Return the feed in ``text``.

    - ``url`` is the URL from which the document was fetched.
    - ``language`` is the value of the ``Content-Language`` header.

    Raises :class:`BrokenFeed` if feedparser fails, or finds neither title, link nor entries.
    """
    result = _run_feedparser(text, url, language)
    about = result["feed"]
    title, link = _title(about), absolute_link(about.get("link"), url)
    if not result["entries"] and not title and not link:
        raise BrokenFeed("The document looks like a feed, but there is nothing readable in it.")
    related = read_link_relations(((each.get("rel"), each.get("href")) for each in _list_field(about, "links")), url)
    detail = about.get("generator_detail")
    version = detail.get("version") if isinstance(detail, dict) else None
    return ParsedFeed(
        title=title,
        link=link,
        id=limit_text(about.get("id"), FIELD_CHARS),
        language=limit_text(about.get("language"), NAME_CHARS),
        entries=tuple(_entry(raw, url) for raw in newest_entries(result["entries"], _date_s)),
        polling_hints=read_polling_hints(text, about),
        **related,
        metadata=read_metadata(_tag_names(about), about.get("generator"), version),
    )


def _without_middle_entries(text: str) -> str:
    """Return the document with only its first 500 and last 500 entries.

    This keeps the newest entries, which are either the first or the last ones in the document.
    """
    # feedparser would take 10 s for 100,000 entries.
    ends = [found.end() for found in _ENTRY_END.finditer(text)]
    return text[: ends[MAX_ENTRIES - 1]] + text[ends[-MAX_ENTRIES - 1] :] if len(ends) > 2 * MAX_ENTRIES else text


def _without_invalid_references(text: str) -> str:
    """Return the document without numeric references to invalid characters (XML 1.0 §4.1)."""
    # A single such reference makes feedparser fail.
    return _REFERENCE.sub(lambda found: found[0] if _is_valid_reference(found[1]) else "", text)


def _is_valid_reference(digits: str) -> bool:
    try:
        chr(int(digits[1:], 16) if digits[0] in "xX" else int(digits)).encode()
    except (ValueError, OverflowError):  # also UnicodeEncodeError, for surrogates
        return False
    return True


def _run_feedparser(text: str, url: str, language: str) -> Any:
    body = _without_invalid_references(_without_middle_entries(text)).encode()
    try:
        return feedparser.parse(
            # A file-like object: feedparser would first take bytes for the name of a file, and open it.
            SimpleNamespace(read=lambda: body),
            response_headers={
                "content-type": "application/xml; charset=utf-8",
                "content-language": language,
                "content-location": url,  # the base of relative links
            },
            sanitize_html=False,  # done where text is shown, on the small part that is shown
            resolve_relative_uris=False,
        )
    except MemoryError:
        raise
    except Exception as error:
        raise BrokenFeed(f"The feed cannot be read ({type(error).__name__}).") from error


def _entry(raw: Any, url: str) -> ParsedEntry:
    contents = [limit_text(part.get("value"), TEXT_CHARS) for part in _list_field(raw, "content")]
    files = [link for link in _list_field(raw, "links") if link.get("rel") == "enclosure"]
    detail = raw.get("image")
    enclosures, image = read_files(
        [*files, *_list_field(raw, "media_content")],
        [
            *(thumbnail.get("url") for thumbnail in _list_field(raw, "media_thumbnail")),
            detail.get("href") if isinstance(detail, dict) else None,
        ],
        url,
        duration=raw.get("itunes_duration"),
    )
    return ParsedEntry(
        id=limit_text(raw.get("id"), FIELD_CHARS),
        link=absolute_link(raw.get("link"), url),
        title=_title(raw),
        summary=limit_text(raw.get("summary"), TEXT_CHARS),
        content=max(contents, key=len, default=""),
        authors=unique_names(author.get("name") or author.get("email") for author in _list_field(raw, "authors")),
        tags=unique_names(_tag_names(raw)),
        published=_time_s(raw, "published"),
        updated=_time_s(raw, "updated"),
        enclosure=absolute_link(files[0].get("href"), url) if files else "",
        enclosures=enclosures,
        image=image,
    )


def _list_field(raw: Any, name: str) -> list[Any]:
    """Return the dicts in the list field ``name`` of a feedparser result.

    The result is empty if the field is missing or is not a list.
    """
    # If the document has an element of that name, feedparser replaces the list by a text.
    found = raw.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _tag_names(raw: Any) -> list[Any]:
    return [tag.get("label") or tag.get("term") for tag in _list_field(raw, "tags")]


def _title(raw: Any) -> str:
    detail = raw.get("title_detail")
    is_markup = isinstance(detail, dict) and "html" in detail.get("type", "")
    return title_line(limit_text(raw.get("title"), TEXT_CHARS), is_markup=is_markup)


def _date_s(raw: Any) -> float | None:
    return _time_s(raw, "published") or _time_s(raw, "updated")


def _time_s(raw: Any, name: str) -> float | None:
    # dict.get, because feedparser's own substitutes "published" for "updated" and warns.
    return to_unix_s(dict.get(raw, f"{name}_parsed"))


def to_unix_s(parsed: object) -> float | None:
    """Return the Unix time of a date that feedparser has parsed; None if the date is missing or implausible."""
    try:
        return valid_time_s(float(calendar.timegm(parsed))) if isinstance(parsed, time.struct_time) else None
    except (ValueError, OverflowError):
        return None
