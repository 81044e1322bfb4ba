"""What a node does as a channel's owner. Three nodes; ``CHANNEL`` is ours, ``BESIDE`` and ``FAR`` follow."""

import msgspec
import pytest

from service.corona.events import (
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

ME, BESIDE, FAR = "0" * 40, "4" + "0" * 39, "8" + "0" * 39
CHANNEL = "1000001" + "0" * 33
NEARER = "1" + "0" * 38 + "1"
POLICY = FleetPolicy(
    poll_interval_s=1200, max_polls_per_hour=6, maintenance_interval_s=10, objective=FleetObjective(polls_per_channel=4)
)
SCHEDULE = PollingSchedule(37.5, 600.0, 2)  # four polls per interval would be twelve per hour
POLLING = StartPolling(CHANNEL, 0, SCHEDULE)


def _node(*others: NodeId) -> Node:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME, *others], version=1)), 0)
    return node


def _owner(*, version: int = 5, private: bool = False) -> Node:
    """Return a node that owns ``CHANNEL`` at ``version``, with epoch 1."""
    node = _node(BESIDE, FAR)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    node.handle(OwnershipTaken(CHANNEL, 1, version, private=private), 0)
    return node


def _candidate(base_version: int) -> Candidate:
    return Candidate(Delta(CHANNEL, base_version, 0, 0.0, ()), Validators(), b"")


def _offer(node: Node, base_version: int, finder: NodeId = BESIDE, now_s: float = 0) -> list[Effect]:
    return node.handle(MessageReceived(finder, _candidate(base_version)), now_s)


def _assign(member_rank: int, *, version: int, ring_version: int = 1) -> Assign:
    return Assign(ring_version, (Assignment(CHANNEL, member_rank, SCHEDULE, version),))


def _publish(base_version: int, *, epoch: int, since_s: float = 0.0) -> Publish:
    return Publish(_candidate(base_version), epoch, UpdateHistory(since_s=since_s))


def test_a_wanted_channel_is_adopted_by_its_owner_alone() -> None:
    added = MessageReceived("", ChannelAdded(CHANNEL))
    assert _node(BESIDE).handle(added, 0) == [TakeOwnership(CHANNEL)]
    assert _node(BESIDE, NEARER).handle(added, 0) == []


def test_a_channel_is_adopted_once() -> None:
    assert _owner().handle(MessageReceived("", ChannelAdded(CHANNEL)), 1) == []


def test_an_adopted_channel_gets_its_polling_set_at_a_polite_interval() -> None:
    node = _node(BESIDE, FAR)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    assert node.handle(OwnershipTaken(CHANNEL, 1, 5), 0) == [
        Send(BESIDE, _assign(1, version=5)),
        POLLING,
    ]


def test_a_private_channel_is_polled_as_often_as_there_are_nodes() -> None:
    node = _node()
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    assert node.handle(OwnershipTaken(CHANNEL, 1, 5, private=True), 0) == [
        StartPolling(CHANNEL, 0, PollingSchedule(75.0, 1200.0, 1))
    ]


def test_assignments_are_repeated_each_maintenance_interval() -> None:
    node = _owner()
    repeated = [Send(BESIDE, _assign(1, version=5)), LoadObjective(), ListOwnedChannels(10)]
    node.handle(Tick(), 0)
    assert node.handle(Tick(), 9) == []
    assert node.handle(Tick(), 10) == repeated


def test_many_assignments_travel_in_messages_of_bounded_size() -> None:
    node = _node(BESIDE)
    channels = [f"1{number:039x}" for number in range(1_500)]
    for channel in channels:
        node.handle(MessageReceived("", ChannelAdded(channel)), 0)
        node.handle(OwnershipTaken(channel, 1, 1), 0)
    sent = [effect.message for effect in node.handle(Tick(), 10) if isinstance(effect, Send)]
    batches = [message.assignments for message in sent if isinstance(message, Assign)]
    assert [len(batch) for batch in batches] == [1_000, 500]
    assert [place.channel for batch in batches for place in batch] == channels


def test_a_new_ring_is_a_new_polling_set_at_once() -> None:
    effects = _owner().handle(RingChanged(ring([ME, FAR], version=2)), 3)
    assert effects == [Send(FAR, _assign(1, version=5, ring_version=2)), ListOwnedChannels(3)]


def test_a_channel_nearer_to_another_node_is_disowned() -> None:
    effects = _owner().handle(RingChanged(ring([ME, BESIDE, NEARER], version=2)), 3)
    assert effects == [ReleaseOwnership(CHANNEL), ListOwnedChannels(3)]


def test_a_node_outside_of_the_ring_owns_and_polls_nothing() -> None:
    effects = _owner().handle(RingChanged(ring([BESIDE, FAR], version=2)), 3)
    assert effects == [ReleaseOwnership(CHANNEL), StopPolling(CHANNEL), ListOwnedChannels(3)]


