"""What a node has itself: a Bloom filter that counts, and so can forget (§II.D).

Only the bits that change are told: the paper's *diff compression*.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from service.location.bloom import Shape, positions


class Own:
    """A node's documents. ``bits`` is their filter."""

    def __init__(self, shape: Shape, documents: Iterable[str] = ()) -> None:
        """Begin with these documents."""
        self.shape = shape
        self.bits = 0
        self._documents: set[str] = set()
        self._counts = [0] * shape.width
        self.change(documents, ())

    @property
    def documents(self) -> AbstractSet[str]:
        """What is here."""
        return self._documents

    def change(self, added: Iterable[str], removed: Iterable[str]) -> tuple[int, int]:
        """Return which bits become set, and which clear. What is here already, or not, changes nothing."""
        before = bits = self.bits
        counts, shape = self._counts, self.shape
        for document in added:
            if document not in self._documents:
                self._documents.add(document)
                for position in positions(document, shape):
                    counts[position] += 1
                    bits |= 1 << position
        for document in removed:
            if document in self._documents:
                self._documents.remove(document)
                for position in positions(document, shape):
                    counts[position] -= 1
                    if not counts[position]:
                        bits &= ~(1 << position)
        self.bits = bits
        return bits & ~before, before & ~bits
