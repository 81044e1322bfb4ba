"""The versions of a channel as the items of a pubsub node: Atom entries (RFC 4287, XEP-0472). Pure.

The same versions always give the same items, under ids made of the entries' keys: so an item can be published again,
and a correction takes the place of what it corrects.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import msgspec

from bots.delivery.notification_text import render_notification
from bots.i18n.translator import SOURCE, voice
from bots.xmpp.stanzas import remove_invalid_chars
from service.feeds.parsing.html_text import one_line
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
    if any(change.line for change in delta.changes):  # a page: one item with its changed lines
        said = render_notification([channel], [delta], {}, {}, voice(SOURCE))
        entry = Entry(f"version {delta.version}", channel.title, without_selector(channel.url), said)
        return [_item(channel, entry, delta.detected_s, delta.detected_s, service)]
    found = []
    for change in delta.changes:
        if change.kind != "omission":
            stated_s = change.entry.published
            dated = stated_s is not None and 0 <= stated_s <= delta.detected_s + _FUTURE_S
            published_s = stated_s if dated and stated_s is not None else delta.detected_s
            updated_s = delta.detected_s if change.kind == "replacement" else published_s
            found.append(_item(channel, change.entry, published_s, updated_s, service))
    return found


def _item(channel: Channel, entry: Entry, published_s: float, updated_s: float, service: str) -> Item:
    ident = str(uuid5(NAMESPACE_URL, f"{channel.id}/{entry.key}"))
    title = one_line(entry.title, _TITLE_CHARS) or one_line(entry.summary, _TITLE_CHARS) or entry.link or channel.url
    authors = entry.authors[:_MOST_NAMES] or (channel.title or channel.url,)
    parts = [
        f"<id>urn:uuid:{ident}</id>",
        f"<title type='text'>{_text(title)}</title>",
        f"<link rel='alternate' type='text/html' href={_attribute(entry.link[:_LINK_CHARS])}/>" if entry.link else "",
        *(f"<author><name>{_text(one_line(name, _TITLE_CHARS))}</name></author>" for name in authors),
        f"<link rel='alternate' href={_attribute(node_uri(service, channel.id, ident))}/>",
        f"<published>{_date(published_s)}</published><updated>{_date(updated_s)}</updated>",
        *(f"<category term={_attribute(one_line(tag, _TITLE_CHARS))}/>" for tag in entry.tags[:_MOST_NAMES]),
        f"<content type='text'>{_text(entry.summary)}</content>" if entry.summary.strip() else "",
    ]
    return Item(ident, f"<entry xmlns='{ATOM}'>{''.join(parts)}</entry>")


def _text(text: str) -> str:
    return escape(remove_invalid_chars(text), {"\r": "&#13;"})


def _attribute(text: str) -> str:
    return quoteattr(remove_invalid_chars(text))


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat().replace("+00:00", "Z")
