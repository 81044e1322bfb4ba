"""The polling protocol of one node without I/O: events in, effects out (Corona §3.3).

A node has two halves: :class:`~service.corona.channel_owner.Owner` and :class:`~service.corona.member.Member`. They
communicate by the same messages as nodes do; messages of a node to itself are processed here and never reach the shell.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from service.corona.channel_owner import Owner
from service.corona.events import (
    CandidateFound,
    ChannelsChanged,
    ChannelsListed,
    Effect,
    Event,
    LimitObserved,
    ListOwnedChannels,
    LoadObjective,
    MessageReceived,
    ObjectiveLoaded,
    OwnershipTaken,
    PublishRefused,
    RingChanged,
    Send,
    Tick,
    VersionPublished,
)
from service.corona.fleet_policy import FleetPolicy
from service.corona.member import Member
from service.corona.messages import (
    Assign,
    AssignmentDigest,
    BucketDigests,
    Candidate,
    ChannelAdded,
    ChannelRemoved,
    PollingLimit,
    Rejection,
    SiteScales,
    SiteShares,
    Summary,
    SummaryConfirmation,
    SummaryRequest,
    Unassign,
    VersionAnnouncement,
)
from service.corona.optimizer.poll_explanation import PollExplanation
from service.corona.polling_plans import PollingPlans
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView


class NodeProtocol:
    """A node's reactions to events, from the time it joins the ring until it loses its lease.

    The lease is the node's right to its node id. A node without a lease must stop, because its id may be reassigned.
    The process around the protocol (the *shell*) then stops the node's polls, and joins again with a new id and a new
    protocol.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._node_id = node_id
        self._policy = policy
        self.plans = PollingPlans(node_id, policy)
        """Polling plans of this node's own channels; changed only by events and :meth:`PollingPlans.record_gaps`."""
        self._owner = Owner(node_id, policy, self.plans)
        self._member = Member(node_id, policy)
        self._maintained_s: float | None = None
        self._registry_walk_due = False
        """Whether the ring has changed since the last registry walk was requested."""

    def handle(self, events: Iterable[Event], now_s: float, fleet_s: float) -> list[Effect]:
        """Return the effects of these events, in the order in which the shell (the process around it) carries them out.

        ``now_s`` is the time of a monotonic clock, and ``fleet_s`` is fleet time (Unix seconds of the store's clock),
        by which polls are scheduled. Unknown, repeated and outdated events have little or no effect. No event raises an
        exception.
        """
        effects: list[Effect] = []
        waiting = deque(events)
        while waiting:
            reaction = [*self._on_event(waiting.popleft(), now_s, fleet_s)]
            if not waiting:
                reaction += self._owner.assign_acquired(fleet_s)
            for effect in reaction:
                if isinstance(effect, Send) and effect.node == self._node_id:
                    waiting.append(MessageReceived(self._node_id, effect.message))
                else:
                    effects.append(effect)
        return effects

    def explain(self, channel: ChannelId, fleet_s: float) -> PollExplanation | None:
        """Return why a channel of this node is polled as often as it is at ``fleet_s``, in fleet time.

        The result is None if this node does not own the channel or has not planned its polls yet.
        """
        return self._owner.explain(channel, fleet_s)

    def _on_event(self, event: Event, now_s: float, fleet_s: float) -> Iterator[Effect]:
        match event:
            case Tick():
                yield from self._on_tick(now_s, fleet_s)
            case MessageReceived():
                yield from self._on_message(event, now_s, fleet_s)
            case RingChanged():
                yield from self._on_ring_changed(event.view, now_s, fleet_s)
            case ChannelsChanged():
                yield from self._owner.on_channels_changed(event, now_s)
            case ChannelsListed():
                yield from self._owner.on_channels_listed(event, now_s)
            case OwnershipTaken() | VersionPublished() | PublishRefused():
                yield from self._on_store_answer(event, now_s, fleet_s)
            case CandidateFound():
                yield from self._member.on_candidate(event.candidate)
            case LimitObserved():
                yield from self._member.on_limit_observed(event.limit, fleet_s)
            case ObjectiveLoaded():
                yield from self._owner.update_schedules(
                    fleet_s, self.plans.set_objective(event.objective, event.site_rates, event.bounds)
                )

    def _on_store_answer(
        self, event: OwnershipTaken | VersionPublished | PublishRefused, now_s: float, fleet_s: float
    ) -> Iterator[Effect]:
        match event:
            case OwnershipTaken():
                instruction = self._member.instruction(event.channel)
                known = instruction.schedule if instruction else None
                yield from self._owner.on_ownership_taken(event, known, now_s, fleet_s)
            case VersionPublished():
                yield from self._owner.on_version_published(event.channel, event.version, event.digest)
            case PublishRefused():
                yield from self._owner.on_publish_refused(event, now_s)

    def _on_message(self, event: MessageReceived, now_s: float, fleet_s: float) -> Iterator[Effect]:
        match event.message:
            case Assign() | AssignmentDigest() | Unassign() | VersionAnnouncement() | Rejection():
                yield from self._on_owners_message(event, now_s, fleet_s)
            case Candidate() as candidate:
                yield from self._owner.on_candidate(event.sender, candidate, now_s, fleet_s)
            case BucketDigests() as message:
                yield from self._owner.on_bucket_digests(event.sender, message)
            case ChannelAdded(channel=channel):
                yield from self._owner.ensure_owned(channel, now_s)
            case ChannelRemoved(channel=channel):
                yield from self._owner.release(channel)
            case PollingLimit() as limit:
                yield from self._owner.on_polling_limit(limit, fleet_s)
            case Summary() | SummaryConfirmation() | SummaryRequest() | SiteShares() | SiteScales() as message:
                yield from self.plans.on_message(event.sender, message, now_s)

    def _on_owners_message(self, event: MessageReceived, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Process a message of an owner to this node as a member of polling sets."""
        match event.message:
            case Assign() as message:
                yield from self._member.on_assign(event.sender, message, now_s)
            case AssignmentDigest() as message:
                yield from self._member.on_digest(event.sender, message, now_s)
            case Unassign() as message:
                yield from self._member.on_unassign(message, fleet_s)
            case VersionAnnouncement() as message:
                yield from self._member.on_announcement(message)
            case Rejection() as message:
                yield from self._member.on_rejection(message)

    def _on_ring_changed(self, view: RingView, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Adopt the ring, and take over the channels that this node polls and whose owner has failed.

        The other channels of a failed owner are found by the registry walk, a reading of all channels in the store. The
        walk waits for the next tick, except when this node has just joined: it only finds channels that hardly any node
        polls, and a change of the ring already causes enough work.
        """
        self.plans.on_ring_changed(view, now_s)
        yield from self._owner.on_ring_changed(view, fleet_s)
        concerned = self._member.concerned(view)
        for instruction in concerned:
            yield from self._owner.ensure_owned(instruction.channel, now_s, instruction.subscribers)
        yield from self._member.on_ring_changed(view, concerned)
        if self._maintained_s is None:
            yield ListOwnedChannels(now_s)
        else:
            self._registry_walk_due = True

    def _on_tick(self, now_s: float, fleet_s: float) -> Iterator[Effect]:
        due = self._maintained_s is None or now_s - self._maintained_s >= self._policy.maintenance_interval_s
        yield from self._member.expire(now_s, fleet_s)
        yield from self.plans.send_summaries(now_s, fleet_s, self._owner.count_channels(), is_maintenance=due)
        moved = self.plans.solve(now_s)
        if due:
            self._maintained_s = now_s
            yield from self._owner.maintain(now_s, fleet_s)
            yield from self._member.resend_pending()
            yield LoadObjective()
        elif moved:
            yield from self._owner.update_schedules(fleet_s)
        if due or self._registry_walk_due:
            self._registry_walk_due = False
            yield ListOwnedChannels(now_s)
