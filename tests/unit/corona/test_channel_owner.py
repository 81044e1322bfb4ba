"""A node as the owner of a channel. ``ME`` owns ``CHANNEL``; ``NEXT`` and ``FAR`` follow by distance."""

import msgspec
import pytest

from service.corona.assignment_digests import AssignmentDigests, encode_digests, fingerprint
from service.corona.events import (
    ChannelsChanged,
    ChannelsListed,
    Effect,
    Event,
    ListedChannel,
    ListOwnedChannels,
    LoadObjective,
    MessageReceived,
    OwnershipTaken,
    Publish,
    PublishRefused,
    ReleaseOwnership,
    RingChanged,
    Send,
    StartPolling,
    StopPolling,
    TakeOwnership,
    Tick,
    VersionPublished,
)
from service.corona.fleet_policy import FleetObjective, FleetPolicy
from service.corona.messages import (
    Assign,
    Assignment,
    AssignmentDigest,
    BucketDigests,
    Candidate,
    ChannelAdded,
    ChannelRemoved,
    Rejection,
    Unassign,
    VersionAnnouncement,
    VersionBase,
)
from service.corona.polling_schedule import PollingSchedule
from service.corona.update_rates import UpdateHistory
from service.model import Delta, NodeId, Notice, Validators
from tests.support.corona_node import Node
from tests.support.ring_strategies import ring

ME, NEXT, FAR = "0" * 40, "4" + "0" * 39, "8" + "0" * 39
CHANNEL = "1000001" + "0" * 33
NEARER = "1" + "0" * 38 + "1"
POLICY = FleetPolicy(
    poll_interval_s=1200, max_polls_per_hour=6, maintenance_interval_s=10, objective=FleetObjective(demand_factor=4)
)
SCHEDULE = PollingSchedule(37.5, 600.0, 2)  # four polls per interval would be twelve per hour
POLLING = StartPolling(CHANNEL, 0, SCHEDULE)


def _node(*others: NodeId) -> Node:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME, *others], version=1)), 0)
    return node


def _owner(*, version: int = 5, private: bool = False) -> Node:
    """Return a node that owns ``CHANNEL`` at ``version``, with epoch 1."""
    node = _node(NEXT, FAR)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    node.handle(OwnershipTaken(CHANNEL, 1, version, private=private), 0)
    return node


def _candidate(base_version: int) -> Candidate:
    return Candidate(Delta(CHANNEL, base_version, 0, 0.0, ()), Validators(), b"")


def _send_candidate(node: Node, base_version: int, member: NodeId = NEXT, now_s: float = 0) -> list[Effect]:
    return node.handle(MessageReceived(member, _candidate(base_version)), now_s)


def _assign(member_rank: int, *, version: int, ring_version: int = 1) -> Assign:
    return Assign(ring_version, (Assignment(CHANNEL, member_rank, SCHEDULE, version),))


def _publish(base_version: int, *, epoch: int, since_s: float = 0.0) -> Publish:
    return Publish(_candidate(base_version), epoch, UpdateHistory(since_s=since_s))


def test_only_the_owner_takes_ownership_of_a_wanted_channel() -> None:
    added = MessageReceived("", ChannelAdded(CHANNEL))
    assert _node(NEXT).handle(added, 0) == [TakeOwnership(CHANNEL)]
    assert _node(NEXT, NEARER).handle(added, 0) == []


def test_the_first_channel_of_a_starting_node_gets_only_its_share_of_the_budget() -> None:
    objective = FleetObjective(demand_factor=4, budget_polls_per_minute=100 * 60 / POLICY.poll_interval_s)
    node = Node(ME, msgspec.structs.replace(POLICY, objective=objective))
    node.handle(RingChanged(ring([ME], version=1)), 0)
    node.handle(ChannelsListed(0, (ListedChannel(CHANNEL, 1, listed=True),), complete=False, total=100), 0)
    (polling,) = node.handle(OwnershipTaken(CHANNEL, 1, 5, private=True), 0)
    assert isinstance(polling, StartPolling)
    assert polling.schedule.gap_s == pytest.approx(POLICY.poll_interval_s)


