"""Messages between nodes, and from bots and the console to owners, as tagged msgpack.

Within one wire version, fields may be added with a default: older nodes ignore them. During an upgrade, nodes receive
messages of another wire version, of an unknown type or malformed ones. :func:`decode` returns None for these, and
nothing is lost, because soft state is sent repeatedly.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Annotated

import msgspec

from service import model
from service.corona.polling_limits import NO_LIMITS, LimitReason, LimitSeconds, LimitTime, PollingLimits
from service.corona.polling_schedule import PollingSchedule

WIRE_VERSION = 3
"""Version of the message format.

Nodes with different wire versions share the ring but ignore each other's messages. Until all nodes are replaced, a
channel is therefore polled only by the members that have the same wire version as its owner.
"""

Site = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
"""A registrable domain or an IP address; one request budget covers all its channels."""

ChannelId = Annotated[model.ChannelId, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class Assignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member's place in a channel's polling schedule.

    ``rank`` is the place, counted from 0. ``version`` is the channel's current version, ``subscribers`` its
    number of subscribers, and ``limits`` are the limits of its polls, all from the owner's state.
    """

    channel: ChannelId
    rank: int
    schedule: PollingSchedule
    version: int
    subscribers: int = 1
    limits: PollingLimits = NO_LIMITS


MAX_BUCKETS = 1_024
"""The largest number of buckets into which an owner's channels are divided (``assignment_digests``), a power of two."""


class Assign(msgspec.Struct, frozen=True, tag=True):
    """Owner to member: poll the channels of ``assignments``, which are new or have changed.

    ``ring_version`` is the version of the ring from which the owner has computed the polling sets.

    An answer to :class:`BucketDigests` is about whole buckets, groups into which channels are divided: ``bucket_count``
    is the number of all buckets, ``buckets`` are the numbers of some of them, and ``assignments`` are all assignments
    of the owner to the member in these buckets. The member drops its other assignments in these buckets. In other
    messages ``bucket_count`` is 0.
    """

    ring_version: int
    assignments: tuple[Assignment, ...]
    bucket_count: int = 0
    buckets: tuple[int, ...] = ()


class AssignmentDigest(msgspec.Struct, frozen=True, tag=True):
    """Owner to member, each maintenance interval: the digest of all of the owner's assignments to the member.

    The message renews these assignments. ``ring_version`` is the version of the owner's ring.
    """

    ring_version: int
    digest: int


class BucketDigests(msgspec.Struct, frozen=True, tag=True):
    """Member to owner, if the owner's :class:`AssignmentDigest` differs from the member's: the digests by bucket.

    ``digests`` are the digests of the member's assignments in each bucket of channels, as encoded by
    ``service.corona.assignment_digests``. If both nodes have the ring of ``ring_version``, the owner answers with
    :class:`Assign` for the buckets that differ.
    """

    ring_version: int
    digests: Annotated[bytes, msgspec.Meta(max_length=8 * MAX_BUCKETS)]


class Unassign(msgspec.Struct, frozen=True, tag=True):
    """Owner to member: stop polling this channel.

    ``ring_version`` is the version of the owner's ring. A member ignores the message if a newer ring than this assigned
    the channel to it. If the member still has to make one poll, ``last_poll_s`` is the fleet time of this poll;
    otherwise it is 0.0.
    """

    ring_version: int
    channel: ChannelId
    last_poll_s: float = 0.0


