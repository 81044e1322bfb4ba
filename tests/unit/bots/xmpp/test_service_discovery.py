"""The profile of the bot: service discovery, capabilities, vCards and avatar."""

import base64
import hashlib
from xml.etree.ElementTree import XML, Element

import pytest

from bots.i18n.translator import get_translator
from bots.xmpp import bot_profile, service_discovery
from bots.xmpp.service_discovery import DiscoveryProfile

XEP_0115_FEATURES = [
    "http://jabber.org/protocol/caps", "http://jabber.org/protocol/disco#info",
    "http://jabber.org/protocol/disco#items", "http://jabber.org/protocol/muc",
]  # fmt: skip
INFO = "{http://jabber.org/protocol/disco#info}"


CONTACTS = ("xmpp:admin@example.org", "mailto:abuse@example.org")


def response(content: str, contacts: tuple[str, ...] = ()) -> Element | None:
    """Return the payload of the response to a request."""
    payload = DiscoveryProfile(contacts).response_payload(
        XML(f"<iq type='get'>{content}</iq>"), "feeds.example", get_translator("en")
    )
    return XML(payload) if payload is not None else None


def test_the_verification_string_equals_the_example_of_xep_0115() -> None:
    """XEP-0115 §5.2."""
    identity = ("client", "pc", "", "Exodus 0.9.1")
    assert service_discovery.caps_verification(identity, XEP_0115_FEATURES, {}) == "QgayPKawpkPSDYmwT/WM94uAlu0="


@pytest.mark.parametrize("contacts", [(), CONTACTS])
def test_the_capabilities_hash_matches_the_discovery_response(contacts: tuple[str, ...]) -> None:
    info = response("<query xmlns='http://jabber.org/protocol/disco#info'/>", contacts)
    assert info is not None
    identity = info.find(f"{INFO}identity")
    assert identity is not None
    forms = {form.pop("FORM_TYPE")[0]: form for form in map(values_of, info.iter("{jabber:x:data}x"))}
    features = [feature.get("var", "") for feature in info.iter(f"{INFO}feature")]
    names = (identity.get("category", ""), identity.get("type", ""), "", identity.get("name", ""))
    assert (
        f'ver="{service_discovery.caps_verification(names, features, forms)}"'
        in DiscoveryProfile(contacts).presence_content
    )


def values_of(form: Element) -> dict[str, list[str]]:
    """Return the values of each field of a form."""
    return {
        field.get("var", ""): [value.text or "" for value in field.iter("{jabber:x:data}value")]
        for field in form.iter("{jabber:x:data}field")
    }


def test_the_operators_contact_addresses_can_be_discovered() -> None:
    info = response("<query xmlns='http://jabber.org/protocol/disco#info'/>", CONTACTS)
    assert info is not None
    forms = {form["FORM_TYPE"][0]: form for form in map(values_of, info.iter("{jabber:x:data}x"))}
    assert forms["http://jabber.org/network/serverinfo"]["abuse-addresses"] == list(CONTACTS)


@pytest.mark.parametrize("node", ["http://jabber.org/protocol/nick", "urn:xmpp:vcard4", bot_profile.NS_AVATAR_METADATA])
def test_published_profile_items_can_be_requested(node: str) -> None:
    assert response(f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{node}'/></pubsub>") is not None


def test_the_avatar_id_is_the_hash_of_the_image() -> None:
    card = response("<vCard xmlns='vcard-temp'/>")
    assert card is not None
    picture = base64.b64decode(card.findtext("{vcard-temp}PHOTO/{vcard-temp}BINVAL", ""))
    assert hashlib.sha1(picture, usedforsecurity=False).hexdigest() == bot_profile.AVATAR_ID
    assert picture.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "content",
    ["", "<query xmlns='jabber:iq:last'/>", "<query xmlns='http://jabber.org/protocol/disco#info' node='x'/>"],
)
def test_unknown_requests_have_no_payload(content: str) -> None:
    assert response(content) is None
