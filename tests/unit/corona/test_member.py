"""What a node does as a member of a polling set that ``OWNER`` names."""

import pytest

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
from service.corona.member import MAX_SEND_ATTEMPTS
from service.corona.messages import (
    Assign,
    Assignment,
    Candidate,
    Message,
    Rejection,
    Unassign,
    VersionAnnouncement,
    VersionBase,
)
from service.corona.polling_schedule import PollingSchedule
from service.model import Delta, NodeId, Notice, Validators
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


def _found(base_version: int = 7) -> CandidateFound:
    return CandidateFound(Candidate(Delta(CHANNEL, base_version, 0, 0.0, ()), Validators(), b""))


OFFERED = Send(OWNER, _found().candidate)


def test_an_assignment_starts_polling_and_its_repetition_means_nothing() -> None:
    node = _node()
    assert _receive(node, _assign()) == [POLLING]
    assert _receive(node, _assign()) == []


def test_another_rank_or_rota_is_another_phase() -> None:
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


def test_polling_stops_when_told_to() -> None:
    node = _polling()
    assert _receive(node, Unassign(5, CHANNEL)) == [StopPolling(CHANNEL)]
    assert _receive(node, Unassign(5, CHANNEL)) == []


def test_words_of_an_older_ring_are_not_obeyed() -> None:
    node = _polling()
    assert _receive(node, _assign(ring_version=4, rank=0)) == []
    assert _receive(node, Unassign(4, CHANNEL)) == []


def test_an_owner_that_has_not_noticed_that_we_are_outside_is_not_obeyed() -> None:
    assert _receive(_node(HEIR), _assign(ring_version=4)) == []


def test_an_owner_with_a_newer_ring_is_obeyed() -> None:
    assert _receive(_node(HEIR), _assign(ring_version=6)) == [POLLING]


def test_a_node_leaves_the_set_as_soon_as_its_own_ring_says_so() -> None:
    effects = _polling().handle(RingChanged(ring([ME, OWNER, HEIR], 6)), 1)
    assert effects == [StopPolling(CHANNEL)]


def test_a_ring_older_than_the_assignment_does_not_end_it() -> None:
    node = _node()
    _receive(node, _assign(ring_version=7))
    assert node.handle(RingChanged(ring([ME, OWNER, HEIR], 6)), 1) == []


def test_the_next_nearest_takes_a_dead_owners_channel_over_at_once() -> None:
    effects = _polling().handle(RingChanged(ring([ME], 6)), 1)
    assert effects == [TakeOwnership(CHANNEL)]


def test_the_registry_is_walked_at_the_tick_after_a_change_of_the_ring() -> None:
    """After a death there is enough to do at once: what nobody polls any more can wait for as long as that."""
    node = _polling()
    node.handle(Tick(), 0)
    node.handle(RingChanged(ring([ME, OWNER], 6)), 1)
    node.handle(RingChanged(ring([ME], 7)), 2)
    walks = [node.handle(Tick(), at_s).count(ListOwnedChannels(at_s)) for at_s in (3, 4)]
    assert walks == [1, 0]


def test_who_comes_to_its_first_ring_walks_the_registry_at_once() -> None:
    assert ListOwnedChannels(1) in Node(ME, POLICY).handle(RingChanged(ring([ME], 1)), 1)


def test_news_of_a_version_reloads_what_polls_compare_with() -> None:
    node = _polling()
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == [UpdateBase(CHANNEL)]
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == []
    assert _receive(node, _assign(version=8)) == []


def test_a_missed_version_is_learned_from_the_next_assignment() -> None:
    assert _receive(_polling(), _assign(version=8)) == [UpdateBase(CHANNEL)]


def test_a_version_told_with_its_base_need_not_be_loaded() -> None:
    told = VersionAnnouncement(CHANNEL, 8, VersionBase(Validators('"8"'), 1.0, 3))
    assert _receive(_polling(), told) == [UpdateBase(CHANNEL, told)]


def test_a_find_goes_to_the_owner_and_is_offered_again_until_answered() -> None:
    node = _polling()
    assert node.handle(_found(), 1) == [OFFERED]
    assert OFFERED in node.handle(Tick(), 10)
    assert _receive(node, VersionAnnouncement(CHANNEL, 8), 11) == [UpdateBase(CHANNEL)]
    assert OFFERED not in node.handle(Tick(), 20)


def test_a_notice_is_offered_once_and_takes_nothings_place() -> None:
    """The next poll finds it again; a find would have to wait for it."""
    node = _polling()
    node.handle(_found(), 1)
    told = Candidate(Delta(CHANNEL, 7, 0, 0.0, (), notice=Notice("dead")), Validators(), b"")
    assert node.handle(CandidateFound(told), 2) == [Send(OWNER, told)]
    repeated = node.handle(Tick(), 10)
    assert OFFERED in repeated
    assert Send(OWNER, told) not in repeated


def test_after_a_notice_was_versioned_what_was_found_before_is_compared_again() -> None:
    node = _polling()
    node.handle(_found(), 1)
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == [UpdateBase(CHANNEL)]


def test_a_find_goes_to_the_new_owner_when_the_ring_changes() -> None:
    node = _polling()
    node.handle(_found(), 1)
    assert Send(HEIR, _found().candidate) in node.handle(RingChanged(ring([ME, HEIR], 6)), 2)


def test_a_later_find_takes_the_place_of_an_earlier_one() -> None:
    node = _polling()
    node.handle(_found(6), 1)
    node.handle(_found(), 2)
    assert [effect for effect in node.handle(Tick(), 10) if isinstance(effect, Send)] == [OFFERED]


def test_a_rejected_find_is_let_go_and_decided_anew() -> None:
    node = _polling()
    node.handle(_found(), 1)
    assert _receive(node, Rejection(CHANNEL, 7, 7)) == [UpdateBase(CHANNEL)]
    assert OFFERED not in node.handle(Tick(), 10)


@pytest.mark.parametrize("answer", [Rejection(CHANNEL, 6, 7), VersionAnnouncement(CHANNEL, 7)])
def test_an_answer_to_an_earlier_find_leaves_the_present_one(answer: Message) -> None:
    node = _polling()
    node.handle(_found(), 1)
    assert _receive(node, answer) == []
    assert OFFERED in node.handle(Tick(), 10)


def test_a_find_answered_with_a_known_version_still_reloads() -> None:
    node = _polling()
    _receive(node, VersionAnnouncement(CHANNEL, 8))
    node.handle(_found(), 1)
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == [UpdateBase(CHANNEL)]


def test_a_find_nobody_answers_is_left_to_the_next_poll() -> None:
    node = _polling()
    offered = [node.handle(_found(), 1), *(node.handle(Tick(), 10 * number) for number in range(1, 20))]
    assert sum(OFFERED in effects for effects in offered) == MAX_SEND_ATTEMPTS


def test_a_find_without_an_owner_waits_for_one() -> None:
    node = Node(ME, POLICY)
    assert node.handle(_found(), 1) == []
    assert OFFERED in node.handle(RingChanged(ring([ME, OWNER], 6)), 2)


def test_a_find_of_a_former_member_is_let_go_without_reloading() -> None:
    node = _node()
    node.handle(_found(), 1)
    assert _receive(node, Rejection(CHANNEL, 7, 8)) == []
    assert _receive(node, VersionAnnouncement(CHANNEL, 8)) == []
