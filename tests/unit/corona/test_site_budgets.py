"""How nodes share out what one site may be asked. ``ME`` keeps ``SITE``, and owns channels of it with ``OTHER``."""

from hashlib import sha1

import pytest

from service.corona.clusters import encode, summarise
from service.corona.events import ChannelsListed, ListedChannel, ObjectiveLoaded, OwnershipTaken, RingChanged, Tick
from service.corona.fleet_policy import FleetObjective, FleetPolicy
from service.corona.honeycomb import UNBOUNDED_SCALE, AllocationProblem, sizes
from service.corona.messages import SiteScale, SiteScales, SiteShare, SiteShares
from service.corona.poll_explanation import BindingConstraint
from service.corona.site_budgets import POLL_BUDGET_SHARE, SiteBudgets
from service.overlay.id_space import BITS, from_hex, to_hex
from tests.support.corona_node import Node
from tests.support.ring_strategies import ring

SITE = "example.org"
ME = sha1(SITE.encode(), usedforsecurity=False).hexdigest()
OTHER = to_hex(from_hex(ME) ^ ((1 << BITS) - 1))
POLICY = FleetPolicy(
    poll_interval_s=60.0, max_polls_per_hour=240.0, maintenance_interval_s=8.0, site_requests_per_s=1.0
)
BUDGET = POLL_BUDGET_SHARE * 60.0


def _problem(channels: int, subscribers: float = 1.0) -> AllocationProblem:
    return AllocationProblem.of([subscribers] * channels, most=4.0)


def _share(problem: AllocationProblem, site: str = SITE) -> SiteShares:
    return SiteShares((SiteShare(site, encode(summarise(problem))),))


def _keeper() -> SiteBudgets:
    keeper = SiteBudgets(ME, POLICY)
    keeper.on_ring_changed(ring([ME, OTHER]))
    return keeper


def _told(keeper: SiteBudgets, now_s: float = 0.0) -> dict[str, float]:
    """Return the scale that each owner is told."""
    sends = list(keeper.tick(now_s))
    assert all(isinstance(send.message, SiteScales) for send in sends)
    return {send.node: send.message.scales[0].scale for send in sends if isinstance(send.message, SiteScales)}


def test_all_owners_are_told_the_scale_at_which_their_channels_together_keep_the_budget() -> None:
    keeper, mine, others = _keeper(), _problem(20), _problem(30, subscribers=4.0)
    keeper.on_shares(ME, _share(mine), 0)
    keeper.on_shares(OTHER, _share(others), 0)
    told = _told(keeper)
    assert list(told) == [ME, OTHER]
    assert told[ME] == told[OTHER]
    assert sizes(mine, told[ME]).sum() + sizes(others, told[ME]).sum() == pytest.approx(BUDGET, rel=1e-3)


def test_a_site_within_its_budget_bounds_nobody() -> None:
    keeper = _keeper()
    keeper.on_shares(OTHER, _share(_problem(13)), 0)
    assert _told(keeper) == {}


def test_an_admins_rate_counts_instead_of_the_policys() -> None:
    keeper = _keeper()
    keeper.on_shares(OTHER, _share(_problem(13)), 0)
    keeper.set_rates({SITE: 0.5})
    assert sizes(_problem(13), _told(keeper)[OTHER]).sum() == pytest.approx(BUDGET / 2, rel=1e-3)


def test_what_is_silent_or_has_left_is_forgotten() -> None:
    keeper = _keeper()
    keeper.on_shares(ME, _share(_problem(20)), 0)
    keeper.on_shares(OTHER, _share(_problem(20)), 1)
    keeper.on_scales(ME, SiteScales((SiteScale(SITE, 0.5),)), 0)
    assert list(_told(keeper, 7.9)) == [ME, OTHER]
    assert keeper.scale(SITE) == 0.5
    assert list(_told(keeper, 8)) == [OTHER]
    assert keeper.scale(SITE) == UNBOUNDED_SCALE
    keeper.on_ring_changed(ring([ME], version=2))
    assert _told(keeper, 8) == {}


def test_only_a_sites_keeper_is_believed_and_only_who_is_in_the_ring_heard() -> None:
    keeper = _keeper()
    assert not keeper.on_scales(OTHER, SiteScales((SiteScale(SITE, 0.5),)), 0)
    assert keeper.scale(SITE) == UNBOUNDED_SCALE
    keeper.on_shares("f" * 40, _share(_problem(100)), 0)
    keeper.on_shares(OTHER, SiteShares((SiteShare(SITE, b"nonsense"),)), 0)
    assert _told(keeper) == {}
    moved = SiteBudgets(OTHER, POLICY)
    moved.on_ring_changed(ring([ME, OTHER]))
    moved.on_shares(ME, _share(_problem(100)), 0)
    assert _told(moved) == {}


def test_a_small_share_of_a_budget_is_not_told_of() -> None:
    keeper = _keeper()
    assert not keeper.can_exceed_budget(SITE, 6.0)
    assert keeper.can_exceed_budget(SITE, 7.0)


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


def test_a_node_alone_polls_a_crowded_site_within_its_budget_and_says_why() -> None:
    crowded, spread = _owner(100, SITE), _owner(100, "")
    reasons = [why for channel in _channels(100) if (why := crowded.explain(channel, 10)) is not None]
    assert sum(why.size for why in reasons) == pytest.approx(BUDGET, rel=1e-3)
    assert {why.bound for why in reasons} == {BindingConstraint.HOST_BUDGET}
    unbound = spread.explain(_channels(1)[0], 10)
    assert unbound is not None
    assert unbound.size == 1.0


def test_what_a_site_cannot_have_is_left_to_others() -> None:
    """The fleet's budget of 110 goes to where it may be spent: 83 to half of the channels, not 55."""
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME])), 0)
    channels = _channels(200)
    node.handle(ObjectiveLoaded(FleetObjective(budget_polls_per_minute=110.0), {SITE: 0.5}), 0)
    node.handle(ChannelsListed(0, tuple(ListedChannel(channel, 1) for channel in channels)), 0)
    for number, channel in enumerate(channels):
        node.handle(OwnershipTaken(channel, 1, 1, site=SITE if number % 2 else ""), 0)
    for now_s in (2, 4, 8, 10):
        node.handle(Tick(), now_s)
    found = [why.size for channel in channels if (why := node.explain(channel, 10)) is not None]
    assert (sum(found[1::2]), sum(found[::2])) == pytest.approx((BUDGET / 2, 110 - BUDGET / 2), rel=1e-2)
