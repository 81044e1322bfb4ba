"""Inputs (events) and outputs (effects) of a node's polling protocol.

``workers.node``, the *shell* of the protocol, creates the events and carries out the effects. Any effect except
``StartPolling``, which cannot fail, may be lost: the shell then sends no answering event, and the protocol repeats the
effect in the next maintenance interval. The shell ignores the repetition of an effect that is still in progress: a
``TakeOwnership`` of the same channel, or a ``ListOwnedChannels``.
"""

from collections.abc import Mapping

import msgspec

from service.corona.fleet_policy import ChannelBounds, FleetObjective
from service.corona.messages import Candidate, Message, PollingLimit, VersionAnnouncement
from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.polling_schedule import PollingSchedule
from service.corona.update_rates import UpdateHistory
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView


class RingChanged(msgspec.Struct, frozen=True):
    """The current membership of the ring. A node that is no longer a member owns and polls nothing."""

    view: RingView


class ListedChannel(msgspec.Struct, frozen=True, gc=False):
    """A channel of the store's registry. It is polled if it has subscribers or an admin has ``listed`` it."""

    channel: ChannelId
    subscribers: int
    listed: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether the channel is to be polled."""
        return self.subscribers > 0 or self.listed


class ChannelsChanged(msgspec.Struct, frozen=True):
    """Event: channels of this node were created or listed in the store's registry, or their subscribers have changed.

    The changes were read after ``requested_s`` (monotonic time). A channel that is unwanted by this event is kept if
    another event or message has requested its polls after ``requested_s``.
    """

    requested_s: float
    channels: tuple[ListedChannel, ...]


class ChannelsListed(msgspec.Struct, frozen=True):
    """A batch of the answer to :class:`ListOwnedChannels`.

    - ``requested_s``: monotonic time at which the list was requested.
    - ``complete``: true in the last batch. All batches together contain at least all channels that this node owns.
    - ``total``: the number of channels that this node owns; 0 if it is not known yet.
    """

    requested_s: float
    channels: tuple[ListedChannel, ...]
    complete: bool = True
    total: int = 0


class Tick(msgspec.Struct, frozen=True):
    """A periodic timer event, several times per maintenance interval."""


class MessageReceived(msgspec.Struct, frozen=True):
    """A message from another node, a bot or the console."""

    sender: NodeId
    message: Message


class OwnershipTaken(msgspec.Struct, frozen=True):
    """The answer to :class:`TakeOwnership`: the channel's new epoch, and the channel's state in the store.

    ``epoch`` is the number of the change of ownership; writes under an earlier epoch are refused. ``version`` is the
    channel's current version, and ``updates`` its update history. ``private`` states whether the channel is exempt from
    the limit on polls of public channels. ``site`` is the registrable domain or address whose request budget the
    channel shares; it is empty if there is none. ``limits`` are the limits of the channel's polls.
    """

    channel: ChannelId
    epoch: int
    version: int
    private: bool = False
    updates: UpdateHistory = UpdateHistory()
    site: str = ""
    limits: PollingLimits = NO_LIMITS


class CandidateFound(msgspec.Struct, frozen=True):
    """Event: this node's poller has found changes of a channel; ``candidate`` contains them."""

    candidate: Candidate


class LimitObserved(msgspec.Struct, frozen=True):
    """Event: this node has observed a limit for a channel's polls, set by the publisher or by failed polls."""

    limit: PollingLimit


class VersionPublished(msgspec.Struct, frozen=True):
    """The answer to :class:`Publish`: the candidate is stored as ``version``, and ``digest`` identifies its content."""

    channel: ChannelId
    version: int
    digest: bytes = b""


class PublishRefused(msgspec.Struct, frozen=True):
    """The answer to :class:`Publish` if the epoch or the candidate's base version is outdated.

    ``epoch`` is the epoch with which the node tried to write; 0 if the refusal does not depend on the epoch.
    """

    channel: ChannelId
    epoch: int = 0


