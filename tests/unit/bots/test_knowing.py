"""Which receipts are awaited, and for how many batches at most."""

import pytest

from bots.knowing import MOST_UNANSWERED, Knowing
from service.store import Store

ANN = "ann"


@pytest.fixture
def known() -> Knowing:
    return Knowing(Store.__new__(Store))  # nothing is read from it here


def test_a_receipt_is_lacked_until_it_comes(known: Knowing) -> None:
    assert known.sent(ANN, "m1") == known.sent(ANN, "m2") == []
    known.answers(ANN, "m1")
    assert known.lacks_receipts(ANN)
    known.answers(ANN, "m2")
    assert not known.lacks_receipts(ANN)


def test_what_is_in_flight_is_what_lacks_receipts(known: Knowing) -> None:
    known.sent(ANN, "m1")
    known.awaits(ANN, ["m2"])
    known.finished(ANN, "m2")
    assert not known.lacks_receipts(ANN)


def test_of_the_oldest_no_receipts_are_awaited_any_more(known: Knowing) -> None:
    """A client may send one receipt in twenty: then the count of unanswered ones begins anew each time."""
    ids = [f"m{number}" for number in range(MOST_UNANSWERED + 5)]
    given_up = [old for message_id in ids for old in known.sent(ANN, message_id)]
    assert given_up == ids[:5]
    assert known.sent(ANN, ids[-1]) == [], "it was sent again"


def test_nothing_is_remembered_of_who_is_forgotten_or_served_by_others(known: Knowing) -> None:
    known.sent(ANN, "m1")
    known.forget(ANN)
    assert not known.lacks_receipts(ANN)
    known.sent(ANN, "m1")
    known.keep(lambda uid: uid != ANN)
    assert not known.lacks_receipts(ANN)
