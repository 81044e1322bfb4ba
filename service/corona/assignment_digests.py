"""Hashes by which two nodes confirm that they agree which channels one of them polls for the other.

The *owner* of channels assigns their polls to other nodes. Assignments hardly ever change, so they are not sent again
and again. Instead, the owner sends each node a *digest*: the XOR of the 64-bit fingerprints of all its assignments. Two
sets of assignments that differ have the same digest with a probability of 2⁻⁶⁴.

If the digests of the two nodes differ:

1. The node answers with the digests of *buckets*, into which channels are divided by their ids.
2. The owner sends the assignments of the buckets that differ.

A change of one assignment updates two numbers only: the digest of all assignments, and that of one bucket.
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
    """Return a hash of 64 bits of the content of an assignment, the same in all processes."""
    place = _hash(_encoder.encode(msgspec.structs.replace(assignment, version=0)))
    return place ^ version_fingerprint(assignment.channel, assignment.version)


def version_fingerprint(channel: ChannelId, version: int) -> int:
    """Return the part of an assignment's hash that depends on the version of the channel's content.

    New hash after a change of version = old hash XOR part for the old version XOR part for the new version.
    """
    return _hash(f"{channel} {version}".encode())


def bucket_of(channel: ChannelId, buckets: int) -> int:
    """Return the number of the channel's bucket if channels are divided into ``buckets`` groups.

    ``buckets`` is a power of two.
    """
    return int(channel[-_BUCKET_DIGITS:], 16) % buckets


def is_bucket_count(buckets: int) -> bool:
    """Return whether channels can be divided into ``buckets`` groups: it is a power of two up to ``MAX_BUCKETS``."""
    return 1 <= buckets <= MAX_BUCKETS and buckets.bit_count() == 1


class AssignmentDigests:
    """Hashes of the polls that one node has assigned to another: one for all channels, and one per group of channels.

    Both nodes compare these hashes to find the assignments in which they differ.
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
        """Replace the hash of the channel's assignment, ``before``, by ``after``; 0 stands for no assignment."""
        change, bucket = before ^ after, bucket_of(channel, MAX_BUCKETS)
        self.total ^= change
        self.count += (after != 0) - (before != 0)
        if digest := self._by_bucket.pop(bucket, 0) ^ change:
            self._by_bucket[bucket] = digest

    @property
    def suitable_buckets(self) -> int:
        """The number of groups at which each group has 32 to 64 channels on average; at most ``MAX_BUCKETS``."""
        return min(MAX_BUCKETS, 1 << ((self.count - 1) // _CHANNELS_PER_BUCKET).bit_length()) if self.count else 1

    def by_bucket(self, buckets: int) -> list[int]:
        """Return the hash of each group if all channels are divided into ``buckets`` groups.

        ``buckets`` is a power of two up to ``MAX_BUCKETS``.
        """
        digests = [0] * buckets
        for bucket, digest in self._by_bucket.items():
            digests[bucket % buckets] ^= digest
        return digests


def encode_digests(digests: list[int]) -> bytes:
    """Return hashes as bytes, which :func:`decode_digests` reads."""
    return pack(f">{len(digests)}Q", *digests)


def decode_digests(encoded: bytes) -> tuple[int, ...] | None:
    """Return the hashes that :func:`encode_digests` has encoded; None if ``encoded`` is malformed.

    The number of hashes must be a possible number of buckets (:func:`is_bucket_count`).
    """
    buckets, rest = divmod(len(encoded), _DIGEST_BYTES)
    return None if rest or not is_bucket_count(buckets) else unpack(f">{buckets}Q", encoded)


def _hash(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=_DIGEST_BYTES).digest())
