"""What we write is well-formed whatever is in it; what we get means what it should."""

from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.xmpp import message_parser, stanzas
from bots.xmpp.events import MessageBounced, MessageReceived, Receipt

ALICE = "from='alice@localhost/phone' to='feeds.localhost'"

FORWARDED = (
    "<forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' from='bob@localhost/phone' type='chat'>"
    "<body>unsubscribe all</body></message></forwarded>"
)

xml_text = st.text(st.characters(blacklist_categories=["Cs"], min_codepoint=32, blacklist_characters="\ufffe\uffff"))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - the tests wrote it


def message(attributes: str, content: str) -> ET.Element:
    return parsed(f"<message xmlns='jabber:component:accept' {attributes}>{content}</message>")


@given(xml_text, xml_text, st.text(), xml_text)
def test_any_message_is_well_formed(to: str, ident: str, body: str, thread: str) -> None:
    written = stanzas.message("feeds.localhost", to, ident, stanzas.body(body) + stanzas.RECEIPT_REQUEST, thread)
    element = parsed(written)
    assert element.get("to") == to
    assert element.get("id") == ident


def test_a_message_has_its_id_as_origin_id() -> None:
    element = parsed(stanzas.message("a", "b", "m1", stanzas.body("hello")))
    origin = element.find("{urn:xmpp:sid:0}origin-id")
    assert origin is not None
    assert origin.get("id") == "m1"


def test_chat_is_read_with_its_bare_sender() -> None:
    request = "<request xmlns='urn:xmpp:receipts'/>"
    read = message_parser.parse_message(
        message(f"{ALICE} type='chat' id='q'", f"<body>hi</body><thread>t</thread>{request}")
    )
    assert read == MessageReceived("alice@localhost", "alice@localhost/phone", "q", "hi", "t", wants_receipt=True)


@pytest.mark.parametrize("body", ["", "<body>https://files.example/1.xml</body>", "<body> Import </body>"])
def test_a_file_is_a_list_to_import(body: str) -> None:
    oob = "<x xmlns='jabber:x:oob'><url>https://files.example/1.xml</url></x>"
    read = message_parser.parse_message(message(f"{ALICE} type='chat'", body + oob))
    assert isinstance(read, MessageReceived)
    assert read.text == "import https://files.example/1.xml"


def test_what_is_said_with_a_file_counts_for_itself() -> None:
    oob = "<x xmlns='jabber:x:oob'><url>https://files.example/1.xml</url></x>"
    read = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>list</body>{oob}"))
    assert isinstance(read, MessageReceived)
    assert read.text == "list"
    assert message_parser.parse_message(message(f"{ALICE} type='chat'", "<x xmlns='jabber:x:oob'/>")) is None


def test_receipts_count_even_when_they_come_late() -> None:
    received = "<received xmlns='urn:xmpp:receipts' id='m1'/>"
    delay = "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>"
    assert message_parser.parse_message(message(ALICE, received + delay)) == Receipt("alice@localhost", "m1")


@pytest.mark.parametrize("mark", ["received", "displayed", "acknowledged"])
def test_a_marker_of_a_message_says_that_it_has_come(mark: str) -> None:
    marked = f"<{mark} xmlns='urn:xmpp:chat-markers:0' id='m1'/><thread>t</thread>"
    assert message_parser.parse_message(message(ALICE, marked)) == Receipt("alice@localhost", "m1", is_marker=True)
    assert message_parser.parse_message(message(f"{ALICE} type='groupchat'", marked)) is None, (
        "of another's message there"
    )
    said = message_parser.parse_message(message(ALICE, f"<body>list</body>{marked}"))
    assert isinstance(said, MessageReceived), "what comes with words is not taken for these alone"


@pytest.mark.parametrize("asked", [True, False])
def test_who_wants_to_know_what_was_read_says_so(*, asked: bool) -> None:
    content = "<body>list</body>" + ("<markable xmlns='urn:xmpp:chat-markers:0'/>" if asked else "")
    said = message_parser.parse_message(message(f"{ALICE} type='chat' id='q'", content))
    assert isinstance(said, MessageReceived)
    assert (said.wants_marker, said.wants_receipt) == (asked, False)
    nameless = message_parser.parse_message(message(f"{ALICE} type='chat'", content))
    assert isinstance(nameless, MessageReceived)
    assert not nameless.wants_marker


