"""Key groups: all identifier keys with a common prefix (CLASH §IV.A).

A group's label is its prefix and, if keys go on after it, ``*``: ``0110*`` is the group of depth 4 and virtual key
0110000 among keys of 7 bits.
"""

import msgspec

from service.errors import BadKey


def shape(key: int, depth: int, bits: int) -> int:
    """Return the virtual key: the first ``depth`` of the key's ``bits``, and zeros."""
    free = bits - depth
    return key >> free << free


class KeyGroup(msgspec.Struct, frozen=True, order=True, gc=False):
    """The keys of ``bits`` bits whose first ``depth`` are those of the virtual key ``key``."""

    key: int
    depth: int
    bits: int

    @classmethod
    def around(cls, key: int, depth: int, bits: int) -> "KeyGroup":
        """Return the group of this depth that has the key."""
        return cls(shape(key, depth, bits), depth, bits)

    @classmethod
    def labelled(cls, label: str, bits: int) -> "KeyGroup":
        """Return the group that has this label, or raise :class:`BadKey`."""
        prefix = label.removesuffix("*")
        whole = len(prefix) == bits
        if prefix.strip("01") or len(prefix) > bits or whole is label.endswith("*"):
            raise BadKey(f"{label!r} labels no group of keys of {bits} bits. Write its prefix, and * if keys go on.")
        return cls(int(prefix or "0", 2) << (bits - len(prefix)), len(prefix), bits)

    @property
    def label(self) -> str:
        """The prefix in bits, and ``*`` if keys go on after it."""
        digits = f"{self.key:0{self.bits}b}"[: self.depth]
        return digits if self.depth == self.bits else digits + "*"

    @property
    def last(self) -> int:
        """The greatest key of the group; its virtual key is the least."""
        return self.key | (1 << (self.bits - self.depth)) - 1

    @property
    def left(self) -> "KeyGroup":
        """The half that keeps the virtual key."""
        return KeyGroup(self.key, self.depth + 1, self.bits)

    @property
    def right(self) -> "KeyGroup":
        """The half whose next bit is 1."""
        return KeyGroup(self.key | 1 << (self.bits - self.depth - 1), self.depth + 1, self.bits)

    @property
    def parent(self) -> "KeyGroup":
        """The group that this is a half of."""
        return KeyGroup.around(self.key, self.depth - 1, self.bits)

    def __contains__(self, key: int) -> bool:
        return shape(key, self.depth, self.bits) == self.key

    def shared(self, other: "KeyGroup") -> "KeyGroup | None":
        """Return the keys that are in both groups: one of the two, or None."""
        inner, outer = sorted((self, other), key=lambda group: -group.depth)
        return inner if inner.key in outer else None

    def common_bits(self, key: int) -> int:
        """Return how many of the prefix's bits a key begins with."""
        return min(self.depth, self.bits - (self.key ^ key).bit_length())
