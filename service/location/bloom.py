"""Bloom filters as integers (§II.A): bit ``p`` of a filter is ``1 << p``."""

from hashlib import blake2b

import msgspec

MOST_HASHES = 16
MOST_WIDTH = 1 << 20
MOST_DEPTH = 8


class Shape(msgspec.Struct, frozen=True, order=True):
    """What filters must have in common to be united. Of two shapes, nodes that meet take the greater one.

    ``width`` is in bits; ``depth`` is how many rows an attenuated filter has.
    """

    generation: int
    width: int
    hashes: int
    depth: int

    def __post_init__(self) -> None:
        """Raise :class:`ValueError` for a shape that no filter can have."""
        most = {"generation": 2**32 - 1, "width": MOST_WIDTH, "hashes": MOST_HASHES, "depth": MOST_DEPTH}
        for name, limit in most.items():
            if not (name != "generation") <= getattr(self, name) <= limit:
                raise ValueError(f"A filter's {name} is at most {limit}, not {getattr(self, name)}.")


def fingerprint(document: str) -> int:
    """Return 512 bits that stand for the document in every process."""
    return int.from_bytes(blake2b(document.encode()).digest(), "little")


def positions(document: str, shape: Shape) -> list[int]:
    """Return the document's bits, in a filter of this shape.

    Sixteen independent words of 32 bits come of one hash, so nothing needs to be combined.
    """
    words, width = fingerprint(document), shape.width
    return [(words >> shift & 0xFFFFFFFF) % width for shift in range(0, 32 * shape.hashes, 32)]


def mask(document: str, shape: Shape) -> int:
    """Return the filter of this one document: it may be in every filter that has all of these bits."""
    bits = 0
    for position in positions(document, shape):
        bits |= 1 << position
    return bits
