"""Polling plans of an owner when the fleet, its ring and its objective change. ``ME`` owns ``CHANNEL``; τ is 60 s."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec
import pytest

from service.corona.aggregation import EMPTY_AGGREGATE
from service.corona.events import (
    ChannelsListed,
    Effect,
    Event,
    ListedChannel,
    MessageReceived,
    ObjectiveLoaded,
    OwnershipTaken,
    RingChanged,
    Send,
    StartPolling,
    Tick,
)
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective, FleetPolicy, Goal, Levels
from service.corona.messages import Aggregate, Assign, Assignment, ChannelRemoved, PollingLimit, Summary, Unassign
from service.corona.node_protocol import NodeProtocol
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.corona.polling_limits import LimitReason
from service.corona.polling_schedule import PollingSchedule
from service.corona.update_rates import UpdateHistory, initial_estimate
from service.corona.weekly_rhythm import learn_rhythm
from service.model import ChannelId, NodeId
from tests.support.corona_node import Node
from tests.support.ring_strategies import ring

ME, NEXT, FAR = "0" * 40, "4" + "0" * 39, "8" + "0" * 39
CHANNEL = "1" + "0" * 39
LITE = FleetObjective(Goal.LITE, demand_factor=2.0)
POLICY = FleetPolicy(poll_interval_s=60.0, max_polls_per_hour=3600.0, maintenance_interval_s=8.0, objective=LITE)
SUBSCRIBERS = 5
BASE_2 = FleetObjective(goal=Goal.LITE, demand_factor=3.0, levels=Levels.BASE_2)


def _office_rhythm() -> bytes:
    """Return the rhythm of a channel that has published ten entries per hour from 9:00 to 17:00 for 40 days."""
    rhythm, day_s = b"", 86_400.0
    for day in range(40):
        times_s = [day * day_s + hour * 3_600.0 + minute * 360.0 + 1 for hour in range(9, 17) for minute in range(10)]
        rhythm = learn_rhythm(rhythm, times_s, day * day_s, (day + 1) * day_s)
    return rhythm


NOON_S, MIDNIGHT_S = 40 * 86_400.0 + 12.5 * 3_600, 40 * 86_400.0 + 0.5 * 3_600


def _rhythmic_owner(policy: FleetPolicy) -> Node:
    node = Node(ME, policy)
    node.handle(RingChanged(ring([ME])), MIDNIGHT_S)
    node.handle(_subscribed(SUBSCRIBERS, MIDNIGHT_S), MIDNIGHT_S)
    updates = UpdateHistory(since_s=MIDNIGHT_S, rhythm=_office_rhythm())
    node.handle(OwnershipTaken(CHANNEL, 1, 1, updates=updates), MIDNIGHT_S)
    return node


def _polls_per_hour(node: Node, now_s: float) -> float:
    """Return the channel's polls in the hour around ``now_s``, after maintenance."""
    schedule = None
    for later_s in (0.0, 10.0, 20.0):
        for effect in node.handle(Tick(), now_s - 100 + later_s):
            schedule = effect.schedule if isinstance(effect, StartPolling) else schedule
    explanation = node.explain(CHANNEL, now_s)
    assert explanation is not None
    return explanation.present_speed * explanation.size * 60.0


def test_polls_follow_the_rhythm_of_a_channel() -> None:
    policy = msgspec.structs.replace(POLICY, most_polls_per_node=10.0)
    objective = msgspec.structs.replace(LITE, demand_factor=0.5)
    node = _rhythmic_owner(msgspec.structs.replace(policy, objective=objective))
    assert _polls_per_hour(node, NOON_S) > 2 * _polls_per_hour(node, MIDNIGHT_S + 86_400)
    even = _rhythmic_owner(msgspec.structs.replace(policy, objective=objective, weekly_rhythm=False))
    assert _polls_per_hour(even, NOON_S) == pytest.approx(_polls_per_hour(even, MIDNIGHT_S + 86_400))


