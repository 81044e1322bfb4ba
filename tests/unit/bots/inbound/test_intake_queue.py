"""The queue of received messages has limits that one sender cannot use up for all."""

from bots.inbound.intake_queue import IntakeQueue
from bots.xmpp.events import MessageReceived


def message(jid: str) -> MessageReceived:
    return MessageReceived(jid, f"{jid}/phone", "1", "list", "", wants_receipt=False)


def test_the_queue_is_limited_per_site() -> None:
    queue = IntakeQueue()
    senders = [f"{number}@{number % 7}.invented.example" for number in range(12_000)]
    for jid in (*senders, "alice@home.example"):
        queue.put(message(jid))
    assert [each.jid for each in queue.take(20_000)] == [*senders[:5_000], "alice@home.example"]
    queue.put(message("0@0.invented.example"))
    assert len(queue) == 1, "messages that were taken make space"


def test_the_queue_is_limited_per_user_and_in_total() -> None:
    queue = IntakeQueue()
    for _ in range(150):
        queue.put(message("alice@home.example"))
    assert len(queue) == 100
    for number in range(20_000):
        queue.put(message(f"{number}@{number % 7}.example{number % 5}.org"))
    assert len(queue) == 10_000
