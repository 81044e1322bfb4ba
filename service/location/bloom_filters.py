"""Bloom filters (sets with false positives) as Python integers (Rhea and Kubiatowicz §II, §III.C).

Bit ``p`` of a filter is the bit ``1 << p`` of the integer. An *attenuated* filter has several rows; row i contains the
documents at a distance of i hops. The width of filters and the number of hashes depend on the measured number of
documents. A :class:`Link` holds the two attenuated filters exchanged with one neighbour, one for each direction (§II.B,
§II.D).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from math import ceil, exp, inf, log

import msgspec

from service.model import NodeId

MAX_HASHES = 16
MAX_WIDTH = 1 << 20
MAX_DEPTH = 8


class FilterShape(msgspec.Struct, frozen=True, order=True):
    """The parameters of a Bloom filter. Only filters with the same parameters can be combined.

    - ``generation``: a counter that increases with each change of the parameters.
    - ``width``: the number of bits of a filter.
    - ``hashes``: the number of bits that each document sets.
    - ``depth``: the number of rows of an attenuated filter (one row for each distance in hops).

    Shapes are ordered by ``generation`` first. If two neighbouring nodes have different shapes, both adopt the greater
    one.
    """

    generation: int
    width: int
    hashes: int
    depth: int

    def __post_init__(self) -> None:
        """Raise :class:`ValueError` if a value is out of range."""
        most = {"generation": 2**32 - 1, "width": MAX_WIDTH, "hashes": MAX_HASHES, "depth": MAX_DEPTH}
        for name, limit in most.items():
            if not (name != "generation") <= getattr(self, name) <= limit:
                raise ValueError(f"A filter's {name} is at most {limit}, not {getattr(self, name)}.")


def positions(document: str, shape: FilterShape) -> list[int]:
    """Return the positions of the bits that a document sets in a filter of this shape."""
    # The positions are 32-bit words of one BLAKE2 hash of the document, which has sixteen such words.
    words, width = int.from_bytes(blake2b(document.encode()).digest(), "little"), shape.width
    return [(words >> shift & 0xFFFFFFFF) % width for shift in range(0, 32 * shape.hashes, 32)]


def document_mask(document: str, shape: FilterShape) -> int:
    """Return the Bloom filter that contains only the document ``document``, as an integer.

    Another filter of the same shape can contain the document only if it has all the bits of this one.
    """
    bits = 0
    for position in positions(document, shape):
        bits |= 1 << position
    return bits


HEADROOM = 2.0
"""Filters are sized for this multiple of the measured number of documents."""
MIN_WIDTH = 64


def false_positive_rate(width: int, hashes: int, documents: float) -> float:
    """Return the probability that a filter seems to contain a document that it does not contain.

    It is (1 - e^(-k·n/m))^k, where k is ``hashes``, n is ``documents`` (the number of documents in the filter), and m
    is ``width`` in bits.
    """
    return (1 - exp(-hashes * documents / width)) ** hashes


def estimate_documents(shape: FilterShape, bits_set: int) -> float:
    """Return the most likely number of documents in a filter that has ``bits_set`` bits set.

    The result is infinite if all bits are set.
    """
    if bits_set >= shape.width:
        return inf
    return -shape.width / shape.hashes * log(1 - bits_set / shape.width)


def best_hashes(width: int, documents: Sequence[float]) -> int:
    """Return the number of hashes per document that minimises the sum of the filters' false-positive rates.

    - ``width``: the width of each filter in bits.
    - ``documents``: the expected number of documents in each filter.
    """
    alike = Counter(documents)
    return min(
        range(1, MAX_HASHES + 1),
        key=lambda hashes: sum(count * false_positive_rate(width, hashes, number) for number, count in alike.items()),
    )


def width_for(documents: float, max_rate: float, max_width: int = MAX_WIDTH) -> int:
    """Return the width in bits at which a filter with ``documents`` documents has the false-positive rate ``max_rate``.

    The width is at least ``MIN_WIDTH`` and at most ``max_width``. ``max_rate`` must be between 0 and 1.
    """
    # -n·ln(p)/ln(2)² for n documents and the rate p.
    if documents == inf:
        return max_width
    return min(max_width, max(MIN_WIDTH, ceil(-documents * log(max_rate) / log(2) ** 2)))


def next_shape(shape: FilterShape, documents: float, max_rate: float, max_width: int = MAX_WIDTH) -> FilterShape:
    """Return the shape to which the filters should change, or ``shape`` itself if its width is still suitable.

    ``documents`` is the number of documents in the fullest filter. If the false-positive rate of this filter exceeds
    ``max_rate``, the width grows, up to ``max_width`` bits. If a quarter of the width would suffice, the width shrinks.
    A new width begins a new generation.
    """
    needed = width_for(documents, max_rate)
    if shape.width >= max_width if needed > shape.width else 4 * HEADROOM * needed > shape.width:
        return shape
    width = width_for(HEADROOM * documents, max_rate, max_width)
    if width == shape.width:
        return shape
    return FilterShape(shape.generation + 1, width, best_hashes(width, [HEADROOM * max(documents, 1)]), shape.depth)


class LocalFilter:
    """The documents of a node, and ``bits``, the Bloom filter that contains them.

    The class counts how many documents set each bit, so that documents can be removed.
    """

    def __init__(self, shape: FilterShape, documents: Iterable[str] = ()) -> None:
        """Create a filter of the given shape that contains ``documents``."""
        self.shape = shape
        self.bits = 0
        self._documents: set[str] = set()
        self._extra_counts: Counter[int] = Counter()
        """Maps the position of each bit to the number of documents, beyond the first, that set the bit."""
        self.change(documents, ())

    @property
    def documents(self) -> AbstractSet[str]:
        """The node's documents."""
        return self._documents

    def change(self, added: Iterable[str], removed: Iterable[str]) -> tuple[int, int]:
        """Add and remove documents; return (bits that became set, bits that became clear) as two integers.

        Documents in ``added`` that are already present, and documents in ``removed`` that are absent, are ignored.
        """
        before, shape = self.bits, self.shape
        field = bytearray(before.to_bytes((shape.width + 7) // 8, "little"))
        for document in added:
            if document not in self._documents:
                self._documents.add(document)
                for position in positions(document, shape):
                    place, bit = position >> 3, 1 << (position & 7)
                    if field[place] & bit:
                        self._extra_counts[position] += 1
                    field[place] |= bit
        for document in removed:
            if document in self._documents:
                self._documents.remove(document)
                for position in positions(document, shape):
                    self._extra_counts[position] -= 1
                    if self._extra_counts[position] < 0:
                        field[position >> 3] &= ~(1 << (position & 7))
                    if self._extra_counts[position] <= 0:
                        del self._extra_counts[position]
        self.bits = bits = int.from_bytes(field, "little")
        return bits & ~before, before & ~bits


class Link:
    """A link to a neighbour, with the attenuated Bloom filters of both directions.

    An attenuated filter has several rows, numbered from 1: row i contains the documents at a distance of i hops.

    - ``rtt_s``: the round-trip time in seconds.
    - ``received``: the filter that the neighbour has sent.
    - ``sent``: the filter that this node has sent. It includes bits that the neighbour has dropped as redundant.
    - ``ignored_from_row``: maps a node's id to a row number. For that row and all deeper rows, the neighbour wants no
      updates about the node's documents.
    - ``is_open``: whether both ends use the same filter parameters, so that updates can be exchanged.
    """

    __slots__ = ("ignored_from_row", "is_open", "received", "rtt_s", "sent")

    def __init__(self, rtt_s: float, shape: FilterShape) -> None:
        """Create a link that is not open yet. ``rtt_s`` is its round-trip time in seconds."""
        self.rtt_s = rtt_s
        self.reset(shape)

    def reset(self, shape: FilterShape) -> None:
        """Discard the filters of both directions. The link is closed until the neighbour sends a :class:`Hello`.

        ``shape`` contains the parameters of the new filters.
        """
        self.received = [0] * (shape.depth + 1)
        self.sent = [0] * (shape.depth + 1)
        self.ignored_from_row: dict[NodeId, int] = {}
        self.is_open = False


def union_of_received(links: Iterable[Link], row: int) -> int:
    """Return the union of row ``row`` of all filters that the neighbours have sent."""
    bits = 0
    for link in links:
        bits |= link.received[row]
    return bits
