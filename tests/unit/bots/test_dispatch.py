"""Who is sent to next, and what is done about what went wrong. Times are plain numbers."""

import math
from itertools import pairwise

import pytest

from bots.delivery.outbox_consumer import MAX_ITEMS
from bots.delivery.scheduler import (
    BURST,
    GIVE_UP_AFTER_S,
    RECEIPT_TIMEOUT_AT_RETURN_S,
    RECEIPT_TIMEOUT_IF_UNSEEN_S,
    RECEIPT_TIMEOUT_S,
    DeliveryScheduler,
)
from service.settings import Settings
from service.store.delivery.outbox import Batch

ANN, BEN = "ann", "ben"


def batch(message_id: str, *, acked: bool = False) -> Batch:
    return Batch(message_id, (), acked, 0.0)


@pytest.fixture
def dispatch() -> DeliveryScheduler:
    return DeliveryScheduler(1.0, lambda _: True)


def test_whoever_has_something_queued_is_taken_once(dispatch: DeliveryScheduler) -> None:
    dispatch.queued([ANN, BEN, ANN], 0.0)
    assert sorted(dispatch.take(10, 0.0)) == [ANN, BEN]
    assert dispatch.take(10, 0.0) == []
    assert dispatch.next_s() == math.inf


def test_a_taken_lane_is_nobody_elses(dispatch: DeliveryScheduler) -> None:
    assert dispatch.enter(ANN)
    assert not dispatch.enter(ANN)
    dispatch.queued([ANN], 0.0)
    assert dispatch.take(10, 0.0) == []
    dispatch.release(ANN, 1.0)
    assert dispatch.take(10, 1.0) == [ANN]


def test_who_is_served_by_another_process_is_not_taken_and_their_lane_is_known_to_be_busy() -> None:
    served = {ANN, BEN}
    dispatch = DeliveryScheduler(1.0, served.__contains__)
    dispatch.queued([ANN, BEN], 0.0)
    assert dispatch.take(1, 0.0) == [ANN]
    served.clear()
    dispatch.queued([ANN], 0.0)
    assert dispatch.take(2, 0.0) == []
    assert dispatch.is_busy_for_others()
    dispatch.release(ANN, 1.0)
    assert not dispatch.is_busy_for_others()


def test_what_is_queued_while_a_lane_is_taken_is_not_forgotten(dispatch: DeliveryScheduler) -> None:
    dispatch.queued([ANN], 0.0)
    dispatch.take(1, 0.0)
    dispatch.queued([ANN], 0.1)
    dispatch.release(ANN, 0.2)
    assert dispatch.take(1, 0.2) == [ANN]


def test_what_may_be_told_later_is_looked_at_then_and_nothing_else_waits_for_it(dispatch: DeliveryScheduler) -> None:
    dispatch.queued([ANN], 0.0)
    assert dispatch.take(1, 0.0) == [ANN]
    dispatch.later(ANN, 60.0)
    dispatch.release(ANN, 0.0)
    assert dispatch.take(1, 59.0) == []
    assert dispatch.next_s() == 60.0
    dispatch.queued([ANN], 59.0)
    assert dispatch.take(1, 59.0) == [ANN]
    dispatch.later(ANN, 60.0)
    dispatch.release(ANN, 59.0)
    assert dispatch.take(1, 60.0) == [ANN]
    dispatch.release(ANN, 60.0)
    assert dispatch.take(1, 1_000.0) == []
    assert dispatch.next_s() == math.inf


def test_who_changes_their_mind_is_told_at_once_what_was_to_be_told_later(dispatch: DeliveryScheduler) -> None:
    dispatch.queued([ANN], 0.0)
    dispatch.take(1, 0.0)
    dispatch.later(ANN, 60.0)
    dispatch.release(ANN, 0.0)
    dispatch.rouse(ANN, 1.0)
    assert dispatch.take(1, 1.0) == [ANN]


def test_the_governor_lets_a_burst_through_and_then_its_rate(dispatch: DeliveryScheduler) -> None:
    taken_s: list[float] = []
    now_s = 0.0
    while len(taken_s) < BURST + 4:
        dispatch.queued([ANN], now_s)
        for uid in dispatch.take(1, now_s):
            taken_s.append(now_s)
            dispatch.sent(uid, 1, now_s)
            dispatch.release(uid, now_s)
        now_s += 0.25
    assert taken_s[BURST - 1] == (BURST - 1) * 0.25
    assert [taken_s[-2] - taken_s[-3], taken_s[-1] - taken_s[-2]] == [1.0, 1.0]


