"""What travels between nodes (and from the bot to an owner), as tagged msgpack.

Within one wire version, fields may be added with a default: older nodes ignore them. A message
of another wire version, of an unknown type, or malformed is nobody's fault during an upgrade:
:func:`decode` returns None and the soft state repeats what matters.
"""

from typing import Annotated

import msgspec

from service import model
from service.corona.polling_schedule import PollingSchedule

WIRE_VERSION = 2
"""Nodes of different versions share the ring but do not hear each other: until all are replaced, a channel is polled
by those of its set that speak as its owner does."""

Site = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
"""A registrable domain, or an address: who answers for all its channels."""

ChannelId = Annotated[model.ChannelId, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class Assignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One channel's place for one member: its ``rank`` in the rota.

    ``version`` is the channel's present one, ``subscribers`` how many its owner knows of.
    """

    channel: ChannelId
    rank: int
    rota: PollingSchedule
    version: int
    subscribers: int = 1


class Assign(msgspec.Struct, frozen=True, tag=True):
    """Owner to member, each maintenance interval: poll these (the owner's view was ``ring_version``)."""

    ring_version: int
    assignments: tuple[Assignment, ...]


class Unassign(msgspec.Struct, frozen=True, tag=True):
    """Owner to member: poll this channel no more; fewer do, or nobody wants it."""

    ring_version: int
    channel: ChannelId


class Candidate(msgspec.Struct, frozen=True, tag=True):
    """Member to owner: what a poll found, and what the channel's state becomes once it is versioned.

    ``delta.base_version`` is the version it was compared with; ``memory`` is what is remembered of the
    content from then on, opaque here; ``title``, ``link``, ``wishes``, ``language`` and
    ``imprint`` are what the channel says of itself now.
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
        """The channel it was found in."""
        return self.delta.channel

    @property
    def base_version(self) -> int:
        """The version it was compared with."""
        return self.delta.base_version


class VersionBase(msgspec.Struct, frozen=True, array_like=True):
    """What a new version leaves for the next polls to go on from, so that nobody has to load it.

    ``detected_s`` is the candidate's (Unix s): its finder knows it again by that. ``subscribers`` are the channel's.
    ``digest`` names the content (:mod:`service.location.content_cache`).
    """

    validators: model.Validators
    detected_s: float
    subscribers: int
    digest: bytes = b""


class VersionAnnouncement(msgspec.Struct, frozen=True, tag="Versioned"):
    """Owner to the polling set: the channel has a new version; without a ``base``, only the store knows more."""

    channel: ChannelId
    version: int
    base: VersionBase | None = None


class Rejection(msgspec.Struct, frozen=True, tag="Rejected"):
    """Owner to a candidate's finder: its base is not the channel's version, which is ``current_version``."""

    channel: ChannelId
    base_version: int
    current_version: int


class ChannelAdded(msgspec.Struct, frozen=True, tag=True):
    """Anyone to the owner: somebody wants this channel."""

    channel: ChannelId


class ChannelRemoved(msgspec.Struct, frozen=True, tag=True):
    """Anyone to the owner: this channel is gone."""

    channel: ChannelId


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """What so many ``nodes`` of the fleet own.

    ``demand`` is Σ s·q, what their channels' subscribers would ask of publishers by themselves, per τ;
    ``clusters`` are tradeoff clusters as ``service.corona.clusters`` encodes them, 20 bytes each.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)]
    demand: Annotated[float, msgspec.Meta(ge=0)]
    clusters: bytes


class Summary(msgspec.Struct, frozen=True, tag=True):
    """Contact to those whose contact it is, each tick: what the nodes own that have its first ``digits`` digits."""

    digits: int
    part: Aggregate


class SiteShare(msgspec.Struct, frozen=True, array_like=True):
    """The channels of one ``site`` that one node owns, as tradeoff ``clusters``."""

    site: Site
    clusters: bytes


class SiteShares(msgspec.Struct, frozen=True, tag=True):
    """Owner to the keeper of sites, each tick: what it owns of sites whose budget may bind."""

    shares: tuple[SiteShare, ...]


class SiteScale(msgspec.Struct, frozen=True, array_like=True):
    """The scale at which all channels of a ``site`` together keep within its budget: see ``honeycomb.within_sites``."""

    site: Site
    scale: Annotated[float, msgspec.Meta(ge=-1)]


class SiteScales(msgspec.Struct, frozen=True, tag=True):
    """A keeper of sites to the owners of their channels, each tick."""

    scales: tuple[SiteScale, ...]


Message = (
    Assign | Unassign | Candidate | VersionAnnouncement | Rejection | ChannelAdded | ChannelRemoved | Summary
    | SiteShares | SiteScales
)  # fmt: skip


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message on the wire. ``sender`` is a node, or empty for the bot and the console."""

    wire_version: int
    sender: model.NodeId
    message: Message


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode(sender: model.NodeId, message: Message) -> bytes:
    """Return the bytes that :func:`decode` understands."""
    return _encoder.encode(Envelope(WIRE_VERSION, sender, message))


def decode(raw: bytes) -> Envelope | None:
    """Return what was sent, or None if this node cannot understand it."""
    try:
        envelope = _decoder.decode(raw)
    except msgspec.MsgspecError:
        return None
    return envelope if envelope.wire_version == WIRE_VERSION else None
