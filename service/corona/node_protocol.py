"""The polling protocol of one node, without I/O: it receives events and returns effects (Corona §3.3).

A node has two roles. As an owner of channels, it plans their polls and stores their changes
(:class:`~service.corona.channel_owner.OwnerProtocol`). As a member of polling sets, it polls channels for their owners
(:class:`~service.corona.polling_set_member.MemberProtocol`). The two roles of one node exchange the same messages as
the roles of different nodes do. Messages from a node to itself are not sent, but processed here.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from service.corona import events, messages
from service.corona.channel_owner import OwnerProtocol
from service.corona.events import Effect, Event, ListOwnedChannels, LoadObjective, MessageReceived, Send
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import Message
from service.corona.optimizer.poll_explanation import PollExplanation
from service.corona.polling_plans import PollingPlans
from service.corona.polling_set_member import MemberProtocol
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView

TICK_TOLERANCE = 0.05
"""The share of the maintenance interval by which a tick may be too early and still begin maintenance.

A timer does not tick exactly. Without a tolerance, every second maintenance would be one tick late.
"""


class NodeProtocol:
    """The polling protocol of one node: processes events, and returns the effects that the caller has to carry out.

    An object is used until the node loses the right to its node id. The id may then be given to another node. The
    caller stops the node's polls, and joins the fleet again with a new id and a new protocol object.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._node_id = node_id
        self._policy = policy
        self.plans = PollingPlans(node_id, policy)
        """Polling plans of this node's own channels; changed only by events and :meth:`PollingPlans.record_gaps`."""
        self._owner = OwnerProtocol(node_id, policy, self.plans)
        self._member = MemberProtocol(node_id, policy)
        self._maintained_s: float | None = None
        self._registry_walk_due = False
        """Whether the ring has changed since the list of this node's channels was last requested."""

    def handle(self, occurred: Iterable[Event], now_s: float, fleet_s: float) -> list[Effect]:
        """Process the events in ``occurred``; return their effects, which the caller has to carry out in this order.

        - ``now_s``: the time of a monotonic clock, in seconds.
        - ``fleet_s``: Unix time by the store's clock, by which polls are scheduled.

        Unknown, repeated and outdated events have little or no effect. No event raises an exception.
        """
        effects: list[Effect] = []
        waiting = deque(occurred)
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
        """Explain how often a channel is polled at ``fleet_s`` (Unix time by the store's clock).

        The result is None if this node does not own the channel or has not planned the channel's polls yet.
        """
        return self._owner.explain(channel, fleet_s)

    def _on_event(self, event: Event, now_s: float, fleet_s: float) -> Iterator[Effect]:  # noqa: C901 - one arm per event
        match event:
            case events.Tick():
                yield from self._on_tick(now_s, fleet_s)
            case MessageReceived():
                yield from self._on_message(event.sender, event.message, now_s, fleet_s)
            case events.RingChanged():
                yield from self._on_ring_changed(event.view, now_s, fleet_s)
            case events.ChannelsChanged():
                yield from self._owner.on_channels_changed(event, now_s)
            case events.ChannelsListed():
                yield from self._owner.on_channels_listed(event, now_s)
            case events.OwnershipTaken():
                instruction = self._member.instruction(event.channel)
                known = instruction.schedule if instruction else None
                yield from self._owner.on_ownership_taken(event, known, now_s, fleet_s)
            case events.VersionPublished():
                yield from self._owner.on_version_published(event)
            case events.PublishRefused():
                yield from self._owner.on_publish_refused(event, now_s)
            case events.CandidateFound():
                yield from self._member.on_candidate(event.candidate)
            case events.LimitObserved():
                yield from self._member.on_limit_observed(event.limit, fleet_s)
            case events.ObjectiveLoaded():
                changed = self.plans.set_objective(event.objective, event.site_rates, event.bounds)
                yield from self._owner.update_schedules(fleet_s, changed)

    def _on_message(self, sender: NodeId, message: Message, now_s: float, fleet_s: float) -> Iterator[Effect]:  # noqa: C901 - one arm per message
        match message:
            case messages.Assign():
                yield from self._member.on_assign(sender, message, now_s)
            case messages.AssignmentDigest():
                yield from self._member.on_digest(sender, message, now_s)
            case messages.Unassign():
                yield from self._member.on_unassign(message, fleet_s)
            case messages.VersionAnnouncement():
                yield from self._member.on_announcement(message)
            case messages.Rejection():
                yield from self._member.on_rejection(message)
            case messages.Candidate():
                yield from self._owner.on_candidate(sender, message, now_s, fleet_s)
            case messages.BucketDigests():
                yield from self._owner.on_bucket_digests(sender, message)
            case messages.ChannelAdded():
                yield from self._owner.ensure_owned(message.channel, now_s)
            case messages.ChannelRemoved():
                yield from self._owner.release(message.channel)
            case messages.PollingLimit():
                yield from self._owner.on_polling_limit(message, fleet_s)
            case messages.SiteScales():
                outdated = self.plans.on_site_scales(sender, message, now_s, fleet_s)
                yield from self._owner.update_schedules(fleet_s, outdated)
            case _:
                yield from self.plans.on_message(sender, message, now_s)

    def _on_ring_changed(self, view: RingView, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Adopt ``view`` (the new list of member nodes), and request the channels that now belong to this node.

        Ownership is at first requested only for channels that this node already polls. To learn which other channels it
        owns, this node requests a list from the store: at once if it has just joined, otherwise at its next tick.
        """
        # The registry walk waits, because a change of the ring already causes enough work. The delay matters little:
        # few of the channels that only the walk finds are being polled.
        self.plans.on_ring_changed(view, now_s)
        yield from self._owner.on_ring_changed(view, fleet_s)
        affected = self._member.find_affected(view)
        for instruction in affected:
            yield from self._owner.ensure_owned(instruction.channel, now_s, instruction.subscribers)
        yield from self._member.on_ring_changed(view, affected)
        if self._maintained_s is None:
            yield ListOwnedChannels(now_s)
        else:
            self._registry_walk_due = True

    def _on_tick(self, now_s: float, fleet_s: float) -> Iterator[Effect]:
        least_s = self._policy.maintenance_interval_s * (1 - TICK_TOLERANCE)
        due = self._maintained_s is None or now_s - self._maintained_s >= least_s
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