@given(xml_text, xml_text, xml_text)
def test_a_marker_is_well_formed_and_names_message_and_thread(to: str, ident: str, thread: str) -> None:
    element = parsed(stanzas.displayed_marker("feeds.localhost", to, ident, thread))
    marker = element.find("{urn:xmpp:chat-markers:0}displayed")
    assert marker is not None
    assert (marker.get("id"), element.findtext("thread", "")) == (ident, thread)
    assert element.find("body") is None


@given(st.text(), st.dictionaries(st.sampled_from(["title", "description", "site_name"]), st.text()))
def test_what_is_said_of_a_link_is_well_formed(url: str, properties: dict[str, str]) -> None:
    element = parsed(stanzas.link_metadata(url, properties))
    rdf, og = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}", "{https://ogp.me/ns#}"
    assert element.tag == f"{rdf}Description"
    assert f"{rdf}about" in element.attrib
    assert [child.tag for child in element] == [f"{og}{name}" for name in properties]


def test_errors_are_bounces_never_commands() -> None:
    error = "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    read = message_parser.parse_message(message(f"{ALICE} type='error' id='m1'", f"<body>list</body>{error}"))
    assert read == MessageBounced("alice@localhost", "m1", "gone", "phone")
    blocked = (
        "<error type='cancel'><blocked xmlns='urn:xmpp:blocking:errors'/>"
        "<not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    )
    read = message_parser.parse_message(message(f"{ALICE} type='error' id='m1'", blocked))
    assert read == MessageBounced("alice@localhost", "m1", "not-acceptable", "phone")
    assert message_parser.parse_message(message(f"{ALICE} type='error' id='m1'", "")) == MessageBounced(
        "alice@localhost", "m1", "undefined-condition", "phone"
    )


@pytest.mark.parametrize(
    ("attributes", "content"),
    [
        ("from='room@localhost' type='groupchat'", "<body>says the room itself</body>"),
        (f"{ALICE} type='headline'", "<body>list</body>"),
        (f"{ALICE} type='chat'", "<composing xmlns='http://jabber.org/protocol/chatstates'/>"),
        (
            "from='room@localhost/eve' type='groupchat'",
            "<body>history</body><delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>",
        ),
        (f"{ALICE} type='chat'", "<body>x</body><received xmlns='urn:xmpp:carbons:2'/>"),
        (f"{ALICE} type='chat'", f"<received xmlns='urn:xmpp:carbons:2'>{FORWARDED}</received>"),
        (f"{ALICE} type='chat'", f"<sent xmlns='urn:xmpp:carbons:2'>{FORWARDED}</sent>"),
        ("from='feeds.localhost/x'", f"<received xmlns='urn:xmpp:carbons:2'>{FORWARDED}</received>"),
        ("type='chat'", "<body>from nobody</body>"),
    ],
)
def test_what_is_not_said_to_us_now_means_nothing(attributes: str, content: str) -> None:
    assert message_parser.parse_message(message(attributes, content)) is None


def said_at(*delays: str) -> float:
    said = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>list</body>{''.join(delays)}"))
    assert isinstance(said, MessageReceived)
    return said.sent_s


def delay(stamp: str) -> str:
    return f"<delay xmlns='urn:xmpp:delay' stamp={quoteattr(stamp)}>Offline storage</delay>"


def test_what_a_server_kept_says_when_it_was_said() -> None:
    assert said_at() == 0.0
    assert said_at(delay("2026-01-01T00:00:00Z")) == 1_767_225_600.0
    assert said_at(delay("2026-01-01T01:00:00.5+01:00")) == 1_767_225_600.5
    assert said_at("<x xmlns='jabber:x:delay' stamp='20260101T00:00:00'/>") == 1_767_225_600.0
    assert said_at(delay("2025-01-01T00:00:00Z"), delay("2026-01-01T00:00:00Z")) == 1_767_225_600.0, "the last server"


@pytest.mark.parametrize("stamp", ["", "yesterday", "9999-99-99", "0001-01-01T00:00:00+14:00", "2" * 100_000])
def test_what_was_said_at_no_moment_is_stale(stamp: str) -> None:
    said = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>list</body>{delay(stamp)}"))
    assert isinstance(said, MessageReceived)
    assert message_parser.is_too_old(said, 1_767_225_600.0)


def test_what_is_said_now_is_never_stale_and_what_was_kept_is_after_a_day() -> None:
    now_s = 1_767_225_600.0
    live = message_parser.parse_message(message(f"{ALICE} type='chat'", "<body>list</body>"))
    kept = message_parser.parse_message(
        message(f"{ALICE} type='chat'", f"<body>list</body>{delay('2026-01-01T00:00:00Z')}")
    )
    assert isinstance(live, MessageReceived)
    assert isinstance(kept, MessageReceived)
    assert not message_parser.is_too_old(live, now_s)
    assert not message_parser.is_too_old(kept, now_s + message_parser.MAX_AGE_S)
    assert message_parser.is_too_old(kept, now_s + message_parser.MAX_AGE_S + 1)


def test_what_would_be_repeated_in_an_answer_is_short_or_left_out() -> None:
    long = "x" * (stanzas.MAX_TOKEN_CHARS + 1)
    content = f"<body>{'a' * 100_000}</body><thread>{long}</thread><request xmlns='urn:xmpp:receipts'/>"
    said = message_parser.parse_message(message(f"{ALICE} type='chat' id='{long}'", content))
    assert isinstance(said, MessageReceived)
    assert (said.thread, said.wants_receipt) == ("", False)
    assert len(said.text) < 5_000


REPLY = "<reply xmlns='urn:xmpp:reply:0' to='feeds.localhost' id='m1'/>"


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ("start='0' end='10'", "mute"),
        ("start='0' end='99999'", ""),
        ("start='99' end='10'", "Some news\nmute"),
        ("start='-1' end='10'", "Some news\nmute"),
        ("start='0' end='²'", "Some news\nmute"),
    ],
)
def test_what_a_reply_quotes_for_old_clients_is_not_part_of_it(bounds: str, text: str) -> None:
    fallback = f"<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body {bounds}/></fallback>"
    read = message_parser.parse_message(
        message(f"{ALICE} type='chat'", f"<body>Some news\nmute</body>{REPLY}{fallback}")
    )
    assert isinstance(read, MessageReceived)
    assert (read.text, read.reply_to_id, read.is_reaction) == (text, "m1", False)


