"""Limits that publishers and failures set for a channel's polls: reports of members, and the plans of owners.

``ME`` owns ``CHANNEL``; τ is 900 s, and the fleet makes two polls per τ.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.corona.aggregation import EMPTY_AGGREGATE
from service.corona.events import (
    ChannelsListed,
    Effect,
    LimitObserved,
    ListedChannel,
    MessageReceived,
    OwnershipTaken,
    RingChanged,
    Send,
    StartPolling,
    Tick,
)
from service.corona.fleet_policy import FleetObjective, FleetPolicy
from service.corona.messages import Assign, Assignment, PollingLimit, Summary
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.corona.polling_limits import NO_LIMITS, LimitReason, PollingLimits
from service.corona.polling_schedule import PollingSchedule
from tests.support.corona_node import Node
from tests.support.ring_strategies import ring

ME, NEXT = "0" * 40, "4" + "0" * 39
CHANNEL, OTHER = "1" + "0" * 39, "11" + "0" * 38
TAU_S = 900.0
OBJECTIVE = FleetObjective(demand_factor=3.0, budget_polls_per_minute=2 * 60 / TAU_S)
POLICY = FleetPolicy(poll_interval_s=TAU_S, max_polls_per_hour=60.0, maintenance_interval_s=8.0, objective=OBJECTIVE)
HOURLY = PollingLimit(CHANNEL, LimitReason.HINT, shortest_interval_s=3600)


def _owner(limits: PollingLimits = NO_LIMITS, *channels: str) -> Node:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME, NEXT])), 0)
    owned = channels or (CHANNEL,)
    node.handle(ChannelsListed(0, tuple(ListedChannel(channel, 5) for channel in owned), complete=True), 0)
    for channel in owned:
        node.handle(OwnershipTaken(channel, 1, 1, limits=limits if channel == CHANNEL else NO_LIMITS), 0)
    return _settle(node, 1.0)


def _settle(node: Node, now_s: float) -> Node:
    for step in range(4):
        node.handle(MessageReceived(NEXT, Summary(1, EMPTY_AGGREGATE)), now_s + step * 9)
        node.handle(Tick(), now_s + step * 9)
    return node


def _report(node: Node, limit: PollingLimit, now_s: float = 40.0) -> list[Effect]:
    return node.handle(MessageReceived(NEXT, limit), now_s)


def _schedules(effects: list[Effect]) -> list[PollingSchedule]:
    return [effect.schedule for effect in effects if isinstance(effect, StartPolling)]


def _gap_s(node: Node, channel: str = CHANNEL, now_s: float = 60.0) -> float:
    explained = node.explain(channel, now_s)
    assert explained is not None
    return TAU_S / explained.size


def test_a_hint_is_planned_at_once_and_explained() -> None:
    node = _owner()
    (schedule,) = _schedules(_report(node, HOURLY))
    assert schedule.gap_s == pytest.approx(3600.0)
    explained = node.explain(CHANNEL, 60.0)
    assert explained is not None
    assert explained.bound is BindingConstraint.PUBLISHER
    assert explained.wait_s == pytest.approx(1800.0)
    assert (explained.publisher_interval_s, explained.limit_reason) == (3600.0, LimitReason.HINT)


def test_polls_saved_by_a_publishers_hint_go_to_other_channels() -> None:
    node = _owner(NO_LIMITS, CHANNEL, OTHER)
    before_s = _gap_s(node, OTHER)
    _report(node, HOURLY)
    _settle(node, 41.0)
    assert _gap_s(node, OTHER, 80.0) < before_s
    assert TAU_S / _gap_s(node, OTHER, 80.0) + TAU_S / 3600.0 == pytest.approx(2 * TAU_S / before_s, rel=1e-2)


def test_a_new_owner_plans_by_the_limits_that_are_stored() -> None:
    assert _gap_s(_owner(PollingLimits(hint_s=3600))) == pytest.approx(3600.0)


def test_the_longest_limit_applies() -> None:
    node = _owner(PollingLimits(hint_s=3600, failure_s=600))
    _report(node, PollingLimit(CHANNEL, LimitReason.FAILURE, shortest_interval_s=7200))
    explained = node.explain(CHANNEL, 60.0)
    assert explained is not None
    assert explained.bound is BindingConstraint.FAILURE
    assert explained.wait_s == pytest.approx(3600.0)


def test_a_recovered_channel_is_polled_at_its_full_rate_within_two_polls() -> None:
    node = _owner(PollingLimits(failure_s=86_400), CHANNEL, OTHER)
    (schedule,) = _schedules(_report(node, PollingLimit(CHANNEL, LimitReason.FAILURE)))
    assert schedule.next_channel_poll_s(40.0) - 40.0 <= 2 * schedule.gap_s + 1e-3
    assert schedule.gap_s < TAU_S


def test_a_paused_channel_uses_no_budget_and_is_polled_soon_after_the_pause() -> None:
    node = _owner(NO_LIMITS, CHANNEL, OTHER)
    before_s = _gap_s(node, OTHER)
    _report(node, PollingLimit(CHANNEL, LimitReason.PAUSE, until_s=20_000))
    _settle(node, 41.0)
    paused = node.explain(CHANNEL, 80.0)
    assert paused is not None
    assert (paused.bound, paused.paused_until_s) == (BindingConstraint.PAUSE, 20_000.0)
    assert _gap_s(node, OTHER, 80.0) < before_s * 0.6
    resumed = _settle(node, 20_001.0).explain(CHANNEL, 20_030.0)
    assert resumed is not None
    assert (resumed.limit_reason, resumed.paused_until_s) == (None, 0.0)
    assert min(turn.next_poll_s for turn in resumed.turns) < 20_030.0 + 2 * _gap_s(node, CHANNEL, 20_030.0)


def test_a_paused_channel_is_still_checked_once_per_poll_interval() -> None:
    node = _owner()
    (schedule,) = _schedules(_report(node, PollingLimit(CHANNEL, LimitReason.PAUSE, until_s=1_000_000)))
    assert schedule.gap_s == pytest.approx(TAU_S)


def _member(limits: PollingLimits) -> Node:
    node = Node(NEXT, POLICY)
    node.handle(RingChanged(ring([ME, NEXT])), 0)
    assignment = Assignment(CHANNEL, 0, PollingSchedule(10.0, 300.0, 2), 1, 5, limits)
    node.handle(MessageReceived(ME, Assign(1, (assignment,))), 0)
    return node


@pytest.mark.parametrize(
    ("known", "limit", "is_reported"),
    [
        (NO_LIMITS, HOURLY, True),
        (PollingLimits(hint_s=3600), HOURLY, False),
        (PollingLimits(hint_s=3300), HOURLY, False),
        (PollingLimits(hint_s=1800), HOURLY, True),
        (PollingLimits(hint_s=3600), PollingLimit(CHANNEL, LimitReason.HINT, shortest_interval_s=1900), False),
        (PollingLimits(hint_s=3600), PollingLimit(CHANNEL, LimitReason.HINT), True),
        (NO_LIMITS, PollingLimit(CHANNEL, LimitReason.HINT), False),
        (PollingLimits(failure_s=600), PollingLimit(CHANNEL, LimitReason.FAILURE), True),
        (PollingLimits(failure_s=600), PollingLimit(CHANNEL, LimitReason.HINT), False),
        (NO_LIMITS, PollingLimit(CHANNEL, LimitReason.PAUSE, until_s=500), True),
        (PollingLimits(paused_until_s=501), PollingLimit(CHANNEL, LimitReason.PAUSE, until_s=500), False),
        (PollingLimits(paused_until_s=500), PollingLimit(CHANNEL, LimitReason.PAUSE), True),
        (PollingLimits(paused_until_s=90), PollingLimit(CHANNEL, LimitReason.PAUSE), False),
        (NO_LIMITS, PollingLimit(OTHER, LimitReason.HINT), True),
    ],
)
def test_a_member_reports_only_limits_that_its_owner_does_not_have(
    known: PollingLimits, limit: PollingLimit, *, is_reported: bool
) -> None:
    effects = _member(known).handle(LimitObserved(limit), 100.0)
    assert effects == ([Send(ME, limit)] if is_reported else [])


def test_a_report_that_was_lost_is_repeated_after_the_next_poll() -> None:
    node = _member(NO_LIMITS)
    assert node.handle(LimitObserved(HOURLY), 100.0) == node.handle(LimitObserved(HOURLY), 400.0) == [Send(ME, HOURLY)]


@given(
    st.builds(PollingLimits, st.integers(0, 691_200), st.integers(0, 691_200), st.integers(0, 1 << 40)),
    st.floats(0, 2e12),
)
def test_the_shortest_interval_keeps_each_limit(limits: PollingLimits, fleet_s: float) -> None:
    interval_s, reason = limits.shortest_interval(fleet_s)
    assert interval_s >= max(limits.hint_s, limits.failure_s, limits.paused_until_s - fleet_s, 0)
    assert (reason is None) == (interval_s == 0)
