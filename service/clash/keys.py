"""Identifier keys: what subscriptions lie together by, the most significant bits first (CLASH §III).

A key says in turn the publisher's registrable domain, the channel and the subscriber, each as the first bits of a hash.
So one publisher's subscriptions have a common prefix, and those of one channel a longer one; and even a single channel
can be split, by subscriber. Two that share a key are told apart by their id (:mod:`service.clash.records`).
"""

from hashlib import sha1

import msgspec

from service.clash.groups import KeyGroup, shape
from service.errors import BadKey
from service.model import ChannelId, UserId


class Layout(msgspec.Struct, frozen=True):
    """How many bits of a key each part has. All keys of one store have the same layout."""

    domain_bits: int = 8
    channel_bits: int = 16
    subscriber_bits: int = 8

    @property
    def bits(self) -> int:
        """N, the length of a key."""
        return self.domain_bits + self.channel_bits + self.subscriber_bits

    def key(self, domain: str, channel: ChannelId, subscriber: UserId) -> int:
        """Return a subscription's identifier key; ``domain`` is the registrable domain of the channel's URL."""
        return self.channel_group(domain, channel).key | _first_bits(subscriber, self.subscriber_bits)

    def channel_group(self, domain: str, channel: ChannelId) -> KeyGroup:
        """Return the prefix of all subscriptions to a channel (and of few others: hashes are short)."""
        depth = self.domain_bits + self.channel_bits
        own = _first_bits(channel, self.channel_bits) << self.subscriber_bits
        return KeyGroup(self.domain_group(domain).key | own, depth, self.bits)

    def domain_group(self, domain: str) -> KeyGroup:
        """Return the prefix of all subscriptions to one publisher's channels."""
        key = _first_bits(domain, self.domain_bits) << (self.bits - self.domain_bits)
        return KeyGroup(shape(key, self.domain_bits, self.bits), self.domain_bits, self.bits)


def check_key(key: int, bits: int) -> None:
    """Raise :class:`BadKey` unless this is a key of so many bits."""
    if key < 0 or key >> bits:
        raise BadKey(f"{key:#x} is no identifier key of {bits} bits. Make keys with the layout of this store.")


def _first_bits(text: str, count: int) -> int:
    digest = sha1(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest) >> (8 * len(digest) - count)
