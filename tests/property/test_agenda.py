"""The agenda: each channel comes up once, at the time planned last, in order."""

from hypothesis import given
from hypothesis import strategies as st

from workers.polling.scheduler import DueQueue

plans = st.lists(st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 50))), max_size=40)


@given(plans=plans, now_s=st.integers(0, 60))
def test_what_is_due_comes_once_in_order_and_the_rest_stays(plans: list[tuple[str, int | None]], now_s: int) -> None:
    agenda, expected = DueQueue(), dict[str, int]()
    for channel, due_s in plans:
        if due_s is None:
            agenda.drop(channel)
            expected.pop(channel, None)
        else:
            agenda.plan(channel, due_s)
            expected[channel] = due_s
    taken = agenda.take(now_s)
    assert sorted(taken) == sorted((due_s, channel) for channel, due_s in expected.items() if due_s <= now_s)
    assert [due_s for due_s, _ in taken] == sorted(due_s for due_s, _ in taken)
    assert agenda.take(now_s) == []
    assert sorted(agenda.take(100)) == sorted((due_s, channel) for channel, due_s in expected.items() if due_s > now_s)


@given(plans=plans)
def test_the_next_time_is_never_later_than_what_is_planned(plans: list[tuple[str, int | None]]) -> None:
    agenda = DueQueue()
    for channel, due_s in plans:
        if due_s is None:
            agenda.drop(channel)
        else:
            agenda.plan(channel, due_s)
    planned = [agenda.planned_s(channel) for channel in "abcde"]
    next_s = agenda.next_s()
    assert min(planned) == float("inf") or (next_s is not None and next_s <= min(planned))
