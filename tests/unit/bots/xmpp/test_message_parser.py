"""Incoming messages are parsed into the right events, whatever a client or server sends."""

from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import strategies as st

from bots.xmpp import deduplication, message_parser, stanzas
from bots.xmpp.events import MessageBounced, MessageReceived, Receipt

ALICE = "from='alice@localhost/phone' to='feeds.localhost'"

FORWARDED = (
    "<forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' from='bob@localhost/phone' type='chat'>"
    "<body>unsubscribe all</body></message></forwarded>"
)

xml_text = st.text(st.characters(blacklist_categories=["Cs"], min_codepoint=32, blacklist_characters="\ufffe\uffff"))


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - the tests wrote it


def message(attributes: str, content: str) -> ET.Element:
    return parse(f"<message xmlns='jabber:component:accept' {attributes}>{content}</message>")


def test_a_chat_message_is_parsed_with_the_bare_jid_of_its_sender() -> None:
    request = "<request xmlns='urn:xmpp:receipts'/>"
    event = message_parser.parse_message(
        message(f"{ALICE} type='chat' id='q'", f"<body>hi</body><thread>t</thread>{request}")
    )
    assert event == MessageReceived("alice@localhost", "alice@localhost/phone", "q", "hi", "t", wants_receipt=True)


@pytest.mark.parametrize("body", ["", "<body>https://files.example/1.xml</body>", "<body> Import </body>"])
def test_a_shared_file_becomes_an_import_command(body: str) -> None:
    oob = "<x xmlns='jabber:x:oob'><url>https://files.example/1.xml</url></x>"
    event = message_parser.parse_message(message(f"{ALICE} type='chat'", body + oob))
    assert isinstance(event, MessageReceived)
    assert event.text == "import https://files.example/1.xml"


def test_the_text_beside_a_shared_file_is_the_command() -> None:
    oob = "<x xmlns='jabber:x:oob'><url>https://files.example/1.xml</url></x>"
    event = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>list</body>{oob}"))
    assert isinstance(event, MessageReceived)
    assert event.text == "list"
    assert message_parser.parse_message(message(f"{ALICE} type='chat'", "<x xmlns='jabber:x:oob'/>")) is None


def test_a_delayed_receipt_is_parsed() -> None:
    received = "<received xmlns='urn:xmpp:receipts' id='m1'/>"
    delay = "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>"
    assert message_parser.parse_message(message(ALICE, received + delay)) == Receipt("alice@localhost", "m1")


@pytest.mark.parametrize("mark", ["received", "displayed", "acknowledged"])
def test_a_chat_marker_is_a_receipt(mark: str) -> None:
    marked = f"<{mark} xmlns='urn:xmpp:chat-markers:0' id='m1'/><thread>t</thread>"
    assert message_parser.parse_message(message(ALICE, marked)) == Receipt("alice@localhost", "m1", is_marker=True)
    assert message_parser.parse_message(message(f"{ALICE} type='groupchat'", marked)) is None, (
        "a marker in a room concerns a message of another occupant"
    )
    received = message_parser.parse_message(message(ALICE, f"<body>list</body>{marked}"))
    assert isinstance(received, MessageReceived), "a message with a body is more than a receipt"


@pytest.mark.parametrize("is_requested", [True, False])
def test_the_request_for_a_displayed_marker_is_parsed(*, is_requested: bool) -> None:
    content = "<body>list</body>" + ("<markable xmlns='urn:xmpp:chat-markers:0'/>" if is_requested else "")
    received = message_parser.parse_message(message(f"{ALICE} type='chat' id='q'", content))
    assert isinstance(received, MessageReceived)
    assert (received.wants_marker, received.wants_receipt) == (is_requested, False)
    without_id = message_parser.parse_message(message(f"{ALICE} type='chat'", content))
    assert isinstance(without_id, MessageReceived)
    assert not without_id.wants_marker


