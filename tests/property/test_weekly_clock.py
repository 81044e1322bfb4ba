"""Weekly clocks run forward without a jump, and the polls of a channel are even by its clock."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.corona.polling_schedule import PollingSchedule, new_schedule, revised_schedule
from service.corona.weekly_rhythm import FACTORS, HOUR_S, SPEEDS_BYTES, WEEK_S, WeeklyClock
from service.model import ChannelId
from tests.support.ring_strategies import points

TAU_S = 1800.0
ROUNDING_S = 1e-3
fleet_times_s = st.floats(WEEK_S, 2e9)  # schedules are anchored at time 0, which no clock of a store shows
any_speeds = st.binary(min_size=SPEEDS_BYTES, max_size=SPEEDS_BYTES)
speeds = st.tuples(
    st.lists(st.integers(-16, 16), min_size=FACTORS, max_size=FACTORS), st.integers(-127, 0), st.integers(0, 127)
).map(lambda drawn: bytes(step % 256 for step in [*drawn[0], drawn[1], drawn[2]]))
rates = st.floats(0.05, 20)
changes = st.lists(st.tuples(rates, speeds | st.just(b""), st.floats(0, 2)), min_size=1, max_size=8)


@given(any_speeds, fleet_times_s, st.floats(1e-3, 3 * WEEK_S))
def test_a_clock_runs_forward_and_keeps_the_length_of_weeks(raw: bytes, at_s: float, later_s: float) -> None:
    clock = WeeklyClock(raw)
    assert clock.shown_s(at_s) < clock.shown_s(at_s + WEEK_S)
    assert clock.shown_s(at_s) <= clock.shown_s(at_s + later_s)
    assert clock.shown_s(at_s + WEEK_S) - clock.shown_s(at_s) == pytest.approx(WEEK_S, abs=1e-2)
    assert clock.shown_s(at_s // WEEK_S * WEEK_S) == at_s // WEEK_S * WEEK_S


@given(speeds, fleet_times_s)
def test_clock_times_and_real_times_are_converted_both_ways(raw: bytes, at_s: float) -> None:
    clock = WeeklyClock(raw)
    assert clock.time_s(clock.shown_s(at_s)) == pytest.approx(at_s, abs=1e-4)
    assert clock.shown_s(clock.time_s(at_s)) == pytest.approx(at_s, abs=1e-4)


@given(speeds, fleet_times_s)
def test_the_speed_is_that_of_the_hour(raw: bytes, at_s: float) -> None:
    clock, begin_s = WeeklyClock(raw), at_s // HOUR_S * HOUR_S
    passed_s = clock.shown_s(begin_s + HOUR_S) - clock.shown_s(begin_s)
    assert clock.speed(at_s) == pytest.approx(passed_s / HOUR_S, rel=1e-6)


@given(points, rates, speeds, fleet_times_s, st.integers(1, 20))
def test_nodes_take_turns_at_even_times_of_the_clock(
    channel: ChannelId, rate: float, raw: bytes, now_s: float, nodes: int
) -> None:
    schedule = new_schedule(channel, rate, nodes, TAU_S, now_s, speeds=raw)
    clock, at_s = WeeklyClock(raw), now_s
    polls: list[tuple[float, int]] = []
    for _ in range(2 * schedule.size + 2):
        by_rank = [schedule.next_poll_s(rank, at_s) for rank in range(schedule.size)]
        at_s = min(by_rank)
        assert schedule.next_channel_poll_s(polls[-1][0] if polls else now_s) == pytest.approx(at_s, abs=ROUNDING_S)
        assert schedule.rank_at(at_s) == by_rank.index(at_s)
        polls.append((at_s, by_rank.index(at_s)))
    assert 0 < clock.shown_s(polls[0][0]) - clock.shown_s(now_s) <= schedule.gap_s + ROUNDING_S
    for (before_s, former), (after_s, rank) in pairwise(polls):
        assert clock.shown_s(after_s) - clock.shown_s(before_s) == pytest.approx(schedule.gap_s, abs=ROUNDING_S)
        assert rank == (former + 1) % schedule.size


@given(points, rates, speeds, fleet_times_s, changes)
def test_no_change_of_rhythm_postpones_a_poll_or_lets_two_collide(
    channel: ChannelId, rate: float, raw: bytes, now_s: float, row: list[tuple[float, bytes, float]]
) -> None:
    schedule = new_schedule(channel, rate, 5, TAU_S, now_s, speeds=raw)
    for new_rate, new_speeds, gaps in row:
        poll_s = schedule.next_channel_poll_s(now_s)
        now_s = min(poll_s, now_s + gaps * (poll_s - now_s))
        kept_s = schedule.next_channel_poll_s(now_s)
        held, left = schedule.rank_at(kept_s), schedule.gaps_between(now_s, kept_s)
        schedule = revised_schedule(schedule, new_rate, 5, TAU_S, now_s, speeds=new_speeds)
        after_s = schedule.next_channel_poll_s(now_s)
        if kept_s - now_s < ROUNDING_S:  # the poll may count as made
            continue
        assert now_s < after_s <= kept_s + 1e-5
        assert after_s >= kept_s - 1e-5 or 1 - 1e-3 <= schedule.gaps_between(now_s, after_s) <= 1 + left + 1e-3
        assert schedule.rank_at(after_s) == held % schedule.size


@given(speeds, fleet_times_s, st.integers(1, 5), st.floats(1, 1e5))
def test_a_node_polls_within_two_intervals_after_the_fleets_clock_was_set_back(
    raw: bytes, now_s: float, size: int, gap_s: float
) -> None:
    schedule = PollingSchedule(now_s + 1e6, gap_s, size, 0, raw)
    assume(size * gap_s < 2e5)
    due_s = schedule.next_poll_s(0, now_s)
    assert due_s > now_s
    assert schedule.gaps_between(now_s, due_s) <= 2 * size + 1e-6
    assert schedule.rank_at(due_s) == 0


def test_speeds_of_another_length_run_at_real_time() -> None:
    assert PollingSchedule(9000, 300, 3, 0, b"short").next_poll_s(0, 9000) == 9900