def test_ownership_is_taken_once() -> None:
    assert _owner().handle(MessageReceived("", ChannelAdded(CHANNEL)), 1) == []


def test_a_new_channel_gets_a_polling_set_within_its_maximum_rate() -> None:
    node = _node(NEXT, FAR)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    assert node.handle(OwnershipTaken(CHANNEL, 1, 5), 0) == [
        Send(NEXT, _assign(1, version=5)),
        POLLING,
    ]


def test_a_private_channel_is_polled_as_often_as_there_are_nodes() -> None:
    node = _node()
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    assert node.handle(OwnershipTaken(CHANNEL, 1, 5, private=True), 0) == [
        StartPolling(CHANNEL, 0, PollingSchedule(75.0, 1200.0, 1))
    ]


def _maintained(node: Node, now_s: float) -> list[Effect]:
    return [effect for effect in node.handle(Tick(), now_s) if isinstance(effect, Send)]


def _digest(*assignments: Assignment, ring_version: int = 1) -> Send:
    digests = AssignmentDigests()
    for assignment in assignments:
        digests.replace(assignment.channel, 0, fingerprint(assignment))
    return Send(NEXT, AssignmentDigest(ring_version, digests.total))


def _assignment(*, version: int = 5, subscribers: int = 1) -> Assignment:
    return Assignment(CHANNEL, 1, SCHEDULE, version, subscribers)


def test_assignments_are_confirmed_by_a_digest_each_maintenance_interval() -> None:
    node = _owner()
    node.handle(Tick(), 0)
    assert node.handle(Tick(), 9) == []
    assert node.handle(Tick(), 10) == [_digest(_assignment()), LoadObjective(), ListOwnedChannels(10)]


def test_a_tick_that_is_a_little_early_begins_maintenance() -> None:
    node = _owner()
    maintained_s = [
        now_s for now_s in (0.02, 5.0, 10.0, 15.03, 20.0, 30.0) if LoadObjective() in node.handle(Tick(), now_s)
    ]
    assert maintained_s == [0.02, 10.0, 20.0, 30.0]


def test_the_digest_follows_a_version_without_a_new_assignment() -> None:
    node = _owner()
    _send_candidate(node, 5)
    node.handle(VersionPublished(CHANNEL, 6), 1)
    assert _maintained(node, 10) == [_digest(_assignment(version=6))]


def test_a_new_number_of_subscribers_is_sent_in_the_next_maintenance_interval() -> None:
    node = _owner()
    node.handle(Tick(), 0)
    assert node.handle(ChannelsListed(1, (ListedChannel(CHANNEL, 3),)), 1) == []
    sent = Send(NEXT, Assign(1, (_assignment(subscribers=3),)))
    assert _maintained(node, 10) == [sent, _digest(_assignment(subscribers=3))]
    assert _maintained(node, 20) == [_digest(_assignment(subscribers=3))]


def _ask(node: Node, digests: list[int], *, ring_version: int = 1, member: NodeId = NEXT) -> list[Assign]:
    message = MessageReceived(member, BucketDigests(ring_version, encode_digests(digests)))
    sent = [effect.message for effect in node.handle(message, 1) if isinstance(effect, Send)]
    return [message for message in sent if isinstance(message, Assign)]


def test_a_member_gets_the_buckets_that_differ() -> None:
    node = _owner()
    assert _ask(node, [0]) == [Assign(1, (_assignment(),), 1, (0,))]
    assert _ask(node, [fingerprint(_assignment())]) == []
    assert _ask(node, [fingerprint(_assignment()), 7]) == [Assign(1, (), 2, (1,))]


def test_a_node_that_is_no_member_gets_empty_buckets() -> None:
    assert _ask(_owner(), [7], member=FAR) == [Assign(1, (), 1, (0,))]


def test_digests_by_another_ring_or_of_impossible_buckets_are_ignored() -> None:
    assert _ask(_owner(), [0], ring_version=2) == []
    assert _ask(_owner(), [0, 0, 0]) == []
    assert _ask(_owner(), []) == []
    assert _ask(_owner(), [0], member="f" * 40) == []


