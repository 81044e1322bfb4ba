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
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

NameKey = int
"""The key of a content name: a digest of 64 bits."""

PostingArray = NDArray[Any]
"""Postings as an array of ``POSTING_TYPE``."""

NameKeys = NDArray[np.uint64]

POSTING_TYPE: Final = np.dtype([("name", ">u8"), ("weight", "u1"), ("expires_s", ">u4")])
POSTING_BYTES: Final = POSTING_TYPE.itemsize
NO_POSTINGS: Final[PostingArray] = np.empty(0, POSTING_TYPE)

_FORMAT = struct.Struct(">QBI")
_CACHED_NAMES = 20_000


@lru_cache(_CACHED_NAMES)
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


def valid_postings(parts: Sequence[PostingArray], now_s: float) -> PostingArray:
    """Return the valid posting (record) of each name, sorted by name key.

    ``parts`` are the postings of several cells, in which a name may occur several times. Expired postings and withdrawn
    names are left out. ``now_s`` is the Unix time in seconds.
    """
    if not parts:
        return NO_POSTINGS
    postings = np.concatenate(parts) if len(parts) > 1 else parts[0]
    names = postings["name"].astype(np.uint64)
    if len(parts) > 1:
        expiries, weights = postings["expires_s"].astype(np.int64), postings["weight"].astype(np.int64)
        order = np.lexsort((expiries * 512 + np.where(weights == 0, 256, weights), names))
        names, postings = names[order], postings[order]
        is_last = np.append(names[1:] != names[:-1], True)[: len(names)]
        postings = postings[is_last]
    else:
        postings = postings[np.argsort(names)]
    kept: PostingArray = postings[(postings["weight"] > 0) & (postings["expires_s"] > int(now_s))]
    return kept


def last_name(packed: bytes) -> NameKey:
    """Return the name key of the last of the packed postings (records of names). There must be at least one."""
    return int.from_bytes(packed[-POSTING_BYTES : 8 - POSTING_BYTES])