class Candidate(msgspec.Struct, frozen=True, tag=True, rename={"polling_hints": "wishes", "metadata": "imprint"}):
    """Member to owner: the changes that a poll found, and the channel's state once they are stored as a version.

    - ``delta``: the changes; ``delta.base_version`` is the version that the poll was compared with.
    - ``validators``: the HTTP validators for the next request.
    - ``memory``: the state of entry detection after these changes, opaque here.
    - ``polling_hints``: the poll intervals that the channel's document requests.
    - ``title``, ``link``, ``language``, ``metadata``: what the channel's document states about the channel.
    """

    delta: model.Delta
    validators: model.Validators
    memory: bytes
    title: str = ""
    link: str = ""
    polling_hints: model.PollingHints = model.PollingHints()
    language: str = ""
    metadata: model.FeedMetadata = model.FeedMetadata()

    @property
    def channel(self) -> model.ChannelId:
        """The channel of the delta."""
        return self.delta.channel

    @property
    def base_version(self) -> int:
        """The version that the poll was compared with."""
        return self.delta.base_version


class PollingLimit(msgspec.Struct, frozen=True, tag=True):
    """Member to owner: the present limit of one kind for a channel's polls, set by its publisher or by failed polls.

    It is sent after a poll, or after a poll that was not allowed, if the limit differs from the limit in the member's
    assignment.

    - ``reason``: the kind of the limit (:mod:`service.corona.polling_limits`).
    - ``shortest_interval_s``: the minimum time in seconds between two polls of the channel by any nodes; 0 if there is
      no such limit any more.
    - ``until_s``: the end of a pause in fleet time; 0 if the channel is not paused. It is ignored for other kinds.
    """

    channel: ChannelId
    reason: LimitReason
    shortest_interval_s: LimitSeconds = 0
    until_s: LimitTime = 0


class VersionBase(msgspec.Struct, frozen=True, array_like=True):
    """The part of a new version that members need for their next polls, sent so that they need not read the store.

    ``validators`` are the HTTP validators for the next request. ``detected_s`` is the time (Unix s) at which the
    changes were detected, by which a member recognises its own candidate. ``subscribers`` is the channel's number
    of subscribers. ``digest`` identifies the content (:mod:`service.location.content_cache`).
    """

    validators: model.Validators
    detected_s: float
    subscribers: int
    digest: bytes = b""


class VersionAnnouncement(msgspec.Struct, frozen=True, tag="Versioned"):
    """Owner to polling set: the channel has a new version.

    ``base`` describes the new version as far as members need it for their next polls; None if members have to load it
    from the store.
    """

    channel: ChannelId
    version: int
    base: VersionBase | None = None


class Rejection(msgspec.Struct, frozen=True, tag="Rejected"):
    """Owner to member: the member's candidate is not stored, because its base version is not the channel's current one.

    ``base_version`` is the version that the candidate was compared with.
    """

    channel: ChannelId
    base_version: int
    current_version: int


class ChannelAdded(msgspec.Struct, frozen=True, tag=True):
    """Any process to the channel's owner: poll this channel, because it has a subscriber or an admin has listed it."""

    channel: ChannelId


class ChannelRemoved(msgspec.Struct, frozen=True, tag=True):
    """Any process to the channel's owner: this channel has been removed."""

    channel: ChannelId


CONTINUOUS, MIXED = 0, -1
"""Special values of ``Aggregate.base``.

``CONTINUOUS`` means that numbers of polls are continuous, and ``MIXED`` that nodes have different bases.
"""


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """A summary of the channels that ``nodes`` nodes of the fleet own.

    - ``channels``: the number of these channels.
    - ``demand``: the load that the subscribers of these channels would cause by polling on their own, as the cost of
      all polls per τ.
    - ``clusters``: tradeoff clusters, which are sums of channels whose costs grow similarly with the fleet's scale, as
      encoded by ``service.corona.optimizer.tradeoff_clusters``. If numbers of polls are continuous, they describe all
      polls; otherwise, the polls of each channel below its first step.
    - ``steps``: if only whole polling levels are allowed, the changes of channels from one level to the next, as
      encoded by ``service.corona.optimizer.polling_levels``.
    - ``base``: the number base of the levels, ``CONTINUOUS`` if numbers of polls are continuous, or ``MIXED`` if nodes
      have different bases.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)]
    demand: Annotated[float, msgspec.Meta(ge=0)]
    clusters: bytes
    base: Annotated[int, msgspec.Meta(ge=-1)] = CONTINUOUS
    steps: bytes = b""
    channels: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0


class Summary(msgspec.Struct, frozen=True, tag=True):
    """Message with the sender's summary of a part of the ring, sent when the summary has changed.

    ``aggregate`` summarises the channels of all nodes whose ids have the same first ``digits`` digits as the sender's
    id.
    """

    digits: int
    aggregate: Aggregate = msgspec.field(name="part")


class SummaryConfirmation(msgspec.Struct, frozen=True, tag=True):
    """Message in each maintenance interval: the sender's last :class:`Summary` with the same ``digits`` is still valid.

    That summary is about the nodes whose ids have the same first ``digits`` digits as the sender's id. ``digest`` is
    the :func:`aggregate_digest` of its aggregate. A receiver that has another aggregate, or none, sends a
    :class:`SummaryRequest`.
    """

    digits: int
    digest: bytes


class SummaryRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to the receiver to send its :class:`Summary` with this number of ``digits`` again.

    That summary is about the nodes whose ids have the same first ``digits`` digits as the receiver's id.
    """

    digits: int


