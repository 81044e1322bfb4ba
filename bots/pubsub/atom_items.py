"""Conversion of a channel's versions to items of a pubsub node: Atom entries (RFC 4287, XEP-0472).

The same versions always produce the same items. The id of an item is derived from the key of its entry. Therefore an
item can safely be published again, and an edited entry replaces the item of its earlier state.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5
from xml.etree.ElementTree import Element, canonicalize, tostring
from xml.sax.saxutils import escape, quoteattr

import msgspec

from bots.delivery.notification_text import render_notification
from bots.i18n.translator import SOURCE_LANGUAGE, get_translator
from bots.xmpp.stanzas import remove_invalid_chars
from service.feeds.canonical_urls import without_selector
from service.feeds.parsing.html_text import one_line
from service.model import Channel, ChannelId, Delta, Entry

NS_ATOM: Final = "http://www.w3.org/2005/Atom"
_MAX_NAMES: Final = 10
_MAX_TITLE_CHARS: Final = 300
_MAX_LINK_CHARS: Final = 2_000
_MAX_FUTURE_S: Final = 86_400.0
"""A publication date is ignored if it is later than the detection of the entry by more than this time."""


class NodeItem(msgspec.Struct, frozen=True):
    """An item on a pubsub node: its id, and an Atom entry as XML."""

    id: str
    payload: str


def node_uri(service: str, channel_id: ChannelId, item_id: str = "") -> str:
    """Return the XMPP URI of a channel's node, or of one item on it (XEP-0060 §12.21, XEP-0147)."""
    return f"xmpp:{service}?;node={quote(channel_id, safe='')}" + (f";item={item_id}" if item_id else "")


def build_items(channel: Channel, deltas: Sequence[Delta], service: str) -> list[NodeItem]:
    """Convert the changes of a channel to items of its pubsub node; return the items, oldest first.

    - ``deltas``: the changes in successive versions of the channel, oldest first.
    - ``service``: the JID of the pubsub service.

    If an entry changed several times, the result contains one item with its latest state.
    """
    items: dict[str, NodeItem] = {}
    for delta in deltas:
        for item in _delta_items(channel, delta, service):
            items.pop(item.id, None)
            items[item.id] = item
    return list(items.values())


def is_equal(first: Element, second: Element) -> bool:
    """Return whether two elements are equal, even if they use different prefixes for the same namespaces."""
    texts = [canonicalize(tostring(element), rewrite_prefixes=True) for element in (first, second)]
    return texts[0] == texts[1]


def _delta_items(channel: Channel, delta: Delta, service: str) -> list[NodeItem]:
    if any(change.line for change in delta.changes):  # a page: one item with its changed lines
        text = render_notification([channel], [delta], {}, {}, get_translator(SOURCE_LANGUAGE))
        entry = Entry(f"version {delta.version}", channel.title, without_selector(channel.url), text)
        return [_item(channel, entry, delta.detected_s, delta.detected_s, service)]
    items = []
    for change in delta.changes:
        if change.kind != "omission":
            stated_s = change.entry.published
            is_plausible = stated_s is not None and 0 <= stated_s <= delta.detected_s + _MAX_FUTURE_S
            published_s = stated_s if is_plausible and stated_s is not None else delta.detected_s
            updated_s = delta.detected_s if change.kind == "replacement" else published_s
            items.append(_item(channel, change.entry, published_s, updated_s, service))
    return items


def _item(channel: Channel, entry: Entry, published_s: float, updated_s: float, service: str) -> NodeItem:
    item_id = str(uuid5(NAMESPACE_URL, f"{channel.id}/{entry.key}"))
    heading = one_line(entry.title, _MAX_TITLE_CHARS) or one_line(entry.summary, _MAX_TITLE_CHARS)
    authors = entry.authors[:_MAX_NAMES] or (channel.title or channel.url,)
    parts = [
        f"<id>urn:uuid:{item_id}</id>",
        f"<title type='text'>{_text(heading or entry.link or channel.url)}</title>",
        f"<link rel='alternate' type='text/html' href={_attribute(entry.link[:_MAX_LINK_CHARS])}/>"
        if entry.link
        else "",
        *(f"<author><name>{_text(one_line(name, _MAX_TITLE_CHARS))}</name></author>" for name in authors),
        f"<link rel='alternate' href={_attribute(node_uri(service, channel.id, item_id))}/>",
        f"<published>{_date(published_s)}</published><updated>{_date(updated_s)}</updated>",
        *(f"<category term={_attribute(one_line(tag, _MAX_TITLE_CHARS))}/>" for tag in entry.tags[:_MAX_NAMES]),
        f"<content type='text'>{_text(entry.summary)}</content>" if entry.summary.strip() else "",
    ]
    return NodeItem(item_id, f"<entry xmlns='{NS_ATOM}'>{''.join(parts)}</entry>")


def _text(text: str) -> str:
    return escape(remove_invalid_chars(text), {"\r": "&#13;"})


def _attribute(text: str) -> str:
    return quoteattr(remove_invalid_chars(text))


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat().replace("+00:00", "Z")
