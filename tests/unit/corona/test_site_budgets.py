"""Site budgets across nodes: ``ME`` coordinates ``SITE``, and owns channels of it together with ``OTHER``."""

from hashlib import sha1

import numpy as np
import pytest

from service.corona.events import (
    ChannelsChanged,
    ChannelsListed,
    ListedChannel,
    ObjectiveLoaded,
    OwnershipTaken,
    RingChanged,
    Tick,
)
from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal
from service.corona.messages import SiteScale, SiteScales, SiteShare, SiteShares
from service.corona.optimizer.allocation_solver import UNBOUNDED_SCALE, AllocationProblem, sizes
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.corona.optimizer.tradeoff_clusters import encode, summarise
from service.corona.site_budgets import POLL_BUDGET_SHARE, SiteBudgets
from service.overlay.ring import BITS, from_hex, to_hex
from tests.support.corona_node import Node
from tests.support.ring_strategies import ring

SITE = "example.org"
ME = sha1(SITE.encode(), usedforsecurity=False).hexdigest()
OTHER = to_hex(from_hex(ME) ^ ((1 << BITS) - 1))
POLICY = FleetPolicy(
    poll_interval_s=60.0,
    max_polls_per_hour=240.0,
    maintenance_interval_s=8.0,
    site_requests_per_s=1.0,
    objective=FleetObjective(Goal.LITE, demand_factor=3.0),
)
BUDGET = POLL_BUDGET_SHARE * 60.0


def _problem(channels: int, subscribers: float = 1.0) -> AllocationProblem:
    return AllocationProblem.of([subscribers] * channels, most=4.0)


def _share(problem: AllocationProblem, site: str = SITE) -> SiteShares:
    return SiteShares((SiteShare(site, encode(summarise(problem))),))


def _coordinator() -> SiteBudgets:
    coordinator = SiteBudgets(ME, POLICY)
    coordinator.on_ring_changed(ring([ME, OTHER]))
    return coordinator


def _scales_sent(coordinator: SiteBudgets, now_s: float = 0.0) -> dict[str, float]:
    """Return the scale sent to each owner."""
    coordinator.expire(now_s)
    sends = list(coordinator.send_scales(is_maintenance=True))
    assert all(isinstance(send.message, SiteScales) for send in sends)
    return {send.node: send.message.scales[0].scale for send in sends if isinstance(send.message, SiteScales)}


def test_all_owners_receive_the_scale_that_keeps_the_site_budget() -> None:
    coordinator, mine, others = _coordinator(), _problem(20), _problem(30, subscribers=4.0)
    coordinator.on_shares(ME, _share(mine), 0)
    coordinator.on_shares(OTHER, _share(others), 0)
    told = _scales_sent(coordinator)
    assert list(told) == [ME, OTHER]
    assert told[ME] == told[OTHER]
    assert sizes(mine, told[ME]).sum() + sizes(others, told[ME]).sum() == pytest.approx(BUDGET, rel=1e-3)


def test_a_site_within_its_budget_sends_no_scales() -> None:
    coordinator = _coordinator()
    coordinator.on_shares(OTHER, _share(_problem(13)), 0)
    assert _scales_sent(coordinator) == {}


def test_an_admins_site_rate_replaces_the_policys() -> None:
    coordinator = _coordinator()
    coordinator.on_shares(OTHER, _share(_problem(13)), 0)
    coordinator.set_rates({SITE: 0.5})
    assert sizes(_problem(13), _scales_sent(coordinator)[OTHER]).sum() == pytest.approx(BUDGET / 2, rel=1e-3)


def test_shares_that_expired_or_whose_node_left_are_dropped() -> None:
    coordinator = _coordinator()
    coordinator.on_shares(ME, _share(_problem(20)), 0)
    coordinator.on_shares(OTHER, _share(_problem(20)), 1)
    coordinator.on_scales(ME, SiteScales((SiteScale(SITE, 0.5),)), 0)
    assert list(_scales_sent(coordinator, 15.9)) == [ME, OTHER]
    assert coordinator.scale(SITE) == 0.5
    assert list(_scales_sent(coordinator, 16)) == [OTHER]
    assert coordinator.scale(SITE) == UNBOUNDED_SCALE
    coordinator.on_ring_changed(ring([ME], version=2))
    assert _scales_sent(coordinator, 16) == {}