def test_an_error_message_is_a_bounce_and_not_a_command() -> None:
    error = "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    event = message_parser.parse_message(message(f"{ALICE} type='error' id='m1'", f"<body>list</body>{error}"))
    assert event == MessageBounced("alice@localhost", "m1", "gone", "phone")
    blocked = (
        "<error type='cancel'><blocked xmlns='urn:xmpp:blocking:errors'/>"
        "<not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    )
    event = message_parser.parse_message(message(f"{ALICE} type='error' id='m1'", blocked))
    assert event == MessageBounced("alice@localhost", "m1", "not-acceptable", "phone")
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
def test_messages_that_are_not_addressed_to_the_bot_are_ignored(attributes: str, content: str) -> None:
    assert message_parser.parse_message(message(attributes, content)) is None


def sent_s(*delays: str) -> float:
    received = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>list</body>{''.join(delays)}"))
    assert isinstance(received, MessageReceived)
    return received.sent_s


def delay(stamp: str) -> str:
    return f"<delay xmlns='urn:xmpp:delay' stamp={quoteattr(stamp)}>Offline storage</delay>"


def test_the_latest_delay_stamp_is_the_time_of_sending() -> None:
    assert sent_s() == 0.0
    assert sent_s(delay("2026-01-01T00:00:00Z")) == 1_767_225_600.0
    assert sent_s(delay("2026-01-01T01:00:00.5+01:00")) == 1_767_225_600.5
    assert sent_s("<x xmlns='jabber:x:delay' stamp='20260101T00:00:00'/>") == 1_767_225_600.0
    assert sent_s(delay("2025-01-01T00:00:00Z"), delay("2026-01-01T00:00:00Z")) == 1_767_225_600.0, (
        "the latest of several servers"
    )


@pytest.mark.parametrize("stamp", ["", "yesterday", "9999-99-99", "0001-01-01T00:00:00+14:00", "2" * 100_000])
def test_a_message_with_an_invalid_delay_stamp_is_too_old(stamp: str) -> None:
    received = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>list</body>{delay(stamp)}"))
    assert isinstance(received, MessageReceived)
    assert deduplication.is_too_old(received, 1_767_225_600.0)


def test_a_delayed_message_is_too_old_after_a_day() -> None:
    now_s = 1_767_225_600.0
    live = message_parser.parse_message(message(f"{ALICE} type='chat'", "<body>list</body>"))
    delayed = message_parser.parse_message(
        message(f"{ALICE} type='chat'", f"<body>list</body>{delay('2026-01-01T00:00:00Z')}")
    )
    assert isinstance(live, MessageReceived)
    assert isinstance(delayed, MessageReceived)
    assert not deduplication.is_too_old(live, now_s)
    assert not deduplication.is_too_old(delayed, now_s + deduplication.MAX_AGE_S)
    assert deduplication.is_too_old(delayed, now_s + deduplication.MAX_AGE_S + 1)


def test_overlong_ids_and_threads_are_dropped() -> None:
    long = "x" * (stanzas.MAX_TOKEN_CHARS + 1)
    content = f"<body>{'a' * 100_000}</body><thread>{long}</thread><request xmlns='urn:xmpp:receipts'/>"
    received = message_parser.parse_message(message(f"{ALICE} type='chat' id='{long}'", content))
    assert isinstance(received, MessageReceived)
    assert (received.thread, received.wants_receipt) == ("", False)
    assert len(received.text) < 5_000


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
def test_the_fallback_quotation_of_a_reply_is_removed(bounds: str, text: str) -> None:
    fallback = f"<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body {bounds}/></fallback>"
    event = message_parser.parse_message(
        message(f"{ALICE} type='chat'", f"<body>Some news\nmute</body>{REPLY}{fallback}")
    )
    assert isinstance(event, MessageReceived)
    assert (event.text, event.reply_to_id, event.is_reaction) == (text, "m1", False)


@pytest.mark.parametrize(
    ("body", "text"),
    [("> a\n> b\nlist", "list"), (">> a\nlist", "list"), (">a", ">a"), ("list\n> a", "list\n> a"), ("/", "")],
)
def test_quoted_lines_at_the_beginning_are_removed(body: str, text: str) -> None:
    event = message_parser.parse_message(message(f"{ALICE} type='chat'", f"<body>{escape(body)}</body>"))
    assert isinstance(event, MessageReceived)
    assert event.text == text


def test_a_message_of_quoted_lines_only_is_ignored() -> None:
    assert message_parser.parse_message(message(f"{ALICE} type='chat'", "<body>> a\n>> b\n</body>")) is None


@pytest.mark.parametrize(
    ("emojis", "text"), [(("❌",), "unsubscribe"), (("👍", "⏸️"), "pause"), (("👍",), None), ((), None)]
)
def test_a_reaction_becomes_the_command_of_its_emoji(emojis: tuple[str, ...], text: str | None) -> None:
    inside = "".join(f"<reaction>{emoji}</reaction>" for emoji in emojis)
    event = message_parser.parse_message(
        message(f"{ALICE} type='chat'", f"<reactions xmlns='urn:xmpp:reactions:0' id='m1'>{inside}</reactions>")
    )
    if text is None:
        assert event is None
    else:
        assert isinstance(event, MessageReceived)
        assert (event.text, event.reply_to_id, event.is_reaction) == (text, "m1", True)