def test_five_hundred_entries_in_a_minute_become_a_few_messages() -> None:
    """By the rate that is usual; each message takes in what has come since the last one."""
    dispatch = DeliveryScheduler(Settings().messages_per_s_per_user, lambda _: True)
    queued, messages = 0, []
    for tick in range(1_200):  # 2 min of 100 ms; in the first, something new every 120 ms
        now_s = tick / 10
        if now_s < 60 and int(now_s / 0.12) > int((now_s - 0.1) / 0.12):
            queued += 1
            dispatch.queued([ANN], now_s)
        for uid in dispatch.take(100, now_s):
            told = min(queued, MAX_ITEMS)
            queued -= told
            messages.append(told)
            dispatch.sent(uid, told, now_s)
            dispatch.release(uid, now_s, again=queued > 0)
    assert sum(messages) >= 500
    assert queued == 0
    assert len(messages) <= 18


def test_who_is_told_something_each_half_second_is_told_each_second() -> None:
    dispatch = DeliveryScheduler(Settings().messages_per_s_per_user, lambda _: True)
    queued, taken_s = 0, []
    for tick in range(600):
        now_s = tick / 10
        if tick % 5 == 0:
            queued += 1
            dispatch.queued([ANN], now_s)
        for uid in dispatch.take(100, now_s):
            dispatch.sent(uid, queued, now_s)
            dispatch.release(uid, now_s)
            queued = 0
            taken_s.append(now_s)
    assert max(later - sooner for sooner, later in pairwise(taken_s)) <= 1.1


def test_the_governor_of_one_person_holds_nobody_else(dispatch: DeliveryScheduler) -> None:
    for _ in range(BURST + 1):
        dispatch.sent(ANN, 1, 0.0)
    dispatch.queued([ANN, BEN], 0.0)
    assert dispatch.take(10, 0.0) == [BEN]
    assert dispatch.next_s() == 2.0


def test_idle_lanes_are_forgotten(dispatch: DeliveryScheduler) -> None:
    dispatch.queued([ANN], 0.0)
    dispatch.take(1, 0.0)
    dispatch.sent(ANN, 1, 0.0)
    dispatch.release(ANN, 0.0)
    assert dispatch.take(1, 100.0) == []
    assert not dispatch._lanes


def test_what_the_server_never_confirmed_is_sent_again_at_once(dispatch: DeliveryScheduler) -> None:
    dispatch.recover([ANN], 0.0)
    assert dispatch.take(1, 0.0) == [ANN]
    assert dispatch.is_unsure(ANN)
    assert list(dispatch.resend(ANN, [batch("m1")], 0.0)) == [batch("m1")]
    assert not dispatch.is_unsure(ANN)


def test_what_it_confirmed_waits_for_its_receipt_and_everything_behind_waits_with_it(
    dispatch: DeliveryScheduler,
) -> None:
    flying = [batch("m1", acked=True), batch("m2")]
    dispatch.recover([ANN], 0.0)
    dispatch.take(1, 0.0)
    assert not dispatch.resend(ANN, flying, 0.0)
    dispatch.release(ANN, 0.0)
    assert dispatch.take(1, RECEIPT_TIMEOUT_IF_UNSEEN_S - 0.1) == []
    assert dispatch.take(1, RECEIPT_TIMEOUT_IF_UNSEEN_S) == [ANN]
    assert dispatch.resend(ANN, flying, RECEIPT_TIMEOUT_IF_UNSEEN_S) == flying


def test_a_person_who_is_seen_gets_a_while_to_send_the_receipt(dispatch: DeliveryScheduler) -> None:
    dispatch.recover([ANN], 0.0)
    dispatch.take(1, 0.0)
    dispatch.resend(ANN, [batch("m1", acked=True)], 0.0)
    dispatch.release(ANN, 0.0)
    dispatch.seen(ANN, 1.0)
    assert dispatch.next_s() == 1.0 + RECEIPT_TIMEOUT_S
    dispatch.settled(ANN, 2.0)
    assert dispatch.take(1, 2.0) == [ANN], "a receipt came: look again at once"
    assert not dispatch.resend(ANN, [], 2.0)
    assert not dispatch.is_unsure(ANN)