def test_assign_messages_have_bounded_size() -> None:
    node = _node(NEXT)
    channels = [f"1{number:039x}" for number in range(1_500)]
    for channel in channels:
        node.handle(MessageReceived("", ChannelAdded(channel)), 0)
        node.handle(OwnershipTaken(channel, 1, 1), 0)
    messages = _ask(node, [0])
    assert [len(message.assignments) for message in messages] == [987, 513]
    assert sorted(place.channel for message in messages for place in message.assignments) == channels
    assert [bucket for message in messages for bucket in message.buckets] == [*range(32)]


def test_a_ring_change_reassigns_polling_sets_at_once() -> None:
    effects = _owner().handle(RingChanged(ring([ME, FAR], version=2)), 3)
    assert effects == [Send(FAR, _assign(1, version=5, ring_version=2)), ListOwnedChannels(3)]


def test_a_channel_nearer_to_another_node_is_released() -> None:
    effects = _owner().handle(RingChanged(ring([ME, NEXT, NEARER], version=2)), 3)
    assert effects == [ReleaseOwnership(CHANNEL), ListOwnedChannels(3)]


def test_a_node_outside_of_the_ring_owns_and_polls_nothing() -> None:
    effects = _owner().handle(RingChanged(ring([NEXT, FAR], version=2)), 3)
    assert effects == [ReleaseOwnership(CHANNEL), StopPolling(CHANNEL), ListOwnedChannels(3)]


def test_the_registry_walk_finds_unknown_channels() -> None:
    listed = (ListedChannel(CHANNEL, 2), ListedChannel(FAR, 2), ListedChannel(NEARER, 0, listed=True))
    assert _node(NEXT, FAR).handle(ChannelsListed(0, listed), 1) == [TakeOwnership(CHANNEL), TakeOwnership(NEARER)]


def test_an_unwanted_channel_loses_its_polling_set() -> None:
    effects = _owner().handle(ChannelsListed(1, (ListedChannel(CHANNEL, 0),)), 2)
    assert effects == [Send(NEXT, Unassign(1, CHANNEL)), ReleaseOwnership(CHANNEL), StopPolling(CHANNEL)]


def test_a_channel_added_during_the_registry_walk_is_not_released() -> None:
    node = _owner()
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 2)
    assert node.handle(ChannelsListed(1, ()), 3) == []


def test_nothing_is_released_before_the_walk_is_complete() -> None:
    node = _owner()
    assert node.handle(ChannelsListed(1, (ListedChannel(CHANNEL, 0),), complete=False), 2) == []
    assert ReleaseOwnership(CHANNEL) in node.handle(ChannelsListed(1, ()), 2)


def test_a_changed_channel_is_acquired_while_it_is_wanted_and_released_afterwards() -> None:
    node = _node(NEXT, FAR)
    assert node.handle(ChannelsChanged(0, (ListedChannel(CHANNEL, 2),)), 1) == [TakeOwnership(CHANNEL)]
    assert node.handle(ChannelsChanged(1, (ListedChannel(CHANNEL, 0),)), 2) == [], "wanted since the changes were read"
    assert node.handle(ChannelsChanged(2, (ListedChannel(CHANNEL, 0),)), 3) == [ReleaseOwnership(CHANNEL)]


def test_a_candidate_does_not_revive_a_channel_that_the_walk_found_unwanted() -> None:
    node = _node()
    node.handle(ChannelsListed(1, (ListedChannel(CHANNEL, 0),), complete=False), 1)
    node.handle(ChannelsListed(1, (ListedChannel(NEARER, 0),)), 1)
    assert node.handle(MessageReceived(FAR, _candidate(5)), 2) == []


def test_a_removed_channel_is_released_once() -> None:
    node = _owner()
    removed = MessageReceived("", ChannelRemoved(CHANNEL))
    assert ReleaseOwnership(CHANNEL) in node.handle(removed, 1)
    assert node.handle(removed, 1) == []


def test_a_candidate_on_the_current_version_is_published_under_the_epoch() -> None:
    assert _send_candidate(_owner(), 5) == [_publish(5, epoch=1)]


