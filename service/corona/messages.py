"""Messages between nodes, and from bots and the console to owners, as tagged msgpack.

Within one wire version, fields may be added with a default: older nodes ignore them. During an upgrade, messages of
another wire version, of an unknown type or malformed ones are expected: :func:`decode` returns None, and soft state is
repeated anyway.
"""

from typing import Annotated

import msgspec

from service import model
from service.corona.polling_schedule import PollingSchedule

WIRE_VERSION = 2
"""Version of the message format. Nodes of different versions share the ring but ignore each other's messages: until all
are replaced, a channel is polled only by members of its owner's version.
"""

Site = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
"""A registrable domain or an IP address; one request budget covers all its channels."""

ChannelId = Annotated[model.ChannelId, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class Assignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member's place in a channel's polling schedule: its ``rank``.

    ``version`` is the channel's current version, ``subscribers`` its number of subscribers as the owner knows it.
    """

    channel: ChannelId
    rank: int
    schedule: PollingSchedule
    version: int
    subscribers: int = 1


class Assign(msgspec.Struct, frozen=True, tag=True):
    """Owner to member, each maintenance interval: poll these channels. ``ring_version`` is that of the owner's ring."""

    ring_version: int
    assignments: tuple[Assignment, ...]


class Unassign(msgspec.Struct, frozen=True, tag=True):
    """Owner to member: stop polling this channel."""

    ring_version: int
    channel: ChannelId


class Candidate(msgspec.Struct, frozen=True, tag=True):
    """Member to owner: the changes that a poll found, and the channel's state once they are stored as a version.

    ``delta.base_version`` is the version that the poll was compared with. ``memory`` is the state of entry detection
    after this delta, opaque here. ``title``, ``link``, ``wishes``, ``language`` and ``imprint`` are the channel's own
    metadata.
    """

    delta: model.Delta
    validators: model.Validators
    memory: bytes
    title: str = ""
    link: str = ""
    wishes: model.PollingHints = model.PollingHints()
    language: str = ""
    imprint: model.FeedMetadata = model.FeedMetadata()

    @property
    def channel(self) -> model.ChannelId:
        """The channel of the delta."""
        return self.delta.channel

    @property
    def base_version(self) -> int:
        """The version that the poll was compared with."""
        return self.delta.base_version


class VersionBase(msgspec.Struct, frozen=True, array_like=True):
    """The part of a new version that the next polls compare with, so that members need not load it from the store.

    ``detected_s`` is the candidate's (Unix s), by which its sender recognises it. ``subscribers`` is the channel's
    number of subscribers. ``digest`` names the content (:mod:`service.location.content_cache`).
    """

    validators: model.Validators
    detected_s: float
    subscribers: int
    digest: bytes = b""


class VersionAnnouncement(msgspec.Struct, frozen=True, tag="Versioned"):
    """Owner to polling set: the channel has a new version. Without ``base``, members have to load it from the store."""

    channel: ChannelId
    version: int
    base: VersionBase | None = None


class Rejection(msgspec.Struct, frozen=True, tag="Rejected"):
    """Owner to the sender of a candidate: its base is not the channel's version, which is ``current_version``."""

    channel: ChannelId
    base_version: int
    current_version: int


class ChannelAdded(msgspec.Struct, frozen=True, tag=True):
    """Anyone to the owner: this channel is wanted."""

    channel: ChannelId


class ChannelRemoved(msgspec.Struct, frozen=True, tag=True):
    """Anyone to the owner: this channel has been removed."""

    channel: ChannelId


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """A summary of the channels that ``nodes`` nodes of the fleet own.

    ``demand`` is Σ s·q, the load per τ that their subscribers would cause by polling on their own. ``clusters`` are
    tradeoff clusters as encoded by ``service.corona.tradeoff_clusters``, 20 bytes each.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)]
    demand: Annotated[float, msgspec.Meta(ge=0)]
    clusters: bytes


class Summary(msgspec.Struct, frozen=True, tag=True):
    """A contact to its summary recipients, each tick: the aggregate of the subtree of its first ``digits`` digits."""

    digits: int
    aggregate: Aggregate = msgspec.field(name="part")


class SiteShare(msgspec.Struct, frozen=True, array_like=True):
    """The channels of one ``site`` that one node owns, as tradeoff ``clusters``."""

    site: Site
    clusters: bytes


class SiteShares(msgspec.Struct, frozen=True, tag=True):
    """Owner to site coordinator, each tick: its channels of sites whose budget may bind."""

    shares: tuple[SiteShare, ...]


class SiteScale(msgspec.Struct, frozen=True, array_like=True):
    """The scale at which all channels of a ``site`` keep its budget; see ``honeycomb.apply_site_scales``."""

    site: Site
    scale: Annotated[float, msgspec.Meta(ge=-1)]


class SiteScales(msgspec.Struct, frozen=True, tag=True):
    """Site coordinator to owners of the sites' channels, each tick."""

    scales: tuple[SiteScale, ...]


Message = (
    Assign | Unassign | Candidate | VersionAnnouncement | Rejection | ChannelAdded | ChannelRemoved | Summary
    | SiteShares | SiteScales
)  # fmt: skip


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message on the wire. ``sender`` is a node id, or empty for bots and the console."""

    wire_version: int
    sender: model.NodeId
    message: Message


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode(sender: model.NodeId, message: Message) -> bytes:
    """Return the wire format that :func:`decode` reads."""
    return _encoder.encode(Envelope(WIRE_VERSION, sender, message))


def decode(raw: bytes) -> Envelope | None:
    """Return the envelope, or None if this node cannot read it."""
    try:
        envelope = _decoder.decode(raw)
    except msgspec.MsgspecError:
        return None
    return envelope if envelope.wire_version == WIRE_VERSION else None
