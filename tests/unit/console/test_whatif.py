"""What aims would come to is what the workers' own optimiser decides."""

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.console.pages.policy_preview import Fleet, Weighed
from service.corona import node_optimizer
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective, FleetPolicy, Goal
from service.corona.node_optimizer import ChannelFactors, factor_table
from service.corona.poll_explanation import BindingConstraint
from service.corona.site_budgets import POLL_BUDGET_SHARE

POLICY = FleetPolicy(900.0, 12.0, 10.0)
CHANNELS = st.lists(
    st.builds(
        Weighed,
        subscribers=st.integers(0, 5_000),
        update_interval_s=st.sampled_from([60.0, 3_600.0, 86_400.0, 1e6]),
        private=st.booleans(),
        site=st.sampled_from(["", "a.example", "b.example"]),
        bounds=st.sampled_from(
            [
                ChannelBounds(),
                ChannelBounds(longest_wait_s=100.0),
                ChannelBounds(None, 7_200.0),
                ChannelBounds(30.0, 60.0),
            ]
        ),
    ),
    min_size=1,
    max_size=40,
)


def _aiming(**aims: object) -> FleetPolicy:
    return msgspec.structs.replace(POLICY, objective=msgspec.convert(aims, FleetObjective))


@given(CHANNELS, st.sampled_from(Goal), st.integers(1, 20))
def test_each_channel_gets_what_its_owner_would_give_it(channels: list[Weighed], goal: Goal, nodes: int) -> None:
    policy = _aiming(goal=goal)
    sizes, table, scale = Fleet(channels, nodes, {}).sizes(policy)
    for size, row in zip(sizes.tolist(), table, strict=True):
        factors = ChannelFactors(
            *(int(row["subscribers"]), float(row["update_interval_s"]), bool(row["private"])),
            *(float(row["site_scale"]), float(row["longest_wait_s"]), float(row["shortest_interval_s"])),
        )
        (alone,) = node_optimizer.channel_sizes(policy, nodes, factor_table([factors], 1), scale)
        assert size == pytest.approx(alone, rel=1e-5)


@given(CHANNELS, st.floats(0.1, 50.0))
def test_no_budget_is_overdrawn(channels: list[Weighed], budget: float) -> None:
    outcome = Fleet(channels, 4, {}).outcome(_aiming(budget_polls_per_minute=budget))
    assert outcome.polls_per_minute <= budget * (1 + 1e-6)


@given(CHANNELS, st.floats(0.001, 0.1))
def test_no_site_is_asked_more_than_it_may(channels: list[Weighed], rate: float) -> None:
    sizes, _, _ = Fleet(channels, 16, {"a.example": rate}).sizes(POLICY)
    own = [size for size, channel in zip(sizes.tolist(), channels, strict=True) if channel.site == "a.example"]
    assert sum(own) <= POLL_BUDGET_SHARE * rate * POLICY.poll_interval_s * (1 + 1e-6)


@given(CHANNELS)
def test_the_waits_of_ever_more_subscriptions_only_grow(channels: list[Weighed]) -> None:
    outcome = Fleet(channels, 4, {}).outcome(POLICY)
    assert len(outcome.waits_s) == 101
    assert list(outcome.waits_s) == sorted(outcome.waits_s)
    rounded = 1 + 1e-12
    assert outcome.waits_s[0] <= outcome.delay_s * rounded
    assert outcome.delay_s <= outcome.waits_s[100] * rounded


@given(CHANNELS)
def test_every_channel_has_one_bound(channels: list[Weighed]) -> None:
    assert sum(Fleet(channels, 4, {}).outcome(POLICY).bounds.values()) == len(channels)


@pytest.mark.parametrize(
    ("aims", "rates", "own", "bound"),
    [
        ({"budget_polls_per_minute": 0.001}, {}, NO_BOUNDS, BindingConstraint.FLEET_BUDGET),
        ({}, {}, NO_BOUNDS, BindingConstraint.CHANNEL_BUDGET),
        ({}, {"a.example": 0.001}, NO_BOUNDS, BindingConstraint.HOST_BUDGET),
        ({"polls_per_channel": 0.5}, {}, NO_BOUNDS, BindingConstraint.NONE),
        ({}, {}, ChannelBounds(shortest_interval_s=900.0), BindingConstraint.CHANNEL_INTERVAL),
        (
            {"polls_per_channel": 0.5, "budget_polls_per_minute": 0.2},
            {},
            ChannelBounds(450.0),
            BindingConstraint.CHANNEL_WAIT,
        ),
        ({"polls_per_channel": 9.0}, {}, ChannelBounds(longest_wait_s=10.0), BindingConstraint.CHANNEL_BUDGET),
    ],
)
def test_what_decides_has_its_name(
    aims: dict[str, object], rates: dict[str, float], own: ChannelBounds, bound: BindingConstraint
) -> None:
    channels = [Weighed(1, 3_600.0, private=False, site="a.example", bounds=own)] * 3
    assert list(Fleet(channels, 8, rates).outcome(_aiming(**aims)).bounds) == [bound]


def test_who_would_wait_longer_and_who_less_is_named() -> None:
    rare, often = Weighed(100, 1e6, private=True, site=""), Weighed(100, 600.0, private=True, site="")
    fleet = Fleet([rare, often], 2, {})
    before, after = _aiming(polls_per_channel=0.01), _aiming(goal="fair", polls_per_channel=0.01)
    # Both have so many subscribers that only a budget keeps them from being polled at every turn.
    before, after = (
        msgspec.structs.replace(each, objective=msgspec.structs.replace(each.objective, budget_polls_per_minute=0.1))
        for each in (before, after)
    )
    sooner, later = fleet.moved(before, after, 5)
    assert [move.place for move in sooner] == [1]
    assert [move.place for move in later] == [0]
    assert later[0].after_s > later[0].before_s
    assert fleet.moved(before, before, 5) == ([], [])


def test_a_fleet_without_channels_comes_to_nothing() -> None:
    outcome = Fleet([], 0, {}).outcome(POLICY)
    assert (outcome.polls_per_minute, outcome.delay_s, max(outcome.waits_s)) == (0.0, 0.0, 0.0)
    assert outcome.scale is None or outcome.scale < inf