def test_the_limit_of_a_channel_holds_in_its_busiest_hour() -> None:
    objective = msgspec.structs.replace(LITE, demand_factor=0.5)
    policy = msgspec.structs.replace(POLICY, objective=objective, most_polls_per_node=10.0, max_polls_per_hour=170.0)
    node = _rhythmic_owner(policy)
    assert 100 < _polls_per_hour(node, NOON_S) <= 170 * 1.02
    assert _polls_per_hour(node, MIDNIGHT_S + 86_400) < 150


@pytest.mark.parametrize("now_s", [NOON_S, MIDNIGHT_S + 86_400])
def test_the_fleets_budget_holds_in_each_hour(now_s: float) -> None:
    objective = msgspec.structs.replace(LITE, budget_polls_per_minute=1.0)
    node = _rhythmic_owner(msgspec.structs.replace(POLICY, objective=objective, most_polls_per_node=10.0))
    assert 58 <= _polls_per_hour(node, now_s) <= 60 * 1.02


def _subscribed(count: int, now_s: float = 0) -> ChannelsListed:
    return ChannelsListed(now_s, (ListedChannel(CHANNEL, count),))


def _owner(*others: NodeId) -> Node:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME, *others])), 0)
    node.handle(_subscribed(SUBSCRIBERS), 0)
    node.handle(OwnershipTaken(CHANNEL, 1, 1, updates=UpdateHistory(since_s=1.0)), 0)
    return node


def _tick_with(node: Node, now_s: float, *others: NodeId) -> list[Effect]:
    """Give the node empty aggregates of ``others``, and return the effects of the next tick."""
    for other in others:
        node.handle(MessageReceived(other, Summary(1, EMPTY_AGGREGATE)), now_s)
    return node.handle(Tick(), now_s)


def _schedule(effects: list[Effect]) -> PollingSchedule:
    """Return the schedule in the first assignment among the effects."""
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, Assign):
            return effect.message.assignments[0].schedule
    raise AssertionError("nothing was assigned")


def _planned(node: Node) -> PollingSchedule:
    schedule, _ = node.plans.schedule_and_limits(CHANNEL)
    return schedule


def _gap_s(effects: list[Effect]) -> float:
    """Return the time between polls in the instruction for this node itself."""
    (started,) = (effect for effect in effects if isinstance(effect, StartPolling))
    return started.schedule.gap_s


def test_a_fleet_of_one_polls_once_per_interval() -> None:
    node = _owner()
    node.handle(Tick(), 0)
    explanation = node.explain(CHANNEL, 0)
    assert explanation is not None
    assert [explanation.size, explanation.wait_s] == pytest.approx([1.0, 30.0])
    assert (explanation.bound, len(explanation.turns)) == (BindingConstraint.NODES, 1)


def test_there_is_no_scale_before_all_aggregates_are_known() -> None:
    node = _owner(NEXT, FAR)
    node.handle(Tick(), 0)
    assert (node.plans.scale, node.explain(CHANNEL, 0)) == (None, None)
    _tick_with(node, 2, NEXT)
    assert node.plans.scale is None
    _tick_with(node, 4, FAR)
    assert node.plans.scale is not None


@pytest.mark.parametrize("poll_interval_s", [3.0, 60.0])
def test_polls_begin_when_the_scale_is_known(poll_interval_s: float) -> None:
    node = Node(ME, msgspec.structs.replace(POLICY, poll_interval_s=poll_interval_s))
    node.handle(RingChanged(ring([ME, NEXT, FAR])), 0)
    node.handle(_subscribed(SUBSCRIBERS), 0)
    node.handle(OwnershipTaken(CHANNEL, 1, 1, updates=UpdateHistory(since_s=1.0)), 0)
    assert node.explain(CHANNEL, 0) is None, "the scale is not known yet"
    assert all(_planned(node).next_poll_s(rank, 1.0) >= 24.0 for rank in range(_planned(node).size))
    _tick_with(node, 2, NEXT, FAR)
    assert node.plans.scale is not None
    assert _planned(node).first_s <= 2 + _planned(node).gap_s


def test_missing_aggregates_are_ignored_after_the_soft_state_ttl() -> None:
    node = _owner(NEXT, FAR)
    for now_s in range(0, 24, 2):
        node.handle(Tick(), now_s)
        assert node.plans.scale is None
    node.handle(Tick(), 24)
    assert node.plans.scale is not None


