"""The experiment ``corona`` at a small scale: 32 nodes, 300 channels."""

from functools import cache
from math import inf

import msgspec
import numpy as np
import pytest

from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal
from service.corona.optimizer import node_allocation
from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.tradeoff_clusters import TradeoffClusters
from service.corona.polling_schedule import PollingSchedule
from service.simulate.corona import experiment as corona
from service.simulate.corona.fleet import OwnerDecisions, SimulatedFleet, SimulatedNetwork
from service.simulate.corona.fleet_polls import FaultyPolls, RandomPhasePolls, ScheduledPolls
from service.simulate.corona.paper_levels import encode_levels, merge_by_level, summarise_by_level
from service.simulate.corona.timetable import Timetable, TimetableBuilder
from service.simulate.corona.workload import (
    BinLayout,
    CoronaSetup,
    IdAssignment,
    NodeTrie,
    PollPhases,
    draw_channels,
    initial_nodes,
)

SMALL = CoronaSetup(nodes=32, channels=300, subscriptions=6_000)
PAPER = msgspec.structs.replace(SMALL, base=4, ids=IdAssignment.RANDOM, bins=BinLayout.PAPER)
RESTLESS = msgspec.structs.replace(SMALL, churn=0.2, loss=0.02)


@cache
def _run(setup: CoronaSetup, seed: int = 1) -> corona.CoronaOutcome:
    return corona.run(setup, seed, lambda _what: None)


def _fleet(setup: CoronaSetup) -> tuple[SimulatedFleet, Timetable]:
    rng = np.random.default_rng(3)
    fleet = SimulatedFleet(setup, draw_channels(setup, rng), np.arange(setup.channels), rng)
    return fleet, fleet.run()


def _one_channel(*sizes: float) -> Timetable:
    """A timetable of a thousand equal channels whose n changes once an hour."""
    book = TimetableBuilder()
    for number in range(1000):
        for hour, size in enumerate(sizes):
            gap_s = 1800.0 / size
            book.add(
                number,
                PollingSchedule(hour * 3600 + gap_s * number / 1000, gap_s, int(np.ceil(size))),
                hour * 3600.0,
                0,
            )
    return book.timetable(1000)


@pytest.mark.parametrize("setup", [SMALL, PAPER, RESTLESS], ids=["ours", "paper", "has_faults"])
def test_equal_seeds_give_equal_json(setup: CoronaSetup) -> None:
    again = corona.run(setup, 1, lambda _what: None)
    assert msgspec.json.encode(again) == msgspec.json.encode(_run(setup))
    assert msgspec.json.encode(again) != msgspec.json.encode(_run(setup, 2))


def test_every_update_is_detected_by_the_next_poll_of_any_member() -> None:
    """The polls of each member by production's schedules equal the simulated ones."""
    fleet, table = _fleet(SMALL)
    measured, end_s = ScheduledPolls(table), SMALL.end_s
    made = np.zeros(SMALL.nodes)
    rng = np.random.default_rng(5)
    for channel in range(SMALL.channels):
        polls_s = []
        for row in range(table.rows[channel], table.rows[channel + 1]):
            rota = PollingSchedule(
                *(part[row].item() for part in (table.first_s, table.gap_s, table.size, table.first_rank))
            )
            for rank in range(rota.size):
                node = int(fleet.trie.nodes_at_rank(fleet.channels.points[[channel]], np.array([rank]))[0])
                at_s = rota.next_poll_s(rank, float(table.start_s[row]))
                while at_s <= min(float(table.end_s[row]), 2 * end_s):
                    polls_s.append(at_s)
                    made[node] += at_s <= end_s
                    at_s = rota.next_poll_s(rank, at_s)
        updates_s = rng.random(5) * end_s
        found_s = measured.next_s(np.full(5, channel), updates_s)
        expected_s = [min(at_s for at_s in polls_s if at_s > update_s) for update_s in updates_s.tolist()]
        assert found_s == pytest.approx(np.array(expected_s), abs=1e-4)
    assert measured.node_polls(fleet.trie, fleet.channels.points, 0.0, end_s).tolist() == made.tolist()
    assert measured.polls_per_channel(0.0, end_s) * SMALL.channels == made.sum()


