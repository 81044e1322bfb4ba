"""Postings: the records that a cell of the search directory stores about names (channels or entries).

All names in a cell have the same attribute-value pair. A posting's expiry time is also its version: of two postings of
the same name, the one that expires later is valid. If both expire in the same second, a withdrawal takes precedence.
Writes may therefore be repeated, and may arrive in any order. When a name changes, it has to be registered with a later
expiry time than before.

A packed posting is 13 bytes long, in big-endian order:

====  ===================================================================================
size  content
====  ===================================================================================
8     key of the name (:func:`name_key`)
1     weight of the pair in the name, 1 to 255; 0 if the name is withdrawn from the pair
4     expiry (Unix time in seconds)
====  ===================================================================================
"""

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

NameKey = int
"""The key of a content name: a digest of 64 bits."""

PostingArray = NDArray[Any]
"""Postings as an array of ``POSTING_TYPE``."""

NameKeys = NDArray[np.uint64]
NameWeights = NDArray[np.uint8]

POSTING_TYPE: Final = np.dtype([("name", ">u8"), ("weight", "u1"), ("expires_s", ">u4")])
POSTING_BYTES: Final = POSTING_TYPE.itemsize

_FORMAT = struct.Struct(">QBI")
_DECODED_BYTES: Final = 8 << 20
"""Maximum size of all decoded postings that a process caches."""
_CACHED_FROM_BYTES: Final = 2_000
"""Size of a cell from which its decoded postings are cached; decoding fewer takes no longer than finding them."""
_NO_NAMES: Final[NameKeys] = np.empty(0, np.uint64)
_NO_WEIGHTS: Final[NameWeights] = np.empty(0, np.uint8)


def name_key(name: str) -> NameKey:
    """Return the key of a content name (the id of a channel or entry): 64 bits of its BLAKE2b hash.

    The low bits of the key determine the partition in which the name is stored.
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())


class Posting(msgspec.Struct, frozen=True, order=True):
    """A cell's record of one name.

    - ``name``: the key of the name.
    - ``weight``: 1 to 255, or 0 if the name is withdrawn.
    - ``expires_s``: the Unix time in seconds at which the record expires.
    """

    name: NameKey
    weight: int
    expires_s: int

    def supersedes(self, other: "Posting") -> bool:
        """Return whether this posting replaces ``other``, a posting of the same name.

        The posting that expires later is valid. If both expire at the same time, a withdrawal takes precedence, and
        otherwise the posting with the greater weight.
        """
        return (self.expires_s, not self.weight, self.weight) > (other.expires_s, not other.weight, other.weight)


def pack(postings: Iterable[Posting]) -> bytes:
    """Pack postings (records of names) into bytes, in the format that the module's docstring describes."""
    return b"".join(_FORMAT.pack(each.name, each.weight, each.expires_s) for each in postings)


def unpack(packed: bytes) -> list[Posting]:
    """Unpack the postings that :func:`pack` has packed."""
    return [Posting(*fields) for fields in _FORMAT.iter_unpack(packed)]


def parse(packed: bytes) -> PostingArray:
    """Return packed postings (records of names) as a NumPy array that shares its memory with ``packed``."""
    return np.frombuffer(packed, POSTING_TYPE)


class _Postings(msgspec.Struct, frozen=True):
    """Postings as arrays, sorted by name, with the valid posting of each name.

    Until ``valid_until_s`` (Unix time), none of them is withdrawn or has expired; 0 if one is withdrawn.
    """

    names: NameKeys
    weights: NameWeights
    expiries_s: NDArray[np.uint32]
    valid_until_s: int

    @property
    def size(self) -> int:
        """The size of the arrays in bytes."""
        return len(self.names) * POSTING_BYTES


_decoded: LRUCache[tuple[bytes, ...], _Postings] = LRUCache(_DECODED_BYTES, lambda postings: postings.size)
"""Postings that were decoded last. Popular pairs have many, and are read from the process's copies of their cells.

The packed postings, by which they are found here, take as much memory again.
"""


def valid_names(parts: Sequence[bytes], now_s: float) -> tuple[NameKeys, NameWeights]:
    """Return (sorted keys of the names, the weight of each name in the same order) by the postings in ``parts``.

    ``parts`` are the packed postings (records of names) of several cells. If a name occurs several times, its valid
    posting counts. Names whose posting has expired and withdrawn names are left out. ``now_s`` is the Unix time in
    seconds.
    """
    if not parts:
        return _NO_NAMES, _NO_WEIGHTS
    key = tuple(parts)
    postings = _decoded.get(key) if len(parts[0]) >= _CACHED_FROM_BYTES else None
    if postings is None:
        postings = _decode(parts)
        if len(parts[0]) >= _CACHED_FROM_BYTES and postings.size <= _DECODED_BYTES:
            _decoded[key] = postings
    if postings.valid_until_s > int(now_s):
        return postings.names, postings.weights
    is_valid = (postings.weights > 0) & (postings.expiries_s > int(now_s))
    return postings.names[is_valid], postings.weights[is_valid]


def _decode(parts: Sequence[bytes]) -> _Postings:
    packed = parse(parts[0] if len(parts) == 1 else b"".join(parts))
    names, weights, expiries_s = packed["name"].astype(np.uint64), packed["weight"], packed["expires_s"]
    if np.count_nonzero(names[1:] <= names[:-1]):  # a third of the time of any()
        order = names.argsort(kind="stable")
        in_order = names[order]
        if (in_order[1:] == in_order[:-1]).any():
            precedence = np.where(weights == 0, 256, weights.astype(np.int64))
            order = np.lexsort((expiries_s.astype(np.int64) * 512 + precedence, names))
            in_order = names[order]
            order = order[np.append(in_order[1:] != in_order[:-1], True)]  # the last one of each name
        names, weights, expiries_s = names[order], weights[order], expiries_s[order]
    is_withdrawn = np.count_nonzero(weights) < len(names)
    valid_until_s = int(np.minimum.reduce(expiries_s)) if len(names) and not is_withdrawn else 0
    weights = weights.copy()
    for shared in (names, weights):  # by all callers of valid_names
        shared.flags.writeable = False
    return _Postings(names, weights, expiries_s.astype(np.uint32), valid_until_s)


def sort_by_name(packed: bytes) -> bytes:
    """Return packed postings (records of names), sorted by name key."""
    postings = parse(packed)
    return postings[np.argsort(postings["name"].astype(np.uint64))].tobytes()


def last_name(packed: bytes) -> NameKey:
    """Return the name key of the last of the packed postings (records of names). There must be at least one."""
    return int.from_bytes(packed[-POSTING_BYTES : 8 - POSTING_BYTES])
