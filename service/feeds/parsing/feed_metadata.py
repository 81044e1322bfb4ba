"""A feed's own settings: how often it wants to be polled, and its links to hubs, to itself and to older pages.

Whether a requested polling rate is followed is decided in ``pace``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypedDict

from service.feeds.parsing.limits import LIST_LENGTH, absolute_link, sane_ttl_s
from service.model import PollingHints

_PERIODS_S = {
    "hourly": 3_600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}
_MAX_FREQUENCY = 3_600
_FIRST_ENTRY = re.compile(r"<(?:[\w.-]{1,40}:)?(?:item|entry)[\s>]")
_SKIPPED_CHARS = 2_000
_HOUR = re.compile(r"<hour>\s*([0-9]{1,2})\s*</hour>")
_DAY = re.compile(r"<day>\s*([A-Za-z]{3,9})\s*</day>")
_HOURS = 24
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def wishes(text: str, found: Mapping[str, object]) -> PollingHints:
    """Return the wishes of the XML document ``text``; ``found`` has texts by feedparser's names of elements.

    Only values that mean nothing are left out. ``skipHours`` and ``skipDays`` are looked for in the text,
    where they stand before the first entry, because feedparser keeps but the last of them.
    """
    head = text[: first.start() if (first := _FIRST_ENTRY.search(text)) else None]
    hours = [int(hour) for hour in _HOUR.findall(_within("skipHours", head))]
    days = [day.lower() for day in _DAY.findall(_within("skipDays", head))]
    return PollingHints(
        ttl_s=sane_ttl_s(found.get("ttl")),
        update_period_s=_update_period_s(found.get("sy_updateperiod"), found.get("sy_updatefrequency")),
        # RSS 0.91 counts the hours from 1 to 24, RSS 2.0 from 0 to 23.
        skip_hours=tuple(sorted({hour % _HOURS for hour in hours if hour <= _HOURS})),
        skip_days=tuple(sorted({_WEEKDAYS.index(day) for day in days if day in _WEEKDAYS})),
    )


def _within(name: str, head: str) -> str:
    start = head.find(f"<{name}>")
    end = head.find(f"</{name}>", start, start + _SKIPPED_CHARS)
    return head[start:end] if 0 <= start < end else ""


def _update_period_s(period: object, frequency: object) -> float | None:
    """Return the time between two updates (RDF Site Summary 1.0, "Syndication"): so many in each period."""
    if not isinstance(period, str) or period.strip().lower() not in _PERIODS_S:
        return None
    times = frequency.strip() if isinstance(frequency, str) else "1"
    if not times.isascii() or not times.isdigit() or not 0 < int(times[:12]) <= _MAX_FREQUENCY:
        return None
    return _PERIODS_S[period.strip().lower()] / int(times)


class Relations(TypedDict):
    """Fields of :class:`service.model.ParsedFeed`."""

    hubs: tuple[str, ...]
    topic: str
    older_url: str


def relations(links: Iterable[tuple[object, object]], url: str) -> Relations:
    """Return what the feed's links (each a ``rel`` in lower case, and a ``href``) say of the document at ``url``.

    ``hub`` and ``self`` are WebSub's (§4), ``prev-archive`` and ``next`` those of RFC 5005 (§4, §3): an archive
    is complete, so it goes before a page.
    """
    found: dict[str, list[str]] = {"hub": [], "self": [], "prev-archive": [], "next": []}
    for rel, href in links:
        for name in rel.split() if isinstance(rel, str) else ():
            target = absolute_link(href, url) if name in found else ""
            if target:
                found[name].append(target)
    older = found["prev-archive"] or found["next"]
    return Relations(
        hubs=tuple(dict.fromkeys(found["hub"]))[:LIST_LENGTH],
        topic=next(iter(found["self"]), ""),
        older_url=next(iter(older), ""),
    )