def test_a_published_version_is_announced_to_the_polling_set() -> None:
    node = _owner()
    _send_candidate(node, 5)
    sent = node.handle(VersionPublished(CHANNEL, 6), 1)
    assert Send(NEXT, VersionAnnouncement(CHANNEL, 6, VersionBase(Validators(), 0.0, 1))) in sent
    assert _send_candidate(node, 6) == [_publish(6, epoch=1)]


@pytest.mark.parametrize(
    "delta", [Delta(CHANNEL, 5, 0, 0.0, (), initial=True), Delta(CHANNEL, 5, 0, 0.0, (), notice=Notice("dead"))]
)
def test_a_version_that_changes_more_than_entries_is_announced_without_a_base(delta: Delta) -> None:
    node = _owner()
    node.handle(MessageReceived(NEXT, Candidate(delta, Validators(), b"")), 0)
    assert Send(NEXT, VersionAnnouncement(CHANNEL, 6)) in node.handle(VersionPublished(CHANNEL, 6), 1)


def test_one_candidate_per_channel_is_published_at_a_time() -> None:
    node = _owner()
    _send_candidate(node, 5)
    assert _send_candidate(node, 5, member=FAR) == []


def test_a_candidate_on_an_old_version_is_rejected_with_the_current_one() -> None:
    assert _send_candidate(_owner(), 4) == [Send(NEXT, Rejection(CHANNEL, 4, 5))]


def test_rejecting_an_old_candidate_does_not_affect_the_one_being_published() -> None:
    node = _owner()
    _send_candidate(node, 5)
    assert _send_candidate(node, 4, member=FAR) == [Send(FAR, Rejection(CHANNEL, 4, 5))]
    assert _send_candidate(node, 5, member=FAR) == []


def test_a_candidate_on_a_newer_version_makes_the_owner_reload() -> None:
    node = _owner()
    assert _send_candidate(node, 6) == [TakeOwnership(CHANNEL)]
    assert _publish(6, epoch=2, since_s=1) in node.handle(OwnershipTaken(CHANNEL, 2, 6), 1)


def test_a_candidate_on_an_unknown_version_is_rejected() -> None:
    node = _owner()
    _send_candidate(node, 9)
    assert Send(NEXT, Rejection(CHANNEL, 9, 5)) in node.handle(OwnershipTaken(CHANNEL, 2, 5), 1)


def test_a_candidate_waits_until_ownership_is_taken() -> None:
    node = _node(NEXT, FAR)
    assert _send_candidate(node, 5) == [TakeOwnership(CHANNEL)]
    assert _send_candidate(node, 5, member=FAR) == []
    assert _publish(5, epoch=1, since_s=1) in node.handle(OwnershipTaken(CHANNEL, 1, 5), 1)


def test_a_candidate_for_another_owner_is_ignored() -> None:
    assert _send_candidate(_node(NEXT, NEARER), 5) == []


def test_a_refused_owner_takes_ownership_again() -> None:
    node = _owner()
    _send_candidate(node, 5)
    assert node.handle(PublishRefused(CHANNEL), 1) == [TakeOwnership(CHANNEL)]
    assert node.handle(PublishRefused(CHANNEL), 1) == []
    assert Send(NEXT, Rejection(CHANNEL, 5, 6)) in node.handle(OwnershipTaken(CHANNEL, 2, 6), 2)


def test_a_refusal_of_an_earlier_epoch_does_not_end_the_present_one() -> None:
    node = _owner()
    _send_candidate(node, 5)
    node.handle(PublishRefused(CHANNEL, 1), 1)
    assert _publish(5, epoch=2, since_s=2) in node.handle(OwnershipTaken(CHANNEL, 2, 5), 2)
    assert node.handle(PublishRefused(CHANNEL, 1), 3) == []
    assert node.handle(PublishRefused(CHANNEL, 2), 4) == [TakeOwnership(CHANNEL)]


