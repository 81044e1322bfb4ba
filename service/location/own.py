"""What a node has itself: a Bloom filter that counts, and so can forget (§II.D).

Only the bits that change are told: the paper's *diff compression*. Of the counts, those above one are kept: a filter
has many more bits than documents, and few documents share one.
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
