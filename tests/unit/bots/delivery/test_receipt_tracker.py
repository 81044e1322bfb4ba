"""Which receipts are awaited, and for how many batches at most."""

import pytest

from bots.delivery.receipt_tracker import MAX_AWAITED, ReceiptTracker

ALICE = "alice"


@pytest.fixture
def receipts() -> ReceiptTracker:
    return ReceiptTracker()


def test_a_receipt_is_awaited_until_it_arrives(receipts: ReceiptTracker) -> None:
    assert receipts.expect(ALICE, "m1", is_resend=False) == receipts.expect(ALICE, "m2", is_resend=False) == []
    receipts.on_receipt(ALICE, "m1", 0.0)
    assert receipts.has_awaited(ALICE)
    receipts.on_receipt(ALICE, "m2", 0.0)
    assert not receipts.has_awaited(ALICE)


def test_a_reset_replaces_the_awaited_receipts(receipts: ReceiptTracker) -> None:
    receipts.expect(ALICE, "m1", is_resend=False)
    receipts.reset(ALICE, ["m2"])
    receipts.drop(ALICE, "m2")
    assert not receipts.has_awaited(ALICE)


def test_after_too_many_unanswered_messages_no_receipt_is_awaited_until_one_arrives(receipts: ReceiptTracker) -> None:
    for number in range(MAX_AWAITED):
        assert receipts.expect(ALICE, f"m{number}", is_resend=False) == []
    assert receipts.expect(ALICE, "next", is_resend=False) is None
    assert receipts.expect(ALICE, "m0", is_resend=True) == []
    receipts.on_receipt(ALICE, "m0", 0.0)
    assert receipts.expect(ALICE, "next", is_resend=False) == []


def test_receipts_of_the_oldest_messages_expire(receipts: ReceiptTracker) -> None:
    """A client may send one receipt in twenty: then the count of unanswered messages restarts each time."""
    expired = []
    for number in range(MAX_AWAITED + 5):
        expired += receipts.expect(ALICE, f"m{number}", is_resend=False) or []
        receipts.on_receipt(ALICE, "of an answer", 0.0)
    assert expired == [f"m{number}" for number in range(5)]


def test_removed_and_unassigned_users_are_forgotten(receipts: ReceiptTracker) -> None:
    receipts.expect(ALICE, "m1", is_resend=False)
    receipts.remove(ALICE)
    assert not receipts.has_awaited(ALICE)
    receipts.expect(ALICE, "m1", is_resend=False)
    receipts.retain(lambda user_id: user_id != ALICE)
    assert not receipts.has_awaited(ALICE)
