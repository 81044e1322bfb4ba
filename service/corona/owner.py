"""A node as the owner of channels: names their polling sets and versions what members find.

Who owns a channel follows from the ring's version alone, so assignments carry that version and
members trust the newest. What must not go wrong with an outdated view, writing versions, is
fenced by the channel's epoch in the store.

A channel is *adopting* until its epoch and version are known, then *idle*, or *publishing* while
a candidate is at the store. A refusal, or a candidate newer than we are, sends it back to adopting.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from service.corona.events import Adopt, Adopted, ChannelsListed, Disown, Effect, Publish, Send
from service.corona.messages import Assign, Assignment, Candidate, Rejected, Unassign, Versioned
from service.corona.policy import Policy
from service.corona.schedule import effective_interval_s
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView

ASSIGNMENTS_PER_MESSAGE = 256

ADOPTING = 0
"""The epoch of a channel whose state is not known yet; real ones start at 1."""


@dataclass(slots=True)
class _Owned:
    members: tuple[NodeId, ...]
    wanted_s: float
    """When we last heard that somebody wants it."""
    asked_s: float
    """When the last question to the store was asked."""
    epoch: int = ADOPTING
    version: int = 0
    private: bool = False
    candidate: tuple[NodeId, Candidate] | None = None
    """The candidate to decide once adopted, or at the store, and who found it."""


class Owner:
    """The owning half of a node's protocol."""

    def __init__(self, me: NodeId, policy: Policy) -> None:
        self._me = me
        self._policy = policy
        self._view = RingView(0, ())
        self._owned: dict[ChannelId, _Owned] = {}

    def ring_changed(self, view: RingView) -> Iterator[Effect]:
        """Disown what is nearer to others now, and assign the rest anew at once."""
        self._view = view
        for channel in [channel for channel in self._owned if view.owner(channel) != self._me]:
            del self._owned[channel]
            yield Disown(channel)
        for channel, owned in self._owned.items():
            owned.members = self._polling_set(channel)
        yield from self._assign(self._owned)

    def listed(self, event: ChannelsListed, now_s: float) -> Iterator[Effect]:
        """Own what is wanted, and drop what was not wanted any more when the walk began."""
        wanted = dict.fromkeys(entry.channel for entry in event.channels if entry.subscribers or entry.listed)
        unwanted = [
            channel
            for channel, owned in self._owned.items()
            if channel not in wanted and owned.wanted_s < event.asked_s
        ]
        for channel in unwanted:
            yield from self.drop(channel)
        for channel in wanted:
            yield from self.want(channel, now_s)

    def want(self, channel: ChannelId, now_s: float) -> Iterator[Effect]:
        """Adopt the channel if it is ours and new to us."""
        owned = self._owned.get(channel)
        if owned is not None:
            owned.wanted_s = now_s
        elif self._view.owner(channel) == self._me:
            self._owned[channel] = _Owned(self._polling_set(channel), wanted_s=now_s, asked_s=now_s)
            yield Adopt(channel)

    def drop(self, channel: ChannelId) -> Iterator[Effect]:
        """Dismiss the polling set of a channel that nobody wants."""
        owned = self._owned.pop(channel, None)
        if owned is not None:
            for member in owned.members:
                yield Send(member, Unassign(self._view.version, channel))
            yield Disown(channel)

    def adopted(self, event: Adopted, now_s: float) -> Iterator[Effect]:
        """Take over: tell the polling set, and decide the candidate that waited."""
        owned = self._owned.get(event.channel)
        if owned is None or event.epoch <= owned.epoch:
            return
        owned.epoch, owned.version, owned.private = event.epoch, event.version, event.private
        yield from self._assign([event.channel])
        waiting, owned.candidate = owned.candidate, None
        if waiting is not None:
            yield from self._decide(owned, *waiting, now_s)

    def offered(self, finder: NodeId, candidate: Candidate, now_s: float) -> Iterator[Effect]:
        """Version a candidate, one at a time per channel.

        While one is at the store, others are left to their finders: they learn the new version
        with the rest of the set, or ask again.
        """
        if candidate.channel not in self._owned:
            yield from self.want(candidate.channel, now_s)
        owned = self._owned.get(candidate.channel)
        if owned is None:
            return
        if owned.epoch == ADOPTING:
            owned.candidate = finder, candidate
        elif candidate.base_version > owned.version:
            owned.candidate = finder, candidate
            yield self._adopt_again(candidate.channel, owned, now_s)
        elif owned.candidate is None or candidate.base_version < owned.version:
            yield from self._decide(owned, finder, candidate, now_s)

    def published(self, channel: ChannelId, version: int) -> Iterator[Effect]:
        """Tell the polling set."""
        owned = self._owned.get(channel)
        if owned is not None:
            owned.version = max(owned.version, version)
            owned.candidate = None
            for member in owned.members:
                yield Send(member, Versioned(channel, owned.version))

    def refused(self, channel: ChannelId, now_s: float) -> Iterator[Effect]:
        """Load the channel again: another node, or our own unanswered attempt, was faster."""
        owned = self._owned.get(channel)
        if owned is not None and owned.epoch != ADOPTING:
            yield self._adopt_again(channel, owned, now_s)

    def maintain(self, now_s: float) -> Iterator[Effect]:
        """Repeat all assignments, and the questions that the store left unanswered."""
        for channel, owned in self._owned.items():
            waiting = owned.epoch == ADOPTING or owned.candidate is not None
            if waiting and now_s - owned.asked_s >= self._policy.maintenance_interval_s:
                yield self._adopt_again(channel, owned, now_s)
        yield from self._assign(self._owned)

    def _decide(self, owned: _Owned, finder: NodeId, candidate: Candidate, now_s: float) -> Iterator[Effect]:
        if candidate.base_version == owned.version:
            owned.candidate = finder, candidate
            owned.asked_s = now_s
            yield Publish(candidate, owned.epoch)
        else:
            yield Send(finder, Rejected(candidate.channel, candidate.base_version, owned.version))

    def _adopt_again(self, channel: ChannelId, owned: _Owned, now_s: float) -> Adopt:
        owned.epoch = ADOPTING
        owned.asked_s = now_s
        return Adopt(channel)

    def _polling_set(self, channel: ChannelId) -> tuple[NodeId, ...]:
        return self._view.nearest(channel, self._policy.pollers_per_channel)

    def _assign(self, channels: Iterable[ChannelId]) -> Iterator[Effect]:
        by_member: dict[NodeId, list[Assignment]] = {}
        for channel in channels:
            owned = self._owned[channel]
            if owned.epoch == ADOPTING:
                continue
            size = len(owned.members)
            interval_s = effective_interval_s(
                self._policy.poll_interval_s, size, self._policy.max_polls_per_hour, private=owned.private
            )
            for rank, member in enumerate(owned.members):
                assignment = Assignment(channel, rank, size, interval_s, owned.version)
                by_member.setdefault(member, []).append(assignment)
        for member, assignments in by_member.items():
            for start in range(0, len(assignments), ASSIGNMENTS_PER_MESSAGE):
                batch = tuple(assignments[start : start + ASSIGNMENTS_PER_MESSAGE])
                yield Send(member, Assign(self._view.version, batch))