SummaryMessage = Summary | SummaryConfirmation | SummaryRequest


class SiteShare(msgspec.Struct, frozen=True, array_like=True):
    """A summary of the channels of one ``site`` that one node owns.

    ``clusters`` are sums of these channels, as encoded by ``service.corona.optimizer.tradeoff_clusters``.
    """

    site: Site
    clusters: bytes


class SiteShares(msgspec.Struct, frozen=True, tag=True):
    """Owner to site coordinator: summaries of the owner's channels, one per site whose request budget may be exceeded.

    The message is sent when a summary has changed, and each maintenance interval.
    """

    shares: tuple[SiteShare, ...]


class SiteScale(msgspec.Struct, frozen=True, array_like=True):
    """The scale of ``site``, which limits the polls per τ of its channels to scale·√(weight/cost).

    At this scale, the channels use exactly the site's request budget (``allocation_solver.apply_site_scales``).
    """

    site: Site
    scale: Annotated[float, msgspec.Meta(ge=-1)]


class SiteScales(msgspec.Struct, frozen=True, tag=True):
    """Site coordinator to the owners of the sites' channels: the scales that limit the polls of these channels.

    The message is sent when a scale has changed, and each maintenance interval.
    """

    scales: tuple[SiteScale, ...]


Message = (
    Assign | AssignmentDigest | BucketDigests | Unassign | Candidate | VersionAnnouncement | Rejection | ChannelAdded
    | ChannelRemoved | SummaryMessage | SiteShares | SiteScales | PollingLimit
)  # fmt: skip


URGENT = Candidate | Rejection
"""Messages that are sent separately, so that nodes that do not respond cannot delay them.

Unlike other messages, they are neither repeated soon nor replaced by later ones.
"""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message on the wire. ``sender`` is a node id, or empty for bots and the console."""

    wire_version: int
    sender: model.NodeId
    message: Message


_CACHED_DIGESTS = 32

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


@lru_cache(_CACHED_DIGESTS)
def aggregate_digest(aggregate: Aggregate) -> bytes:
    """Return 8 bytes that identify an aggregate.

    The last results are cached, because a node sends the same aggregate to many nodes.
    """
    return blake2b(_encoder.encode(aggregate), digest_size=8).digest()


def encode(sender: model.NodeId, message: Message) -> bytes:
    """Return the message in the wire format that :func:`decode` reads; ``sender`` is a node id, or empty."""
    return _encoder.encode(Envelope(WIRE_VERSION, sender, message))


def decode(raw: bytes) -> Envelope | None:
    """Return the envelope that :func:`encode` has encoded; None if it is malformed or of another wire version."""
    try:
        envelope = _decoder.decode(raw)
    except msgspec.MsgspecError:
        return None
    return envelope if envelope.wire_version == WIRE_VERSION else None