def test_a_smaller_budget_shrinks_polling_sets_at_once() -> None:
    node = _owner(NEXT, FAR)
    _tick_with(node, 0, NEXT, FAR)
    assert _planned(node).size == 3
    node.handle(ObjectiveLoaded(msgspec.structs.replace(LITE, budget_polls_per_minute=2.0)), 1)
    effects = _tick_with(node, 2, NEXT, FAR)
    assert Send(FAR, Unassign(1, CHANNEL)) in effects
    assert _schedule(effects).size == 2


def test_a_budget_below_all_longest_waits_is_spent_where_updates_are_expected() -> None:
    busy, slow = CHANNEL, "11" + "0" * 38
    objective = FleetObjective(demand_factor=2.0, longest_wait_s=30.0, budget_polls_per_minute=1.0)
    node = Node(ME, msgspec.structs.replace(POLICY, objective=objective))
    node.handle(RingChanged(ring([ME])), 0)
    node.handle(ChannelsListed(0, (ListedChannel(busy, 1), ListedChannel(slow, 1))), 0)
    for channel, interval_s in ((busy, 600.0), (slow, 6e6)):
        updates = UpdateHistory(initial_estimate(interval_s), since_s=1.0)
        node.handle(OwnershipTaken(channel, 1, 1, updates=updates), 0)
    for now_s in (2, 4, 6):
        node.handle(Tick(), now_s)
    found = [node.explain(channel, 6) for channel in (busy, slow)]
    sizes = [explanation.size if explanation else 0.0 for explanation in found]
    assert 0.99 <= sum(sizes) <= 1.0
    assert sizes[1] == pytest.approx(1 / 8, rel=1e-3)  # half of the quarter that longest waits take
    assert found[1] is not None
    assert found[1].bound is BindingConstraint.FLEET_BUDGET
    node.handle(ObjectiveLoaded(msgspec.structs.replace(objective, budget_polls_per_minute=100.0)), 7)
    for now_s in (8, 10, 12):
        node.handle(Tick(), now_s)
    found[1] = node.explain(slow, 12)
    assert found[1] is not None
    assert found[1].wait_s == pytest.approx(30.0)


def test_one_more_subscriber_among_many_changes_no_schedule() -> None:
    node = _owner(NEXT, FAR)
    node.handle(ObjectiveLoaded(FleetObjective(goal=Goal.FAST, delay_s=20.0)), 0)
    _tick_with(node, 0, NEXT, FAR)
    before = _planned(node)
    node.handle(_subscribed(SUBSCRIBERS + 1, 1), 1)
    assert _schedule(_tick_with(node, 8, NEXT, FAR)) == before


def test_a_change_of_the_number_of_nodes_keeps_the_next_poll() -> None:
    node = _owner(NEXT, FAR)
    _tick_with(node, 0, NEXT, FAR)
    before = _planned(node)
    after = _schedule(node.handle(RingChanged(ring([ME, NEXT], version=2)), 3))
    assert after.size == 2
    assert after.next_channel_poll_s(3) == pytest.approx(before.next_channel_poll_s(3))


def test_a_member_that_becomes_owner_continues_its_schedule() -> None:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME, "1" * 40, FAR])), 0)
    schedule = PollingSchedule(7.0, 20.0, 2, 1)
    node.handle(MessageReceived("1" * 40, Assign(1, (Assignment(CHANNEL, 1, schedule, 1),))), 0)
    node.handle(RingChanged(ring([ME, FAR], version=2)), 5)
    assert _schedule(node.handle(OwnershipTaken(CHANNEL, 2, 1), 6)) == schedule


def test_the_objective_changes_while_the_fleet_runs() -> None:
    node = _owner()
    node.handle(Tick(), 0)
    lite = node.plans.scale
    node.handle(ObjectiveLoaded(FleetObjective(goal=Goal.FAST, delay_s=300.0)), 1)
    node.handle(Tick(), 2)
    assert lite is not None
    assert node.plans.scale is not None
    assert node.plans.scale < lite
    explanation = node.explain(CHANNEL, 2)
    assert explanation is not None
    assert explanation.wait_s == pytest.approx(300.0)


