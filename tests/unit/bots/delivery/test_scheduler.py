"""The order of deliveries, and recovery after failures. Times are plain numbers."""

import math
from itertools import pairwise

import pytest

from bots.delivery.batch_sender import MAX_ITEMS
from bots.delivery.bounce_backoff import GIVE_UP_AFTER_S
from bots.delivery.message_rate_limit import BURST
from bots.delivery.resend_policy import RECEIPT_TIMEOUT_AT_RETURN_S, RECEIPT_TIMEOUT_IF_UNSEEN_S, RECEIPT_TIMEOUT_S
from bots.delivery.scheduler import DeliveryScheduler
from service.settings import Settings
from service.store.delivery.outbox import Batch

ALICE, BOB = "alice", "bob"


def batch(message_id: str, *, acked: bool = False) -> Batch:
    return Batch(message_id, (), acked, 0.0)


@pytest.fixture
def scheduler() -> DeliveryScheduler:
    return DeliveryScheduler(1.0, lambda _: True)


def test_a_user_with_queued_items_is_due_once(scheduler: DeliveryScheduler) -> None:
    scheduler.on_items_queued([ALICE, BOB, ALICE], 0.0)
    assert sorted(scheduler.acquire_due(10, 0.0)) == [ALICE, BOB]
    assert scheduler.acquire_due(10, 0.0) == []
    assert scheduler.next_due_s() == math.inf


def test_a_locked_user_cannot_be_locked_again(scheduler: DeliveryScheduler) -> None:
    assert scheduler.try_acquire(ALICE)
    assert not scheduler.try_acquire(ALICE)
    scheduler.on_items_queued([ALICE], 0.0)
    assert scheduler.acquire_due(10, 0.0) == []
    scheduler.release(ALICE, 1.0)
    assert scheduler.acquire_due(10, 1.0) == [ALICE]


def test_a_user_assigned_to_another_process_is_not_due() -> None:
    assigned = {ALICE, BOB}
    scheduler = DeliveryScheduler(1.0, assigned.__contains__)
    scheduler.on_items_queued([ALICE, BOB], 0.0)
    assert scheduler.acquire_due(1, 0.0) == [ALICE]
    assigned.clear()
    scheduler.on_items_queued([ALICE], 0.0)
    assert scheduler.acquire_due(2, 0.0) == []
    assert scheduler.has_locked_unassigned()
    scheduler.release(ALICE, 1.0)
    assert not scheduler.has_locked_unassigned()