def test_enumerated_polls_equal_the_computed_ones() -> None:
    fleet, table = _fleet(SMALL)
    calm = ScheduledPolls(table)
    has_faults = FaultyPolls(fleet, table, np.arange(SMALL.channels), 1)
    rng = np.random.default_rng(5)
    channel, update_s = rng.integers(SMALL.channels, size=2000), rng.random(2000) * SMALL.end_s
    assert has_faults.next_s(channel, update_s) == pytest.approx(calm.next_s(channel, update_s), abs=1e-6)
    for begin_s, end_s in ((0.0, 1800.0), (3600.0, SMALL.end_s)):
        assert has_faults.polls_per_channel(begin_s, end_s) == calm.polls_per_channel(begin_s, end_s)
        assert has_faults.max_over_mean(fleet, begin_s, end_s) == pytest.approx(
            calm.max_over_mean(fleet, begin_s, end_s)
        )
        assert has_faults.mean_waits_s(begin_s, end_s) == pytest.approx(calm.mean_waits_s(begin_s, end_s))


@pytest.mark.parametrize("size", [1.0, 4.0, 7.3, 50.0])
def test_evenly_spaced_polls_detect_updates_after_half_a_gap(size: float) -> None:
    schedule, rng = ScheduledPolls(_one_channel(size, size)), np.random.default_rng(1)
    channel, update_s = rng.integers(1000, size=50_000), rng.random(50_000) * 7200
    delay_s = schedule.next_s(channel, update_s) - update_s
    assert delay_s.mean() == pytest.approx(1800 / (2 * size), rel=0.02)
    assert schedule.mean_waits_s(0.0, 7200.0).mean() == pytest.approx(1800 / (2 * size), rel=0.02)


@pytest.mark.parametrize("size", [1.0, 4.0, 50.0])
def test_random_phases_take_twice_as_long_except_for_one_node(size: float) -> None:
    schedule, rng = RandomPhasePolls(_one_channel(size, size), np.random.default_rng(2)), np.random.default_rng(1)
    channel, update_s = rng.integers(1000, size=50_000), rng.random(50_000) * 7200
    delay_s = schedule.next_s(channel, update_s) - update_s
    assert delay_s.mean() == pytest.approx(1800 / (size + 1), rel=0.05)
    assert schedule.mean_waits_s(0.0, 7200.0).mean() == pytest.approx(1800 / (size + 1), rel=0.05)
    assert schedule.polls_per_channel(0.0, 7200.0) == pytest.approx(4 * size, rel=0.01)


def test_later_members_wait_for_their_own_phase() -> None:
    schedule = RandomPhasePolls(_one_channel(1.0, 4.0), np.random.default_rng(2))
    channel = np.arange(1000)
    before_s, after_s = (schedule.next_s(channel, np.full(1000, at_s)) - at_s for at_s in (900.0, 3600.0))
    assert before_s.mean() == pytest.approx(900, rel=0.1)
    assert after_s.mean() == pytest.approx(360, rel=0.1)
    later, first = (schedule.polls_per_channel(begin_s, begin_s + 3600) for begin_s in (3600.0, 0.0))
    assert later == pytest.approx(4 * first, rel=0.01)


def test_coronets_mode_reaches_its_predicted_delay_within_the_budget() -> None:
    found = _run(SMALL)
    assert found.mean_detection_s == pytest.approx(found.formula_detection_s, rel=0.03)
    assert found.polls_per_channel_per_tau == pytest.approx(20, rel=0.005)
    assert (found.orphans, found.empty_wedges) == (0, 0)
    assert found.max_overshoot < 0.01
    assert found.legacy_detection_s == pytest.approx(900, rel=0.05)


@pytest.mark.parametrize("goal", [Goal.FAIR, Goal.FAIR_SQRT, Goal.FAIR_LOG])
def test_fair_goals_stay_within_the_legacy_load(goal: Goal) -> None:
    assert _run(msgspec.structs.replace(SMALL, goal=goal)).polls_per_channel_per_tau <= 20 * 1.005


def test_fast_reaches_its_target_delay() -> None:
    found = _run(msgspec.structs.replace(SMALL, goal=Goal.FAST, target_delay_s=60.0))
    assert found.mean_detection_s == pytest.approx(60, rel=0.03)
    assert found.polls_per_channel_per_tau < 20


