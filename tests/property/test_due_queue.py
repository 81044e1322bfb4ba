"""The due queue: each channel is due once, at the time scheduled last, in order."""

from hypothesis import given
from hypothesis import strategies as st

from workers.polling.due_queue import DueQueue

plans = st.lists(st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 400))), max_size=40)


@given(plans=plans, now_s=st.integers(0, 420))
def test_due_channels_are_popped_once_in_order(plans: list[tuple[str, int | None]], now_s: int) -> None:
    queue, expected = DueQueue(), dict[str, int]()
    for channel, due_s in plans:
        if due_s is None:
            queue.remove(channel)
            expected.pop(channel, None)
        else:
            queue.schedule(channel, due_s)
            expected[channel] = due_s
    due = queue.pop_due(now_s)
    assert sorted(due) == sorted((due_s, channel) for channel, due_s in expected.items() if due_s <= now_s)
    assert [due_s for due_s, _ in due] == sorted(due_s for due_s, _ in due)
    assert queue.pop_due(now_s) == []
    assert sorted(queue.pop_due(1000)) == sorted(
        (due_s, channel) for channel, due_s in expected.items() if due_s > now_s
    )


@given(plans=plans, later=plans, now_s=st.integers(0, 420))
def test_channels_can_be_scheduled_after_others_were_popped(
    plans: list[tuple[str, int | None]], later: list[tuple[str, int | None]], now_s: int
) -> None:
    queue, expected = DueQueue(), dict[str, int]()
    for number, channels in enumerate((plans, later)):
        for channel, due_s in channels:
            if due_s is not None:
                queue.schedule(channel, due_s)
                expected[channel] = due_s
        if not number:
            for _, channel in queue.pop_due(now_s):
                del expected[channel]
    assert sorted(queue.pop_due(1000)) == sorted((due_s, channel) for channel, due_s in expected.items())


@given(plans=plans)
def test_the_next_time_is_never_later_than_the_earliest_channel(plans: list[tuple[str, int | None]]) -> None:
    queue = DueQueue()
    for channel, due_s in plans:
        if due_s is None:
            queue.remove(channel)
        else:
            queue.schedule(channel, due_s)
    planned = [queue.due_s(channel) for channel in "abcde"]
    next_s = queue.next_s()
    assert min(planned) == float("inf") or (next_s is not None and next_s <= min(planned))
