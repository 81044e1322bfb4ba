"""Outgoing stanzas are well-formed XML, whatever text they contain."""

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from bots.xmpp import stanzas

xml_text = st.text(st.characters(blacklist_categories=["Cs"], min_codepoint=32, blacklist_characters="\ufffe\uffff"))


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - the tests wrote it


@given(xml_text, xml_text, st.text(), xml_text)
def test_any_message_is_well_formed(to: str, ident: str, body: str, thread: str) -> None:
    written = stanzas.message("feeds.localhost", to, ident, stanzas.body(body) + stanzas.RECEIPT_REQUEST, thread)
    element = parse(written)
    assert element.get("to") == to
    assert element.get("id") == ident


def test_a_message_has_its_id_as_origin_id() -> None:
    element = parse(stanzas.message("a", "b", "m1", stanzas.body("hello")))
    origin = element.find("{urn:xmpp:sid:0}origin-id")
    assert origin is not None
    assert origin.get("id") == "m1"


@given(xml_text, xml_text, xml_text)
def test_a_marker_is_well_formed_and_names_message_and_thread(to: str, ident: str, thread: str) -> None:
    element = parse(stanzas.displayed_marker("feeds.localhost", to, ident, thread))
    marker = element.find("{urn:xmpp:chat-markers:0}displayed")
    assert marker is not None
    assert (marker.get("id"), element.findtext("thread", "")) == (ident, thread)
    assert element.find("body") is None


@given(st.text(), st.dictionaries(st.sampled_from(["title", "description", "site_name"]), st.text()))
def test_link_metadata_is_well_formed(url: str, properties: dict[str, str]) -> None:
    element = parse(stanzas.link_metadata(url, properties))
    rdf, og = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}", "{https://ogp.me/ns#}"
    assert element.tag == f"{rdf}Description"
    assert f"{rdf}about" in element.attrib
    assert [child.tag for child in element] == [f"{og}{name}" for name in properties]


def test_a_delay_element_has_the_sender_and_the_original_time() -> None:
    element = parse(stanzas.delay("coronet@feeds.localhost", 1_000_000_000.25))
    assert element.tag == "{urn:xmpp:delay}delay"
    assert element.attrib == {"from": "coronet@feeds.localhost", "stamp": "2001-09-09T01:46:40.250Z"}