def test_only_scales_of_the_coordinator_and_shares_of_ring_members_are_accepted() -> None:
    coordinator = _coordinator()
    assert not coordinator.on_scales(OTHER, SiteScales((SiteScale(SITE, 0.5),)), 0)
    assert coordinator.scale(SITE) == UNBOUNDED_SCALE
    coordinator.on_shares("f" * 40, _share(_problem(100)), 0)
    coordinator.on_shares(OTHER, SiteShares((SiteShare(SITE, b"nonsense"),)), 0)
    assert _scales_sent(coordinator) == {}
    moved = SiteBudgets(OTHER, POLICY)
    moved.on_ring_changed(ring([ME, OTHER]))
    moved.on_shares(ME, _share(_problem(100)), 0)
    assert _scales_sent(moved) == {}


def test_a_small_share_of_a_budget_is_not_sent() -> None:
    coordinator = _coordinator()
    coordinator.set_rates({"other.example": 2.0})
    numbers = {"": 0, "small.example": 1, SITE: 2, "other.example": 3}
    assert coordinator.find_crowded(numbers, np.array([99.0, 6.0, 7.0, 7.0])) == {SITE}


def _channels(count: int) -> list[str]:
    return [f"{number:040x}" for number in range(count)]


def _owner(count: int, site: str) -> Node:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME])), 0)
    node.handle(ChannelsListed(0, tuple(ListedChannel(channel, 1) for channel in _channels(count))), 0)
    for channel in _channels(count):
        node.handle(OwnershipTaken(channel, 1, 1, site=site), 0)
    for now_s in (0, 2, 4, 8, 10):
        node.handle(Tick(), now_s)
    return node


def test_a_single_node_keeps_a_crowded_sites_budget_and_explains_it() -> None:
    crowded, spread = _owner(100, SITE), _owner(100, "")
    reasons = [why for channel in _channels(100) if (why := crowded.explain(channel, 10)) is not None]
    assert sum(why.size for why in reasons) == pytest.approx(BUDGET, rel=1e-3)
    assert {why.bound for why in reasons} == {BindingConstraint.HOST_BUDGET}
    unbound = spread.explain(_channels(1)[0], 10)
    assert unbound is not None
    assert unbound.size == 1.0


def _polls(node: Node, channel: str) -> float:
    """Return the channel's polls per τ by its schedule."""
    schedule, _ = node.plans.schedule_and_limits(channel)
    return POLICY.poll_interval_s / schedule.gap_s


def test_channels_that_gain_weight_are_raised_after_the_sites_other_channels_are_lowered() -> None:
    node, channels = _owner(100, SITE), _channels(100)
    node.handle(ChannelsChanged(15, tuple(ListedChannel(channel, 25) for channel in channels[:10])), 15)
    for now_s in range(16, 34, 2):
        node.handle(Tick(), now_s)
        assert sum(_polls(node, channel) for channel in channels) <= BUDGET * 1.001
    assert [_polls(node, channel) for channel in channels[:10]] == [1.0] * 10
    assert sum(_polls(node, channel) for channel in channels) == pytest.approx(BUDGET, rel=1e-3)


def test_a_gain_of_weight_that_ends_within_a_maintenance_interval_raises_no_channel() -> None:
    node, (channel, *_) = _owner(100, SITE), _channels(100)
    before = _polls(node, channel)
    for now_s in range(11, 61, 2):
        node.handle(ChannelsChanged(now_s, (ListedChannel(channel, 25 if now_s % 8 >= 4 else 1),)), now_s)
        node.handle(Tick(), now_s + 1)
        assert _polls(node, channel) == before


def test_polls_beyond_a_site_budget_go_to_other_channels() -> None:
    """The fleet's budget of 110 goes to channels that can use it: 83 to half of them, not 55."""
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME])), 0)
    channels = _channels(200)
    node.handle(
        ObjectiveLoaded(FleetObjective(Goal.LITE, demand_factor=3.0, budget_polls_per_minute=110.0), {SITE: 0.5}), 0
    )
    node.handle(ChannelsListed(0, tuple(ListedChannel(channel, 1) for channel in channels)), 0)
    for number, channel in enumerate(channels):
        node.handle(OwnershipTaken(channel, 1, 1, site=SITE if number % 2 else ""), 0)
    for now_s in (2, 4, 8, 10):
        node.handle(Tick(), now_s)
    found = [why.size for channel in channels if (why := node.explain(channel, 10)) is not None]
    assert (sum(found[1::2]), sum(found[::2])) == pytest.approx((BUDGET / 2, 110 - BUDGET / 2), rel=1e-2)
