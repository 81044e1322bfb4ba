"""How wide filters are, and with how many hashes: by how many documents are measured (§II.A, §III.C)."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, exp, inf, log

from service.location.bloom import MOST_HASHES, MOST_WIDTH, Shape

ROOM = 2.0
"""A filter is made for so many times the documents measured, so that it is not outgrown at once."""
LEAST_WIDTH = 64


def false_positives(width: int, hashes: int, documents: float) -> float:
    """Return the probability that a filter with so many documents matches one that it does not have."""
    return (1 - exp(-hashes * documents / width)) ** hashes


def documents_in(shape: Shape, bits_set: int) -> float:
    """Return how many documents a filter with so many bits set has, most likely; infinite for a full one."""
    if bits_set >= shape.width:
        return inf
    return -shape.width / shape.hashes * log(1 - bits_set / shape.width)


def best_hashes(width: int, rows: Sequence[float]) -> int:
    """Return the number of hashes with which filters of so many documents give the least false positives in sum."""
    alike = Counter(rows)
    return min(
        range(1, MOST_HASHES + 1),
        key=lambda hashes: sum(count * false_positives(width, hashes, row) for row, count in alike.items()),
    )


def width_for(documents: float, wanted: float) -> int:
    """Return the bits that a filter of so many documents needs for so few false positives (0 < ``wanted`` < 1)."""
    if documents == inf:
        return MOST_WIDTH
    return min(MOST_WIDTH, max(LEAST_WIDTH, ceil(-documents * log(wanted) / log(2) ** 2)))


def resized(shape: Shape, fullest: float, wanted: float) -> Shape:
    """Return the next generation's shape if a fullest row of so many documents asks for one, else the same.

    Filters grow when they have more false positives than wanted, and shrink when a quarter would do.
    """
    needed = width_for(fullest, wanted)
    if shape.width >= MOST_WIDTH if needed > shape.width else 4 * ROOM * needed > shape.width:
        return shape
    width = width_for(ROOM * fullest, wanted)
    if width == shape.width:
        return shape
    return Shape(shape.generation + 1, width, best_hashes(width, [ROOM * max(fullest, 1)]), shape.depth)
