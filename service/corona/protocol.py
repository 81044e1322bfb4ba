"""One node's side of the fleet's conversation, without I/O: events in, effects out (Corona §3.3).

Both halves of a node, :class:`~service.corona.owner.Owner` and
:class:`~service.corona.member.Member`, speak to each other in the messages they send to other
nodes; what a node sends to itself is delivered here and never reaches the shell.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from service.corona.events import (
    CandidateFound,
    ChannelsListed,
    Effect,
    Event,
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
    Candidate,
    ChannelAdded,
    ChannelRemoved,
    Rejection,
    SiteScales,
    SiteShares,
    Summary,
    Unassign,
    VersionAnnouncement,
)
from service.corona.owner import Owner
from service.corona.poll_explanation import PollExplanation
from service.corona.polling_plans import PollingPlans
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView


class NodeProtocol:
    """What one life of one node does in answer to what happens.

    A node that has lost its lease is dead, and its id may be another's by now: its shell stops its
    polls and joins again with a new id and a new protocol.
    """

    def __init__(self, me: NodeId, policy: FleetPolicy) -> None:
        self._me = me
        self._policy = policy
        self.pacing = PollingPlans(me, policy)
        """How often our own channels are polled; only events change it, but for :meth:`PollingPlans.noted`."""
        self._owner = Owner(me, policy, self.pacing)
        self._member = Member(me, policy)
        self._maintained_s: float | None = None
        self._unlisted = False
        """Whether the ring has changed since we asked for a walk of the registry."""

    def handle(self, events: Iterable[Event], now_s: float, fleet_s: float) -> list[Effect]:
        """Return what the shell has to do, in this order.

        ``now_s`` is any clock that never goes back, ``fleet_s`` the one that all nodes read, by which polls are
        due. Unknown, repeated and outdated events are answered with little or nothing; none raises.
        """
        effects: list[Effect] = []
        waiting = deque(events)
        while waiting:
            reaction = [*self._react(waiting.popleft(), now_s, fleet_s)]
            if not waiting:
                reaction += self._owner.tell_adopted(fleet_s)
            for effect in reaction:
                if isinstance(effect, Send) and effect.node == self._me:
                    waiting.append(MessageReceived(self._me, effect.message))
                else:
                    effects.append(effect)
        return effects

    def why(self, channel: ChannelId, fleet_s: float) -> PollExplanation | None:
        """Return why a channel of ours is polled as it is; None if it is not ours, or nothing is decided yet."""
        return self._owner.why(channel, fleet_s)

    def _react(self, event: Event, now_s: float, fleet_s: float) -> Iterator[Effect]:
        match event:
            case Tick():
                yield from self._tick(now_s, fleet_s)
            case MessageReceived():
                yield from self._receive(event, now_s, fleet_s)
            case RingChanged():
                yield from self._ring_changed(event.view, now_s, fleet_s)
            case ChannelsListed():
                yield from self._owner.listed(event, now_s)
            case OwnershipTaken():
                place = self._member.place(event.channel)
                yield from self._owner.adopted(event, place.rota if place else None, now_s, fleet_s)
            case CandidateFound():
                yield from self._member.found(event.candidate)
            case VersionPublished():
                yield from self._owner.published(event.channel, event.version, event.digest)
            case PublishRefused():
                yield from self._owner.refused(event.channel, now_s)
            case ObjectiveLoaded():
                yield from self._owner.decide(fleet_s, self.pacing.aim(event.aims, event.site_rates, event.bounds))

    def _receive(self, event: MessageReceived, now_s: float, fleet_s: float) -> Iterator[Effect]:
        match event.message:
            case Assign() as message:
                yield from self._member.assigned(message, now_s)
            case Unassign() as message:
                yield from self._member.unassigned(message)
            case Candidate() as candidate:
                yield from self._owner.offered(event.sender, candidate, now_s, fleet_s)
            case VersionAnnouncement() as message:
                yield from self._member.versioned(message)
            case Rejection() as message:
                yield from self._member.rejected(message)
            case ChannelAdded(channel=channel):
                yield from self._owner.want(channel, now_s)
            case ChannelRemoved(channel=channel):
                yield from self._owner.drop(channel)
            case Summary() | SiteShares() | SiteScales() as message:
                self.pacing.heard(event.sender, message, now_s)

    def _ring_changed(self, view: RingView, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Take over at once what a dead owner had us poll; the registry walk finds the rest.

        That can wait for the next tick where there is much else to do: those are channels that hardly anybody polls.
        """
        self.pacing.ring_changed(view, now_s)
        yield from self._owner.ring_changed(view, fleet_s)
        for place in self._member.places:
            yield from self._owner.want(place.channel, now_s, place.subscribers)
        yield from self._member.ring_changed(view)
        if self._maintained_s is None:
            yield ListOwnedChannels(now_s)
        else:
            self._unlisted = True

    def _tick(self, now_s: float, fleet_s: float) -> Iterator[Effect]:
        due = self._maintained_s is None or now_s - self._maintained_s >= self._policy.maintenance_interval_s
        yield from self._member.expire(now_s)
        yield from self.pacing.tell(now_s, fleet_s, anew=due)
        moved = self.pacing.solve(now_s)
        if due:
            self._maintained_s = now_s
            yield from self._owner.maintain(now_s, fleet_s)
            yield from self._member.offer_all()
            yield LoadObjective()
        elif moved:
            yield from self._owner.decide(fleet_s)
        if due or self._unlisted:
            self._unlisted = False
            yield ListOwnedChannels(now_s)
