"""What is told of many channels by arithmetic is what production's rotas and rings say of each, one by one."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.corona.polling_schedule import PollingSchedule, new_schedule, polling_set_size, revised_schedule
from service.overlay.ring import shared_digits
from service.simulate.corona.timetable import TimetableBuilder, mean_waits_s
from service.simulate.corona.workload import NodeTrie, hex_id
from tests.support.ring_strategies import ring

TAU_S = 1800.0
NODES = 50
END_S = 6 * TAU_S
near_by = st.integers(0, 255).map(lambda small: small << 40)
drawn = st.one_of(st.integers(0, (1 << 64) - 1), near_by)
# Changes within one tick happen at the same time; others are further apart than what times are rounded to.
pauses_s = st.just(0.0) | st.floats(1e-3, TAU_S)
histories = st.lists(st.tuples(st.floats(0.2, 40), pauses_s), min_size=1, max_size=6)


def _rotas(point: int, history: list[tuple[float, float]]) -> list[tuple[float, PollingSchedule]]:
    """Return what an owner makes of it, and when, in the order of time."""
    found: list[tuple[float, PollingSchedule]] = []
    now_s = 0.0
    for size, later_s in history:
        rota = (
            revised_schedule(found[-1][1], size, polling_set_size(size, NODES), TAU_S, now_s)
            if found
            else new_schedule(hex_id(point), size, polling_set_size(size, NODES), TAU_S, 0)
        )
        found.append((now_s, rota))
        now_s += later_s
    return found


def _polls(rotas: list[tuple[float, PollingSchedule]], end_s: float) -> list[tuple[float, int]]:
    """Return every poll up to then, and by which rank: what each member makes of its own turn, put together."""
    found = []
    for (begin_s, rota), (until_s, _) in pairwise([*rotas, (end_s, rotas[-1][1])]):
        for rank in range(rota.size):
            at_s = rota.next_poll_s(rank, begin_s)
            while at_s <= until_s:
                found.append((at_s, rank))
                at_s = rota.next_poll_s(rank, at_s)
    return sorted(found)


@given(st.lists(st.tuples(drawn, histories), min_size=1, max_size=4), st.lists(st.floats(0, END_S), min_size=1))
def test_the_next_polls_equal_those_of_production_schedules(
    channels: list[tuple[int, list[tuple[float, float]]]], moments_s: list[float]
) -> None:
    book = TimetableBuilder()
    rotas = [_rotas(point, history) for point, history in channels]
    for number, made in enumerate(rotas):
        for at_s, rota in made:
            book.add(number, rota, at_s, 0)
    table = book.timetable(len(channels))
    for number, made in enumerate(rotas):
        polls_s = np.array([at_s for at_s, _ in _polls(made, 3 * END_S)])
        clear_s = [at_s for at_s in moments_s if np.abs(polls_s - at_s).min(initial=1.0) > 1e-3]
        expected_s = [float(polls_s[polls_s > at_s].min()) for at_s in clear_s]
        found_s = table.next_s(np.full(len(clear_s), number), np.array(clear_s))
        assert found_s == pytest.approx(np.array(expected_s), abs=1e-4)


@example(1 << 40, [(2.0000001, 600.0), (2.0, 1800.0), (1.9999999, 1200.0), (2.0, 600.0)])  # changed when a poll is due
@given(drawn, histories)
def test_changes_of_n_skip_no_poll_and_let_no_polls_collide(point: int, history: list[tuple[float, float]]) -> None:
    rotas = _rotas(point, history)
    book = TimetableBuilder()
    for at_s, rota in rotas:
        book.add(0, rota, at_s, 0)
    table, at_s, gaps_s = book.timetable(1), 0.0, [rota.gap_s for _, rota in rotas]
    polls_s = []
    while at_s < END_S:
        at_s = float(table.next_s(np.array([0]), np.array([at_s]))[0])
        polls_s.append(at_s)
    for before_s, after_s in pairwise(polls_s):
        assert min(gaps_s) - 1e-3 <= after_s - before_s <= max(gaps_s) + 1e-3


@given(drawn, histories)
def test_the_mean_wait_is_the_integral_over_the_polls(point: int, history: list[tuple[float, float]]) -> None:
    rotas = _rotas(point, history)
    book = TimetableBuilder()
    for at_s, rota in rotas:
        book.add(0, rota, at_s, 0)
    polls_s = [at_s for at_s, _ in _polls(rotas, 10 * END_S)]
    marks_s = np.array([0.0, *[at_s for at_s in polls_s if at_s < END_S], END_S])
    last_s = min(at_s for at_s in polls_s if at_s >= END_S)
    squares = (np.diff(marks_s[:-1]) ** 2).sum() + (last_s - marks_s[-2]) ** 2 - (last_s - END_S) ** 2
    assert mean_waits_s(book.timetable(1), 0.0, END_S)[0] == pytest.approx(squares / 2 / END_S, rel=1e-6, abs=1e-3)


@given(st.lists(drawn, min_size=1, max_size=40, unique=True), st.lists(drawn, min_size=1, max_size=5))
def test_all_ranks_are_those_of_the_ring_view(nodes: list[int], targets: list[int]) -> None:
    ids = [hex_id(node) for node in nodes]
    trie, view = NodeTrie(ids), ring(ids)
    for target in targets:
        repeated = np.full(len(ids), target, dtype=np.uint64)
        found = trie.nodes_at_rank(repeated, np.arange(len(ids)))
        assert tuple(trie.nodes[number] for number in found.tolist()) == view.nearest(hex_id(target), len(ids))


@given(
    st.lists(drawn, min_size=1, max_size=40, unique=True), drawn, st.sampled_from([(0, 16), (1, 16), (2, 16), (3, 4)])
)
def test_the_wedge_size_is_the_number_of_nodes_that_share_its_digits(
    nodes: list[int], target: int, wedge: tuple[int, int]
) -> None:
    digits, base = wedge
    found = NodeTrie([hex_id(node) for node in nodes]).wedge_sizes(
        np.array([target], dtype=np.uint64), digits * (base.bit_length() - 1)
    )
    aim = int(hex_id(target), 16)
    assert found[0] == sum(shared_digits(int(hex_id(node), 16), aim, base) >= digits for node in nodes)
