"""A node as the owner of channels: names their polling sets and versions what members find.

Who owns a channel follows from the ring's version alone, so assignments carry that version and
members trust the newest. What must not go wrong with an outdated view, writing versions, is
fenced by the channel's epoch in the store.

A channel is *adopting* until its epoch and version are known, then *idle*, or *publishing* while
a candidate is at the store. A refusal, or a candidate newer than we are, sends it back to adopting.
How many poll it, and when, is :class:`~service.corona.polling_plans.PollingPlans`'s to decide.
"""

from collections.abc import Iterable, Iterator
from math import inf

import msgspec

from service.corona.events import ChannelsListed, Effect, OwnershipTaken, Publish, ReleaseOwnership, Send, TakeOwnership
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import Assign, Assignment, Candidate, Rejection, Unassign, VersionAnnouncement, VersionBase
from service.corona.poll_explanation import PollExplanation
from service.corona.polling_plans import PollingPlans
from service.corona.polling_schedule import PollingSchedule
from service.corona.update_rates import UpdateHistory
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView

_SCHEDULE_BATCH = 1_000
"""What is worked out for all channels is never in memory at once."""

UNKNOWN_EPOCH = 0
"""The epoch of a channel whose state is not known yet; real ones start at 1."""


class _OwnedChannel(msgspec.Struct, gc=False):
    wanted_s: float
    """When we last heard that somebody wants it."""
    asked_s: float
    """When the last question to the store was asked."""
    subscribers: int
    members: tuple[NodeId, ...] = ()
    placed_in: int = 0
    """The version of the ring by which the members were found."""
    epoch: int = UNKNOWN_EPOCH
    version: int = 0
    candidate: tuple[NodeId, Candidate] | None = None
    """The candidate to decide once adopted, or at the store, and who found it."""
    updates: UpdateHistory | None = None
    """What is known of the channel's updates if the store takes the candidate."""

    def base_of(self, version: int, digest: bytes) -> VersionBase | None:
        """Return what a version leaves, if it is our candidate's and changes nothing else of the channel."""
        if self.candidate is None or version != self.version:
            return None
        _, candidate = self.candidate
        delta = candidate.delta
        if delta.initial or delta.notice or delta.base_version + 1 != version:
            return None
        return VersionBase(candidate.validators, delta.detected_s, self.subscribers, digest)


