"""The policy preview agrees with the optimizer of the workers."""

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.console.queries.policy_preview import ChannelLoad, PolicyModel
from service.corona.events import OwnershipTaken
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective, FleetPolicy, Goal, Levels
from service.corona.messages import SiteScales, SiteShares, Summary
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.corona.polling_limits import LimitReason, PollingLimits
from service.corona.polling_plans import PollingPlans
from service.corona.site_budgets import POLL_BUDGET_SHARE
from service.corona.update_rates import UpdateHistory, initial_estimate
from service.corona.weekly_rhythm import learn_rhythm
from service.model import NodeInfo
from service.overlay.ring import BITS, RingView, to_hex

RHYTHM = learn_rhythm(b"", [1e9 - day * 86_400.0 - 3_600.0 for day in range(60, 0, -1)], 1e9 - 61 * 86_400.0, 1e9)
"""The rhythm of a channel that publishes at the same time every day."""
POLICY = FleetPolicy(900.0, 120.0, 10.0, polls_per_hour_for_one_subscriber=4.0)
CHANNELS = st.lists(
    st.builds(
        ChannelLoad,
        id=st.integers(0, (1 << BITS) - 1).map(to_hex),
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
        publisher_interval_s=st.sampled_from([0.0, 0.0, 3_600.0]),
        limit_reason=st.sampled_from(LimitReason),
        rhythm=st.sampled_from([b"", RHYTHM]),
    ),
    min_size=1,
    max_size=40,
)


def _policy(**aims: object) -> FleetPolicy:
    return msgspec.structs.replace(POLICY, objective=msgspec.convert(aims, FleetObjective))


