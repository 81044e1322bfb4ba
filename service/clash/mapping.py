"""Map: from a group's virtual key to its keyspace (CLASH §IV, Figure 1b).

A keyspace is what the paper calls a server. Redis Cluster's slots are the overlay below: a keyspace's name is a hash
tag, so that whoever knows the name reaches it in one hop, and nobody keeps a ring.
"""

from hashlib import sha1
from typing import Protocol

import msgspec

from service.clash.groups import KeyGroup
from service.errors import UnknownKeyspace

HASH_BITS = 160

Keyspace = int
"""From 0."""


class Map(Protocol):
    """Which keyspace has a group. It depends on the virtual key alone, not on the depth."""

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        """Return the group's keyspace."""
        ...


class Keyspaces(msgspec.Struct, frozen=True):
    """So many keyspaces, each with the same share of the hashes. Their number never changes: groups would be lost."""

    count: int = 256

    def keyspace_of(self, group: KeyGroup) -> Keyspace:
        """Return the group's keyspace."""
        return hash_key(group) * self.count >> HASH_BITS

    def point(self, keyspace: Keyspace) -> str:
        """Return the keyspace's id among those of nodes: the first hash of its share, in 40 hex digits."""
        return f"{-(-(keyspace << HASH_BITS) // self.count):040x}"

    def check(self, keyspace: Keyspace) -> None:
        """Raise :class:`UnknownKeyspace` unless there is such a keyspace."""
        if not 0 <= keyspace < self.count:
            raise UnknownKeyspace(f"There is no keyspace {keyspace}: this store has 0 to {self.count - 1}.")


def hash_key(group: KeyGroup) -> int:
    """Return the hash key of a group: SHA-1 of its virtual key, 160 bits."""
    size = (group.bits + 7) // 8
    return int.from_bytes(sha1(group.key.to_bytes(size), usedforsecurity=False).digest())
