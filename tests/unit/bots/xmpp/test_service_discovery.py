"""The profile of the bot: service discovery, capabilities, vCards and avatar."""

import base64
import hashlib
from xml.etree.ElementTree import XML, Element

import pytest

from bots.i18n.translator import get_translator
from bots.xmpp import service_discovery

XEP_0115_FEATURES = [
    "http://jabber.org/protocol/caps", "http://jabber.org/protocol/disco#info",
    "http://jabber.org/protocol/disco#items", "http://jabber.org/protocol/muc",
]  # fmt: skip
INFO = "{http://jabber.org/protocol/disco#info}"


def response(content: str) -> Element | None:
    """Return the payload of the response to a request."""
    payload = service_discovery.response_payload(
        XML(f"<iq type='get'>{content}</iq>"), "feeds.example", get_translator("en")
    )
    return XML(payload) if payload is not None else None


def test_the_verification_string_equals_the_example_of_xep_0115() -> None:
    """XEP-0115 §5.2."""
    identity = ("client", "pc", "", "Exodus 0.9.1")
    assert service_discovery.caps_verification(identity, XEP_0115_FEATURES, "", {}) == "QgayPKawpkPSDYmwT/WM94uAlu0="


def test_the_capabilities_hash_matches_the_discovery_response() -> None:
    info = response("<query xmlns='http://jabber.org/protocol/disco#info'/>")
    assert info is not None
    identity = info.find(f"{INFO}identity")
    assert identity is not None
    form = {
        field.get("var", ""): field.findtext("{jabber:x:data}value", "") for field in info.iter("{jabber:x:data}field")
    }
    form_type = form.pop("FORM_TYPE")
    features = [feature.get("var", "") for feature in info.iter(f"{INFO}feature")]
    names = (identity.get("category", ""), identity.get("type", ""), "", identity.get("name", ""))
    assert (
        f'ver="{service_discovery.caps_verification(names, features, form_type, form)}"'
        in service_discovery.PRESENCE_CONTENT
    )


@pytest.mark.parametrize(
    "node", ["http://jabber.org/protocol/nick", "urn:xmpp:vcard4", service_discovery.NS_AVATAR_METADATA]
)
def test_published_profile_items_can_be_requested(node: str) -> None:
    assert response(f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{node}'/></pubsub>") is not None


def test_the_avatar_id_is_the_hash_of_the_image() -> None:
    card = response("<vCard xmlns='vcard-temp'/>")
    assert card is not None
    picture = base64.b64decode(card.findtext("{vcard-temp}PHOTO/{vcard-temp}BINVAL", ""))
    assert hashlib.sha1(picture, usedforsecurity=False).hexdigest() == service_discovery.AVATAR_ID
    assert picture.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "content",
    ["", "<query xmlns='jabber:iq:last'/>", "<query xmlns='http://jabber.org/protocol/disco#info' node='x'/>"],
)
def test_unknown_requests_have_no_payload(content: str) -> None:
    assert response(content) is None
