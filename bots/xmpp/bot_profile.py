"""The bot's profile: name, description, vCards and avatar.

An account publishes its profile on its own pubsub nodes (XEP-0163): the avatar (XEP-0084), a vCard (XEP-0292) and the
nickname. In addition, it has a vCard in the older format (XEP-0054 with XEP-0153).
"""

import base64
import contextlib
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from bots.xmpp.interface import XmppClient
from bots.xmpp.pubsub_client import PubsubClient, PubsubRefused

BOT_NAME: Final = "Coronet"

NS_AVATAR_DATA: Final = "urn:xmpp:avatar:data"
NS_AVATAR_METADATA: Final = "urn:xmpp:avatar:metadata"

NS_NICK: Final = "http://jabber.org/protocol/nick"

NS_PUBSUB: Final = "http://jabber.org/protocol/pubsub"
_DESCRIPTION: Final = escape("Watches feeds and web pages and tells you when something new appears. Say `help`.")

_AVATAR_PIXELS: Final = 96

_PNG: Final = files("bots").joinpath("avatar.png").read_bytes()
_PNG_BASE64: Final = base64.b64encode(_PNG).decode()
AVATAR_ID: Final = hashlib.sha1(_PNG, usedforsecurity=False).hexdigest()
"""Id of the avatar: the SHA-1 hash of the image (XEP-0084, XEP-0153)."""

VCARD_TEMP: Final = (
    f"<vCard xmlns='vcard-temp'><FN>{BOT_NAME}</FN><NICKNAME>{BOT_NAME}</NICKNAME><DESC>{_DESCRIPTION}</DESC>"
    f"<PHOTO><TYPE>image/png</TYPE><BINVAL>{_PNG_BASE64}</BINVAL></PHOTO></vCard>"
)
VCARD4: Final = (
    f"<vcard xmlns='urn:ietf:params:xml:ns:vcard-4.0'><fn><text>{BOT_NAME}</text></fn>"
    f"<nickname><text>{BOT_NAME}</text></nickname><note><text>{_DESCRIPTION}</text></note></vcard>"
)
_AVATAR_INFO: Final = (
    f"<info bytes='{len(_PNG)}' id='{AVATAR_ID}' type='image/png' width='{_AVATAR_PIXELS}' height='{_AVATAR_PIXELS}'/>"
)
_PEP_ITEMS: Final = {
    NS_AVATAR_DATA: (AVATAR_ID, f"<data xmlns='{NS_AVATAR_DATA}'>{_PNG_BASE64}</data>"),
    NS_AVATAR_METADATA: (AVATAR_ID, f"<metadata xmlns='{NS_AVATAR_METADATA}'>{_AVATAR_INFO}</metadata>"),
    "urn:xmpp:vcard4": ("current", VCARD4),
    NS_NICK: ("current", f"<nick xmlns='{NS_NICK}'>{BOT_NAME}</nick>"),
}
"""The items that the bot publishes on the pubsub nodes of its own account (XEP-0163). Each node is mapped to (item id,
payload)."""


async def publish_profile(xmpp: XmppClient) -> None:
    """Publish the avatar, nickname and vCards of the bot's account, except those that its server already has.

    Publishing them again would needlessly notify all contacts. Call this only for an account; a component responds to
    requests for its profile instead. Raises XmppSessionLost if the session ends.
    """
    account = PubsubClient(xmpp, xmpp.address)
    for node, (item_id, payload) in _PEP_ITEMS.items():
        existing: Mapping[str, Element] = {}
        with contextlib.suppress(PubsubRefused):  # the node does not exist
            existing = await account.get_items(node, [item_id])
        if not existing:
            with contextlib.suppress(PubsubRefused):  # the server does not support XEP-0163
                await account.publish_item(node, item_id, payload, {"access_model": "open"})
    card = await xmpp.request(xmpp.address, "get", "<vCard xmlns='vcard-temp'/>")
    if not card.findtext("{vcard-temp}vCard/{vcard-temp}FN"):
        await xmpp.request(xmpp.address, "set", VCARD_TEMP)


def profile_items(pubsub: Element) -> str | None:
    """Return the response to a request for a pubsub node of the bot's profile, such as its avatar (XEP-0163).

    ``pubsub`` is the element of the request that names the node. Return None if the profile has no such node. An
    account stores these nodes on its server, but a component must respond to requests for them itself.
    """
    node = next((child.get("node", "") for child in pubsub if child.tag == f"{{{NS_PUBSUB}}}items"), "")
    if node not in _PEP_ITEMS:
        return None
    item_id, payload = _PEP_ITEMS[node]
    return f"<pubsub xmlns='{NS_PUBSUB}'><items node='{node}'><item id='{item_id}'>{payload}</item></items></pubsub>"
