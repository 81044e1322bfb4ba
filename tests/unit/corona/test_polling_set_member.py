"""A node as a member of the polling set of a channel that ``OWNER`` owns."""

import msgspec
import pytest

from service.corona.assignment_digests import AssignmentDigests, encode_digests, fingerprint
from service.corona.events import (
    CandidateFound,
    Effect,
    ListOwnedChannels,
    MessageReceived,
    RingChanged,
    Send,
    StartPolling,
    StopPolling,
    TakeOwnership,
    Tick,
    UpdateBase,
)
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import (
    Assign,
    Assignment,
    AssignmentDigest,
    BucketDigests,
    Candidate,
    Message,
    Rejection,
    Unassign,
    VersionAnnouncement,
    VersionBase,
)
from service.corona.polling_schedule import PollingSchedule
from service.corona.polling_set_member import MAX_SEND_ATTEMPTS
from service.model import Delta, NodeId, Notice, Validators
from service.overlay.ring import RingView
from tests.support.corona_node import Node
from tests.support.ring_strategies import ring

ME, OWNER, HEIR = "4" + "0" * 39, "0" * 40, "2" + "0" * 39
CHANNEL = "1" + "0" * 39
POLICY = FleetPolicy(poll_interval_s=900, max_polls_per_hour=12, maintenance_interval_s=10)
SCHEDULE = PollingSchedule(30.0, 450.0, 2)
POLLING = StartPolling(CHANNEL, 1, SCHEDULE)


def _node(*others: NodeId, version: int = 5) -> Node:
    node = Node(ME, POLICY)
    node.handle(RingChanged(ring([ME, OWNER, *others], version)), 0)
    node.handle(Tick(), 0)
    return node


def _assign(*, ring_version: int = 5, rank: int = 1, schedule: PollingSchedule = SCHEDULE, version: int = 7) -> Assign:
    return Assign(ring_version, (Assignment(CHANNEL, rank, schedule, version),))


def _receive(node: Node, message: Message, now_s: float = 0) -> list[Effect]:
    return node.handle(MessageReceived(OWNER, message), now_s)


def _polling() -> Node:
    node = _node()
    _receive(node, _assign())
    return node


def _candidate_found(base_version: int = 7) -> CandidateFound:
    return CandidateFound(Candidate(Delta(CHANNEL, base_version, 0, 0.0, ()), Validators(), b""))


SENT_CANDIDATE = Send(OWNER, _candidate_found().candidate)


def test_an_assignment_starts_polling_and_its_repetition_has_no_effect() -> None:
    node = _node()
    assert _receive(node, _assign()) == [POLLING]
    assert _receive(node, _assign()) == []


def test_another_rank_or_schedule_replaces_the_instruction() -> None:
    later = PollingSchedule(60.0, 300.0, 2)
    assert _receive(_polling(), _assign(rank=0)) == [StartPolling(CHANNEL, 0, SCHEDULE)]
    assert _receive(_polling(), _assign(schedule=later)) == [StartPolling(CHANNEL, 1, later)]


def test_polling_stops_after_three_silent_maintenance_intervals() -> None:
    node = _polling()
    assert StopPolling(CHANNEL) not in node.handle(Tick(), 29)
    assert StopPolling(CHANNEL) in node.handle(Tick(), 30)


def test_a_repeated_assignment_keeps_polling_alive() -> None:
    node = _polling()
    _receive(node, _assign(), 20)
    assert StopPolling(CHANNEL) not in node.handle(Tick(), 49)


ASSIGNED = Assignment(CHANNEL, 1, SCHEDULE, 7)


def _digest(*assignments: Assignment, ring_version: int = 5) -> AssignmentDigest:
    digests = AssignmentDigests()
    for assignment in assignments:
        digests.replace(assignment.channel, 0, fingerprint(assignment))
    return AssignmentDigest(ring_version, digests.total)


def _asks(*digests: int) -> list[Effect]:
    return [Send(OWNER, BucketDigests(5, encode_digests([*digests])))]


