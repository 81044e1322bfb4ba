"""What a feed states about itself: polling hints, tags, generator, and links to hubs, to itself and to older entries.

Polling hints are the publisher's requests about when to poll. ``publisher_polling_hints`` decides which of them this
service follows.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypedDict

from service.feeds.parsing.field_limits import (
    LIST_LENGTH,
    NAME_CHARS,
    absolute_link,
    limit_text,
    parse_count,
    unique_names,
)
from service.model import FeedMetadata, PollingHints

_PERIODS_S = {
    "hourly": 3_600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}
_MAX_FREQUENCY = 3_600
_MAX_TTL_MINUTES = 7 * 24 * 60
_VERSION_CHARS = 20
_FIRST_ENTRY = re.compile(r"<(?:[\w.-]{1,40}:)?(?:item|entry)[\s>]")
_SKIPPED_CHARS = 2_000
_HOUR = re.compile(r"<hour>\s*([0-9]{1,2})\s*</hour>")
_DAY = re.compile(r"<day>\s*([A-Za-z]{3,9})\s*</day>")
_HOURS = 24
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def read_polling_hints(text: str, elements: Mapping[str, object]) -> PollingHints:
    """Return the polling hints (the publisher's requests about when to poll) in the XML document ``text``.

    ``elements`` maps element names, as used by feedparser, to the texts of the elements. Invalid values are left out.
    """
    # ``skipHours`` and ``skipDays`` are read from the text before the first entry, because feedparser returns only the
    # last hour or day.
    head = text[: first.start() if (first := _FIRST_ENTRY.search(text)) else None]
    hours = [int(hour) for hour in _HOUR.findall(_within("skipHours", head))]
    days = [day.lower() for day in _DAY.findall(_within("skipDays", head))]
    ttl_minutes = parse_count(elements.get("ttl"), _MAX_TTL_MINUTES)
    return PollingHints(
        ttl_s=60.0 * ttl_minutes if ttl_minutes else None,
        update_period_s=_update_period_s(elements.get("sy_updateperiod"), elements.get("sy_updatefrequency")),
        # RSS 0.91 counts the hours from 1 to 24, RSS 2.0 from 0 to 23.
        skip_hours=tuple(sorted({hour % _HOURS for hour in hours if hour <= _HOURS})),
        skip_days=tuple(sorted({_WEEKDAYS.index(day) for day in days if day in _WEEKDAYS})),
    )


def _within(name: str, head: str) -> str:
    start = head.find(f"<{name}>")
    end = head.find(f"</{name}>", start, start + _SKIPPED_CHARS)
    return head[start:end] if 0 <= start < end else ""


def _update_period_s(period: object, frequency: object) -> float | None:
    """Return the interval between two updates in seconds: ``period`` divided by ``frequency``.

    Both values are defined by the RSS 1.0 "Syndication" module. ``period`` is a word such as ``daily``. ``frequency``
    is the number of updates in a period; None means 1. The result is None if ``period`` is missing or either value is
    invalid.
    """
    period_s = _PERIODS_S.get(period.strip().lower()) if isinstance(period, str) else None
    times = parse_count("1" if frequency is None else frequency, _MAX_FREQUENCY)
    return period_s / times if period_s and times else None


def read_metadata(tags: Iterable[object], generator: object, version: object) -> FeedMetadata:
    """Return a feed's tags and its generator (the software that made the feed).

    ``generator`` is the name of this software. ``version`` is the software's version, if the feed states it separately.
    """
    name, number = limit_text(generator, NAME_CHARS), limit_text(version, _VERSION_CHARS)
    return FeedMetadata(unique_names(tags), f"{name} {number}" if name and number and number not in name else name)


class LinkRelations(TypedDict):
    """The fields of :class:`service.model.ParsedFeed` that are read from a feed's links.

    - ``hubs`` are the URLs of the feed's hubs.
    - ``topic`` is the URL by which the hubs identify the feed, or "".
    - ``older_url`` is the URL of the document with the next older entries, or "".
    """

    hubs: tuple[str, ...]
    topic: str
    older_url: str


def read_link_relations(links: Iterable[tuple[object, object]], url: str) -> LinkRelations:
    """Return the URLs of the hubs, the topic and the next older document, taken from a feed's links.

    - ``links`` are pairs (``rel``, ``href``).
    - ``url`` is the URL of the document, against which the links are resolved.

    The URLs are the targets of links with these relations:

    - hubs: ``hub`` (WebSub §4).
    - topic, the URL by which the hubs identify the feed: ``self`` (WebSub §4).
    - older document: ``prev-archive`` (RFC 5005 §4) or, if there is none, ``next`` (RFC 5005 §3). An archive is
      preferred because it is complete.
    """
    found: dict[str, list[str]] = {"hub": [], "self": [], "prev-archive": [], "next": []}
    for rel, href in links:
        for name in rel.split() if isinstance(rel, str) else ():
            target = absolute_link(href, url) if name in found else ""
            if target:
                found[name].append(target)
    older = found["prev-archive"] or found["next"]
    return LinkRelations(
        hubs=tuple(dict.fromkeys(found["hub"]))[:LIST_LENGTH],
        topic=next(iter(found["self"]), ""),
        older_url=next(iter(older), ""),
    )
