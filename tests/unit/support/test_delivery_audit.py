"""The ledger finds each kind of breach, and nothing where nothing is wrong."""

from dataclasses import replace

import pytest

from service.embedded.sample_publisher import PublishedEntry
from tests.support.chat import Received
from tests.support.delivery_audit import Subscribed, audit, tagged

ALICE = "alice@localhost"


def published(*numbers: int, feed: int = 1) -> list[PublishedEntry]:
    return [PublishedEntry(feed, f"id{n}", f"http://x/{n}", tagged(feed, n), 100.0 + n) for n in numbers]


def message(mid: str, *tags: tuple[int, int], at_s: float = 200.0) -> Received:
    return Received(mid, "bot@localhost", "\n".join(tagged(*tag) for tag in tags), at_s, "")


def test_entries_received_once_and_in_order_are_no_breach() -> None:
    got = {ALICE: [message("a", (1, 1)), message("a", (1, 1)), message("b", (1, 2), (1, 3))]}
    verdict = audit(published(1, 2, 3), [Subscribed(ALICE, 1, 99.0)], got, {ALICE: {1}})
    assert verdict.broken == {}
    assert (verdict.published, verdict.owed, verdict.received, verdict.resent) == (3, 3, 3, 1)


def test_a_correction_may_repeat_entries_of_the_message_it_replaces() -> None:
    correction = replace(message("b", (1, 1)), replaces="a")
    got = {ALICE: [message("a", (1, 1)), correction]}
    assert audit(published(1), [Subscribed(ALICE, 1, 99.0)], got, {ALICE: {1}}).broken == {}


@pytest.mark.parametrize(
    ("messages", "subscription", "held", "guarantee"),
    [
        ([message("a", (1, 1))], Subscribed(ALICE, 1, 99.0), {1}, "I1"),
        ([message("a", (1, 1), (1, 2)), message("b", (1, 2))], Subscribed(ALICE, 1, 99.0), {1}, "I2"),
        ([message("a", (1, 1), (1, 2))], Subscribed(ALICE, 1, 99.0, 150.0), set(), "I3"),
        ([message("a", (1, 2)), message("b", (1, 1))], Subscribed(ALICE, 1, 99.0), {1}, "I4"),
        ([message("a", (1, 1), (1, 2))], Subscribed(ALICE, 1, 99.0), set(), "I5"),
    ],
)
def test_each_breach_is_found(
    messages: list[Received], subscription: Subscribed, held: set[int], guarantee: str
) -> None:
    verdict = audit(published(1, 2), [subscription], {ALICE: messages}, {ALICE: held})
    assert list(verdict.broken) == [guarantee]
