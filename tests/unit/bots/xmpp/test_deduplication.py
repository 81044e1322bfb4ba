"""Deduplication keys: the same for each delivery of a message to an account, different for different messages."""

import msgspec

from bots.xmpp import archive, deduplication, message_parser
from bots.xmpp.events import MessageReceived
from tests.support.archived_messages import BOT, archived, message, parse


def test_what_was_said_has_the_name_in_the_archive_that_it_had_when_it_was_brought() -> None:
    (from_archive,) = archive.parse_page([archived("77", message("<body>list</body>"))], BOT).messages
    delivered = message(f"<body>list</body><stanza-id xmlns='urn:xmpp:sid:0' by='{BOT}' id='77'/>")
    assert deduplication.dedup_key(parse(delivered), BOT, 0.0) == from_archive.dedup_key


def test_only_the_accounts_own_server_can_name_a_message() -> None:
    forged = message("<body>list</body><stanza-id xmlns='urn:xmpp:sid:0' by='eve@localhost' id='77'/>")
    assert deduplication.dedup_key(parse(forged), BOT, 0.0) != deduplication.archive_dedup_key("77")


def test_without_an_archive_the_same_message_has_the_same_name_and_another_has_another() -> None:
    first, same = (deduplication.dedup_key(parse(message("<body>list</body>")), BOT, now_s) for now_s in (0.0, 99.0))
    assert first == same
    others = (
        message("<body>help</body>"),
        message("<body>list</body>", ident="m2"),
        message("<body>list</body>", "eve@x"),
    )
    assert first not in {deduplication.dedup_key(parse(other), BOT, 0.0) for other in others}


def test_without_an_archive_a_message_that_was_kept_has_the_name_that_it_had_when_it_was_brought() -> None:
    delay = "<delay xmlns='urn:xmpp:delay' stamp='1970-01-01T00:01:41Z'>Offline storage</delay>"
    delivered, delayed = (parse(message(f"<body>list</body>{content}")) for content in ("", delay))
    assert deduplication.dedup_key(delivered, BOT, 100.0) == deduplication.dedup_key(delayed, BOT, 9_000.0)
    without_id, delayed = (parse(message(f"<body>list</body>{content}", ident="")) for content in ("", delay))
    assert deduplication.dedup_key(without_id, BOT, 100.0) == deduplication.dedup_key(delayed, BOT, 9_000.0)


def test_only_an_archive_names_a_message_for_good() -> None:
    received = message_parser.parse_message(parse(message("<body>list</body>")))
    assert isinstance(received, MessageReceived)
    assert (
        deduplication.duplicates_since_s(
            msgspec.structs.replace(received, dedup_key=deduplication.archive_dedup_key("1")), 9_000.0
        )
        == 0.0
    )
    assert deduplication.duplicates_since_s(received, 9_000.0) == 9_000.0 - deduplication.ID_REUSE_AFTER_S
    delayed = msgspec.structs.replace(received, sent_s=5_000.0)
    assert deduplication.duplicates_since_s(delayed, 9_000.0) == 5_000.0 - deduplication.MAX_CLOCK_SKEW_S, (
        "senders may use ids again"
    )


def test_the_same_words_without_any_id_are_one_message_only_for_some_seconds() -> None:
    without_id = parse(message("<body>list</body>", ident=""))
    assert deduplication.dedup_key(without_id, BOT, 100.0) == deduplication.dedup_key(without_id, BOT, 101.0)
    assert deduplication.dedup_key(without_id, BOT, 100.0) != deduplication.dedup_key(without_id, BOT, 200.0)
