"""The bot's public profile: service discovery, entity capabilities, version, vCards and avatar.

Implements the responding side of XEP-0030 with XEP-0128, XEP-0157 and XEP-0115, XEP-0092, XEP-0054 with XEP-0153,
XEP-0292, and XEP-0084. The responses do not depend on the sender.
"""

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from bots.commands.verb_synonyms import VERBS
from bots.i18n.translator import Translator
from bots.replies.help_texts import command_title
from bots.xmpp.interface import XmppClient
from bots.xmpp.pubsub_client import PubsubClient, PubsubRefused
from bots.xmpp.stanzas import data_form

BOT_NAME: Final = "Coronet"
NS_COMMANDS: Final = "http://jabber.org/protocol/commands"
NS_AVATAR_DATA: Final = "urn:xmpp:avatar:data"
NS_AVATAR_METADATA: Final = "urn:xmpp:avatar:metadata"

_NS_NICK: Final = "http://jabber.org/protocol/nick"
_NS_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_NS_DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
_NS_VERSION: Final = "jabber:iq:version"
_NS_PUBSUB: Final = "http://jabber.org/protocol/pubsub"
_DESCRIPTION: Final = escape("Watches feeds and web pages and tells you when something new appears. Say `help`.")
_CAPS_NODE: Final = "urn:coronet:caps"
_AVATAR_PIXELS: Final = 96

_IDENTITY: Final = ("client", "bot", "", BOT_NAME)
_FEATURES: Final = sorted(
    (
        _NS_DISCO_INFO, _NS_DISCO_ITEMS, _NS_VERSION, NS_COMMANDS, _NS_NICK,
        "http://jabber.org/protocol/caps", "http://jabber.org/protocol/chatstates", "http://jabber.org/protocol/muc",
        "jabber:x:conference", "jabber:x:data", "jabber:x:oob",
        "urn:ietf:params:xml:ns:vcard-4.0", "urn:xmpp:chat-markers:0", "urn:xmpp:delay", "urn:xmpp:fallback:0",
        "urn:xmpp:ping", "urn:xmpp:reactions:0", "urn:xmpp:receipts", "urn:xmpp:reply:0", "urn:xmpp:sid:0",
        "urn:xmpp:styling:0", "vcard-temp",
    )
)  # fmt: skip
_SOFTWARE: Final = {"software": (BOT_NAME,), "software_version": (version("coronet"),)}
"""Fields of the software information form (XEP-0232, an extension form of XEP-0128)."""
_SOFTWARE_FORM_TYPE: Final = "urn:xmpp:dataforms:softwareinfo"
_CONTACT_FORM_TYPE: Final = "http://jabber.org/network/serverinfo"
"""Type of the form with contact addresses (XEP-0157 §2)."""

DiscoveryForms = Mapping[str, Mapping[str, Sequence[str]]]
"""Extension forms (XEP-0128): the values of each field, by form type and field."""

_PNG: Final = files("bots").joinpath("avatar.png").read_bytes()
_PNG_BASE64: Final = base64.b64encode(_PNG).decode()
AVATAR_ID: Final = hashlib.sha1(_PNG, usedforsecurity=False).hexdigest()
"""Id of the avatar: the SHA-1 of the image (XEP-0084, XEP-0153)."""

_VCARD_TEMP: Final = (
    f"<vCard xmlns='vcard-temp'><FN>{BOT_NAME}</FN><NICKNAME>{BOT_NAME}</NICKNAME><DESC>{_DESCRIPTION}</DESC>"
    f"<PHOTO><TYPE>image/png</TYPE><BINVAL>{_PNG_BASE64}</BINVAL></PHOTO></vCard>"
)
_VCARD4: Final = (
    f"<vcard xmlns='urn:ietf:params:xml:ns:vcard-4.0'><fn><text>{BOT_NAME}</text></fn>"
    f"<nickname><text>{BOT_NAME}</text></nickname><note><text>{_DESCRIPTION}</text></note></vcard>"
)
_AVATAR_INFO: Final = (
    f"<info bytes='{len(_PNG)}' id='{AVATAR_ID}' type='image/png' width='{_AVATAR_PIXELS}' height='{_AVATAR_PIXELS}'/>"
)
_PEP_ITEMS: Final = {
    NS_AVATAR_DATA: (AVATAR_ID, f"<data xmlns='{NS_AVATAR_DATA}'>{_PNG_BASE64}</data>"),
    NS_AVATAR_METADATA: (AVATAR_ID, f"<metadata xmlns='{NS_AVATAR_METADATA}'>{_AVATAR_INFO}</metadata>"),
    "urn:xmpp:vcard4": ("current", _VCARD4),
    _NS_NICK: ("current", f"<nick xmlns='{_NS_NICK}'>{BOT_NAME}</nick>"),
}
"""The items that the bot publishes in its own account (XEP-0163): node → (item id, payload)."""


