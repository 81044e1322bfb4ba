"""What an account's archive says of a dead bot's work."""

from xml.etree import ElementTree as ET

import msgspec
import pytest

from bots.xmpp import archive, message_parser
from bots.xmpp.events import MessageReceived, Receipt

BOT, ALICE = "bot@localhost", "alice@localhost"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - the tests wrote it


def kept(ident: str, message: str) -> ET.Element:
    return parsed(
        f"<result xmlns='{archive.NS_MAM}' id='{ident}'><forwarded xmlns='urn:xmpp:forward:0'>"
        f"<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>{message}</forwarded></result>"
    )


def message(inside: str, sender: str = f"{ALICE}/phone", ident: str = "m1") -> str:
    return f"<message xmlns='jabber:client' from='{sender}' to='{BOT}' id='{ident}' type='chat'>{inside}</message>"


def test_what_we_sent_what_arrived_and_what_was_said_are_told_apart() -> None:
    results = [
        kept("1", message("<body>Entry</body>", f"{BOT}/coronet-a", "batch-1")),
        kept("2", message("<received xmlns='urn:xmpp:receipts' id='batch-1'/>")),
        kept("3", message("<body>list</body>")),
        parsed(f"<result xmlns='{archive.NS_MAM}' id='4'/>"),
    ]
    found = archive.parse_page(results, BOT)
    assert found.sent_ids == {"batch-1"}
    assert found.receipts == (Receipt(ALICE, "batch-1"),)
    assert [(said.jid, said.text, said.sent_s) for said in found.messages] == [(ALICE, "list", 1_767_225_600.0)]


def test_what_was_said_has_the_name_in_the_archive_that_it_had_when_it_was_brought() -> None:
    (said,) = archive.parse_page([kept("77", message("<body>list</body>"))], BOT).messages
    brought = message(f"<body>list</body><stanza-id xmlns='urn:xmpp:sid:0' by='{BOT}' id='77'/>")
    assert message_parser.dedup_key(parsed(brought), BOT, 0.0) == said.dedup_key


def test_only_the_accounts_own_server_can_name_a_message() -> None:
    forged = message("<body>list</body><stanza-id xmlns='urn:xmpp:sid:0' by='eve@localhost' id='77'/>")
    assert message_parser.dedup_key(parsed(forged), BOT, 0.0) != message_parser.archive_dedup_key("77")


def test_without_an_archive_the_same_message_has_the_same_name_and_another_has_another() -> None:
    first, same = (
        message_parser.dedup_key(parsed(message("<body>list</body>")), BOT, when_s) for when_s in (0.0, 99.0)
    )
    assert first == same
    others = (
        message("<body>help</body>"),
        message("<body>list</body>", ident="m2"),
        message("<body>list</body>", "eve@x"),
    )
    assert first not in {message_parser.dedup_key(parsed(other), BOT, 0.0) for other in others}


def test_without_an_archive_a_message_that_was_kept_has_the_name_that_it_had_when_it_was_brought() -> None:
    delay = "<delay xmlns='urn:xmpp:delay' stamp='1970-01-01T00:01:41Z'>Offline storage</delay>"
    brought, kept = (parsed(message(f"<body>list</body>{inside}")) for inside in ("", delay))
    assert message_parser.dedup_key(brought, BOT, 100.0) == message_parser.dedup_key(kept, BOT, 9_000.0)
    nameless, kept = (parsed(message(f"<body>list</body>{inside}", ident="")) for inside in ("", delay))
    assert message_parser.dedup_key(nameless, BOT, 100.0) == message_parser.dedup_key(kept, BOT, 9_000.0)


def test_only_an_archive_names_a_message_for_good() -> None:
    said = message_parser.parse_message(parsed(message("<body>list</body>")))
    assert isinstance(said, MessageReceived)
    assert (
        message_parser.duplicates_since_s(
            msgspec.structs.replace(said, dedup_key=message_parser.archive_dedup_key("1")), 9_000.0
        )
        == 0.0
    )
    assert message_parser.duplicates_since_s(said, 9_000.0) == 9_000.0 - message_parser.ID_REUSE_AFTER_S
    kept = msgspec.structs.replace(said, sent_s=5_000.0)
    assert message_parser.duplicates_since_s(kept, 9_000.0) == 5_000.0 - message_parser.MAX_CLOCK_SKEW_S, (
        "ids may be used again"
    )


def test_the_same_words_without_any_id_are_one_message_only_for_some_seconds() -> None:
    nameless = parsed(message("<body>list</body>", ident=""))
    assert message_parser.dedup_key(nameless, BOT, 100.0) == message_parser.dedup_key(nameless, BOT, 101.0)
    assert message_parser.dedup_key(nameless, BOT, 100.0) != message_parser.dedup_key(nameless, BOT, 200.0)


def test_a_query_names_moment_place_and_number() -> None:
    asked = parsed(archive.query_payload("q", 1_767_225_600.5, "<last>", 50))
    assert asked.get("queryid") == "q"
    assert "2026-01-01T00:00:00Z" in [value.text for value in asked.iter("{jabber:x:data}value")]
    assert [element.text for element in asked.iter("{http://jabber.org/protocol/rsm}after")] == ["<last>"]


@pytest.mark.parametrize(
    ("inside", "after"),
    [
        (f"<fin xmlns='{archive.NS_MAM}'><set xmlns='http://jabber.org/protocol/rsm'><last>9</last></set></fin>", "9"),
        (f"<fin xmlns='{archive.NS_MAM}' complete='true'><set xmlns='http://jabber.org/protocol/rsm'/></fin>", None),
        ("<error type='cancel'/>", None),
    ],
)
def test_pages_are_read_until_the_last_or_until_there_is_no_archive(inside: str, after: str | None) -> None:
    assert archive.next_page_id(parsed(f"<iq xmlns='jabber:client' type='result'>{inside}</iq>")) == after
