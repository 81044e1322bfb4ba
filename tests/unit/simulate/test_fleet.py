"""The forecast of a fleet's control plane, at a small scale."""

from functools import cache

import msgspec
import pytest

from service.simulate.fleet.costs import total_bytes
from service.simulate.fleet.experiment import FleetForecast, FleetSetup, run

WHOLE = FleetSetup(nodes=16, channels=96, subscribers=10)
HALF = msgspec.structs.replace(WHOLE, simulated_channels=48)


@cache
def _run(setup: FleetSetup) -> FleetForecast:
    return run(setup, 1, lambda _what: None)


def test_a_forecast_names_the_part_that_was_simulated() -> None:
    half = _run(HALF)
    assert (half.simulated_nodes, half.simulated_channels, half.scaled_by) == (8, 48, 2)


def test_half_of_the_channels_give_the_forecast_of_all() -> None:
    whole, half = _run(WHOLE), _run(HALF)
    assert half.at_rest.messages_per_node_s == pytest.approx(whole.at_rest.messages_per_node_s, rel=0.25)
    assert half.at_rest.redis_commands_per_s == pytest.approx(whole.at_rest.redis_commands_per_s, rel=0.25)


def test_a_changing_fleet_costs_more_than_an_idle_one() -> None:
    forecast = _run(WHOLE)
    assert forecast.redis_commands_per_s > forecast.at_rest.redis_commands_per_s > 0
    assert forecast.bytes_per_node_s_by_kind["Candidate"] > 0


def test_polling_sets_recover_after_the_leases_of_failed_nodes_expire() -> None:
    forecast = _run(WHOLE)
    for healed_s in (forecast.heal_s, forecast.heal_half_s):
        assert healed_s is not None
        assert WHOLE.lease_s < healed_s < 30


def test_a_shared_object_counts_once() -> None:
    text = "x" * 1_000
    assert total_bytes([text, text]) < total_bytes([text, "y" * 1_000])
