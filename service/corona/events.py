"""Inputs (*events*) and outputs (*effects*) of a node's polling protocol.

``workers.node`` creates the events and carries out the effects. Any effect except ``StartPolling`` may be lost. The
protocol then gets no answering event and repeats the effect in the next maintenance interval. If a ``TakeOwnership`` of
the same channel, or a ``ListOwnedChannels``, is still in progress, ``workers.node`` ignores the repetition.
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
    """Event: the member nodes of the fleet have changed to ``view``.

    A node that is no longer a member polls nothing.
    """

    view: RingView


class ListedChannel(msgspec.Struct, frozen=True, gc=False):
    """A channel in the store's list of channels.

    It is polled if it has subscribers, or if an admin has listed it (``listed``).
    """

    channel: ChannelId
    subscribers: int
    listed: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether the channel is to be polled."""
        return self.subscribers > 0 or self.listed


class ChannelsChanged(msgspec.Struct, frozen=True):
    """Event: channels of this node were created or listed, or their numbers of subscribers have changed.

    ``requested_s`` is a monotonic time just before the changes were read. A channel that is unwanted by this event is
    kept if another event or message has requested its polls after ``requested_s``.
    """

    requested_s: float
    channels: tuple[ListedChannel, ...]


class ChannelsListed(msgspec.Struct, frozen=True):
    """Event: a batch of the answer to :class:`ListOwnedChannels`.

    - ``requested_s``: monotonic time at which the list was requested.
    - ``complete``: true in the last batch. All batches together contain at least all channels that this node owns.
    - ``total``: the number of channels that this node owns; 0 if it is not known yet.
    """

    requested_s: float
    channels: tuple[ListedChannel, ...]
    complete: bool = True
    total: int = 0


class Tick(msgspec.Struct, frozen=True):
    """Event of a periodic timer, which occurs several times per maintenance interval."""


class MessageReceived(msgspec.Struct, frozen=True):
    """Event: a message from another node, a bot or the console was received."""

    sender: NodeId
    message: Message


class OwnershipTaken(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`TakeOwnership`, with the channel's state in the store.

    - ``epoch``: the number of this change of ownership. The store refuses writes with an earlier number.
    - ``version``: the number of the channel's current version.
    - ``private``: whether the channel is exempt from the limit on polls of public channels.
    - ``updates``: the channel's update history.
    - ``site``: the domain or address whose request budget the channel shares; empty if there is none.
    - ``limits``: the limits that the publisher and failed polls set for the channel's polls.
    """

    channel: ChannelId
    epoch: int
    version: int
    private: bool = False
    updates: UpdateHistory = UpdateHistory()
    site: str = ""
    limits: PollingLimits = NO_LIMITS


class CandidateFound(msgspec.Struct, frozen=True):
    """Event: a poll of this node has found changes of a channel; ``candidate`` contains them."""

    candidate: Candidate


class LimitObserved(msgspec.Struct, frozen=True):
    """Event: this node has observed a limit for a channel's polls, set by the publisher or by failed polls."""

    limit: PollingLimit


class VersionPublished(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`Publish`; the changes are stored as the channel's version ``version``.

    ``digest`` is the hash of the version's content.
    """

    channel: ChannelId
    version: int
    digest: bytes = b""


class PublishRefused(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`Publish` if the request is outdated.

    The ownership of the channel, or the version with which the changes were compared, has changed. ``epoch`` is the
    number of the change of ownership in the request; 0 if the refusal does not depend on the ownership.
    """

    channel: ChannelId
    epoch: int = 0


class ObjectiveLoaded(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`LoadObjective`, the settings that admins can change.

    - ``objective``: the optimisation goal and its constraints.
    - ``site_rates``: the allowed requests per second of single sites.
    - ``bounds``: the limits for the polls of single channels.
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
    """Effect that requests this node's channels from the store.

    The answer is :class:`ChannelsListed`, in batches. If little has changed since the last complete answer, it is
    :class:`ChannelsChanged`, with the changes only. ``requested_s`` is the monotonic time of the request, which the
    answers contain as well.
    """

    requested_s: float


class LoadObjective(msgspec.Struct, frozen=True):
    """Effect that requests the current optimisation goal and the admins' settings for single sites and channels.

    The answer is :class:`ObjectiveLoaded`.
    """


class TakeOwnership(msgspec.Struct, frozen=True):
    """Effect that makes this node the owner of a channel in the store, and loads the channel's state.

    The store counts the changes of ownership (the channel's epoch). The answer is :class:`OwnershipTaken`. If the store
    has no such channel, the answer is the message ``ChannelRemoved``.
    """

    channel: ChannelId


class ReleaseOwnership(msgspec.Struct, frozen=True):
    """Effect that discards the state loaded by :class:`TakeOwnership`, because this node no longer owns the channel."""

    channel: ChannelId


class StartPolling(msgspec.Struct, frozen=True, gc=False):
    """Effect that starts the polls of a channel, or replaces their schedule.

    - ``rank``: this node's place in the order of turns, from 0.
    - ``schedule``: the times of the channel's polls.
    - ``subscribers``: the channel's number of subscribers, which each request to the publisher states.
    - ``limits``: the publisher's limits that the schedule takes into account.

    Each poll is compared with the current version in the store. This version is loaded just before the poll, so that
    this effect can be carried out while the store is unavailable.
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

    ``announcement`` describes the new base. If it is None, the new base is the current version in the store. The
    content that the last poll fetched is compared with the new base once more. If the two still differ, the changes are
    reported.
    """

    # Two members may have found different changes of the same version.

    channel: ChannelId
    announcement: VersionAnnouncement | None = None


class Publish(msgspec.Struct, frozen=True):
    """Effect that stores changes as the channel's next version and sends them to subscribers.

    - ``candidate``: the changes that a poll has found.
    - ``epoch``: the number of the change of ownership by which this node owns the channel.
    - ``updates``: the channel's update history including these changes.

    The store accepts the changes only if ``epoch``, and the version with which the changes were compared, are current.
    The answer is :class:`VersionPublished` or :class:`PublishRefused`.
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