def test_a_digest_keeps_polling_alive() -> None:
    node = _polling()
    assert _receive(node, _digest(ASSIGNED), 20) == []
    assert StopPolling(CHANNEL) not in node.handle(Tick(), 49)
    assert StopPolling(CHANNEL) in node.handle(Tick(), 50)


def test_an_assignment_renews_itself_only() -> None:
    node = _polling()
    other = msgspec.structs.replace(ASSIGNED, channel="01" + "0" * 38)
    _receive(node, Assign(5, (other,)), 20)
    stopped = node.handle(Tick(), 30)
    assert StopPolling(CHANNEL) in stopped
    assert StopPolling(other.channel) not in stopped
    assert StopPolling(other.channel) in node.handle(Tick(), 50)


@pytest.mark.parametrize("change", [{"rank": 0}, {"version": 8}, {"subscribers": 2}])
def test_a_differing_digest_makes_the_member_request_assignments(change: dict[str, int]) -> None:
    other = msgspec.structs.replace(ASSIGNED, **change)
    assert _receive(_polling(), _digest(other)) == _asks(fingerprint(ASSIGNED))
    assert _receive(_node(), _digest(ASSIGNED)) == _asks(0)


def test_a_differing_digest_keeps_polling_alive() -> None:
    node = _polling()
    _receive(node, _digest(), 20)
    assert StopPolling(CHANNEL) not in node.handle(Tick(), 49)


def test_the_digest_follows_announced_and_rejected_versions() -> None:
    node = _polling()
    _receive(node, VersionAnnouncement(CHANNEL, 8))
    assert _receive(node, _digest(msgspec.structs.replace(ASSIGNED, version=8))) == []
    _receive(node, Rejection(CHANNEL, 7, 9))
    assert _receive(node, _digest(msgspec.structs.replace(ASSIGNED, version=9))) == []


def test_a_digest_by_another_ring_is_not_compared() -> None:
    node = _polling()
    assert _receive(node, _digest(ring_version=6), 20) == []
    assert _receive(node, _digest(ring_version=4), 21) == []
    assert StopPolling(CHANNEL) not in node.handle(Tick(), 50)


def test_a_digest_of_a_node_that_has_left_the_ring_is_ignored() -> None:
    node = _polling()
    node.handle(RingChanged(ring([ME, HEIR], 6)), 1)
    _receive(node, _digest(ASSIGNED), 20)
    assert StopPolling(CHANNEL) in node.handle(Tick(), 30)


def test_whole_buckets_drop_other_channels_of_these_buckets() -> None:
    beside = "1" + "0" * 38 + "1"
    node = _polling()
    _receive(node, Assign(5, (msgspec.structs.replace(ASSIGNED, channel=beside),)))
    assert _receive(node, Assign(5, (), 2, (1,))) == [StopPolling(beside)]
    assert _receive(node, Assign(5, (ASSIGNED,), 1, (0,))) == []
    assert _receive(node, Assign(5, (), 3, (0, 1, 2))) == [], "there are no three buckets"
    assert _receive(node, Assign(6, (), 1, (0,))) == [], "by another ring"
    assert node.handle(MessageReceived(HEIR, Assign(5, (), 1, (0,))), 0) == [], "of another owner"
    assert _receive(node, Assign(5, (), 1, (0,))) == [StopPolling(CHANNEL)]
    assert _receive(node, _digest()) == []


def test_channels_of_a_new_owner_are_not_compared_and_expire_unless_it_assigns_them() -> None:
    node, schedule = _node(), PollingSchedule(30.0, 300.0, 3)
    stays, goes = (Assignment(channel, 1, schedule, 7) for channel in ("01" + "0" * 38, CHANNEL))
    _receive(node, Assign(5, (stays, goes)))
    node.handle(RingChanged(ring([ME, OWNER, "1" + "0" * 38 + "1"], 6)), 10)
    assert _receive(node, _digest(stays, ring_version=6), 20) == []
    assert _receive(node, _digest(stays, ring_version=6), 25) == []
    stopped = node.handle(Tick(), 30)
    assert StopPolling(CHANNEL) in stopped
    assert StopPolling(stays.channel) not in stopped


