"""Deduplication keys: the same for each delivery of a message to an account, different for different messages."""

import msgspec

from bots.xmpp import archive, deduplication, message_parser
from bots.xmpp.events import MessageReceived
from tests.support.archived_messages import BOT, archived, message, parse


def test_a_delivered_message_and_its_archived_copy_have_the_same_key() -> None:
    (from_archive,) = archive.parse_page([archived("77", message("<body>list</body>"))], BOT).messages
    delivered = message(f"<body>list</body><stanza-id xmlns='urn:xmpp:sid:0' by='{BOT}' id='77'/>")
    assert deduplication.dedup_key(parse(delivered), BOT, 0.0) == from_archive.dedup_key


def test_stanza_ids_of_other_addresses_are_ignored() -> None:
    forged = message("<body>list</body><stanza-id xmlns='urn:xmpp:sid:0' by='eve@localhost' id='77'/>")
    assert deduplication.dedup_key(parse(forged), BOT, 0.0) != deduplication.archive_dedup_key("77")


def test_without_an_archive_only_equal_messages_have_the_same_key() -> None:
    first, same = (deduplication.dedup_key(parse(message("<body>list</body>")), BOT, now_s) for now_s in (0.0, 99.0))
    assert first == same
    others = (
        message("<body>help</body>"),
        message("<body>list</body>", ident="m2"),
        message("<body>list</body>", "eve@x"),
    )
    assert first not in {deduplication.dedup_key(parse(other), BOT, 0.0) for other in others}


def test_without_an_archive_a_copy_from_offline_storage_has_the_same_key() -> None:
    delay = "<delay xmlns='urn:xmpp:delay' stamp='1970-01-01T00:01:41Z'>Offline storage</delay>"
    delivered, delayed = (parse(message(f"<body>list</body>{content}")) for content in ("", delay))
    assert deduplication.dedup_key(delivered, BOT, 100.0) == deduplication.dedup_key(delayed, BOT, 9_000.0)
    without_id, delayed = (parse(message(f"<body>list</body>{content}", ident="")) for content in ("", delay))
    assert deduplication.dedup_key(without_id, BOT, 100.0) == deduplication.dedup_key(delayed, BOT, 9_000.0)


def test_only_archive_keys_identify_duplicates_without_a_time_limit() -> None:
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


def test_equal_messages_without_ids_are_duplicates_only_within_seconds() -> None:
    without_id = parse(message("<body>list</body>", ident=""))
    assert deduplication.dedup_key(without_id, BOT, 100.0) == deduplication.dedup_key(without_id, BOT, 101.0)
    assert deduplication.dedup_key(without_id, BOT, 100.0) != deduplication.dedup_key(without_id, BOT, 200.0)
