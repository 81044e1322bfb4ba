"""Pages of the account archive: their content, and the request for the next one."""

import pytest

from bots.xmpp import archive
from bots.xmpp.events import Receipt
from tests.support.archived_messages import ALICE, BOT, archived, message, parse


def test_a_page_separates_sent_messages_receipts_and_messages_of_users() -> None:
    results = [
        archived("1", message("<body>Entry</body>", f"{BOT}/coronet-a", "batch-1")),
        archived("2", message("<received xmlns='urn:xmpp:receipts' id='batch-1'/>")),
        archived("3", message("<body>list</body>")),
        parse(f"<result xmlns='{archive.NS_MAM}' id='4'/>"),
    ]
    page = archive.parse_page(results, BOT)
    assert page.sent_ids == {"batch-1"}
    assert page.receipts == (Receipt(ALICE, "batch-1"),)
    assert [(each.jid, each.text, each.sent_s) for each in page.messages] == [(ALICE, "list", 1_767_225_600.0)]


def test_a_query_states_start_position_and_limit() -> None:
    query = parse(archive.query_payload("q", 1_767_225_600.5, "<last>", 50))
    assert query.get("queryid") == "q"
    assert "2026-01-01T00:00:00Z" in [value.text for value in query.iter("{jabber:x:data}value")]
    assert [element.text for element in query.iter("{http://jabber.org/protocol/rsm}after")] == ["<last>"]


@pytest.mark.parametrize(
    ("content", "after"),
    [
        (f"<fin xmlns='{archive.NS_MAM}'><set xmlns='http://jabber.org/protocol/rsm'><last>9</last></set></fin>", "9"),
        (f"<fin xmlns='{archive.NS_MAM}' complete='true'><set xmlns='http://jabber.org/protocol/rsm'/></fin>", None),
        ("<error type='cancel'/>", None),
    ],
)
def test_the_next_page_id_is_none_after_the_last_page_or_without_an_archive(content: str, after: str | None) -> None:
    assert archive.next_page_id(parse(f"<iq xmlns='jabber:client' type='result'>{content}</iq>")) == after