def test_an_owner_that_rejoined_does_not_confirm_its_earlier_assignments() -> None:
    node = _polling()
    again = ring([ME, OWNER], 6)
    again = RingView(
        6, tuple(msgspec.structs.replace(each, epoch=each.epoch + (each.id == OWNER)) for each in again.nodes)
    )
    node.handle(RingChanged(again), 1)
    assert _receive(node, _digest(ring_version=6), 2) == []
    assert _receive(node, Assign(6, (), 1, (0,)), 3) == []
    assert StopPolling(CHANNEL) in node.handle(Tick(), 30)


def test_unassign_stops_polling() -> None:
    node = _polling()
    assert _receive(node, Unassign(5, CHANNEL)) == [StopPolling(CHANNEL)]
    assert _receive(node, Unassign(5, CHANNEL)) == []


def test_a_member_that_leaves_makes_its_last_poll_first() -> None:
    node = _polling()
    assert _receive(node, Unassign(5, CHANNEL, last_poll_s=2.5), 1) == []
    assert StopPolling(CHANNEL) not in node.handle(Tick(), 2)
    assert StopPolling(CHANNEL) in node.handle(Tick(), 3)


def test_a_last_poll_that_is_over_or_far_ahead_is_not_made() -> None:
    assert _receive(_polling(), Unassign(5, CHANNEL, last_poll_s=2.5), 3) == [StopPolling(CHANNEL)]
    assert _receive(_polling(), Unassign(5, CHANNEL, last_poll_s=1e300), 3) == [StopPolling(CHANNEL)]


def test_a_member_that_is_assigned_again_continues_polling() -> None:
    node = _polling()
    _receive(node, Unassign(5, CHANNEL, last_poll_s=2.5), 1)
    _receive(node, _assign(), 2)
    assert StopPolling(CHANNEL) not in node.handle(Tick(), 3)


def test_messages_of_an_older_ring_are_ignored() -> None:
    node = _polling()
    assert _receive(node, _assign(ring_version=4, rank=0)) == []
    assert _receive(node, Unassign(4, CHANNEL)) == []


def test_an_assignment_outside_the_polling_set_by_a_newer_ring_is_ignored() -> None:
    assert _receive(_node(HEIR), _assign(ring_version=4)) == []


def test_an_assignment_by_a_newer_ring_is_accepted() -> None:
    assert _receive(_node(HEIR), _assign(ring_version=6)) == [POLLING]


def test_a_node_leaves_the_polling_set_when_its_ring_changes() -> None:
    effects = _polling().handle(RingChanged(ring([ME, OWNER, HEIR], 6)), 1)
    assert effects == [StopPolling(CHANNEL)]


def test_a_ring_older_than_the_assignment_does_not_stop_polling() -> None:
    node = _node()
    _receive(node, _assign(ring_version=7))
    assert node.handle(RingChanged(ring([ME, OWNER, HEIR], 6)), 1) == []


def test_the_next_nearest_node_takes_over_a_failed_owners_channel_at_once() -> None:
    effects = _polling().handle(RingChanged(ring([ME], 6)), 1)
    assert effects == [TakeOwnership(CHANNEL)]


def test_the_registry_is_walked_at_the_tick_after_a_ring_change() -> None:
    """The walk is delayed because a failed node causes enough other work, and it finds hardly any polled channels."""
    node = _polling()
    node.handle(Tick(), 0)
    node.handle(RingChanged(ring([ME, OWNER], 6)), 1)
    node.handle(RingChanged(ring([ME], 7)), 2)
    walks = [node.handle(Tick(), at_s).count(ListOwnedChannels(at_s)) for at_s in (3, 4)]
    assert walks == [1, 0]


def test_a_joining_node_walks_the_registry_at_once() -> None:
    assert ListOwnedChannels(1) in Node(ME, POLICY).handle(RingChanged(ring([ME], 1)), 1)


def test_an_announcement_updates_the_base_of_polls() -> None:
    node = _polling()
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == [UpdateBase(CHANNEL)]
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == []
    assert _receive(node, _assign(version=8)) == []


def test_a_missed_announcement_is_recovered_by_the_next_assignment() -> None:
    assert _receive(_polling(), _assign(version=8)) == [UpdateBase(CHANNEL)]


