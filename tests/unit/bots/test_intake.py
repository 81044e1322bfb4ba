"""Messages wait to be stored, within bounds that nobody can use up for all others."""

from bots.intake import WaitingMessages
from bots.link import Said


def said(jid: str) -> Said:
    return Said(jid, f"{jid}/phone", "1", "list", "", wants_receipt=False)


def test_no_server_fills_the_queue_with_addresses_that_it_invents() -> None:
    waiting = WaitingMessages()
    senders = [f"{number}@{number % 7}.invented.example" for number in range(12_000)]
    for jid in (*senders, "alice@home.example"):
        waiting.put(said(jid))
    assert [each.jid for each in waiting.take(20_000)] == [*senders[:5_000], "alice@home.example"]
    waiting.put(said("0@0.invented.example"))
    assert len(waiting) == 1, "what was taken makes room"


def test_one_person_fills_no_more_than_a_hundred_places_and_all_together_ten_thousand() -> None:
    waiting = WaitingMessages()
    for _ in range(150):
        waiting.put(said("alice@home.example"))
    assert len(waiting) == 100
    for number in range(20_000):
        waiting.put(said(f"{number}@{number % 7}.example{number % 5}.org"))
    assert len(waiting) == 10_000
