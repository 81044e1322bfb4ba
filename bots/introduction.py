"""Who we are, for other people's software: service discovery, capabilities, version, vCards and avatar.

One answer per question, whoever asks: XEP-0030 with XEP-0128, 0115, 0092, 0054 with 0153, 0292 and 0084. A component
answers for itself; what an account shows is published where its server keeps it.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from bots.commands import VERBS
from bots.forms import name
from bots.link import AskingLink
from bots.voice import Voice

NAME: Final = "Coronet"
COMMANDS: Final = "http://jabber.org/protocol/commands"
AVATAR_METADATA: Final = "urn:xmpp:avatar:metadata"

_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
_VERSION: Final = "jabber:iq:version"
_PUBSUB: Final = "http://jabber.org/protocol/pubsub"
_NOTE: Final = "Watches feeds and web pages and tells you when something new appears. Say `help`."
_CAPS_NODE: Final = "urn:coronet:caps"
_SIDE: Final = 96

_FEATURES: Final = sorted(
    (
        _DISCO_INFO, _DISCO_ITEMS, _VERSION, COMMANDS,
        "http://jabber.org/protocol/caps", "http://jabber.org/protocol/chatstates", "http://jabber.org/protocol/muc",
        "http://jabber.org/protocol/nick", "jabber:x:conference", "jabber:x:data", "jabber:x:oob",
        "urn:ietf:params:xml:ns:vcard-4.0", "urn:xmpp:chat-markers:0", "urn:xmpp:delay", "urn:xmpp:fallback:0",
        "urn:xmpp:ping", "urn:xmpp:reactions:0", "urn:xmpp:receipts", "urn:xmpp:reply:0", "urn:xmpp:sid:0",
        "urn:xmpp:styling:0", "vcard-temp",
    )
)  # fmt: skip
_SOFTWARE: Final = {"software": NAME, "software_version": version("coronet")}
"""XEP-0232, a form of XEP-0128."""

_PNG: Final = files("bots").joinpath("avatar.png").read_bytes()
_PNG_BASE64: Final = base64.b64encode(_PNG).decode()
AVATAR_ID: Final = hashlib.sha1(_PNG, usedforsecurity=False).hexdigest()
"""SHA-1 of the picture, as XEP-0084 and XEP-0153 name it."""


def verification(
    identity: tuple[str, str, str, str], features: list[str], form_type: str, fields: Mapping[str, str]
) -> str:
    """Return the verification string of XEP-0115 §5.1; each field of the form has one value."""
    form = [form_type, *(part for name in sorted(fields) for part in (name, fields[name]))] if fields else []
    stated = "".join(f"{part}<" for part in ("/".join(identity), *sorted(features), *form))
    return base64.b64encode(hashlib.sha1(stated.encode(), usedforsecurity=False).digest()).decode()


_FORM_TYPE: Final = "urn:xmpp:dataforms:softwareinfo"
_VER: Final = verification(("client", "bot", "", NAME), _FEATURES, _FORM_TYPE, _SOFTWARE)

PRESENT: Final = (
    f"<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node={quoteattr(_CAPS_NODE)} ver={quoteattr(_VER)}/>"
    f"<x xmlns='vcard-temp:x:update'><photo>{AVATAR_ID}</photo></x>"
)
"""What stands in each of our presences."""


def _vcard_temp() -> str:
    """Return our vCard as XEP-0054 has it."""
    return (
        f"<vCard xmlns='vcard-temp'><FN>{NAME}</FN><NICKNAME>{NAME}</NICKNAME><DESC>{escape(_NOTE)}</DESC>"
        f"<PHOTO><TYPE>image/png</TYPE><BINVAL>{_PNG_BASE64}</BINVAL></PHOTO></vCard>"
    )


def _vcard4() -> str:
    """Return our vCard as XEP-0292 has it."""
    return (
        f"<vcard xmlns='urn:ietf:params:xml:ns:vcard-4.0'><fn><text>{NAME}</text></fn>"
        f"<nickname><text>{NAME}</text></nickname><note><text>{escape(_NOTE)}</text></note></vcard>"
    )


_PICTURE: Final = f"<info bytes='{len(_PNG)}' id='{AVATAR_ID}' type='image/png' width='{_SIDE}' height='{_SIDE}'/>"
_PUBLISHED: Final = {
    "urn:xmpp:avatar:data": (AVATAR_ID, f"<data xmlns='urn:xmpp:avatar:data'>{_PNG_BASE64}</data>"),
    AVATAR_METADATA: (AVATAR_ID, f"<metadata xmlns='{AVATAR_METADATA}'>{_PICTURE}</metadata>"),
    "urn:xmpp:vcard4": ("current", _vcard4()),
    "http://jabber.org/protocol/nick": ("current", f"<nick xmlns='http://jabber.org/protocol/nick'>{NAME}</nick>"),
}
"""What an account of ours publishes of itself: node → item id, payload."""


async def publish(link: AskingLink) -> None:
    """Publish what an account of ours shows and its server does not have: contacts are told. Raises LinkLost."""
    for node, (ident, payload) in _PUBLISHED.items():
        kept = await link.ask(link.address, "get", _pubsub_items(node, f"<item id='{ident}'/>"))
        if not any(len(item) for item in kept.iter(f"{{{_PUBSUB}}}item")):
            access = "<field var='pubsub#access_model'><value>open</value></field>"
            options = f"<publish-options>{_form('submit', f'{_PUBSUB}#publish-options', access)}</publish-options>"
            item = f"<publish node='{node}'><item id='{ident}'>{payload}</item></publish>"
            await link.ask(link.address, "set", f"<pubsub xmlns='{_PUBSUB}'>{item}{options}</pubsub>")
    card = await link.ask(link.address, "get", "<vCard xmlns='vcard-temp'/>")
    if not card.findtext("{vcard-temp}vCard/{vcard-temp}FN"):
        await link.ask(link.address, "set", _vcard_temp())


def answer(iq: Element, address: str, voice: Voice) -> str | None:
    """Return the payload of the answer to somebody's ``<iq type='get'/>`` to ``address``, None if it is not for us."""
    asked = iq[0] if len(iq) else iq
    node = asked.get("node", "")
    answers: dict[str, Callable[[], str | None]] = {
        f"{{{_DISCO_INFO}}}query": lambda: _info(node, voice),
        f"{{{_DISCO_ITEMS}}}query": lambda: _disco_items(node, address, voice),
        f"{{{_VERSION}}}query": _version,
        f"{{{_PUBSUB}}}pubsub": lambda: _published(asked),
        "{urn:xmpp:ping}ping": lambda: "",
        "{vcard-temp}vCard": _vcard_temp,
        "{urn:ietf:params:xml:ns:vcard-4.0}vcard": _vcard4,
    }
    return answers[asked.tag]() if asked.tag in answers else None


