"""A channel that is told at intervals: seldom enough, nothing lost, nobody waits longer than an interval."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bots.delivery.notification_intervals import earliest_send_s

ARRIVALS = st.lists(st.integers(0, 10_000), max_size=60).map(sorted)


def tellings(queued_s: list[int], interval_s: int, most: int) -> list[tuple[float, list[int]]]:
    """When messages go out, each with at most so many items, for somebody who is there whenever one may."""
    told_s: float | None = None
    waiting, sent = list(queued_s), []
    now_s = float(min(queued_s, default=0))
    while waiting:
        arrived = [at_s for at_s in waiting if at_s <= now_s]
        free = [at_s for at_s in arrived if earliest_send_s(at_s, told_s, interval_s) <= now_s][:most]
        if free:
            sent.append((now_s, free))
            told_s = now_s
            waiting = waiting[len(free) :]
        else:
            now_s = min(max(now_s + 1, earliest_send_s(at_s, told_s, interval_s)) for at_s in waiting)
    return sent


@given(ARRIVALS, st.integers(1, 3_000), st.integers(1, 10))
def test_items_are_sent_in_order_within_an_interval_and_at_once_after_silence(
    queued_s: list[int], interval_s: int, most: int
) -> None:
    sent = tellings(queued_s, interval_s, most)
    assert [at_s for _, items in sent for at_s in items] == queued_s
    assert all(now_s - at_s <= interval_s for now_s, items in sent for at_s in items)
    for before_s, (now_s, items) in zip([-1e9, *(now_s for now_s, _ in sent)], sent, strict=False):
        assert now_s == items[0] or now_s - before_s in (0, interval_s), "nothing waits but for the interval"


@given(ARRIVALS, st.integers(1, 3_000), st.integers(1, 10))
def test_messages_are_at_least_one_interval_apart(queued_s: list[int], interval_s: int, most: int) -> None:
    moments_s = sorted({now_s for now_s, _ in tellings(queued_s, interval_s, most)})
    assert all(then_s - now_s >= interval_s for now_s, then_s in pairwise(moments_s))


@given(st.integers(0, 10_000), st.none() | st.integers(0, 10_000))
def test_without_an_interval_items_are_due_at_once(queued_s: int, told_s: int | None) -> None:
    assert earliest_send_s(queued_s, told_s, 0.0) == queued_s
