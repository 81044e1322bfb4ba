"""A node as a member of polling sets: polls while it is told to, and keeps what it found.

Losing a kept candidate loses no entry: until a version is confirmed, polls go on comparing with
the base version, and the next one finds the same change again.
"""

from collections.abc import Iterator

import msgspec

from service.corona.events import Effect, Send, StartPolling, StopPolling, UpdateBase
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import Assign, Assignment, Candidate, Rejection, Unassign, VersionAnnouncement
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView

MAX_OFFERS = 10
"""How often one candidate is sent before it is left to the next poll."""


class _MemberAssignment(msgspec.Struct, gc=False):
    ring_version: int
    place: StartPolling
    version: int
    heard_s: float


class _PendingCandidate(msgspec.Struct):
    candidate: Candidate
    offers: int = 0


class Member:
    """The polling half of a node's protocol."""

    def __init__(self, me: NodeId, policy: FleetPolicy) -> None:
        self._me = me
        self._policy = policy
        self._view = RingView(0, ())
        self._assigned: dict[ChannelId, _MemberAssignment] = {}
        self._kept: dict[ChannelId, _PendingCandidate] = {}

    @property
    def places(self) -> tuple[StartPolling, ...]:
        """As what this node polls which channels."""
        return tuple(assigned.place for assigned in self._assigned.values())

    def place(self, channel: ChannelId) -> StartPolling | None:
        """Return as what this node polls a channel, if it does."""
        assigned = self._assigned.get(channel)
        return assigned.place if assigned else None

    def ring_changed(self, view: RingView) -> Iterator[Effect]:
        """Leave the sets that we are outside of now, without waiting to be told; turn to new owners."""
        self._view = view
        for channel, assigned in list(self._assigned.items()):
            if self._is_outside(channel, assigned.place.rota.size, assigned.ring_version):
                yield from self._stop(channel)
        yield from self.offer_all()

    def assigned(self, message: Assign, now_s: float) -> Iterator[Effect]:
        """Poll what the owner says, unless a newer ring says otherwise."""
        ring_version = message.ring_version
        for assignment in message.assignments:
            channel, rota = assignment.channel, assignment.rota
            known = self._assigned.get(channel)
            if known is None:
                if self._is_outside(channel, rota.size, ring_version):
                    continue
                place = _place(assignment)
                known = self._assigned[channel] = _MemberAssignment(ring_version, place, assignment.version, now_s)
                yield place
            elif ring_version < known.ring_version or not self._stays(known, ring_version, rota.size):
                continue
            known.ring_version, known.heard_s = ring_version, now_s
            place = known.place
            if (place.rank, place.subscribers) != (assignment.rank, assignment.subscribers) or place.rota != rota:
                known.place = _place(assignment)
                yield known.place
            if assignment.version != known.version or channel in self._kept:
                yield from self.versioned(VersionAnnouncement(channel, assignment.version))

    def unassigned(self, message: Unassign) -> Iterator[Effect]:
        """Stop polling."""
        known = self._assigned.get(message.channel)
        if known is not None and message.ring_version >= known.ring_version:
            yield from self._stop(message.channel)

    def found(self, candidate: Candidate) -> Iterator[Effect]:
        """Keep the candidate, instead of an earlier one of the channel, and offer it to the owner.

        A notice is offered once and not kept: it must not replace entries, and every poll finds it again.
        """
        owner = self._view.owner(candidate.channel)
        if candidate.delta.notice is None:
            self._kept[candidate.channel] = _PendingCandidate(candidate)
            yield from self._offer(candidate.channel)
        elif owner is not None:
            yield Send(owner, candidate)

    def versioned(self, told: VersionAnnouncement) -> Iterator[Effect]:
        """Let go of a candidate that is now outdated or confirmed; compare with this version from now on."""
        kept = self._kept.get(told.channel)
        answered = kept is not None and kept.candidate.base_version < told.version
        yield from self._answered(told, answered=answered)

    def rejected(self, message: Rejection) -> Iterator[Effect]:
        """Let go of the candidate that was meant; the next poll decides anew."""
        kept = self._kept.get(message.channel)
        answered = kept is not None and kept.candidate.base_version == message.base_version
        yield from self._answered(VersionAnnouncement(message.channel, message.current_version), answered=answered)

    def expire(self, now_s: float) -> Iterator[Effect]:
        """Stop what no owner has repeated."""
        for channel, assigned in list(self._assigned.items()):
            if now_s - assigned.heard_s >= self._policy.silence_s:
                yield from self._stop(channel)

    def offer_all(self) -> Iterator[Effect]:
        """Offer again what no owner has answered."""
        for channel in list(self._kept):
            yield from self._offer(channel)

    def _answered(self, told: VersionAnnouncement, *, answered: bool) -> Iterator[Effect]:
        if answered:
            del self._kept[told.channel]
        known = self._assigned.get(told.channel)
        if known is not None and (answered or known.version != told.version):
            known.version = told.version
            yield UpdateBase(told.channel, told if told.base else None)

    def _offer(self, channel: ChannelId) -> Iterator[Effect]:
        kept, owner = self._kept[channel], self._view.owner(channel)
        if kept.offers == MAX_OFFERS:
            del self._kept[channel]
        elif owner is not None:
            kept.offers += 1
            yield Send(owner, kept.candidate)

    def _stays(self, known: _MemberAssignment, ring_version: int, size: int) -> bool:
        """Say whether we are in a set that has changed like this; by our present ring we were in it before."""
        judged = known.ring_version == ring_version or known.ring_version <= self._view.version
        if judged and size >= known.place.rota.size:
            return True
        return not self._is_outside(known.place.channel, size, ring_version)

    def _is_outside(self, channel: ChannelId, size: int, ring_version: int) -> bool:
        """Say whether our ring, if it is at least as new as the owner's, has us outside of the polling set."""
        return ring_version <= self._view.version and not self._view.has_among(channel, self._me, size)

    def _stop(self, channel: ChannelId) -> Iterator[Effect]:
        del self._assigned[channel]
        yield StopPolling(channel)


def _place(assignment: Assignment) -> StartPolling:
    return StartPolling(assignment.channel, assignment.rank, assignment.rota, assignment.subscribers)