def test_an_announcement_with_a_base_needs_no_load() -> None:
    announcement = VersionAnnouncement(CHANNEL, 8, VersionBase(Validators('"8"'), 1.0, 3))
    assert _receive(_polling(), announcement) == [UpdateBase(CHANNEL, announcement)]


def test_a_candidate_is_sent_to_the_owner_until_answered() -> None:
    node = _polling()
    assert node.handle(_candidate_found(), 1) == [SENT_CANDIDATE]
    assert SENT_CANDIDATE in node.handle(Tick(), 10)
    assert _receive(node, VersionAnnouncement(CHANNEL, 8), 11) == [UpdateBase(CHANNEL)]
    assert SENT_CANDIDATE not in node.handle(Tick(), 20)


def test_a_notice_is_sent_once_and_replaces_no_candidate() -> None:
    """The next poll finds the notice again; a pending candidate must not be delayed by it."""
    node = _polling()
    node.handle(_candidate_found(), 1)
    announcement = Candidate(Delta(CHANNEL, 7, 0, 0.0, (), notice=Notice("dead")), Validators(), b"")
    assert node.handle(CandidateFound(announcement), 2) == [Send(OWNER, announcement)]
    repeated = node.handle(Tick(), 10)
    assert SENT_CANDIDATE in repeated
    assert Send(OWNER, announcement) not in repeated


def test_a_pending_candidate_is_compared_again_after_a_notice_was_stored() -> None:
    node = _polling()
    node.handle(_candidate_found(), 1)
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == [UpdateBase(CHANNEL)]


def test_a_pending_candidate_is_sent_to_a_new_owner() -> None:
    node = _polling()
    node.handle(_candidate_found(), 1)
    assert Send(HEIR, _candidate_found().candidate) in node.handle(RingChanged(ring([ME, HEIR], 6)), 2)


def test_a_later_candidate_replaces_an_earlier_one() -> None:
    node = _polling()
    node.handle(_candidate_found(6), 1)
    node.handle(_candidate_found(), 2)
    assert [effect for effect in node.handle(Tick(), 10) if isinstance(effect, Send)] == [SENT_CANDIDATE]


def test_a_rejected_candidate_is_dropped_and_compared_again() -> None:
    node = _polling()
    node.handle(_candidate_found(), 1)
    assert _receive(node, Rejection(CHANNEL, 7, 7)) == [UpdateBase(CHANNEL)]
    assert SENT_CANDIDATE not in node.handle(Tick(), 10)


@pytest.mark.parametrize("answer", [Rejection(CHANNEL, 6, 7), VersionAnnouncement(CHANNEL, 7)])
def test_an_answer_to_an_earlier_candidate_keeps_the_current_one(answer: Message) -> None:
    node = _polling()
    node.handle(_candidate_found(), 1)
    assert _receive(node, answer) == []
    assert SENT_CANDIDATE in node.handle(Tick(), 10)


def test_a_candidate_answered_with_a_known_version_still_updates_the_base() -> None:
    node = _polling()
    _receive(node, VersionAnnouncement(CHANNEL, 8))
    node.handle(_candidate_found(), 1)
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == [UpdateBase(CHANNEL)]


def test_an_unanswered_candidate_is_dropped_after_the_last_attempt() -> None:
    node = _polling()
    effects_of_ticks = [
        node.handle(_candidate_found(), 1),
        *(node.handle(Tick(), 10 * number) for number in range(1, 20)),
    ]
    assert sum(SENT_CANDIDATE in effects for effects in effects_of_ticks) == MAX_SEND_ATTEMPTS


def test_a_candidate_without_an_owner_waits_for_one() -> None:
    node = Node(ME, POLICY)
    assert node.handle(_candidate_found(), 1) == []
    assert SENT_CANDIDATE in node.handle(RingChanged(ring([ME, OWNER], 6)), 2)


def test_a_former_members_candidate_is_dropped_without_an_update() -> None:
    node = _node()
    node.handle(_candidate_found(), 1)
    assert _receive(node, Rejection(CHANNEL, 7, 8)) == []
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == []
