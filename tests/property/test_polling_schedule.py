"""A channel's polls are evenly spaced for any real n, and no change of n postpones one or lets two collide."""

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.polling_schedule import (
    HANDOVER_S,
    PollingSchedule,
    new_schedule,
    polling_set_size,
    revised_schedule,
)
from service.model import ChannelId
from tests.support.ring_strategies import points

TAU_S = 1800.0
ROUNDING_S = 1e-4
rates = st.one_of(st.floats(0.01, 1), st.floats(1, 20), st.floats(20, 1500))
rings = set_sizes = st.integers(1, 80)
fleet_times_s = st.floats(0, 2e9)
changes = st.lists(st.tuples(rates, set_sizes, st.floats(0, 2)), min_size=1, max_size=12)


def _polls_s(schedule: PollingSchedule, after_s: float, count: int) -> list[float]:
    polls_s = [schedule.next_channel_poll_s(after_s)]
    while len(polls_s) < count:
        polls_s.append(schedule.next_channel_poll_s(polls_s[-1]))
    return polls_s


@given(rates, rings)
def test_the_polling_set_size_is_n_rounded_up(rate: float, nodes: int) -> None:
    size = polling_set_size(rate, nodes)
    assert size == min(ceil(rate), nodes)


def test_a_channel_that_is_never_polled_has_one_node() -> None:
    assert polling_set_size(0, 5) == 1


@given(points, rates, rings, fleet_times_s)
def test_nodes_poll_in_turn_one_gap_apart(channel: ChannelId, rate: float, nodes: int, now_s: float) -> None:
    schedule = new_schedule(channel, rate, polling_set_size(rate, nodes), TAU_S, now_s)
    assert schedule.interval_s == pytest.approx(schedule.size * TAU_S / rate)
    assert schedule.size == nodes or schedule.interval_s >= TAU_S * (1 - 1e-9)
    polls_s = _polls_s(schedule, now_s, schedule.size + 2)
    assert 0 < polls_s[0] - now_s <= TAU_S / rate + ROUNDING_S
    assert [b - a for a, b in pairwise(polls_s)] == pytest.approx([TAU_S / rate] * (schedule.size + 1), abs=ROUNDING_S)
    for before_s, poll_s in pairwise(polls_s):
        middle_s = (before_s + poll_s) / 2
        nexts_s = [schedule.next_poll_s(rank, middle_s) for rank in range(schedule.size)]
        assert min(nexts_s) == pytest.approx(poll_s, abs=ROUNDING_S)
        assert nexts_s.index(min(nexts_s)) == schedule.rank_at(poll_s)


@given(points, rates, set_sizes, fleet_times_s, changes)
def test_no_sequence_of_changes_postpones_a_poll_or_lets_two_collide(
    channel: ChannelId, rate: float, size: int, now_s: float, row: list[tuple[float, int, float]]
) -> None:
    """Each gap is at most the longer one before and after a change, and at least the shorter one.

    The number of nodes may be any: that of the polls per τ, rounded up, or that of a wedge.
    """
    schedule = new_schedule(channel, rate, size, TAU_S, now_s)
    last_s, shortest_s = schedule.next_channel_poll_s(now_s), schedule.gap_s
    now_s = last_s
    for new_rate, new_size, gaps in row:
        until_s = now_s + gaps * schedule.gap_s
        while (poll_s := schedule.next_channel_poll_s(now_s)) <= until_s:
            assert poll_s - last_s >= shortest_s - ROUNDING_S
            last_s, now_s, shortest_s = poll_s, poll_s, schedule.gap_s
        now_s = until_s
        before_s, held = schedule.next_channel_poll_s(now_s), schedule.rank_at(schedule.next_channel_poll_s(now_s))
        schedule = revised_schedule(schedule, new_rate, new_size, TAU_S, now_s)
        after_s = schedule.next_channel_poll_s(now_s)
        shortest_s = min(shortest_s, schedule.gap_s)
        assert now_s < after_s <= before_s
        assert after_s - now_s <= 2 * schedule.gap_s + ROUNDING_S or after_s == before_s
        assert schedule.rank_at(after_s) == held % schedule.size
        assert schedule.next_channel_poll_s(after_s) - after_s == pytest.approx(schedule.gap_s, abs=ROUNDING_S)


@given(points, st.tuples(rates, set_sizes), st.tuples(rates, set_sizes), fleet_times_s, st.floats(0, 3))
def test_a_leaving_node_makes_the_next_poll_if_it_is_due_soon(
    channel: ChannelId, before: tuple[float, int], after: tuple[float, int], now_s: float, gaps: float
) -> None:
    (rate, size), (new_rate, new_size) = before, after
    schedule = new_schedule(channel, rate, size, TAU_S, now_s)
    now_s += gaps * schedule.gap_s
    next_s = schedule.next_channel_poll_s(now_s)
    usual, handed_over = (
        revised_schedule(schedule, new_rate, new_size, TAU_S, now_s, can_hand_over=can) for can in (False, True)
    )
    if usual.first_s == next_s and next_s - now_s < HANDOVER_S and schedule.rank_at(next_s) >= new_size:
        assert handed_over.first_s == pytest.approx(next_s + usual.gap_s, abs=ROUNDING_S)
        polls_s = _polls_s(handed_over, next_s, 4)
        assert polls_s == pytest.approx(_polls_s(usual, next_s, 4), abs=ROUNDING_S)
        assert [handed_over.rank_at(at_s) for at_s in polls_s] == [usual.rank_at(at_s) for at_s in polls_s]
    else:
        assert handed_over == usual


@given(points, rates, rings, fleet_times_s)
def test_a_revision_to_the_same_rate_changes_no_poll(channel: ChannelId, rate: float, nodes: int, now_s: float) -> None:
    schedule = new_schedule(channel, rate, polling_set_size(rate, nodes), TAU_S, now_s)
    later_s = now_s + 3.5 * schedule.gap_s
    same = revised_schedule(schedule, rate, schedule.size, TAU_S, later_s)
    assert _polls_s(same, later_s, 5) == pytest.approx(_polls_s(schedule, later_s, 5), abs=ROUNDING_S)
    assert [same.rank_at(at_s) for at_s in _polls_s(same, later_s, 5)] == [
        schedule.rank_at(at_s) for at_s in _polls_s(schedule, later_s, 5)
    ]


@given(points, st.lists(st.floats(0.05, 0.95), min_size=20, max_size=60), fleet_times_s)
def test_a_rate_that_drifts_every_hour_makes_no_more_polls_than_its_highest(
    channel: ChannelId, drift: list[float], now_s: float
) -> None:
    """If each change moved polls forward to a new phase, there would be up to twice as many."""
    schedule = new_schedule(channel, drift[0], 1, TAU_S, now_s)
    polled, began_s = 0, now_s
    for rate in drift:
        until_s = now_s + 3600
        while (poll_s := schedule.next_channel_poll_s(now_s)) <= until_s:
            polled, now_s = polled + 1, poll_s
        now_s = until_s
        schedule = revised_schedule(schedule, rate, 1, TAU_S, now_s)
    assert polled <= (now_s - began_s) / TAU_S * max(drift) + 1