def test_for_a_person_known_to_be_offline_nothing_is_sent_twice_until_they_come(dispatch: DeliveryScheduler) -> None:
    dispatch.recover([ANN], 0.0)
    dispatch.take(1, 0.0)
    dispatch.resend(ANN, [batch("m1", acked=True)], 0.0)
    dispatch.release(ANN, 0.0)
    dispatch.absent(ANN)
    assert dispatch.take(1, 1e9) == []
    dispatch.seen(ANN, 2e9)
    assert dispatch.take(1, 2e9 + RECEIPT_TIMEOUT_S) == [ANN]
    assert dispatch.seen_online(ANN)


def test_what_has_no_receipt_goes_again_when_the_person_returns(dispatch: DeliveryScheduler) -> None:
    flying = [batch("m1", acked=True), batch("m2", acked=True)]
    dispatch.returned(ANN, 0.0)
    assert dispatch.take(1, 0.0) == [ANN]
    assert not dispatch.resend(ANN, flying, 0.0)
    assert dispatch.is_unsure(ANN), "nothing newer is claimed meanwhile"
    dispatch.release(ANN, 0.0)
    dispatch.queued([ANN], 1.0)
    dispatch.returned(ANN, 2.0)
    assert dispatch.take(1, RECEIPT_TIMEOUT_AT_RETURN_S - 0.1) == []
    assert dispatch.take(1, RECEIPT_TIMEOUT_AT_RETURN_S) == [ANN], "to return once more does not put it off"
    assert dispatch.resend(ANN, flying, RECEIPT_TIMEOUT_AT_RETURN_S) == flying
    assert dispatch.seen_online(ANN)
    assert not dispatch.is_unsure(ANN)


def test_receipts_that_come_at_once_let_a_returned_persons_news_go_on(dispatch: DeliveryScheduler) -> None:
    dispatch.returned(ANN, 0.0)
    dispatch.take(1, 0.0)
    dispatch.resend(ANN, [batch("m1", acked=True)], 0.0)
    dispatch.release(ANN, 0.0)
    dispatch.settled(ANN, 0.2)
    assert dispatch.take(1, 0.2) == [ANN]
    assert not dispatch.resend(ANN, [], 0.2)
    assert not dispatch.is_unsure(ANN)


def test_who_returns_and_leaves_at_once_has_their_server_get_what_is_new(dispatch: DeliveryScheduler) -> None:
    """Their server wakes a phone for it; they are sent the rest when they return the next time."""
    dispatch.returned(ANN, 0.0)
    dispatch.take(1, 0.0)
    dispatch.resend(ANN, [batch("m1", acked=True)], 0.0)
    dispatch.release(ANN, 0.0)
    dispatch.absent(ANN)
    dispatch.queued([ANN], 1.0)
    assert dispatch.take(1, 1.0) == [ANN]
    assert not dispatch.resend(ANN, [batch("m1", acked=True)], 1.0)
    assert not dispatch.is_unsure(ANN)


def test_a_return_does_not_end_a_recovery(dispatch: DeliveryScheduler) -> None:
    dispatch.recover([ANN], 0.0)
    dispatch.returned(ANN, 1.0)
    dispatch.absent(ANN)
    dispatch.take(1, 1.0)
    assert not dispatch.resend(ANN, [batch("m1", acked=True)], 1.0)
    dispatch.release(ANN, 1.0)
    assert dispatch.take(1, 1e9) == [], "kept until they are seen"


def test_what_breaks_off_while_it_is_sent_again_is_sent_again_later(dispatch: DeliveryScheduler) -> None:
    flying = [batch("m1", acked=True)]
    dispatch.returned(ANN, 0.0)
    dispatch.take(1, RECEIPT_TIMEOUT_AT_RETURN_S)
    assert dispatch.resend(ANN, flying, RECEIPT_TIMEOUT_AT_RETURN_S) == flying
    dispatch.failed([ANN])
    dispatch.release(ANN, 6.0, again=True)
    assert dispatch.take(1, 6.0) == [ANN]
    assert dispatch.resend(ANN, flying, 6.0) == flying
    dispatch.release(ANN, 7.0)
    dispatch.doubt([ANN])
    assert not dispatch.resend(ANN, flying, 7.0), "it has been sent"


