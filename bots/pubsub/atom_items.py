"""Conversion of a channel's versions to items of a pubsub node: Atom entries (RFC 4287, XEP-0472).

The id of an item is that of its entry. Therefore an item can safely be published again, and an edited entry replaces
the item of its earlier state.
"""

from collections.abc import Sequence
from urllib.parse import quote
from xml.etree.ElementTree import Element, canonicalize, tostring
from xml.sax.saxutils import quoteattr

import msgspec

from service.feeds.atom_writer import write_entries
from service.model import Channel, ChannelId, Delta


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

    def link_to_item(item_id: str) -> str:
        return f"<link rel='alternate' href={quoteattr(node_uri(service, channel.id, item_id))}/>"

    items: dict[str, NodeItem] = {}
    for delta in deltas:
        for entry in write_entries(channel, delta, further_elements=link_to_item):
            items.pop(entry.id, None)
            items[entry.id] = NodeItem(entry.id, entry.xml)
    return list(items.values())


def is_equal(first: Element, second: Element) -> bool:
    """Return whether two elements are equal, even if they use different prefixes for the same namespaces."""
    texts = [canonicalize(tostring(element), rewrite_prefixes=True) for element in (first, second)]
    return texts[0] == texts[1]