def test_unanswered_requests_to_the_store_are_repeated() -> None:
    node = _node(NEXT)
    node.handle(Tick(), 0)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 5)
    assert TakeOwnership(CHANNEL) not in node.handle(Tick(), 10)
    assert TakeOwnership(CHANNEL) in node.handle(Tick(), 20)
    node.handle(OwnershipTaken(CHANNEL, 1, 5), 21)
    _send_candidate(node, 5, now_s=22)
    assert TakeOwnership(CHANNEL) in node.handle(Tick(), 40)
    assert _publish(5, epoch=2, since_s=41) in node.handle(OwnershipTaken(CHANNEL, 2, 5), 41)


def test_repeated_and_late_answers_have_no_effect() -> None:
    node = _owner()
    _send_candidate(node, 5)
    assert node.handle(OwnershipTaken(CHANNEL, 1, 5), 1) == []
    node.handle(ChannelsListed(1, ()), 2)
    assert node.handle(OwnershipTaken(CHANNEL, 2, 5), 3) == []
    assert node.handle(VersionPublished(CHANNEL, 6), 3) == []
    assert node.handle(PublishRefused(CHANNEL), 3) == []


def test_a_late_publication_does_not_decrease_the_version() -> None:
    node = _owner(version=7)
    assert Send(NEXT, VersionAnnouncement(CHANNEL, 7)) in node.handle(VersionPublished(CHANNEL, 6), 1)


EVENTS_FOR_NOBODY: list[Event] = [
    Tick(),
    VersionPublished(CHANNEL, 1),
    OwnershipTaken(CHANNEL, 1, 1),
    MessageReceived(FAR, _candidate(1)),
]


def test_a_node_without_a_ring_sends_nothing() -> None:
    node = Node(ME, POLICY)
    assert [node.handle(event, 0) for event in EVENTS_FOR_NOBODY] == [
        [LoadObjective(), ListOwnedChannels(0)],
        [],
        [],
        [],
    ]


class _ThreeMembers:
    """Three of four nodes poll ``CHANNEL``; in the owner's first ring ``FIRST`` all are present, then one leaves."""

    LAST = "c" + "0" * 39
    FIRST = ring([ME, NEXT, FAR, LAST], version=1)
    POLICY = msgspec.structs.replace(POLICY, max_polls_per_hour=9)
    SCHEDULE = PollingSchedule(425.0, 400.0, 3)

    @classmethod
    def assign(cls, ring_version: int, rank: int) -> Assign:
        return Assign(ring_version, (Assignment(CHANNEL, rank, cls.SCHEDULE, 5),))


def test_when_a_member_fails_only_members_of_higher_rank_are_reassigned() -> None:
    node = Node(ME, _ThreeMembers.POLICY)
    node.handle(RingChanged(_ThreeMembers.FIRST), 0)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    sent = node.handle(OwnershipTaken(CHANNEL, 1, 5), 0)
    assert sent == [Send(NEXT, _ThreeMembers.assign(1, 1)), Send(FAR, _ThreeMembers.assign(1, 2)), sent[-1]]
    without = ring([ME, FAR, _ThreeMembers.LAST], version=2)
    sent = [Send(FAR, _ThreeMembers.assign(2, 1)), Send(_ThreeMembers.LAST, _ThreeMembers.assign(2, 2))]
    assert node.handle(RingChanged(without), 1) == [*sent, ListOwnedChannels(1)]


def test_when_an_owner_fails_the_next_one_continues_its_schedule() -> None:
    node = Node(NEXT, _ThreeMembers.POLICY)
    node.handle(RingChanged(_ThreeMembers.FIRST), 0)
    assert node.handle(MessageReceived(ME, _ThreeMembers.assign(1, 1)), 0) == [
        StartPolling(CHANNEL, 1, _ThreeMembers.SCHEDULE)
    ]
    assert TakeOwnership(CHANNEL) in node.handle(RingChanged(ring([NEXT, FAR, _ThreeMembers.LAST], version=2)), 1)
    sent = [Send(FAR, _ThreeMembers.assign(2, 1)), Send(_ThreeMembers.LAST, _ThreeMembers.assign(2, 2))]
    assert node.handle(OwnershipTaken(CHANNEL, 2, 5), 1) == [*sent, StartPolling(CHANNEL, 0, _ThreeMembers.SCHEDULE)]