def test_the_registry_walk_finds_what_was_never_told() -> None:
    listed = (ListedChannel(CHANNEL, 2), ListedChannel(FAR, 2), ListedChannel(NEARER, 0, listed=True))
    assert _node(BESIDE, FAR).handle(ChannelsListed(0, listed), 1) == [TakeOwnership(CHANNEL), TakeOwnership(NEARER)]


def test_a_channel_that_nobody_wants_any_more_loses_its_polling_set() -> None:
    effects = _owner().handle(ChannelsListed(1, (ListedChannel(CHANNEL, 0),)), 2)
    assert effects == [Send(BESIDE, Unassign(1, CHANNEL)), ReleaseOwnership(CHANNEL), StopPolling(CHANNEL)]


def test_a_channel_wanted_since_the_walk_began_is_kept() -> None:
    node = _owner()
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 2)
    assert node.handle(ChannelsListed(1, ()), 3) == []


def test_nothing_is_dropped_before_the_walk_is_complete() -> None:
    node = _owner()
    assert node.handle(ChannelsListed(1, (ListedChannel(CHANNEL, 0),), complete=False), 2) == []
    assert ReleaseOwnership(CHANNEL) in node.handle(ChannelsListed(1, ()), 2)


def test_what_any_part_of_a_walk_has_found_unwanted_is_not_revived_by_who_still_polls_it() -> None:
    node = _node()
    node.handle(ChannelsListed(1, (ListedChannel(CHANNEL, 0),), complete=False), 1)
    node.handle(ChannelsListed(1, (ListedChannel(NEARER, 0),)), 1)
    assert node.handle(MessageReceived(FAR, _candidate(5)), 2) == []


def test_a_removed_channel_is_dropped_once() -> None:
    node = _owner()
    removed = MessageReceived("", ChannelRemoved(CHANNEL))
    assert ReleaseOwnership(CHANNEL) in node.handle(removed, 1)
    assert node.handle(removed, 1) == []


def test_a_candidate_on_the_present_version_is_published_under_our_epoch() -> None:
    assert _offer(_owner(), 5) == [_publish(5, epoch=1)]


def test_a_published_version_is_told_to_the_polling_set() -> None:
    node = _owner()
    _offer(node, 5)
    told = node.handle(VersionPublished(CHANNEL, 6), 1)
    assert Send(BESIDE, VersionAnnouncement(CHANNEL, 6, VersionBase(Validators(), 0.0, 1))) in told
    assert _offer(node, 6) == [_publish(6, epoch=1)]


@pytest.mark.parametrize(
    "delta", [Delta(CHANNEL, 5, 0, 0.0, (), initial=True), Delta(CHANNEL, 5, 0, 0.0, (), notice=Notice("dead"))]
)
def test_a_version_that_changes_more_than_its_base_has_to_be_loaded(delta: Delta) -> None:
    node = _owner()
    node.handle(MessageReceived(BESIDE, Candidate(delta, Validators(), b"")), 0)
    assert Send(BESIDE, VersionAnnouncement(CHANNEL, 6)) in node.handle(VersionPublished(CHANNEL, 6), 1)


def test_one_candidate_per_channel_is_at_the_store() -> None:
    node = _owner()
    _offer(node, 5)
    assert _offer(node, 5, finder=FAR) == []


def test_a_candidate_on_an_old_version_is_rejected_with_the_present_one() -> None:
    assert _offer(_owner(), 4) == [Send(BESIDE, Rejection(CHANNEL, 4, 5))]


def test_rejecting_an_old_candidate_leaves_the_one_at_the_store_alone() -> None:
    node = _owner()
    _offer(node, 5)
    assert _offer(node, 4, finder=FAR) == [Send(FAR, Rejection(CHANNEL, 4, 5))]
    assert _offer(node, 5, finder=FAR) == []


def test_a_candidate_on_a_newer_version_makes_the_owner_look_again() -> None:
    node = _owner()
    assert _offer(node, 6) == [TakeOwnership(CHANNEL)]
    assert _publish(6, epoch=2, since_s=1) in node.handle(OwnershipTaken(CHANNEL, 2, 6), 1)


def test_a_candidate_on_a_version_the_store_does_not_have_is_rejected() -> None:
    node = _owner()
    _offer(node, 9)
    assert Send(BESIDE, Rejection(CHANNEL, 9, 5)) in node.handle(OwnershipTaken(CHANNEL, 2, 5), 1)


def test_a_candidate_waits_for_its_new_owner_to_adopt_the_channel() -> None:
    node = _node(BESIDE, FAR)
    assert _offer(node, 5) == [TakeOwnership(CHANNEL)]
    assert _offer(node, 5, finder=FAR) == []
    assert _publish(5, epoch=1, since_s=1) in node.handle(OwnershipTaken(CHANNEL, 1, 5), 1)


