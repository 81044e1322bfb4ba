"""Inputs (*events*) and outputs (*effects*) of a node's polling protocol.

``workers.node`` creates the events and carries out the effects. Any effect except ``StartPolling`` may be lost: the
protocol then receives no answer, and repeats the effect in the next maintenance interval. ``workers.node`` ignores
``ListOwnedChannels``, and ``TakeOwnership`` of a channel, while an earlier request of the same kind is in progress.
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
    """Event: the list of the fleet's member nodes has changed; ``view`` is the new list.

    A node that is not in the list polls nothing.
    """

    view: RingView


class ListedChannel(msgspec.Struct, frozen=True, gc=False):
    """A channel as read from the store, with its number of subscribers.

    ``listed`` says whether an admin has listed the channel, so that it is polled even without subscribers.
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

    ``requested_s`` is the monotonic time just before the changes were read. A channel is unwanted if it has no
    subscribers and no admin has listed it. Unwanted channels are released, except those for which another event
    or message has requested polls after ``requested_s``.
    """

    requested_s: float
    channels: tuple[ListedChannel, ...]


class ChannelsListed(msgspec.Struct, frozen=True):
    """Event: one batch of the answer to :class:`ListOwnedChannels`.

    - ``requested_s``: monotonic time at which the list was requested.
    - ``complete``: true in the last batch. All batches together contain at least all channels that this node owns.
    - ``total``: the number of channels that this node owns; 0 if it is not known yet.
    """

    requested_s: float
    channels: tuple[ListedChannel, ...]
    complete: bool = True
    total: int = 0


class Tick(msgspec.Struct, frozen=True):
    """Event: the protocol's periodic timer has fired. It fires several times per maintenance interval."""


class MessageReceived(msgspec.Struct, frozen=True):
    """Event: a message from another node, a bot or the console was received."""

    sender: NodeId
    message: Message


class OwnershipTaken(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`TakeOwnership`, with the channel's state in the store.

    - ``epoch``: the sequence number of this change of ownership. The store refuses writes with an earlier one.
    - ``version``: the sequence number of the channel's current version.
    - ``private``: whether the publisher is on a private network. The limit on polls of public channels then does not
      apply.
    - ``updates``: the channel's update history.
    - ``site``: the site (a domain or address) whose channels share one request budget; empty if the channel has none.
    - ``limits``: the current limits for the channel's polls, such as the interval that the publisher requests.
    """

    channel: ChannelId
    epoch: int
    version: int
    private: bool = False
    updates: UpdateHistory = UpdateHistory()
    site: str = ""
    limits: PollingLimits = NO_LIMITS


class CandidateFound(msgspec.Struct, frozen=True):
    """Event: a poll made by this node has found changes to a channel; ``candidate`` contains them."""

    candidate: Candidate


class LimitObserved(msgspec.Struct, frozen=True):
    """Event: this node has learned of a limit for a channel's polls, set by the publisher or by failed polls."""

    limit: PollingLimit


class VersionPublished(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`Publish` if the store has accepted the changes.

    ``version`` is the sequence number of the new version that contains the changes, ``digest`` the hash of its content.
    """

    channel: ChannelId
    version: int
    digest: bytes = b""


class PublishRefused(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`Publish` if the store has refused the changes because the request is outdated.

    Either the ownership of the channel has changed, or the version with which the changes were compared is no longer
    the current one. ``epoch`` is the epoch stated in the request; 0 if the refusal does not depend on the ownership.
    """

    channel: ChannelId
    epoch: int = 0


class ObjectiveLoaded(msgspec.Struct, frozen=True):
    """Event: the answer to :class:`LoadObjective`, with the settings that admins can change.

    - ``objective``: the optimisation goal and its constraints.
    - ``site_rates``: the allowed requests per second of each site for which an admin has set a limit.
    - ``bounds``: the limits for the polls of each channel for which an admin has set limits.
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
    """Effect that requests the list of this node's channels from the store.

    The complete list is sent in batches, as :class:`ChannelsListed` events. If little has changed since the last
    complete list, only the changes are sent, as a :class:`ChannelsChanged` event. ``requested_s`` is the monotonic time
    of the request, and is repeated in the answers.
    """

    requested_s: float


class LoadObjective(msgspec.Struct, frozen=True):
    """Effect that requests the optimisation goal, and admins' limits for individual sites and channels.

    Each maintenance of the node begins with this effect. The answer is :class:`ObjectiveLoaded`.
    """


class TakeOwnership(msgspec.Struct, frozen=True):
    """Effect that makes this node the owner of a channel in the store, and loads the channel's state.

    The store increments the channel's epoch, which counts changes of ownership. The answer is :class:`OwnershipTaken`.
    If the store has no such channel, the answer is the message ``ChannelRemoved``.
    """

    channel: ChannelId


class ReleaseOwnership(msgspec.Struct, frozen=True):
    """Effect that discards the state loaded by :class:`TakeOwnership`, because this node no longer owns the channel."""

    channel: ChannelId


class StartPolling(msgspec.Struct, frozen=True, gc=False):
    """Effect that starts the polls of a channel, or replaces their schedule.

    - ``rank``: this node's place in the order in which the nodes take turns, starting from 0.
    - ``schedule``: the times of the channel's polls.
    - ``subscribers``: the channel's number of subscribers, which each request states to the publisher.
    - ``limits``: the publisher's limits that the schedule takes into account.

    The effect does not need the store, so it can be carried out even while the store is unavailable. The version
    with which a poll is compared is loaded from the store later, just before the poll.
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
    """Effect that changes the *base* of a channel: the version with which its polls are compared.

    ``announcement`` describes the new base. If it is None, the new base is the current version in the store.

    If this node has found changes that are not stored yet, it compares the fetched content again, with the new base,
    and sends the owner those changes that the new base does not contain.
    """

    # Two members may have found different changes of the same version.

    channel: ChannelId
    announcement: VersionAnnouncement | None = None


class Publish(msgspec.Struct, frozen=True):
    """Effect that stores changes as the channel's next version and sends them to subscribers.

    - ``candidate``: the changes that a poll has found.
    - ``epoch``: the sequence number of the change of ownership that made this node the owner.
    - ``updates``: the channel's update history including these changes.

    The store accepts the changes only if ``epoch`` is current and the changes were compared with the current version.
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