def _info(node: str, voice: Voice) -> str | None:
    if node in ("", f"{_CAPS_NODE}#{_VER}"):
        return _query(_DISCO_INFO, node, _identity("client", "bot", NAME) + _features(_FEATURES) + _software())
    if node == COMMANDS:
        return _query(_DISCO_INFO, node, _identity("automation", "command-list", NAME))
    if node in VERBS:
        identity = _identity("automation", "command-node", name(node, voice))
        return _query(_DISCO_INFO, node, identity + _features((COMMANDS, "jabber:x:data")))
    return None


def _disco_items(node: str, address: str, voice: Voice) -> str | None:
    if node not in ("", COMMANDS):
        return None
    listed = VERBS if node else ()
    items = (
        f"<item jid={quoteattr(address)} node={quoteattr(verb)} name={quoteattr(name(verb, voice))}/>"
        for verb in listed
    )
    return _query(_DISCO_ITEMS, node, "".join(items))


def _identity(category: str, kind: str, named: str) -> str:
    return f"<identity category='{category}' type='{kind}' name={quoteattr(named)}/>"


def _features(features: Iterable[str]) -> str:
    return "".join(f"<feature var='{feature}'/>" for feature in features)


def _software() -> str:
    fields = (f"<field var='{var}'><value>{escape(value)}</value></field>" for var, value in _SOFTWARE.items())
    return _form("result", _FORM_TYPE, "".join(fields))


def _form(kind: str, form_type: str, fields: str) -> str:
    stated = f"<field var='FORM_TYPE' type='hidden'><value>{form_type}</value></field>"
    return f"<x xmlns='jabber:x:data' type='{kind}'>{stated}{fields}</x>"


def _query(namespace: str, node: str, content: str) -> str:
    stated = f" node={quoteattr(node)}" if node else ""
    return f"<query xmlns='{namespace}'{stated}>{content}</query>"


def _version() -> str:
    told = f"<name>{NAME}</name><version>{escape(_SOFTWARE['software_version'])}</version>"
    return _query(_VERSION, "", told)


def _published(pubsub: Element) -> str | None:
    """Return what a client asks of us as of an account (XEP-0163); None for a node that we have not."""
    node = next((child.get("node", "") for child in pubsub if child.tag == f"{{{_PUBSUB}}}items"), "")
    if node not in _PUBLISHED:
        return None
    ident, payload = _PUBLISHED[node]
    return _pubsub_items(node, f"<item id='{ident}'>{payload}</item>")


def _pubsub_items(node: str, items: str) -> str:
    return f"<pubsub xmlns='{_PUBSUB}'><items node='{node}'>{items}</items></pubsub>"
