"""From a feed's items to the entries Coronet keeps and sends: their order, and their text. Pure."""

from collections.abc import Sequence

from service.feeds.text import one_line, plain_text
from service.feeds.urls import web_link
from service.model import Entry, ParsedEntry

TITLE_CHARS = 200
SUMMARY_CHARS = 600
_NAME_CHARS = 60
_NAME_COUNT = 8
CLOCK_ERROR_S = 86400.0


def newest_first(entries: Sequence[ParsedEntry], *, now_s: float) -> list[ParsedEntry]:
    """Return the entries by date where every one has a possible date, else in document order.

    Publishers put the newest first; entries of the same date keep the document's order.
    """
    dates = [published_s(entry, now_s=now_s) for entry in entries]
    by_date = sorted(
        ((date, place) for place, date in enumerate(dates) if date is not None), key=lambda each: (-each[0], each[1])
    )
    return [entries[place] for _, place in by_date] if len(by_date) == len(entries) else list(entries)


def published_s(entry: ParsedEntry, *, now_s: float) -> float | None:
    """Return when the entry was published, or else updated; None if that is more than a day ahead of ``now_s``."""
    date = entry.published if entry.published is not None else entry.updated
    return date if date is not None and date <= now_s + CLOCK_ERROR_S else None


def to_entry(entry: ParsedEntry, key: str, *, now_s: float) -> Entry:
    """Return the entry in plain text, short, with a link that is safe to show."""
    return Entry(
        key=key,
        title=one_line(entry.title, TITLE_CHARS),
        link=web_link(entry.link) or web_link(entry.enclosure),
        summary=plain_text(entry.summary or entry.content, SUMMARY_CHARS),
        authors=tuple(one_line(name, _NAME_CHARS) for name in entry.authors[:_NAME_COUNT]),
        tags=tuple(one_line(name, _NAME_CHARS) for name in entry.tags[:_NAME_COUNT]),
        published=published_s(entry, now_s=now_s),
    )