def test_doubt_within_a_session_concerns_only_what_was_not_confirmed(dispatch: DeliveryScheduler) -> None:
    dispatch.queued([ANN], 0.0)
    dispatch.take(1, 0.0)
    dispatch.doubt([ANN])
    assert list(dispatch.resend(ANN, [batch("m1", acked=True), batch("m2")], 0.0)) == [batch("m2")]


def test_bounces_hold_a_lane_longer_each_time_but_not_for_ever(dispatch: DeliveryScheduler) -> None:
    holds_s = []
    now_s = 0.0
    for _ in range(12):
        dispatch.bounced(ANN, "service-unavailable", now_s, chance=1.0)
        assert dispatch.take(1, now_s) == []
        holds_s.append(dispatch.next_s() - now_s)
        now_s = dispatch.next_s()
        assert dispatch.take(1, now_s) == [ANN]
        dispatch.release(ANN, now_s)
    assert holds_s[:3] == [30.0, 60.0, 120.0]
    assert holds_s[-1] == 3_600.0


@pytest.mark.parametrize("condition", ["item-not-found", "not-acceptable"])
def test_an_address_that_does_not_exist_or_is_blocked_is_tried_more_rarely(
    dispatch: DeliveryScheduler, condition: str
) -> None:
    dispatch.bounced(ANN, condition, 0.0, chance=0.0)
    assert dispatch.next_s() == 300.0


def test_a_held_lane_is_tried_as_soon_as_the_person_is_seen(dispatch: DeliveryScheduler) -> None:
    dispatch.bounced(ANN, "recipient-unavailable", 0.0, chance=0.0)
    dispatch.seen(ANN, 1.0)
    assert dispatch.take(1, 1.0) == [ANN]
    assert dispatch.resend(ANN, [batch("m1", acked=True)], 1.0), "it came back: no receipt to wait for"


def test_only_what_keeps_coming_back_is_given_up_and_only_after_two_weeks(dispatch: DeliveryScheduler) -> None:
    assert not dispatch.is_hopeless(ANN, 0.0, GIVE_UP_AFTER_S + 1)
    dispatch.bounced(ANN, "gone", 0.0, chance=0.0)
    assert not dispatch.is_hopeless(ANN, 0.0, GIVE_UP_AFTER_S - 1)
    assert dispatch.is_hopeless(ANN, 0.0, GIVE_UP_AFTER_S + 1)
    dispatch.accepted(ANN)
    assert not dispatch.is_hopeless(ANN, 0.0, GIVE_UP_AFTER_S + 1)


def test_a_resting_lane_waits_whatever_is_seen_of_its_person_until_they_change_their_mind(
    dispatch: DeliveryScheduler,
) -> None:
    dispatch.queued(["a"], 0.0)
    assert dispatch.take(10, 0.0) == ["a"]
    dispatch.rest("a", 100.0)
    dispatch.release("a", 0.0)
    dispatch.seen("a", 1.0)
    dispatch.queued(["a"], 2.0)
    assert (dispatch.take(10, 99.0), dispatch.next_s()) == ([], 100.0)
    dispatch.rouse("a", 99.0)
    assert dispatch.take(10, 99.0) == ["a"]
    dispatch.rest("a", 200.0)
    dispatch.release("a", 99.0)
    assert dispatch.take(10, 200.0) == ["a"]


def test_what_is_queued_for_the_next_digest_does_not_hold_back_the_last_one(dispatch: DeliveryScheduler) -> None:
    dispatch.queued([ANN], 0.0)
    dispatch.take(1, 0.0)
    dispatch.rest(ANN, 1e6)
    dispatch.release(ANN, 0.0)
    dispatch.returned(ANN, 1.0)
    assert dispatch.take(1, 1.0) == [ANN]
    assert not dispatch.resend(ANN, [batch("m1", acked=True)], 1.0)
    dispatch.release(ANN, 1.0)
    assert dispatch.take(1, 1.0 + RECEIPT_TIMEOUT_AT_RETURN_S) == [ANN]