def test_channel_bounds_apply_and_end_at_once() -> None:
    node = _owner(NEXT, FAR)
    _tick_with(node, 0, NEXT, FAR)
    for bounds, gap_s, bound in (
        (ChannelBounds(shortest_interval_s=90.0), 90.0, BindingConstraint.CHANNEL_INTERVAL),
        (ChannelBounds(longest_wait_s=5.0), 10.0, BindingConstraint.NODES),
        (NO_BOUNDS, 20.0, BindingConstraint.NODES),
    ):
        assert _gap_s(node.handle(ObjectiveLoaded(LITE, bounds={CHANNEL: bounds}), 1)) == gap_s
        explanation = node.explain(CHANNEL, 1)
        assert explanation is not None
        assert (explanation.interval_s / len(explanation.turns), explanation.bound) == (gap_s, bound)
    assert node.handle(ObjectiveLoaded(LITE, bounds={FAR: ChannelBounds(longest_wait_s=5.0)}), 4) == []


def test_a_sites_rate_applies_at_once_although_bounds_change_with_it() -> None:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME])), 0)
    node.handle(_subscribed(SUBSCRIBERS), 0)
    node.handle(OwnershipTaken(CHANNEL, 1, 1, site="example.org"), 0)
    node.handle(Tick(), 0)
    bounds = {CHANNEL: ChannelBounds(shortest_interval_s=1.0)}
    node.handle(ObjectiveLoaded(LITE, {"example.org": 0.001}, bounds), 1)
    for now_s in (2, 4, 6):
        node.handle(Tick(), now_s)
    explanation = node.explain(CHANNEL, 6)
    assert explanation is not None
    assert explanation.bound is BindingConstraint.HOST_BUDGET


def test_channel_bounds_set_before_ownership_apply_to_the_first_poll() -> None:
    node = Node(ME, POLICY)
    node.handle(ObjectiveLoaded(LITE, bounds={CHANNEL: ChannelBounds(shortest_interval_s=90.0)}), 0)
    node.handle(RingChanged(ring([ME, NEXT, FAR])), 0)
    node.handle(_subscribed(SUBSCRIBERS), 0)
    assert _gap_s(node.handle(OwnershipTaken(CHANNEL, 1, 1), 0)) == 90.0


def test_an_explanation_has_the_update_interval() -> None:
    node = _owner()
    node.handle(Tick(), 0)
    explanation = node.explain(CHANNEL, 3601)
    assert explanation is not None
    assert explanation.update_interval_s == pytest.approx(86_400 + 3600, rel=0.02)
    assert node.explain(FAR, 0) is None


def test_the_scale_is_frozen_for_a_maintenance_interval_after_a_ring_change() -> None:
    node = _owner(NEXT, FAR)
    _tick_with(node, 0, NEXT, FAR)
    before = node.plans.scale
    node.handle(RingChanged(ring([ME, NEXT], version=2)), 3)
    node.handle(_subscribed(100 * SUBSCRIBERS, 3), 3)
    for now_s in (4, 6, 8, 10):
        _tick_with(node, now_s, NEXT)
        assert node.plans.scale == before
    _tick_with(node, 11, NEXT)
    assert node.plans.scale != before


def test_repeated_ring_changes_do_not_freeze_the_scale_forever() -> None:
    node = _owner(NEXT, FAR)
    _tick_with(node, 0, NEXT, FAR)
    before = node.plans.scale
    node.handle(_subscribed(100 * SUBSCRIBERS, 1), 1)
    for now_s in range(1, 12):
        others = (NEXT, FAR) if now_s % 2 else (NEXT,)
        node.handle(RingChanged(ring([ME, *others], version=1 + now_s)), now_s)
        _tick_with(node, now_s, *others)
    assert node.plans.scale != before


