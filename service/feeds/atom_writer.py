"""Writer of Atom (RFC 4287): converts the changes in a channel's versions to entries, and entries to a feed.

The same versions always produce the same entries. The id of an entry is derived from its key in the channel. Readers
therefore recognise an edited entry, and an entry that is in several feeds.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from service.feeds.canonical_urls import shown_url, without_selector
from service.feeds.parsing.html_text import one_line, remove_invalid_chars
from service.model import Change, Channel, Delta, Entry

NS_ATOM: Final = "http://www.w3.org/2005/Atom"
_MAX_NAMES: Final = 10
_MAX_TITLE_CHARS: Final = 300
_MAX_LINK_CHARS: Final = 2_000
_MAX_FUTURE_S: Final = 86_400.0
"""A publication date is ignored if it is later than the detection of the entry by more than this time."""
_SIGNS: Final = {"addition": "+", "omission": "-", "replacement": "~"}
_NAMESPACE_URL: Final = bytes.fromhex("6ba7b8119dad11d180b400c04fd430c8")


class AtomEntry(msgspec.Struct, frozen=True):
    """An entry: the UUID in its id, when it was detected or published first (Unix s), and the entry as XML."""

    id: str
    order_s: float
    xml: str


def _no_elements(_id: str) -> str:
    return ""


def write_entries(
    channel: Channel,
    delta: Delta,
    *,
    omitted: Collection[int] = (),
    further_elements: Callable[[str], str] = _no_elements,
) -> list[AtomEntry]:
    """Convert the changes in one version of a channel to entries, in the order of the changes.

    The changed lines of a page become one entry. Entries that the publisher has removed are left out.

    - ``omitted``: positions of changes to leave out.
    - ``further_elements``: a function that returns further elements of an entry as XML, given the entry's UUID.
    """
    changes = [change for position, change in enumerate(delta.changes) if position not in omitted]
    detected_s = delta.detected_s
    if any(change.line for change in changes):
        text = "\n".join(_changed_line(change) for change in changes)
        page = Entry(f"version {delta.version}", channel.title, without_selector(channel.url), text)
        return [_write_entry(channel, page, (detected_s, detected_s, detected_s), further_elements)]
    entries = []
    for change in changes:
        if change.kind != "omission":
            stated_s = change.entry.published
            is_plausible = stated_s is not None and 0 <= stated_s <= detected_s + _MAX_FUTURE_S
            published_s = stated_s if is_plausible and stated_s is not None else detected_s
            updated_s = detected_s if change.kind == "replacement" else published_s
            order_s = published_s if delta.initial else detected_s
            entries.append(_write_entry(channel, change.entry, (published_s, updated_s, order_s), further_elements))
    return entries


def latest_entries(entries: Iterable[AtomEntry], max_count: int) -> list[AtomEntry]:
    """Return the last ``max_count`` of ``entries``, newest first. Of entries with the same id, the last one counts."""
    by_id: dict[str, AtomEntry] = {}
    for entry in entries:
        by_id.pop(entry.id, None)
        by_id[entry.id] = entry
    newest_first = [*by_id.values()][::-1]
    return sorted(newest_first, key=lambda entry: -entry.order_s)[:max_count]


def write_feed(title: str, url: str, updated_s: float, entries: Sequence[AtomEntry]) -> bytes:
    """Return the feed at ``url``, which is also its id. ``updated_s`` is when it was changed last (Unix s)."""
    head = (
        f"<?xml version='1.0' encoding='utf-8'?>\n<feed xmlns='{NS_ATOM}'><id>{_text(url)}</id>"
        f"<title type='text'>{_text(one_line(title, _MAX_TITLE_CHARS))}</title>"
        f"<link rel='self' type='application/atom+xml' href={_attribute(url)}/>"
        f"<updated>{format_date(updated_s)}</updated><author><name>Coronet</name></author><generator>Coronet</generator>\n"
    )
    return "\n".join([head, *(entry.xml for entry in entries), "</feed>\n"]).encode()


def source_element(channel: Channel) -> str:
    """Return the element that names the channel of an entry in a feed of several channels (RFC 4287 §4.2.11)."""
    url = shown_url(channel.url)
    title = one_line(channel.title, _MAX_TITLE_CHARS) or url
    return f"<source><id>{_text(url)}</id><title>{_text(title)}</title></source>"


def _write_entry(
    channel: Channel,
    entry: Entry,
    times_s: tuple[float, float, float],
    further_elements: Callable[[str], str],
) -> AtomEntry:
    """Return an entry; ``times_s`` is when it was published, when it was updated, and its place in feeds (Unix s)."""
    published_s, updated_s, order_s = times_s
    item_id = entry_uuid(channel, entry)
    heading = one_line(entry.title, _MAX_TITLE_CHARS) or one_line(entry.summary, _MAX_TITLE_CHARS)
    authors = entry.authors[:_MAX_NAMES] or (channel.title or shown_url(channel.url),)
    parts = [
        f"<id>urn:uuid:{item_id}</id>",
        f"<title type='text'>{_text(heading or entry.link or shown_url(channel.url))}</title>",
        f"<link rel='alternate' type='text/html' href={_attribute(entry.link[:_MAX_LINK_CHARS])}/>"
        if entry.link
        else "",
        *(f"<author><name>{_text(one_line(name, _MAX_TITLE_CHARS))}</name></author>" for name in authors),
        further_elements(item_id),
        f"<published>{format_date(published_s)}</published><updated>{format_date(updated_s)}</updated>",
        *(f"<category term={_attribute(one_line(tag, _MAX_TITLE_CHARS))}/>" for tag in entry.tags[:_MAX_NAMES]),
        f"<content type='text'>{_text(entry.summary)}</content>" if entry.summary.strip() else "",
    ]
    return AtomEntry(item_id, order_s, f"<entry xmlns='{NS_ATOM}'>{''.join(parts)}</entry>")


def entry_uuid(channel: Channel, entry: Entry) -> str:
    """Return the UUID (version 5) of an entry of a channel; edits of the entry do not change it."""
    name = _NAMESPACE_URL + f"{channel.id}/{entry.key}".encode()
    octets = bytearray(hashlib.sha1(name, usedforsecurity=False).digest()[:16])
    octets[6], octets[8] = octets[6] & 0x0F | 0x50, octets[8] & 0x3F | 0x80
    return "-".join(part.hex() for part in (octets[:4], octets[4:6], octets[6:8], octets[8:10], octets[10:]))


def _changed_line(change: Change) -> str:
    heading = f" ({one_line(change.entry.title, 60)})" if change.entry.title.strip() else ""
    before = f" (was: {change.before})" if change.before else ""
    return f"{_SIGNS[change.kind]} line {change.line}{heading}: {change.entry.summary}{before}"


def _text(text: str) -> str:
    return escape(remove_invalid_chars(text), {"\r": "&#13;"})


def _attribute(text: str) -> str:
    return quoteattr(remove_invalid_chars(text))


def format_date(at_s: float) -> str:
    """Return a Unix time as Atom writes it (RFC 3339)."""
    return datetime.fromtimestamp(int(at_s), UTC).isoformat().replace("+00:00", "Z")
