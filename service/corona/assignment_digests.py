"""Hashes with which a channel owner and a polling node check that they agree on the polls of this node.

The *owner* of channels assigns their polls to other nodes. Assignments rarely change, so the owner does not keep
sending them. Instead, it sends each polling node a *digest*: the XOR of the 64-bit fingerprints of all assignments that
it has given to that node. The polling node computes the same digest from the assignments that it knows. Two different
sets of assignments have the same digest with a probability of 2⁻⁶⁴.

If the two digests differ:

1. The polling node answers with one digest per *bucket*: channels are divided into buckets according to their ids.
2. The owner sends all assignments in the buckets whose digests differ.

A change to one assignment updates only two digests: the digest of all assignments, and the digest of one bucket.
"""

from hashlib import blake2b
from struct import pack, unpack

import msgspec

from service.corona.messages import MAX_BUCKETS, Assignment
from service.model import ChannelId

_DIGEST_BYTES = 8
_CHANNELS_PER_BUCKET = 64
_BUCKET_DIGITS = 4
"""Number of hex digits at the end of a channel's id that determine its bucket.

The first digits are not suitable, because all channels of an owner have them in common.
"""

_encoder = msgspec.msgpack.Encoder()


def fingerprint(assignment: Assignment) -> int:
    """Return a 64-bit hash of an assignment (an instruction to one node to poll a channel).

    The hash depends only on the content of the assignment. It is the same in all processes.
    """
    place = _hash(_encoder.encode(msgspec.structs.replace(assignment, version=0)))
    return place ^ version_fingerprint(assignment.channel, assignment.version)


def version_fingerprint(channel: ChannelId, version: int) -> int:
    """Return the part of an assignment's hash (:func:`fingerprint`) that depends on the channel's version.

    The hash is the XOR of this part and a hash of all other fields. To update the hash when the version changes, XOR
    it with the parts for the old version and the new version.
    """
    return _hash(f"{channel} {version}".encode())


def bucket_of(channel: ChannelId, buckets: int) -> int:
    """Return the index of the bucket that contains ``channel`` if channels are divided into ``buckets`` buckets.

    ``buckets`` is a power of two.
    """
    return int(channel[-_BUCKET_DIGITS:], 16) % buckets


def is_bucket_count(buckets: int) -> bool:
    """Return whether ``buckets`` is a valid number of buckets: a power of two up to ``MAX_BUCKETS``."""
    return 1 <= buckets <= MAX_BUCKETS and buckets.bit_count() == 1


class AssignmentDigests:
    """Hashes of all polls that one node has assigned to another node.

    Channels are divided into *buckets* by their ids. There is one hash of all assignments, and one hash of the
    assignments in each bucket. The two nodes compare their hashes to find the assignments on which they disagree.
    """

    __slots__ = ("_by_bucket", "count", "total")

    def __init__(self) -> None:
        """Start without assignments."""
        self.total = 0
        """The digest of all assignments."""
        self.count = 0
        """The number of assignments."""
        self._by_bucket: dict[int, int] = {}
        """The digests by bucket, with ``MAX_BUCKETS`` buckets; digests of 0 are left out."""

    def replace(self, channel: ChannelId, before: int, after: int) -> None:
        """Update the hashes after the assignment for ``channel`` has changed.

        ``before`` and ``after`` are the assignment's old and new hash (:func:`fingerprint`); 0 means no assignment.
        """
        change, bucket = before ^ after, bucket_of(channel, MAX_BUCKETS)
        self.total ^= change
        self.count += (after != 0) - (before != 0)
        if digest := self._by_bucket.pop(bucket, 0) ^ change:
            self._by_bucket[bucket] = digest

    @property
    def suitable_buckets(self) -> int:
        """The number of buckets that results in 32 to 64 channels per bucket on average; at most ``MAX_BUCKETS``."""
        return min(MAX_BUCKETS, 1 << ((self.count - 1) // _CHANNELS_PER_BUCKET).bit_length()) if self.count else 1

    def by_bucket(self, buckets: int) -> list[int]:
        """Return one hash per bucket, with all channels divided into ``buckets`` buckets.

        ``buckets`` is a power of two up to ``MAX_BUCKETS``.
        """
        digests = [0] * buckets
        for bucket, digest in self._by_bucket.items():
            digests[bucket % buckets] ^= digest
        return digests


def encode_digests(digests: list[int]) -> bytes:
    """Encode hashes as bytes; :func:`decode_digests` decodes them."""
    return pack(f">{len(digests)}Q", *digests)


def decode_digests(encoded: bytes) -> tuple[int, ...] | None:
    """Return the hashes that :func:`encode_digests` has encoded; None if ``encoded`` is malformed.

    There is one hash per bucket, so the number of hashes must be a valid number of buckets (:func:`is_bucket_count`).
    """
    buckets, rest = divmod(len(encoded), _DIGEST_BYTES)
    return None if rest or not is_bucket_count(buckets) else unpack(f">{buckets}Q", encoded)


def _hash(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=_DIGEST_BYTES).digest())