def test_a_candidate_for_another_owner_is_left_to_its_finder() -> None:
    assert _offer(_node(BESIDE, NEARER), 5) == []


def test_a_refused_owner_adopts_again_and_decides_again() -> None:
    node = _owner()
    _offer(node, 5)
    assert node.handle(PublishRefused(CHANNEL), 1) == [TakeOwnership(CHANNEL)]
    assert node.handle(PublishRefused(CHANNEL), 1) == []
    assert Send(BESIDE, Rejection(CHANNEL, 5, 6)) in node.handle(OwnershipTaken(CHANNEL, 2, 6), 2)


def test_questions_the_store_leaves_unanswered_are_asked_again() -> None:
    node = _node(BESIDE)
    node.handle(Tick(), 0)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 5)
    assert TakeOwnership(CHANNEL) not in node.handle(Tick(), 10)
    assert TakeOwnership(CHANNEL) in node.handle(Tick(), 20)
    node.handle(OwnershipTaken(CHANNEL, 1, 5), 21)
    _offer(node, 5, now_s=22)
    assert TakeOwnership(CHANNEL) in node.handle(Tick(), 40)
    assert _publish(5, epoch=2, since_s=41) in node.handle(OwnershipTaken(CHANNEL, 2, 5), 41)


def test_repeated_and_belated_answers_change_nothing() -> None:
    node = _owner()
    _offer(node, 5)
    assert node.handle(OwnershipTaken(CHANNEL, 1, 5), 1) == []
    node.handle(ChannelsListed(1, ()), 2)
    assert node.handle(OwnershipTaken(CHANNEL, 2, 5), 3) == []
    assert node.handle(VersionPublished(CHANNEL, 6), 3) == []
    assert node.handle(PublishRefused(CHANNEL), 3) == []


def test_a_belated_publication_does_not_take_the_version_back() -> None:
    node = _owner(version=7)
    assert Send(BESIDE, VersionAnnouncement(CHANNEL, 7)) in node.handle(VersionPublished(CHANNEL, 6), 1)


EVENTS_FOR_NOBODY: list[Event] = [
    Tick(),
    VersionPublished(CHANNEL, 1),
    OwnershipTaken(CHANNEL, 1, 1),
    MessageReceived(FAR, _candidate(1)),
]


def test_a_node_that_has_not_seen_a_ring_is_quiet() -> None:
    node = Node(ME, POLICY)
    assert [node.handle(event, 0) for event in EVENTS_FOR_NOBODY] == [
        [LoadObjective(), ListOwnedChannels(0)],
        [],
        [],
        [],
    ]


class _Three:
    """Three of four nodes poll ``CHANNEL``; the owner's ring is ``FIRST``, and then one is gone."""

    LAST = "c" + "0" * 39
    FIRST = ring([ME, BESIDE, FAR, LAST], version=1)
    POLICY = msgspec.structs.replace(POLICY, max_polls_per_hour=9)
    SCHEDULE = PollingSchedule(25.0, 400.0, 3)

    @classmethod
    def assign(cls, ring_version: int, rank: int) -> Assign:
        return Assign(ring_version, (Assignment(CHANNEL, rank, cls.SCHEDULE, 5),))


def test_when_a_member_dies_only_those_behind_it_are_told_another_place() -> None:
    node = Node(ME, _Three.POLICY)
    node.handle(RingChanged(_Three.FIRST), 0)
    node.handle(MessageReceived("", ChannelAdded(CHANNEL)), 0)
    told = node.handle(OwnershipTaken(CHANNEL, 1, 5), 0)
    assert told == [Send(BESIDE, _Three.assign(1, 1)), Send(FAR, _Three.assign(1, 2)), told[-1]]
    without = ring([ME, FAR, _Three.LAST], version=2)
    told = [Send(FAR, _Three.assign(2, 1)), Send(_Three.LAST, _Three.assign(2, 2))]
    assert node.handle(RingChanged(without), 1) == [*told, ListOwnedChannels(1)]


def test_when_an_owner_dies_the_next_one_goes_on_with_its_rota() -> None:
    node = Node(BESIDE, _Three.POLICY)
    node.handle(RingChanged(_Three.FIRST), 0)
    assert node.handle(MessageReceived(ME, _Three.assign(1, 1)), 0) == [StartPolling(CHANNEL, 1, _Three.SCHEDULE)]
    assert TakeOwnership(CHANNEL) in node.handle(RingChanged(ring([BESIDE, FAR, _Three.LAST], version=2)), 1)
    told = [Send(FAR, _Three.assign(2, 1)), Send(_Three.LAST, _Three.assign(2, 2))]
    assert node.handle(OwnershipTaken(CHANNEL, 2, 5), 1) == [*told, StartPolling(CHANNEL, 0, _Three.SCHEDULE)]
