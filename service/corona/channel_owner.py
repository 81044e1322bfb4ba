"""A node as the *owner* of channels: it assigns their polls to nodes, and stores the changes that these nodes find.

The owner of a channel is the node whose id is nearest to the channel's id. The nodes that poll the channel, its
*polling set*, send the owner their *candidates*: the changes that a poll has found. The owner stores a candidate as the
channel's next *version*. :class:`~service.corona.polling_plans.PollingPlans` computes the schedules.

The members of the ring determine which node owns a channel. Two nodes with different views of the ring may therefore
both consider themselves the owner. Two rules prevent conflicts between them:

- Each assignment states the version of the ring, and nodes follow the assignments of the newest ring.
- A node with an outdated ring must not store versions. Each change of ownership gets a sequence number in the store,
  the *epoch*, and the store refuses writes with an earlier epoch (docs/guarantees.md).

States of a channel:

- *unknown*: the store has not answered :class:`~service.corona.events.TakeOwnership` yet, so epoch and version are
  unknown. A channel returns to this state if the store refuses a candidate, or if a candidate was compared with a newer
  version than the owner knows.
- *idle*: epoch and version are known.
- *publishing*: a candidate is being stored.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import inf

import msgspec

from service.corona import events
from service.corona.assignment_digests import (
    AssignmentDigests,
    bucket_of,
    decode_digests,
    fingerprint,
    version_fingerprint,
)
from service.corona.events import Effect, ListedChannel, Publish, ReleaseOwnership, Send, TakeOwnership
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import (
    Assign,
    Assignment,
    AssignmentDigest,
    BucketDigests,
    Candidate,
    PollingLimit,
    Rejection,
    Unassign,
    VersionAnnouncement,
    VersionBase,
)
from service.corona.optimizer.poll_explanation import PollExplanation
from service.corona.polling_plans import PollingPlans
from service.corona.polling_schedule import PollingSchedule
from service.corona.update_rates import UpdateHistory
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView

_SCHEDULE_BATCH = 1_000
"""Number of channels whose schedules are computed together; it bounds the memory needed and the size of messages."""

_SHARED_POLLING_SETS = 1_000

UNKNOWN_EPOCH = 0
"""The epoch of a channel whose state has not been loaded yet. The epochs of loaded channels start at 1."""


class _OwnedChannel(msgspec.Struct, gc=False):
    last_wanted_s: float
    """Monotonic time at which the store or a polling node last showed that the channel is to be polled."""
    requested_s: float
    """Monotonic time in seconds at which the last request to the store was issued."""
    subscribers: int
    members: tuple[NodeId, ...] = ()
    are_members_current: bool = False
    """Whether ``members`` are still the nodes that are to poll the channel, even if the ring has changed."""
    fingerprints: tuple[int, ...] = ()
    """The fingerprints of the last assignments that were sent to ``members``, with the channel's present version."""
    epoch: int = UNKNOWN_EPOCH
    version: int = 0
    candidate: tuple[NodeId, Candidate] | None = None
    """A pair: the member that sent the candidate, and the candidate.

    The candidate is being stored, or waits until the epoch is known. None if there is no candidate.
    """
    updates: UpdateHistory | None = None
    """The channel's update history including the candidate that is being stored; adopted once it is stored."""

    @property
    def is_waiting(self) -> bool:
        """Whether this node is waiting for the store's answer to a request about the channel."""
        return self.epoch == UNKNOWN_EPOCH or self.candidate is not None

    def base_of(self, version: int, digest: bytes) -> VersionBase | None:
        """Return what nodes must know about ``version`` for their next poll; None if they have to load it themselves.

        In its next poll, a node compares the channel's content with this version. ``digest`` is the hash of the
        version's content. The result is None, and the nodes have to load the version from the store, if:

        - this node did not store the version,
        - the version is the channel's first one,
        - the version is a notice (a message about the channel), or
        - the changes in the version are relative to a version other than the one immediately before it.
        """
        if self.candidate is None or version != self.version:
            return None
        _, candidate = self.candidate
        delta = candidate.delta
        if delta.initial or delta.notice or delta.base_version + 1 != version:
            return None
        return VersionBase(candidate.validators, delta.detected_s, self.subscribers, digest)