def test_a_new_objective_applies_although_the_ring_has_just_changed() -> None:
    node = _owner(NEXT, FAR)
    _tick_with(node, 0, NEXT, FAR)
    before = node.plans.scale
    node.handle(RingChanged(ring([ME, NEXT], version=2)), 1)
    node.handle(ObjectiveLoaded(msgspec.structs.replace(LITE, budget_polls_per_minute=1.0)), 2)
    _tick_with(node, 3, NEXT)
    assert node.plans.scale is not None
    assert before is not None
    assert node.plans.scale < before


def test_gaps_are_reported_when_first_known_and_after_notable_changes() -> None:
    node = _owner(NEXT, FAR)
    assert node.plans.find_changed_gaps(10) == []
    _tick_with(node, 0, NEXT, FAR)
    assert dict(node.plans.find_changed_gaps(10)) == {CHANNEL: pytest.approx(20.0)}
    assert node.plans.count_by_level() == {0: 1}
    assert node.plans.find_changed_gaps(0) == []
    node.plans.record_gaps([*node.plans.find_changed_gaps(10), (FAR, 1.0)])
    assert node.plans.find_changed_gaps(10) == []
    node.handle(ObjectiveLoaded(msgspec.structs.replace(LITE, budget_polls_per_minute=2.0)), 1)
    _tick_with(node, 2, NEXT, FAR)
    assert dict(node.plans.find_changed_gaps(10)) == {CHANNEL: pytest.approx(30.0)}


def test_the_revision_changes_with_the_counts_of_plans() -> None:
    node = _owner(NEXT, FAR)
    plans, before = node.plans, -1
    counts = plans.count_by_level(), plans.count_by_constraint(0)
    scarce, failing = msgspec.structs.replace(LITE, budget_polls_per_minute=0.1), LimitReason.FAILURE
    events: list[tuple[float, Event]] = [
        (0, Tick()),
        (1, ObjectiveLoaded(scarce)),
        (20, ObjectiveLoaded(LITE)),
        (40, MessageReceived(FAR, PollingLimit(CHANNEL, LimitReason.HINT, 3600))),
        (60, MessageReceived(FAR, PollingLimit(CHANNEL, failing, 3700))),
        (80, RingChanged(ring([ME], version=9))),
        (100, MessageReceived("", ChannelRemoved(CHANNEL))),
    ]
    seen = [counts]
    for now_s, event in events:
        node.handle(event, now_s)
        _tick_with(node, now_s + 9, NEXT, FAR)
        former, counts = counts, (plans.count_by_level(), plans.count_by_constraint(now_s + 9))
        assert counts == former or plans.revision != before, event
        before = plans.revision
        seen += [counts] if counts != former else []
    assert len(seen) > 4


def test_levels_apply_once_all_nodes_have_sent_aggregates_for_them() -> None:
    node = _owner(NEXT, FAR)
    _tick_with(node, 0, NEXT, FAR)
    before = _planned(node)
    assert before.size == 3
    objective = msgspec.structs.replace(BASE_2, budget_polls_per_minute=2.5)
    node.handle(ObjectiveLoaded(objective), 1)
    _tick_with(node, 2, NEXT, FAR)
    explanation = node.explain(CHANNEL, 2)
    assert explanation is not None
    assert explanation.nodes == 3
    assert explanation.interval_s == pytest.approx(60.0)
    for other in (NEXT, FAR):
        node.handle(MessageReceived(other, Summary(1, Aggregate(1, 0.0, b"", 2))), 3)
    assert _schedule(node.handle(Tick(), 3)).size == 2
    explanation = node.explain(CHANNEL, 3)
    assert explanation is not None
    assert (explanation.nodes, explanation.size, explanation.ring_nodes) == (2, 2.0, 3)
    assert (explanation.level, explanation.highest_level) == (1.0, 2)


def test_with_whole_levels_a_channel_keeps_its_rate_until_the_scale_suits_the_new_ring() -> None:
    node = _owner(NEXT, FAR)
    node.handle(ObjectiveLoaded(BASE_2), 0)
    for other in (NEXT, FAR):
        node.handle(MessageReceived(other, Summary(1, Aggregate(1, 0.0, b"", 2))), 1)
    node.handle(Tick(), 1)
    before = _planned(node)
    after = _schedule(node.handle(RingChanged(ring([ME, NEXT, "c" + "0" * 39, FAR], version=2)), 2))
    assert after.gap_s == before.gap_s
    assert after.size == 4


