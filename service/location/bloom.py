"""Bloom filters as integers, and their shapes (§II.A, §II.D, §III.C): bit ``p`` of a filter is ``1 << p``.

A filter's width and number of hashes follow the number of documents measured. :class:`Link` has the attenuated filters
of one neighbour, for each direction (§II.B, §II.D), and :func:`next_hop` is the next hop of a query (§II.C).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from math import ceil, exp, inf, log

import msgspec

from service.model import NodeId

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


def positions(document: str, shape: Shape) -> list[int]:
    """Return the document's bits, in a filter of this shape.

    Sixteen independent words of 32 bits come of one hash, so nothing needs to be combined.
    """
    words, width = int.from_bytes(blake2b(document.encode()).digest(), "little"), shape.width
    return [(words >> shift & 0xFFFFFFFF) % width for shift in range(0, 32 * shape.hashes, 32)]


def mask(document: str, shape: Shape) -> int:
    """Return the filter of this one document: it may be in every filter that has all of these bits."""
    bits = 0
    for position in positions(document, shape):
        bits |= 1 << position
    return bits


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


class Own:
    """A node's documents. ``bits`` is their filter."""

    def __init__(self, shape: Shape, documents: Iterable[str] = ()) -> None:
        """Begin with these documents."""
        self.shape = shape
        self.bits = 0
        self._documents: set[str] = set()
        self._more: dict[int, int] = {}
        self.change(documents, ())

    @property
    def documents(self) -> AbstractSet[str]:
        """What is here."""
        return self._documents

    def change(self, added: Iterable[str], removed: Iterable[str]) -> tuple[int, int]:
        """Return which bits become set, and which clear. What is here already, or not, changes nothing."""
        before, shape = self.bits, self.shape
        field = bytearray(before.to_bytes((shape.width + 7) // 8, "little"))
        for document in added:
            if document not in self._documents:
                self._documents.add(document)
                for position in positions(document, shape):
                    self._take(field, position)
        for document in removed:
            if document in self._documents:
                self._documents.remove(document)
                for position in positions(document, shape):
                    self._give_back(field, position)
        self.bits = bits = int.from_bytes(field, "little")
        return bits & ~before, before & ~bits

    def _take(self, field: bytearray, position: int) -> None:
        bit = 1 << (position & 7)
        if field[position >> 3] & bit:
            self._more[position] = self._more.get(position, 0) + 1
        else:
            field[position >> 3] |= bit

    def _give_back(self, field: bytearray, position: int) -> None:
        more = self._more.get(position, 0)
        if more > 1:
            self._more[position] = more - 1
        elif more:
            del self._more[position]
        else:
            field[position >> 3] &= ~(1 << (position & 7))


class Link:
    """``heard`` is the neighbour's attenuated filter, ``told`` our image of what it has of us; rows begin at 1.

    ``told`` has all that the neighbour has: what it left out as redundant, and perhaps more. ``ignores`` has, by
    source, the row from which on the neighbour wants no more of it. A link is ``open`` when both have the same shape.
    """

    __slots__ = ("heard", "ignores", "open", "rtt_s", "told")

    def __init__(self, rtt_s: float, shape: Shape) -> None:
        """Know nothing yet."""
        self.rtt_s = rtt_s
        self.emptied(shape)

    def emptied(self, shape: Shape) -> None:
        """Forget everything, and wait for the neighbour's :class:`Hello`."""
        self.heard = [0] * (shape.depth + 1)
        self.told = [0] * (shape.depth + 1)
        self.ignores: dict[NodeId, int] = {}
        self.open = False


def first_row(heard: list[int], mask: int, deepest: int) -> int | None:
    """Return the first row, up to the deepest, that may have the document of this mask."""
    for row in range(1, deepest + 1):
        if heard[row] & mask == mask:
            return row
    return None


def heard_of(links: Iterable[Link], row: int) -> int:
    """Return the union of what these neighbours say of a row."""
    bits = 0
    for link in links:
        bits |= link.heard[row]
    return bits


class Query(msgspec.Struct, frozen=True):
    """A query on its way. ``visited`` begins with who asks; ``rows`` is how deep the next node may look.

    We deviate: a node that was said to be i hops away from a copy looks only into its rows below i, not into all d.
    If it finds nothing there, what led here was a false positive or is outdated, and the query has failed then and
    there instead of after d hops. It also never follows a row that is deeper than the hops it has left.
    """

    document: str
    visited: tuple[NodeId, ...]
    rows: int


def next_hop(query: Query, mask: int, links: Iterable[tuple[NodeId, Link]]) -> tuple[NodeId, int] | None:
    """Return the neighbour to go on to, and the row that says so; None where the query fails.

    ``links`` are nearest first. A row is looked for in all links before the next one is.
    """
    best: tuple[NodeId, int] | None = None
    deepest = query.rows
    for neighbour, link in links:
        if not deepest:
            break
        row = first_row(link.heard, mask, deepest)
        if row is not None and neighbour not in query.visited:
            best, deepest = (neighbour, row), row - 1
    return best
