"""Inputs (events) and outputs (effects) of a node's polling protocol.

``workers.node`` turns what happens into events and carries out the effects. Any effect except ``StartPolling``, which
cannot fail, may be lost: the shell then sends no answering event, and the protocol repeats the effect in the next
maintenance interval. While a ``TakeOwnership`` of a channel or a ``ListOwnedChannels`` is in progress, another one is
such a repetition, and the shell ignores it.
"""

from collections.abc import Mapping

import msgspec

from service.corona.fleet_policy import ChannelBounds, FleetObjective
from service.corona.messages import Candidate, Message, VersionAnnouncement
from service.corona.polling_schedule import PollingSchedule
from service.corona.update_rates import UpdateHistory
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView


class RingChanged(msgspec.Struct, frozen=True):
    """The current membership of the ring. A node that is no longer a member owns and polls nothing."""

    view: RingView


class ListedChannel(msgspec.Struct, frozen=True, gc=False):
    """A channel of the registry. It is polled if it has subscribers or an admin has listed it."""

    channel: ChannelId
    subscribers: int
    listed: bool = False


class ChannelsListed(msgspec.Struct, frozen=True):
    """A batch of the answer to :class:`ListOwnedChannels`, with the same ``requested_s``.

    The last batch is ``complete``: together the batches contain at least all channels that this node owns.
    """

    requested_s: float
    channels: tuple[ListedChannel, ...]
    complete: bool = True


class Tick(msgspec.Struct, frozen=True):
    """A periodic timer event, several times per maintenance interval."""


class MessageReceived(msgspec.Struct, frozen=True):
    """A message from another node, a bot or the console."""

    sender: NodeId
    message: Message


class OwnershipTaken(msgspec.Struct, frozen=True):
    """The answer to :class:`TakeOwnership`: the channel's new epoch and the state that the store has of the channel.

    ``site`` is the registrable domain or address whose request budget the channel shares; empty if it has none.
    """

    channel: ChannelId
    epoch: int
    version: int
    private: bool = False
    updates: UpdateHistory = UpdateHistory()
    site: str = ""


class CandidateFound(msgspec.Struct, frozen=True):
    """This node's poller has found a change of a channel."""

    candidate: Candidate


class VersionPublished(msgspec.Struct, frozen=True):
    """The answer to :class:`Publish`: the candidate is stored as ``version``, and ``digest`` names its content."""

    channel: ChannelId
    version: int
    digest: bytes = b""


class PublishRefused(msgspec.Struct, frozen=True):
    """The answer to :class:`Publish` if the epoch or the base version is outdated."""

    channel: ChannelId


class ObjectiveLoaded(msgspec.Struct, frozen=True):
    """The answer to :class:`LoadObjective`.

    ``site_rates`` are the requests per second that admins have set for single sites, ``bounds`` what they have set for
    single channels.
    """

    objective: FleetObjective
    site_rates: Mapping[str, float] = {}
    bounds: Mapping[ChannelId, ChannelBounds] = {}


Event = (
    RingChanged | ChannelsListed | Tick | MessageReceived | OwnershipTaken | CandidateFound | VersionPublished |
    PublishRefused | ObjectiveLoaded
)  # fmt: skip


class Send(msgspec.Struct, frozen=True):
    """Append a message to a node's inbox."""

    node: NodeId
    message: Message


class ListOwnedChannels(msgspec.Struct, frozen=True):
    """Read the registry and answer with :class:`ChannelsListed`, in batches with the same ``requested_s``."""

    requested_s: float


class LoadObjective(msgspec.Struct, frozen=True):
    """Read the current objective, site rates and channel bounds, and answer with :class:`ObjectiveLoaded`."""


class TakeOwnership(msgspec.Struct, frozen=True):
    """Increment the channel's epoch and load its state, because this node owns it now.

    The answer is :class:`OwnershipTaken`, or a received ``ChannelRemoved`` if the store has no such channel.
    """

    channel: ChannelId


class ReleaseOwnership(msgspec.Struct, frozen=True):
    """Discard the state that :class:`TakeOwnership` loaded."""

    channel: ChannelId


class StartPolling(msgspec.Struct, frozen=True, gc=False):
    """Poll a channel by a schedule, as the node of this rank, comparing with the store's current version.

    For a channel that is polled already, replace its schedule. The effect is not repeated and therefore only plans
    polls: the shell loads what a poll needs from the store before the poll, and retries until it succeeds.
    ``subscribers`` is the channel's number of subscribers, which requests state to publishers.
    """

    channel: ChannelId
    rank: int
    schedule: PollingSchedule
    subscribers: int = 1


class StopPolling(msgspec.Struct, frozen=True):
    """Cancel all planned polls of this channel."""

    channel: ChannelId


class UpdateBase(msgspec.Struct, frozen=True):
    """Compare polls with another version: the announced one if it carries its base, otherwise the store's current one.

    The content that the last poll fetched is compared with the new base once more. If it still differs, the difference
    is a new candidate: two members may have found different changes of the same base.
    """

    channel: ChannelId
    announcement: VersionAnnouncement | None = None


class Publish(msgspec.Struct, frozen=True):
    """Store the candidate as a new version by compare-and-set under ``epoch``, and fan it out to subscribers.

    ``updates`` is the channel's update history including this candidate; it is stored with the version. The answer is
    :class:`VersionPublished` or :class:`PublishRefused`.
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
