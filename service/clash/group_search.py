"""The client's search for a key's leaf group, one question at a time (CLASH §V.C, Figure 5).

It is the paper's modified binary search between bounds, low and high, which each answer narrows:

- Theorem 1: an answer of p matching bits says that the depth is at least p + 1.
- Theorem 2: if p is less than the depth that was guessed, the true depth is less than the guess, too.

We deviate: with a hint, the next guesses are the depths next to it, in doubling steps, since groups that split or
merged did so by a bit or two; after that, and without a hint, the middle. And where a keyspace says that it has
given the group away, the search goes there with its proof. While groups move, answers of two keyspaces can contradict
each other: then the search begins again.

A recalled leaf is in its parent's keyspace, so its parent's depth is what leads to it, and what is searched for: for
that, Theorem 2 holds as it is. Theorem 1 says p + 1 only if p leads to the keyspace that has answered, which would have
accepted a key that is recalled there; else p.

:class:`Depths` is what a client remembers (§V.C and §VI.A). :class:`Units` finds all leaf groups under a prefix, as a
fan-out is divided into (the paper's future work, §VII).
"""

from bisect import bisect_right

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace, Map, check_key
from service.clash.server_table import Move
from service.clash.transitions import Accepted, Answer
from service.errors import KeyGroupMoving


class Depths:
    """Disjoint groups in the order of their keys. Whatever is learnt replaces what it contradicts."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._groups: list[KeyGroup] = []
        self._depths: list[int] = []

    def __len__(self) -> int:
        return len(self._groups)

    def learn(self, group: KeyGroup, depth: int) -> None:
        """Remember that this group is a leaf, and that this depth leads to it (:attr:`DepthSearch.depth`)."""
        low = bisect_right(self._starts, group.key)
        if low and group.key in self._groups[low - 1]:
            low -= 1
        high = bisect_right(self._starts, group.last)
        self._starts[low:high] = [group.key]
        self._groups[low:high] = [group]
        self._depths[low:high] = [depth]

    def depth(self, key: int) -> int | None:
        """Return the depth to try first: of the key's group, or of the group nearest to it; None knows nothing."""
        place = bisect_right(self._starts, key)
        beside = range(max(place - 1, 0), min(place + 1, len(self._groups)))
        nearest = max(beside, key=lambda at: self._groups[at].common_bits(key), default=None)
        return None if nearest is None else self._depths[nearest]


MOST_PROBES = 100


class Probe(msgspec.Struct, frozen=True):
    """A question: does ``keyspace`` accept the key? ``depth`` is the guess that led there."""

    keyspace: Keyspace
    key: int
    depth: int
    proof: Move | None = None


class DepthSearch:
    """One search. Ask :attr:`probe`, hand over the answer, and go on until there is a leaf."""

    depth: int
    """Once a leaf was found: the depth that leads to it at once."""

    def __init__(self, key: int, bits: int, keyspaces: Map, hint: int | None = None) -> None:
        """Search for a key of so many bits, first at the hinted depth. Raises :class:`BadKey` for a longer key."""
        check_key(key, bits)
        self._key, self._bits, self._keyspaces = key, bits, keyspaces
        self._low, self._high = 0, bits
        self._step = bits if hint is None else 1
        self.probes = 1
        """How many questions there were, with the one that is open."""
        self.probe = self._at(bits // 2 if hint is None else min(hint, bits))

    def answered(self, answer: Answer) -> Accepted | None:
        """Return what was found, or None: then :attr:`probe` is the next question.

        Raises :class:`KeyGroupMoving` when it has been led about for too long.
        """
        if isinstance(answer, Accepted):
            self.depth = self._leads_to(answer.group)
            return answer
        if self.probes == MOST_PROBES:
            raise KeyGroupMoving(f"The key group of {self._key:#x} keeps moving. Try again.")
        self.probes += 1
        if answer.moved is not None:
            self.probe = Probe(answer.moved.taker, self._key, answer.moved.depth, answer.moved)
        else:
            self.probe = self._at(self._next(answer.min_depth))
        return None

    def _next(self, min_depth: int) -> int:
        guess, step = self.probe.depth, self._step
        self._step *= 2
        own = min_depth >= 0 and self._keyspace(min_depth) == self.probe.keyspace
        self._low = max(self._low, min_depth + own)
        if min_depth < guess:
            self._high = min(self._high, guess - 1)
        if self._low > self._high:
            self._low, self._high = 0, self._bits
        middle = (self._low + self._high) // 2
        if min_depth < guess:
            return max(middle, self._high - step + 1)
        return min(middle, self._low + step - 1)

    def _at(self, depth: int) -> Probe:
        return Probe(self._keyspace(depth), self._key, depth)

    def _keyspace(self, depth: int) -> Keyspace:
        return self._keyspaces.keyspace_of(KeyGroup.around(self._key, depth, self._bits))

    def _leads_to(self, leaf: KeyGroup) -> int:
        in_its_own = self._keyspaces.keyspace_of(leaf) == self.probe.keyspace
        return leaf.depth if in_its_own else leaf.depth - 1


class Units:
    """One search for all leaf groups. Ask :attr:`probe` and hand over the answer until there is none.

    What it finds never overlaps and leaves nothing out, also if groups split and merge while it goes on: of a group
    that has grown to the left meanwhile, only the part counts that is not found yet.
    """

    def __init__(self, prefix: KeyGroup, keyspaces: Map, depths: Depths) -> None:
        self._prefix, self._keyspaces, self._depths = prefix, keyspaces, depths
        self.probe: Probe | None = None
        self._look(prefix.key)

    def answered(self, answer: Answer) -> KeyGroup | None:
        """Return the next unit, if that was found; raises :class:`KeyGroupMoving` as the search does."""
        found = self._search.answered(answer)
        if found is None:
            self.probe = self._search.probe
            return None
        self._depths.learn(found.group, self._search.depth)
        unit = found.group.shared(self._prefix) or self._prefix
        while unit.key < self._key:
            unit = unit.right if self._key in unit.right else unit.left
        if unit.last < self._prefix.last:
            self._look(unit.last + 1)
        else:
            self.probe = None
        return unit

    def _look(self, key: int) -> None:
        self._key = key
        self._search = DepthSearch(key, self._prefix.bits, self._keyspaces, self._depths.depth(key))
        self.probe = self._search.probe
