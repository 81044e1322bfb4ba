"""What a node's protocol is told (events) and what it asks its shell to do (effects).

Any effect but ``StartPolling``, which cannot fail, may be forgotten: the shell then simply does not answer, and the
protocol asks again in the next maintenance interval. While a channel's ``Adopt``, or a ``ListOwned``, is under
way, another one is such a repetition, and the shell ignores it.
"""

from collections.abc import Mapping

import msgspec

from service.corona.fleet_policy import Aims, Bounds
from service.corona.messages import Candidate, Message, Versioned
from service.corona.polling_schedule import Rota
from service.corona.update_rates import Updates
from service.model import ChannelId, NodeId
from service.overlay.ring import RingView


class RingChanged(msgspec.Struct, frozen=True):
    """The present ring; a node that is not in it any more owns and polls nothing."""

    view: RingView


class ListedChannel(msgspec.Struct, frozen=True, gc=False):
    """A channel of the registry: wanted when it has subscribers or an admin listed it."""

    channel: ChannelId
    subscribers: int
    listed: bool = False


class ChannelsListed(msgspec.Struct, frozen=True):
    """A part of the answer to :class:`ListOwned`; with the last, it is ``complete``: all this node owns, or more."""

    asked_s: float
    channels: tuple[ListedChannel, ...]
    complete: bool = True


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; due a few times per maintenance interval."""


class Received(msgspec.Struct, frozen=True):
    """A message has arrived."""

    sender: NodeId
    message: Message


class Adopted(msgspec.Struct, frozen=True):
    """The answer to :class:`Adopt`: the channel's epoch, raised for us, and what the store knows of the channel."""

    channel: ChannelId
    epoch: int
    version: int
    private: bool = False
    updates: Updates = Updates()
    site: str = ""
    """Who answers for it, if that is somebody who is owed politeness."""


class CandidateFound(msgspec.Struct, frozen=True):
    """This node's own poller found a change."""

    candidate: Candidate


class Published(msgspec.Struct, frozen=True):
    """The answer to :class:`Publish`: the store has it, as this version, whose content has this name."""

    channel: ChannelId
    version: int
    digest: bytes = b""


class PublishRefused(msgspec.Struct, frozen=True):
    """The answer to :class:`Publish`: the epoch or the base version is not the channel's any more."""

    channel: ChannelId


class AimsRead(msgspec.Struct, frozen=True):
    """The answer to :class:`ReadAims`: also the requests per second that admins set for sites, and single channels."""

    aims: Aims
    site_rates: Mapping[str, float] = {}
    bounds: Mapping[ChannelId, Bounds] = {}


Event = (
    RingChanged | ChannelsListed | Tick | Received | Adopted | CandidateFound | Published | PublishRefused | AimsRead
)  # fmt: skip


class Send(msgspec.Struct, frozen=True):
    """Put a message into a node's inbox."""

    node: NodeId
    message: Message


class ListOwned(msgspec.Struct, frozen=True):
    """Walk the registry and answer with :class:`ChannelsListed`, part by part, repeating ``asked_s``."""

    asked_s: float


class ReadAims(msgspec.Struct, frozen=True):
    """Look what admins want of the fleet now, and answer with :class:`AimsRead`."""


class Adopt(msgspec.Struct, frozen=True):
    """Raise the channel's epoch and load its state: we own it now. Answer with :class:`Adopted`.

    If the store has no such channel, answer with a received ``ChannelRemoved``.
    """

    channel: ChannelId


class Disown(msgspec.Struct, frozen=True):
    """Forget what was loaded by :class:`Adopt`."""

    channel: ChannelId


class StartPolling(msgspec.Struct, frozen=True, gc=False):
    """Poll by this rota, as the node of this rank, by comparing with the store's present version.

    For a channel that is polled otherwise it means to replan. It is said once, so it only plans polls: what they
    need of the store, the shell asks before each until it knows. ``subscribers`` are the channel's, for publishers.
    """

    channel: ChannelId
    rank: int
    rota: Rota
    subscribers: int = 1


class StopPolling(msgspec.Struct, frozen=True):
    """Plan no more polls of this channel."""

    channel: ChannelId


class Refresh(msgspec.Struct, frozen=True):
    """Compare with another version from now on: the one that was ``told`` with its base, or the store's present one.

    What the last poll fetched is compared with it once more, and what the version lacks is a new
    candidate: two members may have found different changes of the same base.
    """

    channel: ChannelId
    told: Versioned | None = None


class Publish(msgspec.Struct, frozen=True):
    """Version the candidate by compare-and-set under ``epoch``, and fan out to subscribers.

    ``updates`` is what is known of the channel's updates from then on; it is kept with the version.
    Answer with :class:`Published` or :class:`PublishRefused`.
    """

    candidate: Candidate
    epoch: int
    updates: Updates


Effect = Send | ListOwned | ReadAims | Adopt | Disown | StartPolling | StopPolling | Refresh | Publish
