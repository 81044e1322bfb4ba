"""Who we are, for other people's software."""

import base64
import hashlib
from xml.etree.ElementTree import XML, Element

import pytest

from bots.i18n.translator import voice
from bots.xmpp import service_discovery

XEP_0115_FEATURES = [
    "http://jabber.org/protocol/caps", "http://jabber.org/protocol/disco#info",
    "http://jabber.org/protocol/disco#items", "http://jabber.org/protocol/muc",
]  # fmt: skip
INFO = "{http://jabber.org/protocol/disco#info}"


def asked(content: str) -> Element | None:
    """The answer to a question."""
    found = service_discovery.response_payload(XML(f"<iq type='get'>{content}</iq>"), "feeds.example", voice("en"))
    return XML(found) if found is not None else None


def test_the_verification_string_is_that_of_xep_0115() -> None:
    """Section 5.2's example."""
    identity = ("client", "pc", "", "Exodus 0.9.1")
    assert service_discovery.caps_verification(identity, XEP_0115_FEATURES, "", {}) == "QgayPKawpkPSDYmwT/WM94uAlu0="


def test_what_we_say_of_ourselves_is_what_our_presence_promises() -> None:
    told = asked("<query xmlns='http://jabber.org/protocol/disco#info'/>")
    assert told is not None
    identity = told.find(f"{INFO}identity")
    assert identity is not None
    form = {
        field.get("var", ""): field.findtext("{jabber:x:data}value", "") for field in told.iter("{jabber:x:data}field")
    }
    form_type = form.pop("FORM_TYPE")
    features = [feature.get("var", "") for feature in told.iter(f"{INFO}feature")]
    names = (identity.get("category", ""), identity.get("type", ""), "", identity.get("name", ""))
    assert (
        f'ver="{service_discovery.caps_verification(names, features, form_type, form)}"'
        in service_discovery.PRESENCE_CONTENT
    )


@pytest.mark.parametrize(
    "node", ["http://jabber.org/protocol/nick", "urn:xmpp:vcard4", service_discovery.NS_AVATAR_METADATA]
)
def test_what_an_account_publishes_can_be_asked_for(node: str) -> None:
    assert asked(f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{node}'/></pubsub>") is not None


def test_the_picture_is_the_one_whose_hash_we_name() -> None:
    card = asked("<vCard xmlns='vcard-temp'/>")
    assert card is not None
    picture = base64.b64decode(card.findtext("{vcard-temp}PHOTO/{vcard-temp}BINVAL", ""))
    assert hashlib.sha1(picture, usedforsecurity=False).hexdigest() == service_discovery.AVATAR_ID
    assert picture.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "content",
    ["", "<query xmlns='jabber:iq:last'/>", "<query xmlns='http://jabber.org/protocol/disco#info' node='x'/>"],
)
def test_what_we_have_no_answer_to_is_left_to_others(content: str) -> None:
    assert asked(content) is None