class ObjectiveLoaded(msgspec.Struct, frozen=True):
    """The answer to :class:`LoadObjective`: the fleet's objective, and admins' settings for single sites and channels.

    ``site_rates`` has the allowed requests per second of sites, and ``bounds`` the limits for the polls of channels.
    """

    objective: FleetObjective
    site_rates: Mapping[str, float] = {}
    bounds: Mapping[ChannelId, ChannelBounds] = {}


Event = (
    RingChanged | ChannelsListed | ChannelsChanged | Tick | MessageReceived | OwnershipTaken | CandidateFound |
    VersionPublished | PublishRefused | ObjectiveLoaded | LimitObserved
)  # fmt: skip


class Send(msgspec.Struct, frozen=True):
    """Effect that sends ``message`` to another node."""

    node: NodeId
    message: Message


class ListOwnedChannels(msgspec.Struct, frozen=True):
    """Effect that requests this node's channels from the store's registry.

    The answer is :class:`ChannelsListed`, in batches. If little has changed since the last complete answer, only the
    changes are read, and the answer is :class:`ChannelsChanged`. ``requested_s`` is the time of the request, which the
    answers contain as well.
    """

    requested_s: float


class LoadObjective(msgspec.Struct, frozen=True):
    """Effect that requests the current objective, site rates and channel bounds.

    The answer is :class:`ObjectiveLoaded`.
    """


class TakeOwnership(msgspec.Struct, frozen=True):
    """Effect that increments the channel's epoch in the store and loads its state, because this node now owns it.

    The answer is :class:`OwnershipTaken`. If the store has no such channel, the answer is a received
    ``ChannelRemoved``.
    """

    channel: ChannelId


class ReleaseOwnership(msgspec.Struct, frozen=True):
    """Effect that discards the state loaded by :class:`TakeOwnership`, because this node no longer owns the channel."""

    channel: ChannelId


class StartPolling(msgspec.Struct, frozen=True, gc=False):
    """Effect that starts the polls of a channel by a schedule, or replaces the schedule of a polled channel.

    - ``rank``: this node's place in the order of turns, from 0.
    - ``schedule``: the channel's schedule.
    - ``subscribers``: the channel's number of subscribers, which each request to the publisher states.
    - ``limits``: the limits by which the owner has planned the schedule.

    Each poll is compared with the store's current version. The data for a poll is loaded from the store just before the
    poll, so that this effect can be carried out while the store is unavailable.
    """

    channel: ChannelId
    rank: int
    schedule: PollingSchedule
    subscribers: int = 1
    limits: PollingLimits = NO_LIMITS


class StopPolling(msgspec.Struct, frozen=True):
    """Effect that cancels all planned polls of a channel."""

    channel: ChannelId


class UpdateBase(msgspec.Struct, frozen=True):
    """Effect that changes the *base* of a channel, the version with which its polls are compared.

    The new base is loaded from ``announcement``. If this is None, the new base is the store's current version. The
    content that the last poll fetched is compared with the new base once more. If it still differs, the difference is a
    new candidate: two members may have found different changes of the same version.
    """

    channel: ChannelId
    announcement: VersionAnnouncement | None = None


class Publish(msgspec.Struct, frozen=True):
    """Effect that stores the candidate as the channel's next version and sends its changes to subscribers.

    The store accepts it only if ``epoch`` and the candidate's base version are current. ``updates`` is the channel's
    update history including this candidate; it is stored with the version. The answer is :class:`VersionPublished` or
    :class:`PublishRefused`.
    """

    candidate: Candidate
    epoch: int
    updates: UpdateHistory


Effect = (
    Send
    | ListOwnedChannels
    | LoadObjective
    | TakeOwnership
    | ReleaseOwnership
    | StartPolling
    | StopPolling
    | UpdateBase
    | Publish
)
