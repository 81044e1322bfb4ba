"""What other people's software learns of the bot: service discovery, capabilities, version, vCards, and avatar.

Every request gets the same answer, whoever sends it: XEP-0030 with XEP-0128, 0115, 0092, 0054 with 0153, 0292 and 0084.
"""

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from bots.commands.parser import VERBS
from bots.i18n.translator import Voice
from bots.replies.help import command_title
from bots.xmpp.interface import XmppClient
from bots.xmpp.pubsub import Pubsub, PubsubRefused
from bots.xmpp.stanzas import data_form

NAME: Final = "Coronet"
COMMANDS: Final = "http://jabber.org/protocol/commands"
AVATAR_DATA: Final = "urn:xmpp:avatar:data"
AVATAR_METADATA: Final = "urn:xmpp:avatar:metadata"

_NICK: Final = "http://jabber.org/protocol/nick"
_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
_VERSION: Final = "jabber:iq:version"
_PUBSUB: Final = "http://jabber.org/protocol/pubsub"
_NOTE: Final = escape("Watches feeds and web pages and tells you when something new appears. Say `help`.")
_CAPS_NODE: Final = "urn:coronet:caps"
_SIDE: Final = 96

_IDENTITY: Final = ("client", "bot", "", NAME)
_FEATURES: Final = sorted(
    (
        _DISCO_INFO, _DISCO_ITEMS, _VERSION, COMMANDS, _NICK,
        "http://jabber.org/protocol/caps", "http://jabber.org/protocol/chatstates", "http://jabber.org/protocol/muc",
        "jabber:x:conference", "jabber:x:data", "jabber:x:oob",
        "urn:ietf:params:xml:ns:vcard-4.0", "urn:xmpp:chat-markers:0", "urn:xmpp:delay", "urn:xmpp:fallback:0",
        "urn:xmpp:ping", "urn:xmpp:reactions:0", "urn:xmpp:receipts", "urn:xmpp:reply:0", "urn:xmpp:sid:0",
        "urn:xmpp:styling:0", "vcard-temp",
    )
)  # fmt: skip
_SOFTWARE: Final = {"software": NAME, "software_version": version("coronet")}
"""XEP-0232, a form of XEP-0128."""
_FORM_TYPE: Final = "urn:xmpp:dataforms:softwareinfo"

_PNG: Final = files("bots").joinpath("avatar.png").read_bytes()
_PNG_BASE64: Final = base64.b64encode(_PNG).decode()
AVATAR_ID: Final = hashlib.sha1(_PNG, usedforsecurity=False).hexdigest()
"""SHA-1 of the picture, as XEP-0084 and XEP-0153 name it."""

_VCARD_TEMP: Final = (
    f"<vCard xmlns='vcard-temp'><FN>{NAME}</FN><NICKNAME>{NAME}</NICKNAME><DESC>{_NOTE}</DESC>"
    f"<PHOTO><TYPE>image/png</TYPE><BINVAL>{_PNG_BASE64}</BINVAL></PHOTO></vCard>"
)
_VCARD4: Final = (
    f"<vcard xmlns='urn:ietf:params:xml:ns:vcard-4.0'><fn><text>{NAME}</text></fn>"
    f"<nickname><text>{NAME}</text></nickname><note><text>{_NOTE}</text></note></vcard>"
)
_PICTURE: Final = f"<info bytes='{len(_PNG)}' id='{AVATAR_ID}' type='image/png' width='{_SIDE}' height='{_SIDE}'/>"
_PUBLISHED: Final = {
    AVATAR_DATA: (AVATAR_ID, f"<data xmlns='{AVATAR_DATA}'>{_PNG_BASE64}</data>"),
    AVATAR_METADATA: (AVATAR_ID, f"<metadata xmlns='{AVATAR_METADATA}'>{_PICTURE}</metadata>"),
    "urn:xmpp:vcard4": ("current", _VCARD4),
    _NICK: ("current", f"<nick xmlns='{_NICK}'>{NAME}</nick>"),
}
"""The nodes of our account: node → (item id, payload)."""


def verification(
    identity: tuple[str, str, str, str], features: list[str], form_type: str, fields: Mapping[str, str]
) -> str:
    """Return the verification string of XEP-0115 §5.1; each field of the form has one value."""
    form = [form_type, *(part for name in sorted(fields) for part in (name, fields[name]))] if fields else []
    stated = "".join(f"{part}<" for part in ("/".join(identity), *sorted(features), *form))
    return base64.b64encode(hashlib.sha1(stated.encode(), usedforsecurity=False).digest()).decode()


