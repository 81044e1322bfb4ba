"""What we ask of a pubsub service (XEP-0060), as the content of requests, and what its answers say. Pure.

A node is a social feed (XEP-0472): open to all, written by us alone.
"""

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from bots.atom import Item
from bots.stanzas import clean

_PUBSUB: Final = "http://jabber.org/protocol/pubsub"
_SOCIAL_FEED: Final = "urn:xmpp:pubsub-social-feed:1"


def creation(node: str, title: str, description: str) -> str:
    """Return the request ("set") that makes a node."""
    return (
        f"<pubsub xmlns='{_PUBSUB}'><create node={quoteattr(node)}/>"
        f"<configure>{_form(title, description)}</configure></pubsub>"
    )


def configuration(node: str, title: str, description: str) -> str:
    """Return the request ("set") that makes a node that is there what ours are."""
    return (
        f"<pubsub xmlns='{_PUBSUB}#owner'><configure node={quoteattr(node)}>"
        f"{_form(title, description)}</configure></pubsub>"
    )


def deletion(node: str) -> str:
    """Return the request ("set") that deletes a node with all that is on it; its subscribers are told."""
    return f"<pubsub xmlns='{_PUBSUB}#owner'><delete node={quoteattr(node)}/></pubsub>"


def retrieval(node: str, idents: Sequence[str]) -> str:
    """Return the request ("get") for items."""
    wanted = "".join(f"<item id={quoteattr(ident)}/>" for ident in idents)
    return f"<pubsub xmlns='{_PUBSUB}'><items node={quoteattr(node)}>{wanted}</items></pubsub>"


def publication(node: str, item: Item) -> str:
    """Return the request ("set") that publishes an item, in the place of one with its id; subscribers are told."""
    return (
        f"<pubsub xmlns='{_PUBSUB}'><publish node={quoteattr(node)}>"
        f"<item id={quoteattr(item.id)}>{item.payload}</item></publish></pubsub>"
    )


def retrieved(answer: Element) -> dict[str, Element]:
    """Return the payloads of the items that an answer holds, by their ids."""
    return {item.get("id", ""): item[0] for item in answer.iter(f"{{{_PUBSUB}}}item") if len(item)}


def _form(title: str, description: str) -> str:
    fields = {
        "FORM_TYPE": f"{_PUBSUB}#node_config", "pubsub#title": title, "pubsub#description": description,
        "pubsub#type": _SOCIAL_FEED, "pubsub#persist_items": "1", "pubsub#max_items": "max",
        "pubsub#access_model": "open", "pubsub#publish_model": "publishers", "pubsub#deliver_payloads": "1",
        "pubsub#notify_delete": "1", "pubsub#notify_retract": "1", "pubsub#send_last_published_item": "never",
    }  # fmt: skip
    told = "".join(f"<field var='{var}'><value>{escape(clean(value))}</value></field>" for var, value in fields.items())
    return f"<x xmlns='jabber:x:data' type='submit'>{told}</x>"