def test_channels_that_are_being_taken_over_have_a_share_of_the_budget_at_once() -> None:
    channels = [f"1{number:039x}" for number in range(40)]
    objective = msgspec.structs.replace(LITE, demand_factor=100.0, budget_polls_per_minute=4.0)
    node = Node(ME, msgspec.structs.replace(POLICY, objective=objective, most_polls_per_node=10.0))
    node.handle(RingChanged(ring([ME])), 0)
    listed = tuple(ListedChannel(channel, SUBSCRIBERS) for channel in channels)
    node.handle(ChannelsListed(0, listed[:10], complete=False), 0)
    node.handle(OwnershipTaken(channels[0], 1, 1), 0)
    node.handle(Tick(), 0)
    before = node.plans.scale
    node.handle(ChannelsListed(0, listed[10:]), 1)
    node.handle(Tick(), 2)
    first = node.plans.scale
    assert (before, first is None) == (None, False)
    for channel in channels[1:]:
        node.handle(OwnershipTaken(channel, 1, 1), 3)
    node.handle(Tick(), 4)
    assert node.plans.scale == pytest.approx(first)
    explained = [node.explain(channel, 4) for channel in channels]
    assert sum(each.size for each in explained if each) == pytest.approx(4.0, rel=0.01)


class _Fleet:
    """Nodes that own different numbers of channels; records the schedules by which they poll."""

    def __init__(self, policy: FleetPolicy, channels: Mapping[NodeId, int]) -> None:
        self._nodes = {node_id: NodeProtocol(node_id, policy) for node_id in channels}
        self.schedules: dict[ChannelId, list[tuple[float, PollingSchedule]]] = {}
        for node_id, count in channels.items():
            # The ids spread the first polls evenly.
            ids = [f"{node_id[:6]}{number * 2**136 // count:034x}" for number in range(count)]
            self._handle(node_id, RingChanged(ring(channels)), 0)
            self._handle(node_id, ChannelsListed(0, tuple(ListedChannel(channel, 1) for channel in ids)), 0)
            for channel in ids:
                self._handle(node_id, OwnershipTaken(channel, 1, 1), 0)

    def tick(self, now_s: float) -> None:
        """Let all nodes tick, and deliver the messages that they send."""
        sent = [(node_id, send) for node_id in self._nodes for send in self._handle(node_id, Tick(), now_s)]
        for sender, send in sent:
            if send.node != sender:
                self._handle(send.node, MessageReceived(sender, send.message), now_s)

    def polls_s(self, until_s: float) -> Iterator[float]:
        """Yield the times of all polls before ``until_s``."""
        for changes in self.schedules.values():
            for (now_s, schedule), (end_s, _) in pairwise([*changes, (until_s, changes[-1][1])]):
                poll_s = now_s
                while (poll_s := schedule.next_channel_poll_s(poll_s)) < end_s:
                    yield poll_s

    def _handle(self, node_id: NodeId, event: Event, now_s: float) -> list[Send]:
        effects = self._nodes[node_id].handle([event], now_s, now_s)
        for effect in effects:
            if isinstance(effect, StartPolling):
                self.schedules.setdefault(effect.channel, []).append((now_s, effect.schedule))
        return [effect for effect in effects if isinstance(effect, Send)]


def test_a_start_of_all_nodes_causes_no_spike_above_the_budget() -> None:
    """Each node begins before it knows how many channels the others have."""
    objective = msgspec.structs.replace(LITE, demand_factor=100.0, budget_polls_per_minute=120.0)
    policy = msgspec.structs.replace(POLICY, objective=objective, most_polls_per_node=10.0)
    fleet = _Fleet(policy, {ME: 30, FAR: 90})
    for now_s in range(1, 20):
        fleet.tick(now_s)
    counted = Counter(int(poll_s / 10) for poll_s in fleet.polls_s(200.0))
    assert len(fleet.schedules) == 120
    assert max(counted.values()) <= 1.05 * 20