def test_items_queued_while_a_user_is_locked_are_due_after_release(scheduler: DeliveryScheduler) -> None:
    scheduler.on_items_queued([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.on_items_queued([ALICE], 0.1)
    scheduler.release(ALICE, 0.2)
    assert scheduler.acquire_due(1, 0.2) == [ALICE]


def test_items_that_are_too_early_do_not_delay_others(scheduler: DeliveryScheduler) -> None:
    scheduler.on_items_queued([ALICE], 0.0)
    assert scheduler.acquire_due(1, 0.0) == [ALICE]
    scheduler.set_next_item(ALICE, 60.0)
    scheduler.release(ALICE, 0.0)
    assert scheduler.acquire_due(1, 59.0) == []
    assert scheduler.next_due_s() == 60.0
    scheduler.on_items_queued([ALICE], 59.0)
    assert scheduler.acquire_due(1, 59.0) == [ALICE]
    scheduler.set_next_item(ALICE, 60.0)
    scheduler.release(ALICE, 59.0)
    assert scheduler.acquire_due(1, 60.0) == [ALICE]
    scheduler.release(ALICE, 60.0)
    assert scheduler.acquire_due(1, 1_000.0) == []
    assert scheduler.next_due_s() == math.inf


def test_a_change_of_settings_makes_early_items_due(scheduler: DeliveryScheduler) -> None:
    scheduler.on_items_queued([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.set_next_item(ALICE, 60.0)
    scheduler.release(ALICE, 0.0)
    scheduler.end_deferral(ALICE, 1.0)
    assert scheduler.acquire_due(1, 1.0) == [ALICE]


def test_the_rate_limit_allows_a_burst_and_then_its_rate(scheduler: DeliveryScheduler) -> None:
    sent_s: list[float] = []
    now_s = 0.0
    while len(sent_s) < BURST + 4:
        scheduler.on_items_queued([ALICE], now_s)
        for user_id in scheduler.acquire_due(1, now_s):
            sent_s.append(now_s)
            scheduler.on_sending(user_id, 1, now_s)
            scheduler.release(user_id, now_s)
        now_s += 0.25
    assert sent_s[BURST - 1] == (BURST - 1) * 0.25
    assert [sent_s[-2] - sent_s[-3], sent_s[-1] - sent_s[-2]] == [1.0, 1.0]


def test_500_entries_in_a_minute_are_coalesced_into_few_messages() -> None:
    """At the default rate limit; each message contains the items queued since the last one."""
    scheduler = DeliveryScheduler(Settings().messages_per_s_per_user, lambda _: True)
    queued, messages = 0, []
    for tick in range(1_200):  # 2 min of 100 ms; in the first, something new every 120 ms
        now_s = tick / 10
        if now_s < 60 and int(now_s / 0.12) > int((now_s - 0.1) / 0.12):
            queued += 1
            scheduler.on_items_queued([ALICE], now_s)
        for user_id in scheduler.acquire_due(100, now_s):
            count = min(queued, MAX_ITEMS)
            queued -= count
            messages.append(count)
            scheduler.on_sending(user_id, count, now_s)
            scheduler.release(user_id, now_s, again=queued > 0)
    assert sum(messages) >= 500
    assert queued == 0
    assert len(messages) <= 18


def test_items_every_half_second_are_sent_every_second() -> None:
    scheduler = DeliveryScheduler(Settings().messages_per_s_per_user, lambda _: True)
    queued, sent_s = 0, []
    for tick in range(600):
        now_s = tick / 10
        if tick % 5 == 0:
            queued += 1
            scheduler.on_items_queued([ALICE], now_s)
        for user_id in scheduler.acquire_due(100, now_s):
            scheduler.on_sending(user_id, queued, now_s)
            scheduler.release(user_id, now_s)
            queued = 0
            sent_s.append(now_s)
    assert max(later - sooner for sooner, later in pairwise(sent_s)) <= 1.1


def test_the_rate_limit_of_one_user_does_not_delay_others(scheduler: DeliveryScheduler) -> None:
    for _ in range(BURST + 1):
        scheduler.on_sending(ALICE, 1, 0.0)
    scheduler.on_items_queued([ALICE, BOB], 0.0)
    assert scheduler.acquire_due(10, 0.0) == [BOB]
    assert scheduler.next_due_s() == 2.0


def test_idle_users_are_removed(scheduler: DeliveryScheduler) -> None:
    scheduler.on_items_queued([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.on_sending(ALICE, 1, 0.0)
    scheduler.release(ALICE, 0.0)
    assert scheduler.acquire_due(1, 100.0) == []
    assert not scheduler._users


def test_unacknowledged_batches_are_resent_at_once(scheduler: DeliveryScheduler) -> None:
    scheduler.on_session_lost([ALICE], 0.0)
    assert scheduler.acquire_due(1, 0.0) == [ALICE]
    assert scheduler.needs_recovery(ALICE)
    assert list(scheduler.recover(ALICE, [batch("m1")], 0.0)) == [batch("m1")]
    assert not scheduler.needs_recovery(ALICE)


def test_acknowledged_batches_and_all_behind_them_wait_for_receipts(
    scheduler: DeliveryScheduler,
) -> None:
    in_flight = [batch("m1", acked=True), batch("m2")]
    scheduler.on_session_lost([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    assert not scheduler.recover(ALICE, in_flight, 0.0)
    scheduler.release(ALICE, 0.0)
    assert scheduler.acquire_due(1, RECEIPT_TIMEOUT_IF_UNSEEN_S - 0.1) == []
    assert scheduler.acquire_due(1, RECEIPT_TIMEOUT_IF_UNSEEN_S) == [ALICE]
    assert scheduler.recover(ALICE, in_flight, RECEIPT_TIMEOUT_IF_UNSEEN_S) == in_flight


def test_a_user_who_comes_online_has_the_timeout_to_send_receipts(scheduler: DeliveryScheduler) -> None:
    scheduler.on_session_lost([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.recover(ALICE, [batch("m1", acked=True)], 0.0)
    scheduler.release(ALICE, 0.0)
    scheduler.on_online(ALICE, 1.0)
    assert scheduler.next_due_s() == 1.0 + RECEIPT_TIMEOUT_S
    scheduler.on_receipt(ALICE, 2.0)
    assert scheduler.acquire_due(1, 2.0) == [ALICE], "a receipt arrived"
    assert not scheduler.recover(ALICE, [], 2.0)
    assert not scheduler.needs_recovery(ALICE)


def test_nothing_is_resent_to_a_user_who_is_offline(scheduler: DeliveryScheduler) -> None:
    scheduler.on_session_lost([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.recover(ALICE, [batch("m1", acked=True)], 0.0)
    scheduler.release(ALICE, 0.0)
    scheduler.on_offline(ALICE)
    assert scheduler.acquire_due(1, 1e9) == []
    scheduler.on_online(ALICE, 2e9)
    assert scheduler.acquire_due(1, 2e9 + RECEIPT_TIMEOUT_S) == [ALICE]
    assert scheduler.was_online(ALICE)


def test_batches_without_receipts_are_resent_when_a_client_comes_online(scheduler: DeliveryScheduler) -> None:
    in_flight = [batch("m1", acked=True), batch("m2", acked=True)]
    scheduler.on_new_client(ALICE, 0.0)
    assert scheduler.acquire_due(1, 0.0) == [ALICE]
    assert not scheduler.recover(ALICE, in_flight, 0.0)
    assert scheduler.needs_recovery(ALICE), "no new batch is claimed"
    scheduler.release(ALICE, 0.0)
    scheduler.on_items_queued([ALICE], 1.0)
    scheduler.on_new_client(ALICE, 2.0)
    assert scheduler.acquire_due(1, RECEIPT_TIMEOUT_AT_RETURN_S - 0.1) == []
    assert scheduler.acquire_due(1, RECEIPT_TIMEOUT_AT_RETURN_S) == [ALICE], (
        "another return does not extend the timeout"
    )
    assert scheduler.recover(ALICE, in_flight, RECEIPT_TIMEOUT_AT_RETURN_S) == in_flight
    assert scheduler.was_online(ALICE)
    assert not scheduler.needs_recovery(ALICE)


def test_receipts_after_a_return_end_the_recovery(scheduler: DeliveryScheduler) -> None:
    scheduler.on_new_client(ALICE, 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.recover(ALICE, [batch("m1", acked=True)], 0.0)
    scheduler.release(ALICE, 0.0)
    scheduler.on_receipt(ALICE, 0.2)
    assert scheduler.acquire_due(1, 0.2) == [ALICE]
    assert not scheduler.recover(ALICE, [], 0.2)
    assert not scheduler.needs_recovery(ALICE)


def test_a_user_who_leaves_during_recovery_is_sent_new_items(scheduler: DeliveryScheduler) -> None:
    """Their server can wake a phone for a new message; acknowledged batches are recovered at the next return."""
    scheduler.on_new_client(ALICE, 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.recover(ALICE, [batch("m1", acked=True)], 0.0)
    scheduler.release(ALICE, 0.0)
    scheduler.on_offline(ALICE)
    scheduler.on_items_queued([ALICE], 1.0)
    assert scheduler.acquire_due(1, 1.0) == [ALICE]
    assert not scheduler.recover(ALICE, [batch("m1", acked=True)], 1.0)
    assert not scheduler.needs_recovery(ALICE)


def test_a_new_client_does_not_end_a_full_recovery(scheduler: DeliveryScheduler) -> None:
    scheduler.on_session_lost([ALICE], 0.0)
    scheduler.on_new_client(ALICE, 1.0)
    scheduler.on_offline(ALICE)
    scheduler.acquire_due(1, 1.0)
    assert not scheduler.recover(ALICE, [batch("m1", acked=True)], 1.0)
    scheduler.release(ALICE, 1.0)
    assert scheduler.acquire_due(1, 1e9) == [], "waits until they come online"


def test_a_failed_resend_is_repeated(scheduler: DeliveryScheduler) -> None:
    in_flight = [batch("m1", acked=True)]
    scheduler.on_new_client(ALICE, 0.0)
    scheduler.acquire_due(1, RECEIPT_TIMEOUT_AT_RETURN_S)
    assert scheduler.recover(ALICE, in_flight, RECEIPT_TIMEOUT_AT_RETURN_S) == in_flight
    scheduler.on_send_failed([ALICE])
    scheduler.release(ALICE, 6.0, again=True)
    assert scheduler.acquire_due(1, 6.0) == [ALICE]
    assert scheduler.recover(ALICE, in_flight, 6.0) == in_flight
    scheduler.release(ALICE, 7.0)
    scheduler.require_recovery([ALICE])
    assert not scheduler.recover(ALICE, in_flight, 7.0), "the resend was sent"


def test_recovery_within_a_session_resends_only_unacknowledged_batches(scheduler: DeliveryScheduler) -> None:
    scheduler.on_items_queued([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.require_recovery([ALICE])
    assert list(scheduler.recover(ALICE, [batch("m1", acked=True), batch("m2")], 0.0)) == [batch("m2")]


def test_back_off_doubles_up_to_its_maximum(scheduler: DeliveryScheduler) -> None:
    back_offs_s = []
    now_s = 0.0
    for _ in range(12):
        scheduler.on_bounced(ALICE, "service-unavailable", now_s, jitter=1.0)
        assert scheduler.acquire_due(1, now_s) == []
        back_offs_s.append(scheduler.next_due_s() - now_s)
        now_s = scheduler.next_due_s()
        assert scheduler.acquire_due(1, now_s) == [ALICE]
        scheduler.release(ALICE, now_s)
    assert back_offs_s[:3] == [30.0, 60.0, 120.0]
    assert back_offs_s[-1] == 3_600.0


@pytest.mark.parametrize("condition", ["item-not-found", "not-acceptable"])
def test_back_off_is_longer_for_a_missing_or_blocking_user(scheduler: DeliveryScheduler, condition: str) -> None:
    scheduler.on_bounced(ALICE, condition, 0.0, jitter=0.0)
    assert scheduler.next_due_s() == 300.0


def test_back_off_ends_when_the_user_comes_online(scheduler: DeliveryScheduler) -> None:
    scheduler.on_bounced(ALICE, "recipient-unavailable", 0.0, jitter=0.0)
    scheduler.on_online(ALICE, 1.0)
    assert scheduler.acquire_due(1, 1.0) == [ALICE]
    assert scheduler.recover(ALICE, [batch("m1", acked=True)], 1.0), "it bounced: there is no receipt to wait for"


def test_only_bouncing_batches_are_undeliverable_after_two_weeks(scheduler: DeliveryScheduler) -> None:
    assert not scheduler.is_undeliverable(ALICE, 0.0, GIVE_UP_AFTER_S + 1)
    scheduler.on_bounced(ALICE, "gone", 0.0, jitter=0.0)
    assert not scheduler.is_undeliverable(ALICE, 0.0, GIVE_UP_AFTER_S - 1)
    assert scheduler.is_undeliverable(ALICE, 0.0, GIVE_UP_AFTER_S + 1)
    scheduler.on_accepted(ALICE)
    assert not scheduler.is_undeliverable(ALICE, 0.0, GIVE_UP_AFTER_S + 1)


def test_a_deferral_lasts_until_its_end_or_a_change_of_settings(
    scheduler: DeliveryScheduler,
) -> None:
    scheduler.on_items_queued(["a"], 0.0)
    assert scheduler.acquire_due(10, 0.0) == ["a"]
    scheduler.defer("a", 100.0)
    scheduler.release("a", 0.0)
    scheduler.on_online("a", 1.0)
    scheduler.on_items_queued(["a"], 2.0)
    assert (scheduler.acquire_due(10, 99.0), scheduler.next_due_s()) == ([], 100.0)
    scheduler.end_deferral("a", 99.0)
    assert scheduler.acquire_due(10, 99.0) == ["a"]
    scheduler.defer("a", 200.0)
    scheduler.release("a", 99.0)
    assert scheduler.acquire_due(10, 200.0) == ["a"]


def test_a_deferred_digest_does_not_delay_recovery_of_the_previous_one(scheduler: DeliveryScheduler) -> None:
    scheduler.on_items_queued([ALICE], 0.0)
    scheduler.acquire_due(1, 0.0)
    scheduler.defer(ALICE, 1e6)
    scheduler.release(ALICE, 0.0)
    scheduler.on_new_client(ALICE, 1.0)
    assert scheduler.acquire_due(1, 1.0) == [ALICE]
    assert not scheduler.recover(ALICE, [batch("m1", acked=True)], 1.0)
    scheduler.release(ALICE, 1.0)
    assert scheduler.acquire_due(1, 1.0 + RECEIPT_TIMEOUT_AT_RETURN_S) == [ALICE]
