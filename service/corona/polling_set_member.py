"""A node in its role of polling channels for their *owners*, the nodes that plan the polls.

The changes that a poll finds are called a *candidate*. The node sends each candidate to the channel's owner. If a
candidate is lost, no entry is lost: until the owner announces a new version, polls are compared with the former
version, so the next poll finds the same changes again.

Assignments of polls expire unless they are renewed. In each maintenance interval, an owner renews all its assignments
to this node by sending a hash of them (:mod:`service.corona.assignment_digests`). If this node computes a different
hash, messages were lost, repeated or reordered. If both nodes have the same list of the fleet's members, this node then
requests the assignments in the groups of channels whose hashes differ. In the meantime, it renews the assignments that
it has, so that polls continue even if the difference cannot be repaired.
"""

from collections.abc import Iterable, Iterator
from math import inf

import msgspec

from service.corona.assignment_digests import (
    AssignmentDigests,
    bucket_of,
    encode_digests,
    fingerprint,
    is_bucket_count,
    version_fingerprint,
)
from service.corona.events import Effect, Send, StartPolling, StopPolling, UpdateBase
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import (
    Assign,
    AssignmentDigest,
    BucketDigests,
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
"""Number of times that a candidate is sent before it is dropped; the next poll then finds its changes again."""


class _OwnerRecord(msgspec.Struct, eq=False):
    """What this node knows about another node that assigns polls to it (an owner of channels).

    An owner that leaves the fleet and joins it again gets a new record.
    """

    epoch: int | None
    """The number (epoch) that the owner got when it joined the ring; None if it is not on this node's ring yet."""
    renewed_s: float
    """Monotonic time of the owner's last digest, or of its first message if it has sent no digest."""
    ring_version: int = 0
    """The version of the owner's ring when the owner last confirmed all its assignments."""
    digests: AssignmentDigests = msgspec.field(default_factory=AssignmentDigests)


class _MemberAssignment(msgspec.Struct, gc=False):
    owner: _OwnerRecord
    ring_version: int
    instruction: StartPolling
    version: int
    assigned_s: float
    """Monotonic time in seconds at which the owner's last message with this assignment was received."""
    fingerprint: int = 0
    """The assignment's fingerprint in the owner's digests; 0 if the node polls the channel only once more."""
    last_poll_s: float = inf
    """Unix time by the store's clock after which this node stops polling; infinite if no end is known."""

    @property
    def confirmed_ring_version(self) -> int:
        """The version of the owner's list of member nodes when the owner last assigned or confirmed the polls."""
        return max(self.ring_version, self.owner.ring_version)


class _PendingCandidate(msgspec.Struct):
    candidate: Candidate
    attempts: int = 0


class MemberProtocol:
    """The protocol by which a node polls channels for their owners, the nodes that plan the polls.

    It is one half of the node's protocol. It sends the owners the changes that polls find. In all methods, ``now_s``
    is monotonic time in seconds.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._node_id = node_id
        self._policy = policy
        self._view = RingView(0, ())
        self._owners: dict[NodeId, _OwnerRecord] = {}
        self._former_owners: list[_OwnerRecord] = []
        """Records of owners that have left the ring or lost channels; their assignments expire unless assigned anew."""
        self._leaving: set[ChannelId] = set()
        """Channels that this node polls only once more."""
        self._assignments: dict[ChannelId, _MemberAssignment] = {}
        self._ahead: set[ChannelId] = set()
        """Channels whose assignments were computed from a newer ring than this node's."""
        self._pending: dict[ChannelId, _PendingCandidate] = {}

    def instruction(self, channel: ChannelId) -> StartPolling | None:
        """Return the instruction according to which this node polls ``channel``; None if this node does not poll it."""
        assignment = self._assignments.get(channel)
        return assignment.instruction if assignment else None

    def find_affected(self, view: RingView) -> list[StartPolling]:
        """Return the instructions for channels whose owner or polling nodes may change when ``view`` is adopted.

        ``view`` is the new list of member nodes, which this node is about to adopt.
        """
        change = view.change_since(self._view)
        found = [self._assignments[channel].instruction for channel in self._ahead]
        instructions = (assignment.instruction for assignment in self._assignments.values())
        return found + [each for each in instructions if change.concerns(each.channel, each.schedule.size)]

    def on_ring_changed(self, view: RingView, affected: Iterable[StartPolling]) -> Iterator[Effect]:
        """Adopt ``view`` as the ring: stop polls that other nodes take over, and send unanswered changes to new owners.

        ``affected`` is the result of :meth:`find_affected` for ``view``. Unanswered changes are changes that a poll has
        found, and to which the channel's owner has not replied yet.
        """
        former, self._view = self._view, view
        for node, owner in list(self._owners.items()):
            epoch = self._epoch(node)
            if owner.epoch is None:
                owner.epoch = epoch
            elif owner.epoch != epoch:
                self._former_owners.append(self._owners.pop(node))
        for instruction in affected:
            channel, assignment = instruction.channel, self._assignments.get(instruction.channel)
            if assignment is None:
                continue
            if assignment.confirmed_ring_version <= view.version:
                self._ahead.discard(channel)
            if self._is_outside(channel, instruction.schedule.size, assignment.confirmed_ring_version):
                yield from self._stop(channel)
        for channel in list(self._pending):
            before, after = former.owner(channel), view.owner(channel)
            if before != after or (after and former.node(after) != view.node(after)):
                yield from self._send_pending(channel)

    def on_assign(self, sender: NodeId, message: Assign, now_s: float) -> Iterator[Effect]:
        """Start polling the assigned channels, or poll them according to their new schedules.

        ``sender`` is the node that plans their polls. If this node has a newer list of the fleet's members, it ignores
        assignments of channels that it does not poll according to that list. If the message lists whole groups of
        channels (buckets), this node stops polling the sender's other channels in these groups.
        """
        owner, ring_version = self._owner(sender, now_s), message.ring_version
        for assignment in message.assignments:
            channel, size = assignment.channel, assignment.schedule.size
            known = self._assignments.get(channel)
            instruction = StartPolling(
                channel, assignment.rank, assignment.schedule, assignment.subscribers, assignment.limits
            )
            if known is None:
                if self._is_outside(channel, size, ring_version):
                    continue
                known = _MemberAssignment(owner, ring_version, instruction, assignment.version, now_s)
                self._assignments[channel] = known
                yield instruction
            elif ring_version < known.confirmed_ring_version or not self._is_still_inside(known, ring_version, size):
                continue
            self._set_fingerprint(channel, known, 0)
            known.owner, known.ring_version, known.assigned_s, known.last_poll_s = owner, ring_version, now_s, inf
            self._leaving.discard(channel)
            if ring_version > self._view.version:
                self._ahead.add(channel)
            if instruction != known.instruction:
                known.instruction = instruction
                yield instruction
            if assignment.version != known.version or channel in self._pending:
                yield from self.on_announcement(VersionAnnouncement(channel, assignment.version))
            self._set_fingerprint(channel, known, fingerprint(assignment))
        if is_bucket_count(message.bucket_count) and ring_version == self._view.version:
            yield from self._drop_unlisted(owner, message)

    def on_digest(self, sender: NodeId, message: AssignmentDigest, now_s: float) -> Iterator[Effect]:
        """Renew the polls that ``sender`` has assigned; if the two nodes' hashes of these polls differ, send a reply.

        The hashes are compared only if both nodes have the same list of the fleet's members. If they differ, this
        node stops renewing polls of channels that ``sender`` no longer owns. If the hashes still differ, this node
        replies with one hash for each group of channels. ``sender`` then sends all assignments in the groups where
        its own hash is different.
        """
        if sender not in self._view and message.ring_version <= self._view.version:
            return
        owner = self._owner(sender, now_s)
        renewed_s, owner.renewed_s = owner.renewed_s, now_s
        if message.ring_version != self._view.version:
            return
        if owner.digests.total != message.digest:
            self._detach_lost_channels(sender, owner, renewed_s)
        if owner.digests.total == message.digest:
            owner.ring_version = message.ring_version
        else:
            digests = owner.digests.by_bucket(owner.digests.suitable_buckets)
            yield Send(sender, BucketDigests(message.ring_version, encode_digests(digests)))

    def on_unassign(self, message: Unassign, fleet_s: float) -> Iterator[Effect]:
        """Stop polling the channel, unless its assignment is newer than the message.

        The assignment is newer if it was computed from a newer list of the fleet's members. If the message asks for one
        last poll that is still to come at ``fleet_s`` (Unix time by the store's clock), polling stops after that poll.
        """
        known = self._assignments.get(message.channel)
        if known is not None and message.ring_version >= known.confirmed_ring_version:
            if fleet_s < message.last_poll_s <= fleet_s + HANDOVER_S:
                known.last_poll_s = message.last_poll_s
                self._set_fingerprint(message.channel, known, 0)
                self._leaving.add(message.channel)
            else:
                yield from self._stop(message.channel)

    def on_candidate(self, candidate: Candidate) -> Iterator[Effect]:
        """Send the changes in ``candidate`` to the channel's owner, and keep them until the owner has answered.

        A notice (a message about the channel itself, not an entry) is sent once and not kept. If it is lost, the next
        poll finds it again.
        """
        # It must not replace a candidate with entries.
        owner = self._view.owner(candidate.channel)
        if candidate.delta.notice is None:
            self._pending[candidate.channel] = _PendingCandidate(candidate)
            yield from self._send_pending(candidate.channel)
        elif owner is not None:
            yield Send(owner, candidate)

    def on_limit_observed(self, limit: PollingLimit, fleet_s: float) -> Iterator[Effect]:
        """Report ``limit`` to its channel's owner if it differs notably from the limit that the owner knows.

        ``fleet_s`` is Unix time by the store's clock. If the channel is not assigned to this node, the limit is always
        reported.
        """
        # If a report is lost, the assignment does not change, and the limit is reported again after the next poll.
        known, owner = self._assignments.get(limit.channel), self._view.owner(limit.channel)
        if owner is not None and (
            known is None
            or known.instruction.limits.is_outdated(limit.reason, limit.shortest_interval_s, limit.until_s, fleet_s)
        ):
            yield Send(owner, limit)

    def on_announcement(self, announcement: VersionAnnouncement) -> Iterator[Effect]:
        """Adopt the announced version: from now on, compare the channel's fetched content with it.

        Changes that this node has found by comparison with an earlier version are dropped, whether or not the owner has
        accepted them.
        """
        pending = self._pending.get(announcement.channel)
        is_answered = pending is not None and pending.candidate.base_version < announcement.version
        yield from self._on_answer(announcement, is_answered=is_answered)

    def on_rejection(self, message: Rejection) -> Iterator[Effect]:
        """Drop the changes that the owner has rejected.

        From now on, the channel's fetched content is compared with its current version.
        """
        pending = self._pending.get(message.channel)
        is_answered = pending is not None and pending.candidate.base_version == message.base_version
        yield from self._on_answer(
            VersionAnnouncement(message.channel, message.current_version), is_answered=is_answered
        )

    def expire(self, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Stop polling channels whose assignments were not renewed in time, or whose last requested poll is over.

        ``now_s`` is monotonic time; ``fleet_s`` is Unix time by the store's clock.
        """
        for channel in [each for each in self._leaving if self._assignments[each].last_poll_s < fleet_s]:
            yield from self._stop(channel)
        ttl_s = self._policy.soft_state_ttl_s
        if any(now_s - owner.renewed_s >= ttl_s for owner in (*self._owners.values(), *self._former_owners)):
            for channel, assignment in list(self._assignments.items()):
                if now_s - max(assignment.assigned_s, assignment.owner.renewed_s) >= ttl_s:
                    yield from self._stop(channel)
            held = {id(assignment.owner) for assignment in self._assignments.values()}

            def is_needed(owner: _OwnerRecord) -> bool:
                return now_s - owner.renewed_s < ttl_s or id(owner) in held

            self._owners = {node: owner for node, owner in self._owners.items() if is_needed(owner)}
            self._former_owners = [*filter(is_needed, self._former_owners)]

    def resend_pending(self) -> Iterator[Effect]:
        """Resend changes that the channels' owners have not answered; drop changes sent ``MAX_SEND_ATTEMPTS`` times."""
        for channel in list(self._pending):
            yield from self._send_pending(channel)

    def _on_answer(self, announcement: VersionAnnouncement, *, is_answered: bool) -> Iterator[Effect]:
        if is_answered:
            del self._pending[announcement.channel]
        channel, known = announcement.channel, self._assignments.get(announcement.channel)
        if known is not None and (is_answered or known.version != announcement.version):
            if known.fingerprint:
                change = version_fingerprint(channel, known.version) ^ version_fingerprint(
                    channel, announcement.version
                )
                self._set_fingerprint(channel, known, known.fingerprint ^ change)
            known.version = announcement.version
            yield UpdateBase(announcement.channel, announcement if announcement.base else None)

    def _send_pending(self, channel: ChannelId) -> Iterator[Effect]:
        pending, owner = self._pending[channel], self._view.owner(channel)
        if pending.attempts == MAX_SEND_ATTEMPTS:
            del self._pending[channel]
        elif owner is not None:
            pending.attempts += 1
            yield Send(owner, pending.candidate)

    def _owner(self, node: NodeId, now_s: float) -> _OwnerRecord:
        """Return this node's record of ``node`` as an owner of channels; create the record if there is none.

        A new record counts as renewed at ``now_s``.
        """
        owner = self._owners.get(node)
        if owner is None:
            owner = self._owners[node] = _OwnerRecord(self._epoch(node), now_s)
        return owner

    def _epoch(self, node: NodeId) -> int | None:
        """Return the sequence number (epoch) that ``node`` got when it joined the fleet; None if it is not a member."""
        info = self._view.node(node)
        return info.epoch if info else None

    def _set_fingerprint(self, channel: ChannelId, assignment: _MemberAssignment, after: int) -> None:
        """Set the hash of the channel's assignment to ``after``, and update the hashes of the owner's assignments.

        If ``after`` is 0, the assignment no longer contributes to the owner's hashes.
        """
        assignment.owner.digests.replace(channel, assignment.fingerprint, after)
        assignment.fingerprint = after

    def _detach_lost_channels(self, node: NodeId, owner: _OwnerRecord, renewed_s: float) -> None:
        """Ensure that ``node`` no longer renews the assignments of channels that it does not own any more.

        These assignments are moved from ``owner`` (this node's record of ``node``) to a new record. They expire three
        maintenance intervals after ``renewed_s`` (monotonic time in seconds), unless the channels' present owners
        assign these channels again.
        """
        others = [
            (channel, assignment)
            for channel, assignment in self._assignments.items()
            if assignment.owner is owner and not self._view.is_among_nearest(channel, node, 1)
        ]
        if others:
            former = _OwnerRecord(owner.epoch, renewed_s)
            self._former_owners.append(former)
            for channel, assignment in others:
                self._set_fingerprint(channel, assignment, 0)
                assignment.owner = former

    def _drop_unlisted(self, owner: _OwnerRecord, message: Assign) -> Iterator[Effect]:
        """Stop polling the owner's channels in the groups that ``message`` lists, unless the message assigns them."""
        assigned, buckets = {each.channel for each in message.assignments}, frozenset(message.buckets)
        surplus = [
            channel
            for channel, known in self._assignments.items()
            if known.owner is owner
            and known.fingerprint
            and bucket_of(channel, message.bucket_count) in buckets
            and channel not in assigned
        ]
        for channel in surplus:
            yield from self._stop(channel)

    def _is_still_inside(self, known: _MemberAssignment, ring_version: int, size: int) -> bool:
        """Return whether this node remains one of the nodes that poll a channel.

        - ``known``: this node's present assignment for the channel.
        - ``ring_version``: the version of the list of member nodes from which the new assignment was computed.
        - ``size``: the number of nodes that poll the channel from now on.
        """
        known_version = known.confirmed_ring_version
        is_comparable = known_version == ring_version or known_version <= self._view.version
        if is_comparable and size >= known.instruction.schedule.size:
            return True
        return not self._is_outside(known.instruction.channel, size, ring_version)

    def _is_outside(self, channel: ChannelId, size: int, ring_version: int) -> bool:
        """Return whether this node is outside the polling set: the ``size`` nodes that are nearest to the channel.

        ``ring_version`` is the version of the list of member nodes that the channel's owner used. If it is newer than
        this node's list, the result is False.
        """
        return ring_version <= self._view.version and not self._view.is_among_nearest(channel, self._node_id, size)

    def _stop(self, channel: ChannelId) -> Iterator[Effect]:
        self._set_fingerprint(channel, self._assignments.pop(channel), 0)
        self._leaving.discard(channel)
        self._ahead.discard(channel)
        yield StopPolling(channel)
