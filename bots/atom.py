"""What a channel's versions say, as the items of a pubsub node: Atom entries (RFC 4287, XEP-0472). Pure.

An item says the same however often it is made of the same versions, under an id that is always the entry's: so it can
be published again, and a correction takes the place of what it corrects.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import msgspec

from bots.notifications import notification
from bots.stanzas import clean
from bots.voice import SOURCE, voice
from service.feeds.text import one_line
from service.feeds.urls import without_selector
from service.model import Channel, ChannelId, Delta, Entry

ATOM: Final = "http://www.w3.org/2005/Atom"
_MOST_NAMES: Final = 10
_TITLE_CHARS: Final = 300
_LINK_CHARS: Final = 2_000
_FUTURE_S: Final = 86_400.0
"""A date that is further ahead says nothing."""


class Item(msgspec.Struct, frozen=True):
    """One item of a node: its id there, and the Atom entry."""

    id: str
    payload: str


def node_uri(service: str, cid: ChannelId, item: str = "") -> str:
    """Return where people find a channel's node, or an item on it (XEP-0060 §12.21, XEP-0147)."""
    return f"xmpp:{service}?;node={quote(cid, safe='')}" + (f";item={item}" if item else "")


def items(channel: Channel, deltas: Sequence[Delta], service: str) -> list[Item]:
    """Return the items that these deltas, oldest first, leave: of an entry that changed twice, the last state."""
    found: dict[str, Item] = {}
    for delta in deltas:
        for item in _items(channel, delta, service):
            found.pop(item.id, None)
            found[item.id] = item
    return list(found.values())


def same(kept: Element, made: Element) -> bool:
    """Say whether two elements say the same."""
    return (
        kept.tag == made.tag
        and dict(kept.attrib) == dict(made.attrib)
        and (kept.text or "") == (made.text or "")
        and len(kept) == len(made)
        and all(map(same, kept, made))
    )


def _items(channel: Channel, delta: Delta, service: str) -> list[Item]:
    if any(change.line for change in delta.changes):
        return [_page(channel, delta, service)]
    return [
        _item(channel, change.entry, delta.detected_s, service, edited=change.kind == "replacement")
        for change in delta.changes
        if change.kind != "omission"
    ]


def _item(channel: Channel, entry: Entry, detected_s: float, service: str, *, edited: bool) -> Item:
    dated = entry.published is not None and 0 <= entry.published <= detected_s + _FUTURE_S
    published_s = entry.published if dated and entry.published is not None else detected_s
    return _written(
        channel, entry, service, key=entry.key, dates_s=(published_s, detected_s if edited else published_s)
    )


def _page(channel: Channel, delta: Delta, service: str) -> Item:
    """Return the one item of a page's version: its changed lines."""
    said = notification([channel], [delta], {}, {}, voice(SOURCE))
    entry = Entry("", channel.title, without_selector(channel.url), said)
    dates_s = (delta.detected_s, delta.detected_s)
    return _written(channel, entry, service, key=f"version {delta.version}", dates_s=dates_s)


def _written(channel: Channel, entry: Entry, service: str, *, key: str, dates_s: tuple[float, float]) -> Item:
    ident = str(uuid5(NAMESPACE_URL, f"{channel.id}/{key}"))
    published, updated = map(_date, dates_s)
    title = one_line(entry.title, _TITLE_CHARS) or one_line(entry.summary, _TITLE_CHARS) or entry.link or channel.url
    authors = entry.authors[:_MOST_NAMES] or (channel.title or channel.url,)
    parts = [
        f"<id>urn:uuid:{ident}</id>",
        f"<title type='text'>{_text(title)}</title>",
        *(f"<author><name>{_text(one_line(name, _TITLE_CHARS))}</name></author>" for name in authors),
        f"<link rel='alternate' href={_attribute(node_uri(service, channel.id, ident))}/>",
        f"<published>{published}</published><updated>{updated}</updated>",
        *(f"<category term={_attribute(one_line(tag, _TITLE_CHARS))}/>" for tag in entry.tags[:_MOST_NAMES]),
    ]
    if entry.link:
        parts.insert(2, f"<link rel='alternate' type='text/html' href={_attribute(entry.link[:_LINK_CHARS])}/>")
    if entry.summary.strip():
        parts.append(f"<content type='text'>{_text(entry.summary)}</content>")
    return Item(ident, f"<entry xmlns='{ATOM}'>{''.join(parts)}</entry>")


def _text(text: str) -> str:
    return escape(clean(text), {"\r": "&#13;"})


def _attribute(text: str) -> str:
    return quoteattr(clean(text))


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat().replace("+00:00", "Z")