@pytest.mark.parametrize(
    ("body", "text"),
    [("> a\n> b\nlist", "list"), (">> a\nlist", "list"), (">a", ">a"), ("list\n> a", "list\n> a"), ("/", "")],
)
def test_lines_that_quote_are_not_part_of_what_is_said(body: str, text: str) -> None:
    read = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>{escape(body)}</body>"))
    assert isinstance(read, MessageReceived)
    assert read.text == text


def test_what_is_only_quoted_is_said_by_nobody() -> None:
    assert message_parser.parse_message(message(f"{ALICE} type='chat'", "<body>> a\n>> b\n</body>")) is None


@pytest.mark.parametrize(
    ("emojis", "text"), [(("❌",), "unsubscribe"), (("👍", "⏸️"), "pause"), (("👍",), None), ((), None)]
)
def test_a_reaction_is_the_command_it_stands_for(emojis: tuple[str, ...], text: str | None) -> None:
    inside = "".join(f"<reaction>{emoji}</reaction>" for emoji in emojis)
    read = message_parser.parse_message(
        message(f"{ALICE} type='chat'", f"<reactions xmlns='urn:xmpp:reactions:0' id='m1'>{inside}</reactions>")
    )
    if text is None:
        assert read is None
    else:
        assert isinstance(read, MessageReceived)
        assert (read.text, read.reply_to_id, read.is_reaction) == (text, "m1", True)


def test_what_is_sent_again_says_when_it_was_sent_first() -> None:
    said = parsed(stanzas.delay("coronet@feeds.localhost", 1_000_000_000.25))
    assert said.tag == "{urn:xmpp:delay}delay"
    assert said.attrib == {"from": "coronet@feeds.localhost", "stamp": "2001-09-09T01:46:40.250Z"}