_VER: Final = verification(_IDENTITY, _FEATURES, _FORM_TYPE, _SOFTWARE)

PRESENT: Final = (
    f"<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node={quoteattr(_CAPS_NODE)} ver={quoteattr(_VER)}/>"
    f"<x xmlns='vcard-temp:x:update'><photo>{AVATAR_ID}</photo></x>"
)
"""The content of each of our presences."""


def answer(iq: Element, address: str, voice: Voice) -> str | None:
    """Return the payload of the answer to somebody's ``<iq type='get'/>`` to ``address``, None if it is not for us."""
    asked = iq[0] if len(iq) else iq
    node = asked.get("node", "")
    told = f"<name>{NAME}</name><version>{escape(_SOFTWARE['software_version'])}</version>"
    answers: dict[str, Callable[[], str | None]] = {
        f"{{{_DISCO_INFO}}}query": lambda: _info(node, voice),
        f"{{{_DISCO_ITEMS}}}query": lambda: _items(node, address, voice),
        f"{{{_VERSION}}}query": lambda: f"<query xmlns='{_VERSION}'>{told}</query>",
        f"{{{_PUBSUB}}}pubsub": lambda: _published(asked),
        "{urn:xmpp:ping}ping": lambda: "",
        "{vcard-temp}vCard": lambda: _VCARD_TEMP,
        "{urn:ietf:params:xml:ns:vcard-4.0}vcard": lambda: _VCARD4,
    }
    return answers[asked.tag]() if asked.tag in answers else None


async def publish(link: XmppClient) -> None:
    """Publish the picture, name and card of our account that its server does not have yet. Raises XmppSessionLost.

    Contacts are notified of each publication, so what is there is left alone. A component answers for itself.
    """
    account = Pubsub(link, link.address)
    for node, (ident, payload) in _PUBLISHED.items():
        kept: Mapping[str, Element] = {}
        with contextlib.suppress(PubsubRefused):  # there is no such node
            kept = await account.items(node, [ident])
        if not kept:
            with contextlib.suppress(PubsubRefused):  # the server keeps no nodes for accounts
                await account.publish(node, ident, payload, {"access_model": "open"})
    card = await link.request(link.address, "get", "<vCard xmlns='vcard-temp'/>")
    if not card.findtext("{vcard-temp}vCard/{vcard-temp}FN"):
        await link.request(link.address, "set", _VCARD_TEMP)


def _info(node: str, voice: Voice) -> str | None:
    if node in ("", f"{_CAPS_NODE}#{_VER}"):
        form = data_form("result", _FORM_TYPE, _SOFTWARE)
        content = _identity("client", "bot", NAME) + _features(_FEATURES) + form
    elif node == COMMANDS:
        content = _identity("automation", "command-list", NAME)
    elif node in VERBS:
        content = _identity("automation", "command-node", command_title(node, voice)) + _features(
            (COMMANDS, "jabber:x:data")
        )
    else:
        return None
    return _query(_DISCO_INFO, node, content)


def _items(node: str, address: str, voice: Voice) -> str | None:
    if node not in ("", COMMANDS):
        return None
    items = (
        f"<item jid={quoteattr(address)} node={quoteattr(verb)} name={quoteattr(command_title(verb, voice))}/>"
        for verb in (VERBS if node else ())
    )
    return _query(_DISCO_ITEMS, node, "".join(items))


def _identity(category: str, kind: str, named: str) -> str:
    return f"<identity category='{category}' type='{kind}' name={quoteattr(named)}/>"


def _features(features: Iterable[str]) -> str:
    return "".join(f"<feature var='{feature}'/>" for feature in features)


def _query(namespace: str, node: str, content: str) -> str:
    stated = f" node={quoteattr(node)}" if node else ""
    return f"<query xmlns='{namespace}'{stated}>{content}</query>"


def _published(pubsub: Element) -> str | None:
    """Return what a client asks of us as of an account (XEP-0163); None for a node that we have not."""
    node = next((child.get("node", "") for child in pubsub if child.tag == f"{{{_PUBSUB}}}items"), "")
    if node not in _PUBLISHED:
        return None
    ident, payload = _PUBLISHED[node]
    return f"<pubsub xmlns='{_PUBSUB}'><items node='{node}'><item id='{ident}'>{payload}</item></items></pubsub>"