class OwnerProtocol:
    """The half of a node's protocol that deals with the channels that the node *owns*.

    The owner of a channel is the node whose id is nearest to the channel's id. It assigns the channel's polls to
    nodes, and stores the changes that these nodes find. In all methods, ``now_s`` is monotonic time and ``fleet_s``
    is Unix time by the store's clock, both in seconds.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy, plans: PollingPlans) -> None:
        self._node_id = node_id
        self._policy = policy
        self._view = RingView(0, ())
        self._plans = plans
        self._channels: dict[ChannelId, _OwnedChannel] = {}
        self._digests: dict[NodeId, AssignmentDigests] = {}
        """For each polling node, the digests of the polls that this node has assigned to it."""
        self._outdated: set[ChannelId] = set()
        """Channels that need new assignments, because their state, subscribers or limits have changed."""
        self._waiting: set[ChannelId] = set()
        """Channels with a request to the store that may not have been answered yet."""
        self._acquired: list[ChannelId] = []
        """Channels whose ownership was taken in this call and whose members are yet to be assigned."""
        self._unwanted: set[ChannelId] = set()
        """Channels that were unwanted in the last complete list from the store; candidates for them are ignored."""
        self._registry_walk: tuple[float, set[ChannelId]] = -inf, set()
        """The list of channels that is being received: when it was requested, and its unwanted channels so far."""
        self._to_list: int | None = 0
        """The number of channels in the first list from the store; 0 while unknown, None once the list is complete."""

    def on_ring_changed(self, view: RingView, fleet_s: float) -> Iterator[Effect]:
        """Adopt ``view`` as the ring: release the channels that other nodes own now, and update the assigned polls.

        For the channels that this node still owns, it determines again which nodes poll them. A node is sent an
        assignment only if the assignment has changed. For example, the node may have another place in the order of
        the channel's polls.
        """
        change, self._view = view.change_since(self._view), view
        concerned = list[ChannelId]()
        for channel, owned in self._channels.items():
            if change.concerns(channel, max(1, len(owned.members))):
                concerned.append(channel)
                owned.are_members_current = False
        for channel in [each for each in concerned if not view.is_among_nearest(each, self._node_id, 1)]:
            self._remove(channel)
            yield ReleaseOwnership(channel)
        yield from self._update_assignments([each for each in concerned if each in self._channels], fleet_s)

    def on_channels_listed(self, event: events.ChannelsListed, now_s: float) -> Iterator[Effect]:
        """Process one batch of the list of channels that this node requested from the store.

        This node takes ownership of the *wanted* channels in the batch. A channel is wanted if it has subscribers or
        an admin has listed it. After the last batch, this node releases its unwanted channels: those for which no
        batch, other event or message since ``event.requested_s`` has shown that they are wanted.
        ``event.requested_s`` is the monotonic time at which the list was requested.
        """
        if event.requested_s != self._registry_walk[0]:
            self._registry_walk = event.requested_s, set()
        if self._to_list is not None:
            self._to_list = event.total
        for entry in event.channels:
            if entry.is_wanted:
                yield from self._on_wanted(entry, now_s)
            else:
                self._registry_walk[1].add(entry.channel)
        if event.complete:
            self._to_list, self._unwanted = None, self._registry_walk[1]
            unwanted = [channel for channel, owned in self._channels.items() if owned.last_wanted_s < event.requested_s]
            for channel in unwanted:
                yield from self.release(channel)

    def on_channels_changed(self, event: events.ChannelsChanged, now_s: float) -> Iterator[Effect]:
        """Take ownership of the wanted channels in the event, and release the unwanted ones.

        A channel is *wanted* if it has subscribers or an admin has listed it. An unwanted channel is kept if another
        event or message has shown after ``event.requested_s`` that it is wanted. ``event.requested_s`` is the
        monotonic time just before the event's data were read from the store.
        """
        for entry in event.channels:
            if entry.is_wanted:
                self._unwanted.discard(entry.channel)
                yield from self._on_wanted(entry, now_s)
            else:
                self._unwanted.add(entry.channel)
                owned = self._channels.get(entry.channel)
                if owned is not None and owned.last_wanted_s < event.requested_s:
                    yield from self.release(entry.channel)

    def count_channels(self) -> int | None:
        """Return the number of channels that this node owns or is about to own.

        The result is None until this node has read the complete list of channels in the store once.
        """
        return len(self._channels) if self._to_list is None else None

    def _on_wanted(self, entry: ListedChannel, now_s: float) -> Iterator[Effect]:
        self._plans.set_subscribers(entry.channel, entry.subscribers)
        owned = self._channels.get(entry.channel)
        if owned is not None and owned.subscribers != entry.subscribers:
            owned.subscribers = entry.subscribers
            self._outdated.add(entry.channel)
        yield from self.ensure_owned(entry.channel, now_s, entry.subscribers)

    def ensure_owned(self, channel: ChannelId, now_s: float, subscribers: int = 1) -> Iterator[Effect]:
        """Request the ownership of ``channel`` from the store if this node's id is the nearest to the channel's id.

        If this node already owns the channel or has requested the ownership, it only records ``now_s`` as the time at
        which the channel was last wanted. ``subscribers`` is the channel's number of subscribers.
        """
        owned = self._channels.get(channel)
        if owned is not None:
            owned.last_wanted_s = now_s
        elif self._view.is_among_nearest(channel, self._node_id, 1):
            self._channels[channel] = _OwnedChannel(last_wanted_s=now_s, requested_s=now_s, subscribers=subscribers)
            self._waiting.add(channel)
            yield TakeOwnership(channel)

    def release(self, channel: ChannelId) -> Iterator[Effect]:
        """Release the ownership of an unwanted channel, and tell its polling nodes to stop polling it."""
        owned = self._remove(channel)
        if owned is not None:
            for member in owned.members:
                yield Send(member, Unassign(self._view.version, channel))
            yield ReleaseOwnership(channel)

    def on_ownership_taken(
        self, event: events.OwnershipTaken, previous_schedule: PollingSchedule | None, now_s: float, fleet_s: float
    ) -> Iterator[Effect]:
        """Adopt the channel's state that the store has sent, and process the changes that were waiting for it.

        These are changes that a polling node sent before this node knew the channel's current version.
        ``previous_schedule`` is the schedule by which this node polled the channel for its previous owner; None if
        this node did not poll it. The polls are assigned later, by :meth:`assign_acquired`.
        """
        owned = self._channels.get(event.channel)
        if owned is None or event.epoch <= owned.epoch:
            return
        owned.epoch = event.epoch
        self._set_version(event.channel, owned, event.version)
        self._plans.add_channel(event, owned.subscribers, previous_schedule)
        self._acquired.append(event.channel)
        waiting, owned.candidate = owned.candidate, None
        if waiting is not None:
            yield from self._publish_or_reject(owned, *waiting, now_s, fleet_s)

    def assign_acquired(self, fleet_s: float) -> Iterator[Effect]:
        """Assign the polls of all channels that this node has acquired since the last call of this method.

        A channel is acquired when the store confirms that this node is its owner. ``fleet_s`` is Unix time by the
        store's clock.
        """
        # In one batch, because a node may acquire thousands of channels in a second.
        adopted, self._acquired = [channel for channel in self._acquired if channel in self._channels], []
        self._outdated.update(adopted)
        yield from self._update_assignments(adopted, fleet_s)

    def on_candidate(self, member: NodeId, candidate: Candidate, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Store the changes that the node ``member`` has found as the channel's next version, or reject them.

        ``candidate`` contains the changes, and states the version of the channel with which ``member`` has compared the
        fetched content.

        - If that version is outdated, the changes are rejected: ``member`` receives a message that says so.
        - If other changes to the channel are being stored, these changes are ignored. ``member`` then receives the new
          version, or sends its changes again.
        - If the channel's current version has to be loaded from the store first, the changes are kept until then.
        """
        if candidate.channel not in self._channels and candidate.channel not in self._unwanted:
            yield from self.ensure_owned(candidate.channel, now_s)
        owned = self._channels.get(candidate.channel)
        if owned is None:
            return
        if owned.epoch == UNKNOWN_EPOCH:
            owned.candidate = member, candidate
        elif candidate.base_version > owned.version:
            owned.candidate = member, candidate
            yield self._take_ownership_again(candidate.channel, owned, now_s)
        elif owned.candidate is None or candidate.base_version < owned.version:
            yield from self._publish_or_reject(owned, member, candidate, now_s, fleet_s)

    def on_version_published(self, event: events.VersionPublished) -> Iterator[Effect]:
        """Adopt the version that the store has accepted, and announce it to the nodes that poll the channel."""
        channel, owned = event.channel, self._channels.get(event.channel)
        if owned is not None:
            self._set_version(channel, owned, max(owned.version, event.version))
            announcement = VersionAnnouncement(channel, owned.version, owned.base_of(event.version, event.digest))
            owned.candidate = None
            if owned.updates is not None:
                self._plans.set_history(channel, owned.updates)
                owned.updates = None
            for member in owned.members:
                yield Send(member, announcement)

    def on_polling_limit(self, limit: PollingLimit, fleet_s: float) -> Iterator[Effect]:
        """Adopt ``limit``, which a polling node has reported, and update the schedule of the limited channel at once.

        The limit is ignored if this node does not own the channel.
        """
        if limit.channel in self._channels and self._plans.set_limit(limit):
            self._outdated.add(limit.channel)
            yield from self._update_assignments([limit.channel], fleet_s)

    def on_publish_refused(self, event: events.PublishRefused, now_s: float) -> Iterator[Effect]:
        """Reload a channel's state, because the store has refused changes that were based on an outdated state.

        The state was changed either by another node, or by an earlier attempt of this node whose answer was lost. A
        refusal is ignored if it refers to an earlier change of ownership (an earlier *epoch*).
        """
        # Taking ownership would begin a new epoch, and writes of the present epoch that are in progress would be
        # refused.
        owned = self._channels.get(event.channel)
        if owned is not None and owned.epoch != UNKNOWN_EPOCH and event.epoch in {0, owned.epoch}:
            yield self._take_ownership_again(event.channel, owned, now_s)

    def on_bucket_digests(self, member: NodeId, message: BucketDigests) -> Iterator[Effect]:
        """Send ``member`` its assignments again, in each group of channels where its hash differs from this node's.

        Channels are divided into groups by their ids. For each group, ``message`` contains the hash of the assignments
        that ``member`` has received from this node. The message is ignored if the two nodes have different versions of
        the ring (the list of member nodes), because their assignments then differ anyway.
        """
        held = decode_digests(message.digests)
        if held is None or message.ring_version != self._view.version or member not in self._view:
            return
        digests = self._digests.get(member, AssignmentDigests())
        differing = {bucket for bucket, own in enumerate(digests.by_bucket(len(held))) if own != held[bucket]}
        count = max(len(held), digests.suitable_buckets)
        buckets = [bucket for bucket in range(count) if bucket % len(held) in differing]
        by_bucket: dict[int, list[Assignment]] = {bucket: [] for bucket in buckets}
        for channel, owned in self._channels.items():
            if member in owned.members and (found := by_bucket.get(bucket_of(channel, count))) is not None:
                found.append(self._assignment(channel, owned, owned.members.index(member)))
        # About ``_SCHEDULE_BATCH`` assignments in each message.
        step = max(1, _SCHEDULE_BATCH * count // max(1, digests.count))
        for start in range(0, len(buckets), step):
            some = tuple(buckets[start : start + step])
            assignments = tuple(assignment for bucket in some for assignment in by_bucket[bucket])
            yield Send(member, Assign(self._view.version, assignments, count, some))

    def maintain(self, now_s: float, fleet_s: float) -> Iterator[Effect]:
        """Retry unanswered requests to the store, send assignments that have changed, and confirm all assignments.

        To confirm them, this node sends each polling node one hash of all the polls that it has assigned to that node.
        """
        for channel in list(self._waiting):
            owned = self._channels.get(channel)
            if owned is None or not owned.is_waiting:
                self._waiting.remove(channel)
            elif now_s - owned.requested_s >= self._policy.maintenance_interval_s:
                yield self._take_ownership_again(channel, owned, now_s)
        yield from self.update_schedules(fleet_s)
        # A set that once had all channels keeps its size when they are removed one by one.
        self._waiting, self._outdated = set(self._waiting), set(self._outdated)
        for member, digests in self._digests.items():
            if member in self._view:
                yield Send(member, AssignmentDigest(self._view.version, digests.total))

    def update_schedules(self, fleet_s: float, channels: Iterable[ChannelId] | None = None) -> Iterator[Effect]:
        """Recompute when channels are polled, and by which nodes, and send the assignments that have changed.

        ``channels`` are the channels to process; None means all channels whose schedules may be outdated.
        """
        # After a node has failed, the fleet's scale changes several times, while most polling sets stay the same.
        if channels is None:
            outdated = self._plans.outdated_channels(fleet_s) | self._outdated
            channels = sorted(channel for channel in outdated if channel in self._channels)
        yield from self._update_assignments(channels, fleet_s)

    def explain(self, channel: ChannelId, fleet_s: float) -> PollExplanation | None:
        """Explain how often a channel is polled at ``fleet_s`` (Unix time by the store's clock).

        The result is None if this node does not own the channel, or has not computed the fleet's polling rates yet.
        """
        owned = self._channels.get(channel)
        return self._plans.explain(channel, owned.members, fleet_s) if owned else None

    def _publish_or_reject(
        self, owned: _OwnedChannel, member: NodeId, candidate: Candidate, now_s: float, fleet_s: float
    ) -> Iterator[Effect]:
        if candidate.base_version == owned.version:
            owned.candidate = member, candidate
            owned.updates = self._plans.history_after(candidate.delta, fleet_s)
            owned.requested_s = now_s
            self._waiting.add(candidate.channel)
            yield Publish(candidate, owned.epoch, owned.updates)
        else:
            yield Send(member, Rejection(candidate.channel, candidate.base_version, owned.version))

    def _take_ownership_again(self, channel: ChannelId, owned: _OwnedChannel, now_s: float) -> TakeOwnership:
        owned.epoch = UNKNOWN_EPOCH
        owned.requested_s = now_s
        self._waiting.add(channel)
        return TakeOwnership(channel)

    def _update_assignments(self, channels: Iterable[ChannelId], fleet_s: float) -> Iterator[Effect]:
        """Recompute when ``channels`` are polled, and by which nodes, and send the assignments that have changed.

        Channels whose state the store has not sent yet are skipped.
        """
        adopted = [channel for channel in channels if self._channels[channel].epoch != UNKNOWN_EPOCH]
        # Counts channels that are yet to be acquired: the first ones would otherwise share the budget of all.
        count = max(len(self._channels), self._to_list or 0)
        for start in range(0, len(adopted), _SCHEDULE_BATCH):
            some = adopted[start : start + _SCHEDULE_BATCH]
            by_member: dict[NodeId, list[Assignment]] = {}
            for channel, (former_schedule, schedule) in zip(
                some, self._plans.update_schedules(some, fleet_s, count), strict=True
            ):
                owned = self._channels[channel]
                former, prints = owned.members, owned.fingerprints
                if not owned.are_members_current or schedule.size != len(former):
                    owned.members = _shared(self._view.nearest(channel, schedule.size))
                    owned.are_members_current = True
                is_changed = schedule is not former_schedule or channel in self._outdated
                if not is_changed and owned.members == former:
                    continue
                if schedule.size != len(former):
                    kept_s = former_schedule.next_channel_poll_s(fleet_s) if former_schedule else inf
                    handed_over_s = kept_s if kept_s < schedule.first_s else 0.0
                    unassign = Unassign(self._view.version, channel, handed_over_s)
                    leaving = [member for member in former if member in self._view and member not in owned.members]
                    yield from (Send(member, unassign) for member in leaving)
                found: list[int] = []
                for rank, member in enumerate(owned.members):
                    if is_changed or former[rank : rank + 1] != (member,):
                        assignment = self._assignment(channel, owned, rank)
                        by_member.setdefault(member, []).append(assignment)
                        found.append(fingerprint(assignment))
                    else:
                        found.append(prints[rank])
                self._set_fingerprints(channel, former, owned, tuple(found))
                self._outdated.discard(channel)
            for member, assignments in by_member.items():
                yield Send(member, Assign(self._view.version, tuple(assignments)))

    def _assignment(self, channel: ChannelId, owned: _OwnedChannel, rank: int) -> Assignment:
        """Return the instruction to poll ``channel`` for the node at index ``rank`` in the order of turns.

        ``owned`` is this node's record of the channel.
        """
        schedule, limits = self._plans.schedule_and_limits(channel)
        return Assignment(channel, rank, schedule, owned.version, owned.subscribers, limits)

    def _set_version(self, channel: ChannelId, owned: _OwnedChannel, version: int) -> None:
        """Set the version of the channel's content, and update the hashes of the channel's assignments accordingly.

        The polling nodes do the same when the version is announced, so the hashes on both sides remain equal.
        """
        if version != owned.version:
            change = version_fingerprint(channel, owned.version) ^ version_fingerprint(channel, version)
            owned.version = version
            self._set_fingerprints(channel, owned.members, owned, tuple(each ^ change for each in owned.fingerprints))

    def _set_fingerprints(
        self, channel: ChannelId, former: tuple[NodeId, ...], owned: _OwnedChannel, fingerprints: tuple[int, ...]
    ) -> None:
        """Replace the hashes of a channel's assignments, in the channel's record and in the polling nodes' digests.

        A polling node's digest combines the hashes of all assignments that this node has given to it.

        - ``former``: the nodes that polled the channel before.
        - ``owned``: the channel's record. Its field ``members`` contains the nodes that poll the channel now.
        - ``fingerprints``: the new hashes, one for each of these nodes; empty if the channel is removed.
        """
        for member, before in zip(former, owned.fingerprints, strict=False):
            digests = self._digests[member]
            digests.replace(channel, before, 0)
            if not digests.count:
                del self._digests[member]
        for member, after in zip(owned.members, fingerprints, strict=False):
            self._digests.setdefault(member, AssignmentDigests()).replace(channel, 0, after)
        owned.fingerprints = fingerprints

    def _remove(self, channel: ChannelId) -> _OwnedChannel | None:
        """Forget a channel; return its record, or None if this node does not own the channel."""
        owned = self._channels.pop(channel, None)
        if owned is not None:
            self._plans.remove_channel(channel)
            self._outdated.discard(channel)
            self._set_fingerprints(channel, owned.members, owned, ())
        return owned


@lru_cache(_SHARED_POLLING_SETS)
def _shared(members: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Return a tuple equal to ``members``; channels that the same nodes poll share one object."""
    return members
