"""Which id a joining node takes (we deviate from Corona §4, where it is a hash of the address).

With even ids every node owns nearly the same share of the channels. The store writes the id only
if the ring's version is still the one the id was computed from, and asks again otherwise.
"""

from bisect import bisect_left
from collections.abc import Sequence

from service.model import NodeId
from service.overlay.ids import BITS, from_hex, to_hex


def balanced_id(existing: Sequence[NodeId]) -> NodeId:
    """Return the id that splits the emptiest part of the id space.

    Walks down the binary trie of ids, always to the side with fewer nodes (zeros when equal),
    until a side is empty, and takes that side's first id. Ids taken one after another from an
    empty ring own shares that differ at most by a factor of 2, and are equal at powers of two.
    """
    points = sorted(map(from_hex, existing))
    low, high, start, width = 0, len(points), 0, BITS
    while low < high:
        width -= 1
        ones = start | 1 << width
        middle = bisect_left(points, ones, low, high)
        if middle - low <= high - middle:
            high = middle
        else:
            low, start = middle, ones
    return to_hex(start)
