"""Keys of subscriptions, groups of keys with a common prefix, and the keyspaces of these groups (CLASH §III, §IV).

A key consists of the first bits of three hashes: of the publisher's registrable domain, of the channel, and of the
subscriber, in this order. All subscriptions to one publisher therefore share a prefix, and those to one channel share a
longer prefix. Because of the last part, even the subscriptions to a single channel can be divided into groups. Two
subscriptions with the same key differ in their id (:mod:`service.clash.prefix_query`).

A group's *label* is its prefix, followed by ``*`` if it is shorter than a key. Example for keys of 7 bits: ``0110*`` is
the group with the depth 4 and the virtual key 0110000.

A *keyspace* is a partition of the store, called a server in the paper. Its name is a hash tag of Redis Cluster, so that
a client that knows the name reaches it in one hop. No ring of keyspaces is needed.
"""

from functools import lru_cache
from hashlib import sha1
from typing import Protocol

import msgspec

from service.errors import BadKey, UnknownKeyspace
from service.model import ChannelId, UserId

_CACHED_GROUPS = 10_000


def shape(key: int, depth: int, bits: int) -> int:
    """Return ``key`` with all bits after its first ``depth`` bits set to zero.

    ``bits`` is the length of the key in bits. The result is the *virtual key* Shape(key, depth) of §IV.
    """
    free = bits - depth
    return key >> free << free


class KeyGroup(msgspec.Struct, frozen=True, order=True, gc=False):
    """A key group: all keys of ``bits`` bits that begin with the same prefix of ``depth`` bits.

    ``key`` is the *virtual key* of the group: its prefix, padded with zeros to ``bits`` bits.
    """

    key: int
    depth: int
    bits: int

    @classmethod
    def containing(cls, key: int, depth: int, bits: int) -> "KeyGroup":
        """Return the group of all keys whose first ``depth`` bits are the same as those of ``key``.

        ``bits`` is the length of a key in bits.
        """
        return cls(shape(key, depth, bits), depth, bits)

    @classmethod
    def from_label(cls, label: str, bits: int) -> "KeyGroup":
        """Return the group with this label, such as ``0110*``; its keys have ``bits`` bits.

        Raises :class:`BadKey` if the label is malformed.
        """
        prefix = label.removesuffix("*")
        whole = len(prefix) == bits
        if prefix.strip("01") or len(prefix) > bits or whole is label.endswith("*"):
            raise BadKey(f"{label!r} labels no group of keys of {bits} bits. Write its prefix, and * if keys go on.")
        return cls(int(prefix or "0", 2) << (bits - len(prefix)), len(prefix), bits)

    @property
    def label(self) -> str:
        """The group's prefix in binary, followed by ``*`` if the prefix is shorter than a key."""
        digits = f"{self.key:0{self.bits}b}"[: self.depth]
        return digits if self.depth == self.bits else digits + "*"

    @property
    def last(self) -> int:
        """The highest key of the group."""
        return self.key | (1 << (self.bits - self.depth)) - 1

    @property
    def left(self) -> "KeyGroup":
        """The left half: the keys of the group whose next bit is 0."""
        # Its virtual key is that of the group.
        return KeyGroup(self.key, self.depth + 1, self.bits)

    @property
    def right(self) -> "KeyGroup":
        """The right half: the keys of the group whose next bit is 1."""
        return KeyGroup(self.key | 1 << (self.bits - self.depth - 1), self.depth + 1, self.bits)

    @property
    def parent(self) -> "KeyGroup":
        """The group that contains this group as its left or right half."""
        return KeyGroup.containing(self.key, self.depth - 1, self.bits)

    def __contains__(self, key: int) -> bool:
        return shape(key, self.depth, self.bits) == self.key

    def intersection(self, other: "KeyGroup") -> "KeyGroup | None":
        """Return the group of the keys that are in both this group and ``other``; None if the groups are disjoint."""
        inner, outer = sorted((self, other), key=lambda group: -group.depth)
        return inner if inner.key in outer else None

    def common_bits(self, key: int) -> int:
        """Return the number of leading bits that ``key`` and the group's prefix share (the prefix match of §V.B)."""
        return min(self.depth, self.bits - (self.key ^ key).bit_length())


