"""Messages between nodes, and from bots and the console to nodes, encoded as msgpack with a type tag.

Within one wire version, fields may be added with a default; older nodes ignore them. During an upgrade, nodes receive
messages of another wire version, of an unknown type, or malformed ones. :func:`decode` returns None for these. Nothing
is lost, because messages are repeated until they are confirmed or outdated.
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
    """One node's place in the polling schedule of a channel.

    - ``rank``: the place in the order of turns, from 0.
    - ``schedule``: the times of the channel's polls.
    - ``version``: the number of the channel's current version.
    - ``subscribers``: the channel's number of subscribers.
    - ``limits``: the publisher's limits that the schedule takes into account.
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
    """Message from the owner of channels to another node: poll the channels of ``assignments``.

    - ``ring_version``: the version of the list of member nodes from which the owner has computed the assignments.
    - ``bucket_count``, ``buckets``: 0 and empty unless the message answers :class:`BucketDigests`.

    In such an answer, the owner's channels are divided by their ids into ``bucket_count`` groups (*buckets*), numbered
    from 0. ``buckets`` has the numbers of some of these groups, and ``assignments`` are all assignments of the channels
    in them. The receiver drops all its other assignments in these groups.
    """

    ring_version: int
    assignments: tuple[Assignment, ...]
    bucket_count: int = 0
    buckets: tuple[int, ...] = ()


class AssignmentDigest(msgspec.Struct, frozen=True, tag=True):
    """Message from the owner of channels to a polling node, each maintenance interval: its assignments are still valid.

    ``digest`` is the hash of all assignments of the owner to the receiver. ``ring_version`` is the version of the
    owner's list of member nodes.
    """

    ring_version: int
    digest: int


class BucketDigests(msgspec.Struct, frozen=True, tag=True):
    """Answer to :class:`AssignmentDigest` if the hashes differ: a hash of the assignments in each group of channels.

    - ``ring_version``: the version of the sender's list of member nodes.
    - ``digests``: a hash for each group, as encoded by ``service.corona.assignment_digests``.

    The owner answers with :class:`Assign` for the groups that differ, if it has the same version of the list.
    """

    ring_version: int
    digests: Annotated[bytes, msgspec.Meta(max_length=8 * MAX_BUCKETS)]


class Unassign(msgspec.Struct, frozen=True, tag=True):
    """Message from the owner of a channel to a polling node: stop polling this channel.

    - ``ring_version``: the version of the owner's list of member nodes. The message is ignored if the receiver's
      assignment is of a newer one.
    - ``last_poll_s``: the time of a last poll that the receiver still has to make (Unix time by the store's clock); 0.0
      if there is none.
    """

    ring_version: int
    channel: ChannelId
    last_poll_s: float = 0.0