@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize("wait_s", [inf, 120.0])
def test_owners_make_the_same_decisions_as_production(goal: Goal, wait_s: float) -> None:
    """Summaries, scale and sizes equal those of ``service.corona.optimizer.node_allocation``."""
    setup = msgspec.structs.replace(SMALL, goal=goal, longest_wait_s=wait_s, target_delay_s=60.0)
    aims = FleetObjective(goal=goal, demand_factor=1.0, delay_s=60.0, longest_wait_s=wait_s)
    policy = FleetPolicy(setup.poll_interval_s, inf, setup.maintenance_s, aims)
    channels = draw_channels(setup, np.random.default_rng(1))
    trie, everything = NodeTrie(initial_nodes(setup, np.random.default_rng(1))), np.arange(setup.channels)
    people = zip(channels.subscribers.tolist(), channels.update_interval_s.tolist(), strict=True)
    factors = [
        node_allocation.ChannelFactors(subscribers, interval_s, private=True) for subscribers, interval_s in people
    ]
    table = node_allocation.factor_table(factors, len(factors))
    owners = OwnerDecisions(setup, channels)
    owners.on_ring_changed(trie)
    part = owners.aggregate(everything)
    assert part == node_allocation.own_aggregate(policy, setup.nodes, table)
    expected = node_allocation.channel_sizes(
        policy, setup.nodes, table, node_allocation.solve_scale(policy, setup.nodes, part)
    )
    assert owners.sizes(everything, part) == pytest.approx(expected, rel=1e-5)


def test_no_channel_exceeds_the_longest_wait() -> None:
    found = _run(msgspec.structs.replace(SMALL, goal=Goal.FAIR, longest_wait_s=120.0))
    assert 100 < found.longest_mean_wait_s <= 120.1
    assert found.polls_per_channel_per_tau <= 20 * 1.005


def test_empty_wedges_make_orphans_in_the_papers_mode() -> None:
    found = _run(PAPER)
    assert found.empty_wedges > 0
    assert found.orphans > 0
    assert found.longest_mean_wait_s == pytest.approx(900)
    assert _run(msgspec.structs.replace(PAPER, ids=IdAssignment.BALANCED)).orphans == 0


def test_the_papers_mode_stays_within_the_budget_except_for_one_step() -> None:
    for goal in (Goal.LITE, Goal.FAIR):  # a step of one channel is of 24 polls at most, in 300 channels
        assert 19 < _run(msgspec.structs.replace(PAPER, goal=goal)).polls_per_channel_per_tau <= 20 + 24 / 300


def test_random_phases_are_slower_in_the_papers_mode() -> None:
    even = msgspec.structs.replace(PAPER, ids=IdAssignment.BALANCED)
    random = _run(msgspec.structs.replace(even, phases=PollPhases.RANDOM))
    assert random.mean_detection_s > 1.2 * _run(even).mean_detection_s


def test_churn_and_loss_cost_little_delay_and_no_polls() -> None:
    found, calm = _run(RESTLESS), _run(SMALL)
    assert calm.mean_detection_s < found.mean_detection_s < 1.15 * calm.mean_detection_s
    assert found.polls_per_channel_per_tau <= 20 * 1.005


def test_one_of_sixteen_channels_is_sampled_if_there_are_many() -> None:
    setup = CoronaSetup(nodes=8, channels=7_000, subscriptions=70_000, loss=0.01, rounds=2)
    found = _run(setup)
    assert len(corona.sampled_channels(draw_channels(setup, np.random.default_rng(1)), setup)) == 437
    assert found.polls_per_channel_per_tau == pytest.approx(
        _run(msgspec.structs.replace(setup, loss=0.0)).polls_per_channel_per_tau, rel=0.01
    )


def test_the_papers_bins_are_separate_per_level_and_keep_all_channels() -> None:
    rng = np.random.default_rng(1)
    weights, orphaned = rng.pareto(1, 500) + 1, rng.random(500) < 0.1
    most = encode_levels(64, rng.integers(0, 3, 500), orphaned)
    problem = AllocationProblem.of(weights, least=1.0, most=most)
    half = [
        AllocationProblem(*(f[part] for f in (problem.weights, problem.costs, problem.least, problem.most)))
        for part in (slice(250), slice(250, 500))
    ]
    for found in (summarise_by_level(problem, 16), merge_by_level([summarise_by_level(part, 16) for part in half], 16)):
        assert len(found.rise) <= 3 * 16 + 1
        assert found.lines.sum() == 500
        assert found.weight.sum() == pytest.approx(weights.sum())
        slack = found.most_cost == found.least_cost
        assert (slack.sum(), found.lines[slack].sum()) == (1, orphaned.sum())
    assert len(merge_by_level([TradeoffClusters.empty()], 16).rise) == 0


def test_the_network_loses_the_configured_share_of_messages() -> None:
    wire = SimulatedNetwork(0.1, np.random.default_rng(1))
    delays_s = [wire.delay_s() for _ in range(20_000)]
    assert sum(delay_s is None for delay_s in delays_s) == pytest.approx(2_000, rel=0.1)
    assert np.median([delay_s for delay_s in delays_s if delay_s is not None]) == pytest.approx(0.08, rel=0.05)