def _ring(nodes: int) -> RingView:
    return RingView(1, tuple(NodeInfo(to_hex(place * (1 << BITS) // nodes), 1, "", 0.0) for place in range(nodes)))


@given(CHANNELS, st.sampled_from(Goal), st.sampled_from(Levels), st.none() | st.floats(0.1, 50.0))
def test_each_channel_gets_the_polls_and_the_delay_that_its_owner_explains(
    channels: list[ChannelLoad], goal: Goal, levels: Levels, budget: float | None
) -> None:
    channels = list({channel.id: channel for channel in channels}.values())
    policy, ring = _policy(goal=goal, levels=levels, budget_polls_per_minute=budget), _ring(1)
    node, now_s = ring.ids[0], 1e9
    plans = PollingPlans(node, policy)
    plans.on_ring_changed(ring, 0.0)
    plans.set_objective(policy.objective, {}, {channel.id: channel.bounds for channel in channels})
    for channel in channels:
        limits = PollingLimits(hint_s=int(channel.publisher_interval_s))
        history = UpdateHistory(initial_estimate(channel.update_interval_s), rhythm=channel.rhythm)
        taken = OwnershipTaken(channel.id, 1, 0, channel.private, history, channel.site, limits)
        plans.add_channel(taken, channel.subscribers, None)
    # Owner and coordinator of all sites are the same node: it gets the scales of sites in the second round.
    for tick_s in range(1, 4):
        for send in list(plans.send_summaries(float(tick_s), now_s, len(channels), is_maintenance=True)):
            if isinstance(send.message, SiteScales):
                plans.on_site_scales(node, send.message, float(tick_s), now_s)
            else:
                assert isinstance(send.message, Summary | SiteShares)
                plans.on_message(node, send.message, float(tick_s))
        plans.solve(float(tick_s))
    list(plans.update_schedules([channel.id for channel in channels], now_s, len(channels)))
    solution = PolicyModel(channels, ring, {}).solve(policy)
    for place, channel in enumerate(channels):
        reason = plans.explain(channel.id, [node], now_s)
        assert reason is not None
        assert solution.size[place] == pytest.approx(reason.size, rel=0.02)
        assert solution.delays_s[place] == pytest.approx(reason.wait_s, rel=0.05)


@given(CHANNELS, st.floats(0.1, 50.0))
def test_the_poll_budget_is_kept(channels: list[ChannelLoad], budget: float) -> None:
    outcome = PolicyModel(channels, _ring(4), {}).predict_outcome(_policy(budget_polls_per_minute=budget))
    assert outcome.polls_per_minute <= budget * (1 + 1e-6)


@given(CHANNELS, st.floats(0.001, 0.1))
def test_the_request_limit_of_a_site_is_kept(channels: list[ChannelLoad], rate: float) -> None:
    sizes = PolicyModel(channels, _ring(16), {"a.example": rate}).solve(POLICY).size
    own = [size for size, channel in zip(sizes.tolist(), channels, strict=True) if channel.site == "a.example"]
    assert sum(own) <= POLL_BUDGET_SHARE * rate * POLICY.poll_interval_s * (1 + 1e-6)


@given(CHANNELS)
def test_wait_quantiles_are_sorted(channels: list[ChannelLoad]) -> None:
    outcome = PolicyModel(channels, _ring(4), {}).predict_outcome(POLICY)
    assert len(outcome.waits_s) == 101
    assert list(outcome.waits_s) == sorted(outcome.waits_s)
    rounded = 1 + 1e-12
    assert outcome.waits_s[0] <= outcome.delay_s * rounded
    assert outcome.delay_s <= outcome.waits_s[100] * rounded


@given(CHANNELS, st.sampled_from(Goal), st.none() | st.floats(0.01, 5.0))
def test_the_slowest_channels_have_the_longest_delays(
    channels: list[ChannelLoad], goal: Goal, budget: float | None
) -> None:
    policy, model = (
        _policy(goal=goal, budget_polls_per_minute=budget),
        PolicyModel(channels, _ring(4), {"a.example": 0.001}),
    )
    outcome, slowest = model.predict_outcome(policy), model.find_slowest(policy, 5)
    assert len(slowest) == min(5, len(channels))
    assert [channel.wait_s for channel in slowest] == sorted((each.wait_s for each in slowest), reverse=True)
    assert slowest[0].wait_s == outcome.waits_s[100]
    assert {channel.bound_by for channel in slowest} <= set(outcome.bounds)


@given(CHANNELS)
def test_every_channel_has_one_constraint(channels: list[ChannelLoad]) -> None:
    assert sum(PolicyModel(channels, _ring(4), {}).predict_outcome(POLICY).bounds.values()) == len(channels)


@pytest.mark.parametrize(
    ("aims", "rates", "own", "bound"),
    [
        ({"budget_polls_per_minute": 0.001}, {}, ChannelBounds(900.0), BindingConstraint.FLEET_BUDGET),
        ({"demand_factor": 1.0}, {}, NO_BOUNDS, BindingConstraint.CHANNEL_BUDGET),
        ({}, {"a.example": 0.001}, NO_BOUNDS, BindingConstraint.HOST_BUDGET),
        ({}, {}, NO_BOUNDS, BindingConstraint.NONE),
        ({}, {}, ChannelBounds(shortest_interval_s=9_000.0), BindingConstraint.CHANNEL_INTERVAL),
        (
            {},
            {},
            ChannelBounds(900.0),
            BindingConstraint.CHANNEL_WAIT,
        ),
        ({"demand_factor": 3.0}, {}, ChannelBounds(longest_wait_s=10.0), BindingConstraint.CHANNEL_BUDGET),
    ],
)
def test_the_deciding_constraint_is_reported(
    aims: dict[str, object], rates: dict[str, float], own: ChannelBounds, bound: BindingConstraint
) -> None:
    channels = [ChannelLoad("0" * 40, 1, 3_600.0, private=False, site="a.example", bounds=own)] * 3
    assert list(PolicyModel(channels, _ring(8), rates).predict_outcome(_policy(**aims)).bounds) == [bound]


def test_largest_delay_changes_are_found() -> None:
    rare, often = (
        ChannelLoad("0" * 40, 100, 1e6, private=True, site=""),
        ChannelLoad("8" * 40, 100, 600.0, private=True, site=""),
    )
    model = PolicyModel([rare, often], _ring(2), {})
    before, after = _policy(goal="lite"), _policy(goal="fair")
    # With so many subscribers, only a budget keeps both from the maximum poll rate.
    before, after = (
        msgspec.structs.replace(each, objective=msgspec.structs.replace(each.objective, budget_polls_per_minute=0.1))
        for each in (before, after)
    )
    sooner, later = model.find_largest_delay_changes(before, after, 5)
    assert [change.channel for change in sooner] == [often.id]
    assert [change.channel for change in later] == [rare.id]
    assert later[0].after_s > later[0].before_s
    assert model.find_largest_delay_changes(before, before, 5) == ((), ())


def test_a_fleet_without_channels_has_no_polls() -> None:
    outcome = PolicyModel([], RingView(0, ()), {}).predict_outcome(POLICY)
    assert (outcome.polls_per_minute, outcome.delay_s, max(outcome.waits_s)) == (0.0, 0.0, 0.0)
    assert outcome.scale is None or outcome.scale < inf