class Owner:
    """The owning half of a node's protocol."""

    def __init__(self, me: NodeId, policy: FleetPolicy, pacing: PollingPlans) -> None:
        self._me = me
        self._policy = policy
        self._view = RingView(0, ())
        self._pacing = pacing
        self._owned: dict[ChannelId, _OwnedChannel] = {}
        self._adopted: list[ChannelId] = []
        """Channels that are adopted now, whose members are to be told."""
        self._unwanted: set[ChannelId] = set()
        """What the last walk found that nobody wants: what a forgotten member finds there does not revive it."""
        self._walk: tuple[float, set[ChannelId]] = -inf, set()
        """When the walk under way was asked for, and what it has found that nobody wants."""

    def ring_changed(self, view: RingView, fleet_s: float) -> Iterator[Effect]:
        """Disown what is nearer to others now; of the rest, tell whoever has another place at once."""
        self._view = view
        for channel in [channel for channel in self._owned if not view.has_among(channel, self._me, 1)]:
            del self._owned[channel]
            self._pacing.drop(channel)
            yield ReleaseOwnership(channel)
        yield from self._settle(self._owned, fleet_s)

    def listed(self, event: ChannelsListed, now_s: float) -> Iterator[Effect]:
        """Own what is wanted; after the last part drop what was not wanted any more when the walk began."""
        if event.asked_s not in (self._walk[0], -inf):
            self._walk = event.asked_s, set()
        for entry in event.channels:
            if entry.subscribers or entry.listed:
                self._pacing.subscribed(entry.channel, entry.subscribers)
                if owned := self._owned.get(entry.channel):
                    owned.subscribers = entry.subscribers
                yield from self.want(entry.channel, now_s, entry.subscribers)
            else:
                self._walk[1].add(entry.channel)
        if event.complete and event.asked_s > -inf:
            self._unwanted = self._walk[1]
            unwanted = [channel for channel, owned in self._owned.items() if owned.wanted_s < event.asked_s]
            for channel in unwanted:
                yield from self.drop(channel)

    def want(self, channel: ChannelId, now_s: float, subscribers: int = 1) -> Iterator[Effect]:
        """Adopt the channel if it is ours and new to us."""
        owned = self._owned.get(channel)
        if owned is not None:
            owned.wanted_s = now_s
        elif self._view.has_among(channel, self._me, 1):
            self._owned[channel] = _OwnedChannel(wanted_s=now_s, asked_s=now_s, subscribers=subscribers)
            yield TakeOwnership(channel)

    def drop(self, channel: ChannelId) -> Iterator[Effect]:
        """Dismiss the polling set of a channel that nobody wants."""
        owned = self._owned.pop(channel, None)
        if owned is not None:
            self._pacing.drop(channel)
            for member in owned.members:
                yield Send(member, Unassign(self._view.version, channel))
            yield ReleaseOwnership(channel)

    def adopted(
        self, event: OwnershipTaken, known: PollingSchedule | None, now_s: float, fleet_s: float
    ) -> Iterator[Effect]:
        """Take over, and decide the candidate that waited; the polling set is told by :meth:`tell_adopted`.

        ``known`` is the rota by which this node polls the channel for its former owner, if it does.
        """
        owned = self._owned.get(event.channel)
        if owned is None or event.epoch <= owned.epoch:
            return
        owned.epoch, owned.version = event.epoch, event.version
        self._pacing.adopt(
            event.channel, owned.subscribers, event.updates, known, private=event.private, site=event.site
        )
        self._adopted.append(event.channel)
        waiting, owned.candidate = owned.candidate, None
        if waiting is not None:
            yield from self._decide(owned, *waiting, now_s, fleet_s)

    def tell_adopted(self, fleet_s: float) -> Iterator[Effect]:
        """Tell the polling sets of what was adopted, all together: a node may adopt thousands in a second."""
        adopted, self._adopted = self._adopted, []
        yield from self._settle([channel for channel in adopted if channel in self._owned], fleet_s, repeated=True)

    def offered(self, finder: NodeId, candidate: Candidate, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Version a candidate, one at a time per channel.

        While one is at the store, others are left to their finders: they learn the new version
        with the rest of the set, or ask again.
        """
        if candidate.channel not in self._owned and candidate.channel not in self._unwanted:
            yield from self.want(candidate.channel, now_s)
        owned = self._owned.get(candidate.channel)
        if owned is None:
            return
        if owned.epoch == UNKNOWN_EPOCH:
            owned.candidate = finder, candidate
        elif candidate.base_version > owned.version:
            owned.candidate = finder, candidate
            yield self._adopt_again(candidate.channel, owned, now_s)
        elif owned.candidate is None or candidate.base_version < owned.version:
            yield from self._decide(owned, finder, candidate, now_s, fleet_s)

    def published(self, channel: ChannelId, version: int, digest: bytes) -> Iterator[Effect]:
        """Tell the polling set."""
        owned = self._owned.get(channel)
        if owned is not None:
            owned.version = max(owned.version, version)
            told = VersionAnnouncement(channel, owned.version, owned.base_of(version, digest))
            owned.candidate = None
            if owned.updates is not None:
                self._pacing.learn(channel, owned.updates)
                owned.updates = None
            for member in owned.members:
                yield Send(member, told)

    def refused(self, channel: ChannelId, now_s: float) -> Iterator[Effect]:
        """Load the channel again: another node, or our own unanswered attempt, was faster."""
        owned = self._owned.get(channel)
        if owned is not None and owned.epoch != UNKNOWN_EPOCH:
            yield self._adopt_again(channel, owned, now_s)

    def maintain(self, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Repeat the questions that the store left unanswered, and all assignments."""
        for channel, owned in self._owned.items():
            waiting = owned.epoch == UNKNOWN_EPOCH or owned.candidate is not None
            if waiting and now_s - owned.asked_s >= self._policy.maintenance_interval_s:
                yield self._adopt_again(channel, owned, now_s)
        yield from self._settle(self._owned, fleet_s, repeated=True)

    def decide(self, fleet_s: float, channels: Iterable[ChannelId] | None = None) -> Iterator[Effect]:
        """Bring polling sets in line with the rates that channels (all, if none are named) have now.

        Only those that changed are told, the others by :meth:`maintain`: c moves several times after a node has died,
        and most sets stay.
        """
        yield from self._settle(self._owned if channels is None else channels, fleet_s)

    def why(self, channel: ChannelId, fleet_s: float) -> PollExplanation | None:
        """Return why the channel is polled as it is; see :meth:`PollingPlans.why`."""
        owned = self._owned.get(channel)
        return self._pacing.why(channel, owned.members, fleet_s) if owned else None

    def _decide(
        self, owned: _OwnedChannel, finder: NodeId, candidate: Candidate, now_s: float, fleet_s: float
    ) -> Iterator[Effect]:
        if candidate.base_version == owned.version:
            owned.candidate = finder, candidate
            owned.updates = self._pacing.learnt(candidate.delta, fleet_s)
            owned.asked_s = now_s
            yield Publish(candidate, owned.epoch, owned.updates)
        else:
            yield Send(finder, Rejection(candidate.channel, candidate.base_version, owned.version))

    def _adopt_again(self, channel: ChannelId, owned: _OwnedChannel, now_s: float) -> TakeOwnership:
        owned.epoch = UNKNOWN_EPOCH
        owned.asked_s = now_s
        return TakeOwnership(channel)

    def _settle(self, channels: Iterable[ChannelId], fleet_s: float, *, repeated: bool = False) -> Iterator[Effect]:
        """Bring rotas and polling sets in line with c and the ring, and tell members whose place or rota has changed.

        Those of our channels that are not adopted yet are settled when they are. ``repeated``: all members are told.
        """
        adopted = [channel for channel in channels if self._owned[channel].epoch != UNKNOWN_EPOCH]
        for start in range(0, len(adopted), _SCHEDULE_BATCH):
            some = adopted[start : start + _SCHEDULE_BATCH]
            by_member: dict[NodeId, list[Assignment]] = {}
            for channel, (former_rota, rota) in zip(some, self._pacing.decide(some, fleet_s), strict=True):
                owned = self._owned[channel]
                former = owned.members
                if owned.placed_in != self._view.version or rota.size != len(former):
                    owned.members = self._view.nearest(channel, rota.size)
                    owned.placed_in = self._view.version
                if rota.size != len(former):
                    for member in former:
                        if member in self._view and member not in owned.members:
                            yield Send(member, Unassign(self._view.version, channel))
                for rank, member in enumerate(owned.members):
                    if repeated or rota is not former_rota or former[rank : rank + 1] != (member,):
                        assignment = Assignment(channel, rank, rota, owned.version, owned.subscribers)
                        by_member.setdefault(member, []).append(assignment)
            for member, assignments in by_member.items():
                yield Send(member, Assign(self._view.version, tuple(assignments)))