class Candidate(msgspec.Struct, frozen=True, tag=True, rename={"polling_hints": "wishes", "metadata": "imprint"}):
    """Message from a polling node to the channel's owner: the changes that a poll has found.

    - ``delta``: the changes. ``delta.base_version`` is the version that the poll was compared with.
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
        """The channel whose changes this message contains."""
        return self.delta.channel

    @property
    def base_version(self) -> int:
        """The version that the poll was compared with."""
        return self.delta.base_version


class PollingLimit(msgspec.Struct, frozen=True, tag=True):
    """Message from a polling node to the channel's owner: a limit for the channel's polls has changed.

    - ``reason``: the kind of the limit, set by the publisher or by failed polls (:mod:`service.corona.polling_limits`).
    - ``shortest_interval_s``: the minimum time in seconds between two polls of the channel by any nodes; 0 if there is
      no such limit any more.
    - ``until_s``: for a pause, its end (Unix time by the store's clock); 0 if the channel is not paused. It is ignored
      for other kinds.
    """

    # It is sent after a poll, or after a poll that was not allowed, if the limit differs from the limit in the member's
    # assignment.

    channel: ChannelId
    reason: LimitReason
    shortest_interval_s: LimitSeconds = 0
    until_s: LimitTime = 0


class VersionBase(msgspec.Struct, frozen=True, array_like=True):
    """What a polling node needs to compare its next poll with a new version of the channel.

    - ``validators``: the HTTP validators for the next request.
    - ``detected_s``: the Unix time at which the changes were detected. A node recognises its own changes by it.
    - ``subscribers``: the channel's number of subscribers.
    - ``digest``: the hash of the content (:mod:`service.location.content_cache`).

    With this information, the polling node need not read the store.
    """

    validators: model.Validators
    detected_s: float
    subscribers: int
    digest: bytes = b""


class VersionAnnouncement(msgspec.Struct, frozen=True, tag="Versioned"):
    """Message from a channel's owner to the nodes that poll it: the channel has a new version.

    ``base`` describes it as far as the next polls need it; None if the receivers have to load it from the store.
    """

    channel: ChannelId
    version: int
    base: VersionBase | None = None


class Rejection(msgspec.Struct, frozen=True, tag="Rejected"):
    """Message from a channel's owner to a polling node: the changes that it has sent are not stored.

    They were compared with the version ``base_version``, which is not the channel's current one.
    """

    channel: ChannelId
    base_version: int
    current_version: int


class ChannelAdded(msgspec.Struct, frozen=True, tag=True):
    """Message from any process to the node that owns the channel: poll this channel.

    The channel has a subscriber now, or an admin has listed the channel.
    """

    channel: ChannelId


class ChannelRemoved(msgspec.Struct, frozen=True, tag=True):
    """Message from any process to the node that owns the channel: this channel has been removed."""

    channel: ChannelId


CONTINUOUS, MIXED = 0, -1
"""Special values of ``Aggregate.base``.

``CONTINUOUS`` means that any number of polls is allowed, and ``MIXED`` means that nodes have different bases.
"""


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """A summary of the channels of some nodes of the fleet.

    - ``nodes``: the number of these nodes.
    - ``demand``: the cost per poll interval τ of the polls that the channels' subscribers would make on their own.
    - ``clusters``: sums of similar channels, as encoded by ``service.corona.optimizer.tradeoff_clusters``. If only
      whole polling levels are allowed, the clusters cover only the polls that each channel has before its first step
      (see ``steps``).
    - ``base``: the number base of the polling levels, ``CONTINUOUS`` if any number of polls is allowed, or ``MIXED`` if
      nodes have different bases.
    - ``steps``: if only whole polling levels are allowed, the changes of channels from one level to the next, as
      encoded by ``service.corona.optimizer.polling_levels``.
    - ``channels``: the number of channels.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)]
    demand: Annotated[float, msgspec.Meta(ge=0)]
    clusters: bytes
    base: Annotated[int, msgspec.Meta(ge=-1)] = CONTINUOUS
    steps: bytes = b""
    channels: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0


class Summary(msgspec.Struct, frozen=True, tag=True):
    """Message with a new summary of the channels of the sender and of other nodes.

    ``aggregate`` covers all nodes whose ids begin with the same ``digits`` digits as the sender's id.
    """

    digits: int
    aggregate: Aggregate = msgspec.field(name="part")


class SummaryConfirmation(msgspec.Struct, frozen=True, tag=True):
    """Message in each maintenance interval: the sender's last :class:`Summary` with the same ``digits`` is still valid.

    ``digest`` is the hash (:func:`aggregate_digest`) of that summary's content. A receiver that has another summary, or
    none, answers with a :class:`SummaryRequest`.
    """

    digits: int
    digest: bytes


class SummaryRequest(msgspec.Struct, frozen=True, tag=True):
    """Request to the receiver to send its :class:`Summary` again.

    The requested summary covers the nodes whose ids begin with the same ``digits`` digits as the receiver's id.
    """

    digits: int


SummaryMessage = Summary | SummaryConfirmation | SummaryRequest


class SiteShare(msgspec.Struct, frozen=True, array_like=True):
    """A summary of the channels of one ``site`` that one node owns.

    ``clusters`` are sums of similar channels, as encoded by ``service.corona.optimizer.tradeoff_clusters``.
    """

    site: Site
    clusters: bytes


class SiteShares(msgspec.Struct, frozen=True, tag=True):
    """Message with summaries of the sender's channels, one for each site whose request budget may be exceeded.

    The receiver coordinates the polls of these sites. The message is sent when a summary has changed, and each
    maintenance interval.
    """

    shares: tuple[SiteShare, ...]


class SiteScale(msgspec.Struct, frozen=True, array_like=True):
    """A limit for the polls of the channels of ``site``, which keeps the site within its request budget.

    A channel has at most ``scale``·√(weight/cost) polls per poll interval τ (``allocation_solver.apply_site_scales``).
    """

    site: Site
    scale: Annotated[float, msgspec.Meta(ge=-1)]


class SiteScales(msgspec.Struct, frozen=True, tag=True):
    """Message from the node that coordinates some sites to the owners of their channels: limits for these channels.

    It is sent when a limit has changed, and each maintenance interval.
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
    """Return a hash of 8 bytes of a summary of channels."""
    # Cached, because a node sends the same aggregate to many nodes.
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
