"""A tolerant parser of JSON Feed 1.0 and 1.1 (jsonfeed.org). A value of a wrong type is treated as missing."""

import datetime as dt
import html
from typing import Any

import msgspec

from service.errors import BrokenFeed, NotAFeed
from service.feeds.parsing.enclosures import read_files
from service.feeds.parsing.feed_metadata import read_link_relations
from service.feeds.parsing.field_limits import (
    FIELD_CHARS,
    MAX_ENTRIES,
    NAME_CHARS,
    TEXT_CHARS,
    absolute_link,
    limit_text,
    unique_names,
    valid_time_s,
)
from service.feeds.parsing.html_text import one_line
from service.model import ParsedEntry, ParsedFeed

_VERSION = "jsonfeed.org/version/"


def parse(text: str, *, url: str) -> ParsedFeed:
    """Return the JSON Feed in ``text``, which was fetched from ``url``.

    Raises :class:`BrokenFeed` if the text claims to be a JSON Feed but is not valid JSON, and :class:`NotAFeed` for any
    other text that is not a JSON Feed.
    """
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if _VERSION in text[:FIELD_CHARS]:
            raise BrokenFeed(f"The JSON Feed cannot be read: {error}") from error
        raise NotAFeed("The document is neither a feed nor valid JSON.") from error
    if not isinstance(document, dict) or _VERSION not in _string(document, "version", FIELD_CHARS):
        raise NotAFeed("The document is JSON, but not a JSON Feed.")
    hubs = (
        hub.get("url") for hub in _objects(document, "hubs") if _string(hub, "type", NAME_CHARS).lower() == "websub"
    )
    links = [("self", document.get("feed_url")), ("next", document.get("next_url")), *(("hub", hub) for hub in hubs)]
    related = read_link_relations(links, url)
    return ParsedFeed(
        title=one_line(_string(document, "title", FIELD_CHARS), FIELD_CHARS),
        link=absolute_link(document.get("home_page_url"), url),
        id=related["topic"],
        language=_string(document, "language", NAME_CHARS),
        entries=tuple(_entry(item, url) for item in _objects(document, "items")[:MAX_ENTRIES]),
        **related,
    )


def _entry(item: dict[str, Any], url: str) -> ParsedEntry:
    text = _string(item, "content_text", TEXT_CHARS)
    authors = _objects(item, "authors") or _objects({"author": [item.get("author")]}, "author")
    attachments = _objects(item, "attachments")
    enclosures, image = read_files(attachments, (item.get("image"), item.get("banner_image")), url)
    return ParsedEntry(
        id=_string(item, "id", FIELD_CHARS),
        link=absolute_link(item.get("url"), url) or absolute_link(item.get("external_url"), url),
        title=one_line(_string(item, "title", FIELD_CHARS), FIELD_CHARS),
        summary=html.escape(_string(item, "summary", TEXT_CHARS)),
        content=_string(item, "content_html", TEXT_CHARS) or html.escape(text),
        authors=unique_names(author.get("name") for author in authors),
        tags=unique_names(_list(item, "tags")),
        published=_time_s(item, "date_published"),
        updated=_time_s(item, "date_modified"),
        enclosure=absolute_link(attachments[0].get("url"), url) if attachments else "",
        enclosures=enclosures,
        image=image,
    )


def _string(item: dict[str, Any], name: str, max_chars: int) -> str:
    value = item.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # ids are often numbers, which readers "should" coerce to text (JSON Feed 1.1, "id")
    return limit_text(value, max_chars)


def _list(item: dict[str, Any], name: str) -> list[Any]:
    value = item.get(name)
    return value if isinstance(value, list) else []


def _objects(item: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [each for each in _list(item, name) if isinstance(each, dict)]


def _time_s(item: dict[str, Any], name: str) -> float | None:
    """Return the Unix time of the RFC 3339 date in the field ``name`` of an item.

    A date without a time zone is taken as UTC. The result is None if the date is missing, invalid or implausible.
    """
    try:
        moment = dt.datetime.fromisoformat(_string(item, name, NAME_CHARS))
        return valid_time_s((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())
    except (ValueError, OverflowError):
        return None