class KeyLayout(msgspec.Struct, frozen=True):
    """The widths in bits of the three parts of a key: domain, channel and subscriber.

    All keys in a store have the same layout.
    """

    domain_bits: int = 8
    channel_bits: int = 16
    subscriber_bits: int = 8

    @property
    def bits(self) -> int:
        """The length of a key in bits, N in the paper."""
        return self.domain_bits + self.channel_bits + self.subscriber_bits

    def key(self, domain: str, channel: ChannelId, subscriber: UserId) -> int:
        """Return the key for the subscription of ``subscriber`` to ``channel`` (the *identifier key* of the paper).

        ``domain`` is the registrable domain of the channel's URL.
        """
        return self.channel_group(domain, channel).key | _first_bits(subscriber, self.subscriber_bits)

    @lru_cache(_CACHED_GROUPS)  # noqa: B019 - a layout is a value, of which a process has one
    def channel_group(self, domain: str, channel: ChannelId) -> KeyGroup:
        """Return the group that contains all subscriptions to a channel.

        It may also contain subscriptions to other channels, if their hashes begin with the same bits. ``domain`` is the
        registrable domain of the channel's URL.
        """
        prefix = _first_bits(domain, self.domain_bits) << self.channel_bits | _first_bits(channel, self.channel_bits)
        return KeyGroup(prefix << self.subscriber_bits, self.domain_bits + self.channel_bits, self.bits)


def check_key(key: int, bits: int) -> None:
    """Raise :class:`BadKey` unless ``key`` fits into ``bits`` bits."""
    if key < 0 or key >> bits:
        raise BadKey(f"{key:#x} is no identifier key of {bits} bits. Make keys with the layout of this store.")


def _first_bits(text: str, count: int) -> int:
    return int.from_bytes(sha1(text.encode(), usedforsecurity=False).digest()) >> (HASH_BITS - count)


HASH_BITS = 160

Keyspace = int
"""The number of a keyspace, from 0.

A keyspace is a partition of the store that holds some key groups (a server in the paper).
"""


class KeyspaceMap(Protocol):
    """Maps key groups to keyspaces, the partitions of the store (the function Map of CLASH §IV).

    A group's keyspace depends on the group's prefix padded with zeros, but not on the length of the prefix.
    """

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        """Return the keyspace to which the group is mapped."""
        ...


class Keyspaces(msgspec.Struct, frozen=True):
    """All keyspaces (partitions) of a store, numbered from 0 to ``count`` - 1.

    Each keyspace covers an equal share of the range of hashes. ``count`` must never change: otherwise, groups would be
    looked up in keyspaces that do not store them.
    """

    count: int = 256

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        """Return the keyspace to which the group is mapped."""
        return hash_key(group) * self.count >> HASH_BITS

    def point(self, keyspace: Keyspace) -> str:
        """Return the id (40 hex digits) that determines which node balances the load of a keyspace.

        The id is the lowest hash in the keyspace's share of the range of hashes. The node whose own id is nearest to it
        runs the keyspace's key group balancer.
        """
        return f"{-(-(keyspace << HASH_BITS) // self.count):040x}"

    def check(self, keyspace: Keyspace) -> None:
        """Raise :class:`UnknownKeyspace` unless the keyspace exists."""
        if not 0 <= keyspace < self.count:
            raise UnknownKeyspace(f"There is no keyspace {keyspace}: this store has 0 to {self.count - 1}.")


def hash_key(group: KeyGroup) -> int:
    """Return the 160-bit hash that determines a group's keyspace (§IV): the SHA-1 hash of the zero-padded prefix."""
    size = (group.bits + 7) // 8
    return int.from_bytes(sha1(group.key.to_bytes(size), usedforsecurity=False).digest())
