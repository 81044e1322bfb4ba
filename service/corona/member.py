"""A node as a member of polling sets: polls as assigned, and sends candidates to the channels' owners.

A lost candidate loses no entry: until a version is confirmed, polls compare with the base version, and the next one
finds the same change again.
"""

from collections.abc import Iterator
from math import inf

import msgspec

from service.corona.events import Effect, Send, StartPolling, StopPolling, UpdateBase
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import (
    Assign,
    Assignment,
    Candidate,
    PollingLimit,
    Rejection,
    Unassign,
    VersionAnnouncement,
)
from service.corona.polling_schedule import HANDOVER_S
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView

MAX_SEND_ATTEMPTS = 10
"""Number of times a candidate is sent before it is dropped and left to the next poll."""


class _MemberAssignment(msgspec.Struct, gc=False):
    ring_version: int
    instruction: StartPolling
    version: int
    renewed_s: float
    last_poll_s: float = inf
    """The fleet time after which the member stops polling."""


class _PendingCandidate(msgspec.Struct):
    candidate: Candidate
    attempts: int = 0


class Member:
    """The member half of a node's protocol. ``now_s`` is monotonic time in seconds."""

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._node_id = node_id
        self._policy = policy
        self._view = RingView(0, ())
        self._assignments: dict[ChannelId, _MemberAssignment] = {}
        self._pending: dict[ChannelId, _PendingCandidate] = {}

    @property
    def instructions(self) -> tuple[StartPolling, ...]:
        """The current polling instructions, one per channel that this node polls."""
        return tuple(assignment.instruction for assignment in self._assignments.values())

    def instruction(self, channel: ChannelId) -> StartPolling | None:
        """Return the polling instruction of a channel, or None if this node does not poll it."""
        assignment = self._assignments.get(channel)
        return assignment.instruction if assignment else None

    def on_ring_changed(self, view: RingView) -> Iterator[Effect]:
        """Adopt the ring: leave polling sets to which this node no longer belongs, and send pending candidates again.

        A candidate (the changes that a poll found) is pending until its channel's owner has answered it. The owner may
        be another node now.
        """
        self._view = view
        for channel, assignment in list(self._assignments.items()):
            if self._is_outside(channel, assignment.instruction.schedule.size, assignment.ring_version):
                yield from self._stop(channel)
        yield from self.resend_pending()

    def on_assign(self, message: Assign, now_s: float) -> Iterator[Effect]:
        """Start polling the assigned channels, or poll them by their new schedules.

        An assignment is ignored if this node's ring is newer than the owner's and excludes this node from the polling
        set.
        """
        ring_version = message.ring_version
        for assignment in message.assignments:
            channel, schedule = assignment.channel, assignment.schedule
            known = self._assignments.get(channel)
            if known is None:
                if self._is_outside(channel, schedule.size, ring_version):
                    continue
                instruction = _instruction(assignment)
                known = self._assignments[channel] = _MemberAssignment(
                    ring_version, instruction, assignment.version, now_s
                )
                yield instruction
            elif ring_version < known.ring_version or not self._is_still_inside(known, ring_version, schedule.size):
                continue
            known.ring_version, known.renewed_s, known.last_poll_s = ring_version, now_s, inf
            instruction = known.instruction
            place = assignment.rank, assignment.subscribers, assignment.limits
            if (
                instruction.rank,
                instruction.subscribers,
                instruction.limits,
            ) != place or instruction.schedule != schedule:
                known.instruction = _instruction(assignment)
                yield known.instruction
            if assignment.version != known.version or channel in self._pending:
                yield from self.on_announcement(VersionAnnouncement(channel, assignment.version))

    def on_unassign(self, message: Unassign, fleet_s: float) -> Iterator[Effect]:
        """Stop polling the channel, unless a newer version of the ring has assigned it.

        If the message states a last poll that is still due at ``fleet_s``, the member stops after it.
        """
        known = self._assignments.get(message.channel)
        if known is not None and message.ring_version >= known.ring_version:
            if fleet_s < message.last_poll_s <= fleet_s + HANDOVER_S:
                known.last_poll_s = message.last_poll_s
            else:
                yield from self._stop(message.channel)

    def on_candidate(self, candidate: Candidate) -> Iterator[Effect]:
        """Send the candidate to the channel's owner and keep it as pending, in place of an earlier one of the channel.

        A notice (a message about the channel itself, not an entry) is sent once and is not kept: it must not replace
        entries, and every poll finds it again.
        """
        owner = self._view.owner(candidate.channel)
        if candidate.delta.notice is None:
            self._pending[candidate.channel] = _PendingCandidate(candidate)
            yield from self._send_pending(candidate.channel)
        elif owner is not None:
            yield Send(owner, candidate)

    def on_limit_observed(self, limit: PollingLimit, fleet_s: float) -> Iterator[Effect]:
        """Report a limit to the channel's owner if it differs notably, at ``fleet_s``, from those in the assignment.

        A limit of a channel that this node does not poll by a schedule is always reported. A report that is lost is
        repeated after the next poll, because the owner goes on to assign the limits that it knows.
        """
        known, owner = self._assignments.get(limit.channel), self._view.owner(limit.channel)
        if owner is not None and (
            known is None
            or known.instruction.limits.is_outdated(limit.reason, limit.shortest_interval_s, limit.until_s, fleet_s)
        ):
            yield Send(owner, limit)

    def on_announcement(self, announcement: VersionAnnouncement) -> Iterator[Effect]:
        """Compare polls with the announced version from now on; drop the channel's pending candidate if it is answered.

        The announcement answers a candidate that was compared with an earlier version, whether or not it was accepted.
        """
        pending = self._pending.get(announcement.channel)
        is_answered = pending is not None and pending.candidate.base_version < announcement.version
        yield from self._on_answer(announcement, is_answered=is_answered)

    def on_rejection(self, message: Rejection) -> Iterator[Effect]:
        """Drop the rejected candidate, and compare polls with the channel's current version from now on."""
        pending = self._pending.get(message.channel)
        is_answered = pending is not None and pending.candidate.base_version == message.base_version
        yield from self._on_answer(
            VersionAnnouncement(message.channel, message.current_version), is_answered=is_answered
        )

    def expire(self, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Stop polling channels whose owner has not repeated the assignment in time, and those after their last poll.

        ``fleet_s`` is fleet time.
        """
        for channel, assignment in list(self._assignments.items()):
            is_silent = now_s - assignment.renewed_s >= self._policy.soft_state_ttl_s
            if is_silent or assignment.last_poll_s < fleet_s:
                yield from self._stop(channel)

    def resend_pending(self) -> Iterator[Effect]:
        """Send all candidates again that their owners have not answered.

        A candidate that was sent ``MAX_SEND_ATTEMPTS`` times is dropped instead.
        """
        for channel in list(self._pending):
            yield from self._send_pending(channel)

    def _on_answer(self, announcement: VersionAnnouncement, *, is_answered: bool) -> Iterator[Effect]:
        if is_answered:
            del self._pending[announcement.channel]
        known = self._assignments.get(announcement.channel)
        if known is not None and (is_answered or known.version != announcement.version):
            known.version = announcement.version
            yield UpdateBase(announcement.channel, announcement if announcement.base else None)

    def _send_pending(self, channel: ChannelId) -> Iterator[Effect]:
        pending, owner = self._pending[channel], self._view.owner(channel)
        if pending.attempts == MAX_SEND_ATTEMPTS:
            del self._pending[channel]
        elif owner is not None:
            pending.attempts += 1
            yield Send(owner, pending.candidate)

    def _is_still_inside(self, known: _MemberAssignment, ring_version: int, size: int) -> bool:
        """Return whether this node, which polls a channel already, stays in its polling set of ``size`` nodes.

        ``known`` is its present assignment, ``ring_version`` the version of the ring by which the owner assigns it
        anew.
        """
        is_comparable = known.ring_version == ring_version or known.ring_version <= self._view.version
        if is_comparable and size >= known.instruction.schedule.size:
            return True
        return not self._is_outside(known.instruction.channel, size, ring_version)

    def _is_outside(self, channel: ChannelId, size: int, ring_version: int) -> bool:
        """Return whether this node's ring excludes it from the channel's polling set of ``size`` nodes.

        False if the owner's ring, which has the version ``ring_version``, is newer than this node's.
        """
        return ring_version <= self._view.version and not self._view.is_among_nearest(channel, self._node_id, size)

    def _stop(self, channel: ChannelId) -> Iterator[Effect]:
        del self._assignments[channel]
        yield StopPolling(channel)


def _instruction(assignment: Assignment) -> StartPolling:
    return StartPolling(
        assignment.channel, assignment.rank, assignment.schedule, assignment.subscribers, assignment.limits
    )
