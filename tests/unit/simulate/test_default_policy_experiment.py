"""The default policy and the presets: the optimum acts, and beats equal polls of all channels."""

from typing import get_args

import msgspec
import numpy as np
import pytest

from service import settings
from service.corona.fleet_policy import DEFAULT_POLICY
from service.corona.optimizer import node_allocation
from service.corona.optimizer.objectives import mean_delay_s
from service.simulate.corona import default_policy_experiment
from service.simulate.corona.default_policy_experiment import share_at_one_bound, with_uniform_delay
from service.simulate.corona.fleet import OwnerDecisions
from service.simulate.corona.workload import (
    CoronaSetup,
    NodeTrie,
    SimulatedChannels,
    draw_channels,
    initial_nodes,
    setup_with_policy,
)

TAU_S = DEFAULT_POLICY.poll_interval_s
UNIFORM = 3.0
"""Polls per τ of every channel with the former defaults."""
SMALL = CoronaSetup(nodes=32, channels=2_000, subscriptions=100_000)


def _channels(seed: int, channels: int = 20_000) -> SimulatedChannels:
    return draw_channels(CoronaSetup(channels=channels, subscriptions=50 * channels), np.random.default_rng(seed))


def _of_one_subscriber(channels: SimulatedChannels) -> SimulatedChannels:
    return SimulatedChannels(channels.points, np.ones_like(channels.subscribers), channels.update_interval_s)


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_default_policy_halves_the_delay_of_notifications_or_makes_a_third_of_the_requests(seed: int) -> None:
    channels, nodes = _channels(seed), 1024
    notifications, table = channels.subscribers / channels.update_interval_s, channels.factors()

    def outcome(demand_factor: float) -> tuple[float, float, float]:
        objective = msgspec.structs.replace(DEFAULT_POLICY.objective, demand_factor=demand_factor)
        policy = msgspec.structs.replace(DEFAULT_POLICY, objective=objective)
        fleet = msgspec.structs.replace(node_allocation.own_aggregate(policy, nodes, table), nodes=nodes)
        sizes = node_allocation.channel_sizes(policy, nodes, table, node_allocation.solve_scale(policy, nodes, fleet))
        return float(sizes.mean()), mean_delay_s(notifications, sizes, TAU_S), TAU_S / 2 / float(sizes.min())

    load, delay_s, longest_s = outcome(DEFAULT_POLICY.objective.demand_factor)
    assert load == pytest.approx(UNIFORM, rel=0.01)
    assert delay_s <= 0.5 * TAU_S / 2 / UNIFORM
    sparing = with_uniform_delay(channels, nodes, UNIFORM).objective.demand_factor
    fewer, same_delay_s, longest_sparing_s = outcome(sparing)
    assert fewer <= 0.35 * UNIFORM
    assert same_delay_s <= TAU_S / 2 / UNIFORM * (1 + 1e-9)
    assert max(longest_s, longest_sparing_s) <= DEFAULT_POLICY.objective.longest_wait_s * (1 + 1e-6)


def test_the_results_of_a_run_match_the_formula() -> None:
    found = default_policy_experiment.run(SMALL, 1, lambda _: None)
    assert found.polls_per_channel_per_tau == pytest.approx(UNIFORM, rel=0.02)
    assert found.uniform_notification_delay_s == pytest.approx(TAU_S / 2 / UNIFORM, rel=0.03)
    assert found.mean_notification_delay_s <= 0.5 * found.uniform_notification_delay_s
    assert found.equal_delay_notification_delay_s == pytest.approx(found.uniform_notification_delay_s, rel=0.1)
    assert found.uniform_requests_at_equal_delay <= 0.35
    assert found.longest_mean_wait_s <= DEFAULT_POLICY.objective.longest_wait_s
    assert found.share_at_one_bound < 0.5
    assert found.max_overshoot < 0.05


def test_owners_decide_by_the_policy_as_in_production() -> None:
    setup = setup_with_policy(SMALL, DEFAULT_POLICY)
    channels = draw_channels(setup, np.random.default_rng(1))
    trie, everything = NodeTrie(initial_nodes(setup, np.random.default_rng(1))), np.arange(setup.channels)
    owners, table = OwnerDecisions(setup, channels), channels.factors()
    owners.on_ring_changed(trie)
    part = owners.aggregate(everything)
    assert part == node_allocation.own_aggregate(DEFAULT_POLICY, setup.nodes, table)
    fleet = msgspec.structs.replace(part, nodes=setup.nodes)
    scale = node_allocation.solve_scale(DEFAULT_POLICY, setup.nodes, fleet)
    expected = node_allocation.channel_sizes(DEFAULT_POLICY, setup.nodes, table, scale)
    assert owners.sizes(everything, fleet) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("preset", get_args(settings.Preset))
@pytest.mark.parametrize("nodes", [1, 3, 60])
def test_no_preset_leaves_nearly_all_channels_at_one_bound(preset: str, nodes: int) -> None:
    policy, channels = settings.load({}, preset=preset).policy(), _channels(1)
    for some in (channels, _of_one_subscriber(channels)):
        assert share_at_one_bound(policy, nodes, some) <= 0.6


def test_the_former_defaults_left_nearly_all_channels_at_one_bound() -> None:
    former = msgspec.structs.replace(
        DEFAULT_POLICY,
        max_polls_per_hour=12.0,
        polls_per_hour_for_one_subscriber=12.0,
        objective=msgspec.structs.replace(DEFAULT_POLICY.objective, demand_factor=1.0),
    )
    assert share_at_one_bound(former, 3, _channels(1)) > 0.9