def caps_verification(identity: tuple[str, str, str, str], features: list[str], forms: DiscoveryForms) -> str:
    """Return the verification string of entity capabilities (XEP-0115 §5.1).

    ``identity`` is category, type, language and name; ``forms`` are the extension forms.
    """
    parts = ["/".join(identity), *sorted(features)]
    for form_type, fields in sorted(forms.items()):
        parts += [form_type, *(part for name in sorted(fields) for part in (name, *sorted(fields[name])))]
    text = "".join(f"{part}<" for part in parts)
    return base64.b64encode(hashlib.sha1(text.encode(), usedforsecurity=False).digest()).decode()


class DiscoveryProfile:
    """The bot's profile with the contact addresses of its operators (XEP-0157)."""

    def __init__(self, contact_addresses: Sequence[str]) -> None:
        """Create the profile. ``contact_addresses`` are URIs, such as ``mailto:abuse@example.org``."""
        self._forms: DiscoveryForms = {_SOFTWARE_FORM_TYPE: _SOFTWARE}
        if contact_addresses:
            contacts = {"abuse-addresses": contact_addresses, "admin-addresses": contact_addresses}
            self._forms = {**self._forms, _CONTACT_FORM_TYPE: contacts}
        self._caps_ver = caps_verification(_IDENTITY, _FEATURES, self._forms)
        self.presence_content = (
            f"<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node={quoteattr(_CAPS_NODE)}"
            f" ver={quoteattr(self._caps_ver)}/><x xmlns='vcard-temp:x:update'><photo>{AVATAR_ID}</photo></x>"
        )
        """The content of every available presence of the bot: capabilities (XEP-0115) and avatar id (XEP-0153)."""

    def response_payload(self, iq: Element, address: str, translator: Translator) -> str | None:
        """Return the payload of the response to an ``<iq type='get'/>`` sent to ``address``.

        Returns None if the request is not for service discovery, version, profile or ping. Names of commands are in the
        language of ``translator``.
        """
        request = iq[0] if len(iq) else iq
        node = request.get("node", "")
        software = f"<name>{BOT_NAME}</name><version>{escape(version('coronet'))}</version>"
        payloads: dict[str, Callable[[], str | None]] = {
            f"{{{_NS_DISCO_INFO}}}query": lambda: self._info(node, translator),
            f"{{{_NS_DISCO_ITEMS}}}query": lambda: _items(node, address, translator),
            f"{{{_NS_VERSION}}}query": lambda: f"<query xmlns='{_NS_VERSION}'>{software}</query>",
            f"{{{_NS_PUBSUB}}}pubsub": lambda: _profile_items(request),
            "{urn:xmpp:ping}ping": lambda: "",
            "{vcard-temp}vCard": lambda: _VCARD_TEMP,
            "{urn:ietf:params:xml:ns:vcard-4.0}vcard": lambda: _VCARD4,
        }
        return payloads[request.tag]() if request.tag in payloads else None

    def _info(self, node: str, translator: Translator) -> str | None:
        if node in ("", f"{_CAPS_NODE}#{self._caps_ver}"):
            forms = (data_form("result", form_type, fields) for form_type, fields in self._forms.items())
            content = _identity("client", "bot", BOT_NAME) + _features(_FEATURES) + "".join(forms)
        elif node == NS_COMMANDS:
            content = _identity("automation", "command-list", BOT_NAME)
        elif node in VERBS:
            content = _identity("automation", "command-node", command_title(node, translator)) + _features(
                (NS_COMMANDS, "jabber:x:data")
            )
        else:
            return None
        return _query(_NS_DISCO_INFO, node, content)


async def publish_profile(xmpp: XmppClient) -> None:
    """Publish the avatar, nickname and vCards of the bot's account, unless its server already has them.

    Items that exist are not published again, because contacts are notified of each publication. A component publishes
    nothing; it responds to requests instead. Raises XmppSessionLost.
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
        await xmpp.request(xmpp.address, "set", _VCARD_TEMP)


def _items(node: str, address: str, translator: Translator) -> str | None:
    if node not in ("", NS_COMMANDS):
        return None
    items = (
        f"<item jid={quoteattr(address)} node={quoteattr(verb)} name={quoteattr(command_title(verb, translator))}/>"
        for verb in (VERBS if node else ())
    )
    return _query(_NS_DISCO_ITEMS, node, "".join(items))


def _identity(category: str, kind: str, name: str) -> str:
    return f"<identity category='{category}' type='{kind}' name={quoteattr(name)}/>"


def _features(features: Iterable[str]) -> str:
    return "".join(f"<feature var='{feature}'/>" for feature in features)


def _query(namespace: str, node: str, content: str) -> str:
    node_attribute = f" node={quoteattr(node)}" if node else ""
    return f"<query xmlns='{namespace}'{node_attribute}>{content}</query>"


def _profile_items(pubsub: Element) -> str | None:
    """Return the part of the bot's profile that a client requests as a pubsub node (XEP-0163).

    The result is None if the bot has no such node. Accounts publish their profiles on such nodes, so clients request
    them from a component too.
    """
    node = next((child.get("node", "") for child in pubsub if child.tag == f"{{{_NS_PUBSUB}}}items"), "")
    if node not in _PEP_ITEMS:
        return None
    item_id, payload = _PEP_ITEMS[node]
    return f"<pubsub xmlns='{_NS_PUBSUB}'><items node='{node}'><item id='{item_id}'>{payload}</item></items></pubsub>"
