"""Which receipts are awaited, and for how many batches at most."""

import pytest

from bots.delivery.recipient_cache import MOST_UNANSWERED, Receipts

ANN = "ann"


@pytest.fixture
def receipts() -> Receipts:
    return Receipts()


def test_a_receipt_is_missing_until_it_comes(receipts: Receipts) -> None:
    assert receipts.expect(ANN, "m1", again=False) == receipts.expect(ANN, "m2", again=False) == []
    receipts.received(ANN, "m1", 0.0, teaches=False)
    assert receipts.are_missing(ANN)
    receipts.received(ANN, "m2", 0.0, teaches=False)
    assert not receipts.are_missing(ANN)


def test_what_is_in_flight_is_what_lacks_receipts(receipts: Receipts) -> None:
    receipts.expect(ANN, "m1", again=False)
    receipts.reset(ANN, ["m2"])
    receipts.drop(ANN, "m2")
    assert not receipts.are_missing(ANN)


def test_after_too_many_without_any_no_more_receipts_are_awaited_until_one_comes(receipts: Receipts) -> None:
    for number in range(MOST_UNANSWERED):
        assert receipts.expect(ANN, f"m{number}", again=False) == []
    assert receipts.expect(ANN, "next", again=False) is None
    assert receipts.expect(ANN, "m0", again=True) == [], "it was sent again"
    receipts.received(ANN, "m0", 0.0, teaches=False)
    assert receipts.expect(ANN, "next", again=False) == []


def test_of_the_oldest_no_receipts_are_awaited_any_more(receipts: Receipts) -> None:
    """A client may send one receipt in twenty: then the count of unanswered ones begins anew each time."""
    given_up = []
    for number in range(MOST_UNANSWERED + 5):
        given_up += receipts.expect(ANN, f"m{number}", again=False) or []
        receipts.received(ANN, "of an answer", 0.0, teaches=False)
    assert given_up == [f"m{number}" for number in range(5)]


def test_a_receipt_that_came_while_the_store_was_read_counts(receipts: Receipts) -> None:
    receipts.received(ANN, "m1", 0.0, teaches=True)
    receipts.learn({ANN: False, "ben": True})
    assert receipts.sends(ANN)
    assert receipts.sends("ben")
    assert not receipts.sends("eve")


def test_nothing_is_remembered_of_who_is_forgotten_or_served_by_others(receipts: Receipts) -> None:
    receipts.expect(ANN, "m1", again=False)
    receipts.forget(ANN)
    assert not receipts.are_missing(ANN)
    receipts.expect(ANN, "m1", again=False)
    receipts.keep(lambda uid: uid != ANN)
    assert not receipts.are_missing(ANN)
