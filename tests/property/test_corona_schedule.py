"""The polls of a set are evenly spaced, polite, and never skipped when the set changes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.schedule import effective_interval_s, next_poll_s
from service.model import ChannelId
from tests.support.points import points

sizes = st.integers(1, 64)
intervals_s = st.floats(1, 3600)
fleet_times_s = st.floats(0, 2e9)
ROUNDING_S = 1e-5


def _set_polls_s(channel: ChannelId, size: int, interval_s: float, after_s: float) -> list[float]:
    return sorted(next_poll_s(channel, rank, size, interval_s, after_s) for rank in range(size))


@given(points, sizes, intervals_s, fleet_times_s)
def test_polls_are_an_nth_of_the_interval_apart(
    channel: ChannelId, size: int, interval_s: float, after_s: float
) -> None:
    polls_s = _set_polls_s(channel, size, interval_s, after_s)
    polls_s.append(polls_s[0] + interval_s)
    assert polls_s[0] > after_s
    assert [b - a for a, b in pairwise(polls_s)] == pytest.approx([interval_s / size] * size, abs=ROUNDING_S)


@given(points, sizes, intervals_s, fleet_times_s)
def test_a_node_polls_once_per_interval(channel: ChannelId, size: int, interval_s: float, after_s: float) -> None:
    first_s = next_poll_s(channel, size - 1, size, interval_s, after_s)
    second_s = next_poll_s(channel, size - 1, size, interval_s, first_s)
    assert second_s - first_s == pytest.approx(interval_s, abs=ROUNDING_S)


@given(points, sizes, sizes, intervals_s, fleet_times_s)
def test_a_growing_set_polls_no_later_than_it_would_have(
    channel: ChannelId, size: int, more: int, interval_s: float, after_s: float
) -> None:
    planned_s = [next_poll_s(channel, rank, size, interval_s, after_s) for rank in range(size)]
    kept_s = [
        next_poll_s(channel, rank, size + more, interval_s, after_s, planned_s=planned)
        for rank, planned in enumerate(planned_s)
    ]
    assert min(kept_s) <= min(planned_s)


@given(
    points,
    st.lists(st.tuples(st.integers(0, 63), sizes, st.floats(0, 1)), min_size=1, max_size=20),
    intervals_s,
    st.floats(0, 1e6),
)
def test_no_row_of_changes_makes_a_node_wait_longer_than_the_interval(
    channel: ChannelId, changes: list[tuple[int, int, float]], interval_s: float, now_s: float
) -> None:
    polled_s, planned_s = now_s, now_s + interval_s
    for rank, size, part in changes:
        changed_s = now_s + part * interval_s
        while planned_s <= changed_s:
            polled_s, planned_s = planned_s, next_poll_s(channel, rank % size, size, interval_s, planned_s)
            assert planned_s - polled_s <= interval_s + ROUNDING_S
        now_s = changed_s
        planned_s = next_poll_s(channel, rank % size, size, interval_s, now_s, planned_s=planned_s)
        assert planned_s - polled_s <= interval_s + ROUNDING_S


@given(intervals_s, sizes, st.floats(0.1, 1000))
def test_a_set_keeps_to_the_polls_per_hour(interval_s: float, size: int, max_polls_per_hour: float) -> None:
    stretched_s = effective_interval_s(interval_s, size, max_polls_per_hour, private=False)
    assert stretched_s >= interval_s
    assert size / stretched_s * 3600 <= max_polls_per_hour * (1 + 1e-9)
