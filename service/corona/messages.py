"""Messages between nodes, and from bots and the console to nodes, encoded as msgpack with a type tag.

Within one wire version, fields with a default may be added; older nodes ignore them. During an upgrade, a node can
receive messages that have another wire version or an unknown type, or that are malformed. :func:`decode` returns None
for these. The sender repeats each message until it is confirmed or outdated, so no information is lost.
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

    - ``rank``: the node's place in the order in which the nodes take turns, starting from 0.
    - ``schedule``: the times of the channel's polls.
    - ``version``: the sequence number of the channel's current version.
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
    """Tells a node to poll the channels in ``assignments``; sent by the channels' owner.

    - ``ring_version``: the version of the list of member nodes from which the owner has computed the assignments.
    - ``bucket_count``, ``buckets``: used only in an answer to :class:`BucketDigests`; otherwise 0 and empty.

    Such an answer contains all the receiver's assignments in some groups (*buckets*) of the owner's channels. The
    channels are divided into ``bucket_count`` groups by their ids, and ``buckets`` contains the indices of the
    groups in this message, counted from 0. If the receiver has other assignments from this owner in these groups,
    it drops them.
    """

    ring_version: int
    assignments: tuple[Assignment, ...]
    bucket_count: int = 0
    buckets: tuple[int, ...] = ()


class AssignmentDigest(msgspec.Struct, frozen=True, tag=True):
    """Tells a polling node, once per maintenance interval, that its assignments are still valid.

    The sender is the channels' owner. ``digest`` is the hash of all assignments that the owner has given to the
    receiver. ``ring_version`` is the version of the owner's list of member nodes.
    """

    ring_version: int
    digest: int


class BucketDigests(msgspec.Struct, frozen=True, tag=True):
    """Tells an owner the hashes of a polling node's assignments, one hash per group of channels.

    It answers an :class:`AssignmentDigest` whose hash differs from the polling node's own.

    - ``ring_version``: the version of the polling node's list of member nodes.
    - ``digests``: the hashes, as encoded by ``service.corona.assignment_digests``.

    If the owner has the same version of the list, it answers with an :class:`Assign` for the groups whose hashes differ
    from its own.
    """

    ring_version: int
    digests: Annotated[bytes, msgspec.Meta(max_length=8 * MAX_BUCKETS)]


class Unassign(msgspec.Struct, frozen=True, tag=True):
    """Tells a polling node to stop polling a channel; sent by the channel's owner.

    - ``ring_version``: the version of the owner's list of member nodes. The message is ignored if the receiver's
      assignment is based on a newer version.
    - ``last_poll_s``: the time of one last poll that the receiver still has to make (Unix time by the store's clock);
      0.0 if there is none.
    """

    ring_version: int
    channel: ChannelId
    last_poll_s: float = 0.0


class Candidate(msgspec.Struct, frozen=True, tag=True, rename={"polling_hints": "wishes", "metadata": "imprint"}):
    """Tells a channel's owner which changes a poll has found; sent by a polling node.

    - ``delta``: the changes. ``delta.base_version`` is the version with which the poll was compared.
    - ``validators``: the HTTP validators for the next request.
    - ``memory``: the state that entry detection needs for the next poll, as opaque bytes.
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
        """The version with which the poll was compared."""
        return self.delta.base_version


class PollingLimit(msgspec.Struct, frozen=True, tag=True):
    """Tells a channel's owner that a limit for the channel's polls has changed; sent by a polling node.

    - ``reason``: the kind of limit, set by the publisher or by failed polls (:mod:`service.corona.polling_limits`).
    - ``shortest_interval_s``: the minimum time in seconds between any two polls of the channel, whichever nodes make
      them; 0 if there is no such limit any more.
    - ``until_s``: for a pause, its end (Unix time by the store's clock); 0 if the channel is not paused. It is ignored
      for other kinds of limits.
    """

    # It is sent after a poll, or after a poll that was not allowed, if the limit differs from the limit in the member's
    # assignment.

    channel: ChannelId
    reason: LimitReason
    shortest_interval_s: LimitSeconds = 0
    until_s: LimitTime = 0


class VersionBase(msgspec.Struct, frozen=True, array_like=True):
    """Data with which a node can look for changes to a channel's new version, without reading the store.

    - ``validators``: the HTTP validators for the next request.
    - ``detected_s``: the Unix time at which the version's changes were detected. It allows a node to recognise
      changes that it has found itself.
    - ``subscribers``: the channel's number of subscribers.
    - ``digest``: the hash of the version's content (:mod:`service.location.content_cache`).
    """

    validators: model.Validators
    detected_s: float
    subscribers: int
    digest: bytes = b""


class VersionAnnouncement(msgspec.Struct, frozen=True, tag="Versioned"):
    """Announces a new version of a channel; sent by the channel's owner to the nodes that poll it.

    ``base`` is what these nodes need to know about the version for their next polls; None if they have to load it from
    the store.
    """

    channel: ChannelId
    version: int
    base: VersionBase | None = None


class Rejection(msgspec.Struct, frozen=True, tag="Rejected"):
    """Tells a polling node that the changes it has found will not be stored; sent by the channel's owner.

    The changes were compared with the version ``base_version``, but the channel's current version is
    ``current_version``.
    """

    channel: ChannelId
    base_version: int
    current_version: int


class ChannelAdded(msgspec.Struct, frozen=True, tag=True):
    """Asks the node that owns the channel to poll it; sent by any process.

    The reason is that the channel now has a subscriber, or that an admin has listed it.
    """

    channel: ChannelId


class ChannelRemoved(msgspec.Struct, frozen=True, tag=True):
    """Tells the node that owns the channel that the channel has been removed; sent by any process."""

    channel: ChannelId


CONTINUOUS, MIXED = 0, -1
"""Special values of ``Aggregate.base``.

``CONTINUOUS`` means that any number of polls is allowed, and ``MIXED`` means that nodes have different bases.
"""


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """A summary of the channels of some nodes of the fleet.

    - ``nodes``: how many nodes the summary covers.
    - ``demand``: the sum of the channels' demands per poll interval τ (``node_allocation.channel_demands``). A
      channel's demand is the load of one poll per subscriber, within certain limits.
    - ``clusters``: sums over groups of similar channels, as encoded by
      ``service.corona.optimizer.tradeoff_clusters``.
    - ``base``: the number base of the polling levels. It is ``CONTINUOUS`` if channels may have any number of polls,
      and ``MIXED`` if the nodes have different settings.
    - ``steps``: the increases of polls from one polling level to the next, as encoded by
      ``service.corona.optimizer.polling_levels``. It is empty if channels may have any number of polls.
    - ``channels``: how many channels the summary covers.

    If only whole polling levels are allowed, a channel's polls are described by two fields. ``clusters`` describes its
    polls up to one per τ, or up to its minimum if that is higher. ``steps`` describes all further polls.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)]
    demand: Annotated[float, msgspec.Meta(ge=0)]
    clusters: bytes
    base: Annotated[int, msgspec.Meta(ge=-1)] = CONTINUOUS
    steps: bytes = b""
    channels: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0


class Summary(msgspec.Struct, frozen=True, tag=True):
    """Contains a summary of the channels of the sender, and of nodes with similar ids.

    ``aggregate`` covers all nodes whose ids begin with the same ``digits`` digits as the sender's id.
    """

    digits: int
    aggregate: Aggregate = msgspec.field(name="part")


class SummaryConfirmation(msgspec.Struct, frozen=True, tag=True):
    """Confirms that the sender's last :class:`Summary` with the same ``digits`` is still valid.

    It is sent once per maintenance interval. ``digest`` is the hash (:func:`aggregate_digest`) of that summary's
    content. If the receiver has stored a different summary, or none, it answers with a :class:`SummaryRequest`.
    """

    digits: int
    digest: bytes


class SummaryRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks the receiver to send its :class:`Summary` with the same ``digits`` again.

    This summary covers the nodes whose ids begin with the same ``digits`` digits as the receiver's id.
    """

    digits: int


SummaryMessage = Summary | SummaryConfirmation | SummaryRequest


class SiteShare(msgspec.Struct, frozen=True, array_like=True):
    """A summary of the channels on ``site`` that one node owns.

    ``clusters`` contains sums over groups of similar channels, as encoded by
    ``service.corona.optimizer.tradeoff_clusters``.
    """

    site: Site
    clusters: bytes


class SiteShares(msgspec.Struct, frozen=True, tag=True):
    """Contains summaries of the sender's channels, one for each site whose request budget may be exceeded.

    The receiver is the node that coordinates the polls of these sites. The message is sent when a summary has changed,
    and once per maintenance interval.
    """

    shares: tuple[SiteShare, ...]


class SiteScale(msgspec.Struct, frozen=True, array_like=True):
    """A limit for the polls of the channels on ``site``, which keeps them within the site's request budget.

    A channel has at most ``scale``·√(weight/cost) polls per poll interval τ (``allocation_solver.apply_site_scales``).
    """

    site: Site
    scale: Annotated[float, msgspec.Meta(ge=-1)]


class SiteScales(msgspec.Struct, frozen=True, tag=True):
    """Contains upper limits for the polls of channels on some sites; sent to the nodes that own these channels.

    The sender is the node that coordinates the polls of these sites. The message is sent when a limit has
    changed, and once per maintenance interval.
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


CONFIRMATIONS = AssignmentDigest | SummaryConfirmation
"""Messages that only confirm unchanged state. They are repeated at each maintenance, and can wait for a while."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message as it is sent to other nodes. ``sender`` is a node id, or empty for bots and the console."""

    wire_version: int
    sender: model.NodeId
    message: Message


_CACHED_DIGESTS = 32

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


@lru_cache(_CACHED_DIGESTS)
def aggregate_digest(aggregate: Aggregate) -> bytes:
    """Return an 8-byte hash of a summary of channels."""
    # Cached, because a node sends the same aggregate to many nodes.
    return blake2b(_encoder.encode(aggregate), digest_size=8).digest()


def encode(sender: model.NodeId, message: Message) -> bytes:
    """Encode the message in the format that :func:`decode` reads; ``sender`` is a node id, or empty."""
    return _encoder.encode(Envelope(WIRE_VERSION, sender, message))


def decode(raw: bytes) -> Envelope | None:
    """Return the envelope that :func:`encode` has encoded; None if it is malformed or has another wire version."""
    try:
        envelope = _decoder.decode(raw)
    except msgspec.MsgspecError:
        return None
    return envelope if envelope.wire_version == WIRE_VERSION else None
