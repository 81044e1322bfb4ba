"""The bot's replies to service discovery: identity, features, capabilities, software version and contact addresses.

Implements the responding side of XEP-0030 (with its extensions XEP-0115, XEP-0128 and XEP-0157) and of XEP-0092. The
responses do not depend on the sender. Requests for the bot's profile are answered from :mod:`bots.xmpp.bot_profile`.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from bots.commands.verb_synonyms import VERBS
from bots.i18n.translator import Translator
from bots.replies.help_texts import command_title
from bots.xmpp.bot_profile import AVATAR_ID, BOT_NAME, NS_NICK, NS_PUBSUB, VCARD4, VCARD_TEMP, profile_items
from bots.xmpp.stanzas import data_form

NS_COMMANDS: Final = "http://jabber.org/protocol/commands"

_NS_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_NS_DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
_NS_VERSION: Final = "jabber:iq:version"
_CAPS_NODE: Final = "urn:coronet:caps"

_IDENTITY: Final = ("client", "bot", "", BOT_NAME)
_FEATURES: Final = sorted(
    (
        _NS_DISCO_INFO, _NS_DISCO_ITEMS, _NS_VERSION, NS_COMMANDS, NS_NICK,
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
"""Extension forms (XEP-0128): form type → field → values of the field."""


def caps_verification(identity: tuple[str, str, str, str], features: list[str], forms: DiscoveryForms) -> str:
    """Return the verification string for entity capabilities (XEP-0115 §5.1).

    ``identity`` consists of category, type, language and name. ``forms`` maps the type of each extension form
    (XEP-0128) to its fields and their values.
    """
    parts = ["/".join(identity), *sorted(features)]
    for form_type, fields in sorted(forms.items()):
        parts += [form_type, *(part for name in sorted(fields) for part in (name, *sorted(fields[name])))]
    text = "".join(f"{part}<" for part in parts)
    return base64.b64encode(hashlib.sha1(text.encode(), usedforsecurity=False).digest()).decode()


class DiscoveryProfile:
    """What the bot says about itself in service discovery, including its operators' contact addresses (XEP-0157)."""

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
        """Return the payload of the response to an ``<iq type='get'/>``; None if the bot does not support the request.

        The bot responds to requests for service discovery, the software version and the profile, and to pings.
        ``address`` is the JID to which the request was sent. ``translator`` determines the language of the commands'
        names.
        """
        request = iq[0] if len(iq) else iq
        node = request.get("node", "")
        software = f"<name>{BOT_NAME}</name><version>{escape(version('coronet'))}</version>"
        payloads: dict[str, Callable[[], str | None]] = {
            f"{{{_NS_DISCO_INFO}}}query": lambda: self._info(node, translator),
            f"{{{_NS_DISCO_ITEMS}}}query": lambda: _items(node, address, translator),
            f"{{{_NS_VERSION}}}query": lambda: f"<query xmlns='{_NS_VERSION}'>{software}</query>",
            f"{{{NS_PUBSUB}}}pubsub": lambda: profile_items(request),
            "{urn:xmpp:ping}ping": lambda: "",
            "{vcard-temp}vCard": lambda: VCARD_TEMP,
            "{urn:ietf:params:xml:ns:vcard-4.0}vcard": lambda: VCARD4,
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
