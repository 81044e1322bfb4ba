"""The client's search for a key's leaf group, one probe at a time (CLASH §V.C, Figure 5).

A *leaf group* is a key group that is not split. A *probe* guesses the depth of the key's leaf group and asks the
keyspace to which that depth leads. The search is the paper's modified binary search between two bounds, low and high,
which each answer narrows:

- Theorem 1: an answer of p matching bits implies a depth of at least p + 1.
- Theorem 2: if p is less than the guessed depth, the true depth is less than the guess too.

Deviation: the client may have a hint, the depth of a group that it knows. The next guesses are then the depths next to
the hint, in doubling steps, because a group that has split or merged usually did so by one or two bits. After that, and
without a hint, the guess is the middle of the bounds. A keyspace that has given the group away redirects the search to
the keyspace that takes it, with a proof. While groups move, the answers of two keyspaces can contradict each other: the
search then starts again.

A recalled leaf is in its parent's keyspace. The depth that leads to it, and that is searched for, is therefore its
parent's depth: Theorem 2 then holds unchanged. Theorem 1 gives p + 1 only if p leads to the keyspace that has answered,
which would have accepted a key that is recalled there; otherwise it gives p.

:class:`DepthCache` holds the depths that a client knows (§V.C and §VI.A). :class:`LeafGroupSearch` finds all leaf
groups under a prefix, by which a fan-out is divided (the paper's future work, §VII).
"""

from bisect import bisect_right

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, check_key
from service.clash.server_table import Move
from service.clash.transitions import Accepted, AcceptObjectReply
from service.errors import KeyGroupMoving


class DepthCache:
    """A client's cache of leaf groups, and of the depths that lead to their keyspaces.

    A new group replaces the groups that it overlaps.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._groups: list[KeyGroup] = []
        self._depths: list[int] = []

    def __len__(self) -> int:
        return len(self._groups)

    def record(self, group: KeyGroup, depth: int) -> None:
        """Store that ``group`` is a leaf, and that ``depth`` leads to its keyspace (:attr:`DepthSearch.depth`)."""
        low = bisect_right(self._starts, group.key)
        if low and group.key in self._groups[low - 1]:
            low -= 1
        high = bisect_right(self._starts, group.last)
        self._starts[low:high] = [group.key]
        self._groups[low:high] = [group]
        self._depths[low:high] = [depth]

    def depth(self, key: int) -> int | None:
        """Return the depth with which to begin a search for ``key``: that of the nearest known group.

        The result is None if the cache is empty.
        """
        place = bisect_right(self._starts, key)
        beside = range(max(place - 1, 0), min(place + 1, len(self._groups)))
        nearest = max(beside, key=lambda at: self._groups[at].common_bits(key), default=None)
        return None if nearest is None else self._depths[nearest]

    def leaf_of(self, group: KeyGroup) -> tuple[KeyGroup, int] | None:
        """Return the known leaf that contains a whole group, and the depth that leads to its keyspace; None if none."""
        place = bisect_right(self._starts, group.key) - 1
        if place < 0 or group.key not in self._groups[place] or self._groups[place].depth > group.depth:
            return None
        return self._groups[place], self._depths[place]


MAX_PROBES = 100
"""Number of probes after which a search fails."""


class Probe(msgspec.Struct, frozen=True):
    """A request to ``keyspace`` to accept ``key`` (ACCEPT_OBJECT).

    ``depth`` is the guessed depth that led to the keyspace. ``proof`` is the move by which another keyspace has
    redirected the client to this keyspace; None without such a redirection.
    """

    keyspace: Keyspace
    key: int
    depth: int
    proof: Move | None = None


class DepthSearch:
    """A search for the leaf group of one key.

    The caller sends :attr:`probe`, passes the answer to :meth:`on_answer`, and repeats this until it returns a leaf.
    """

    depth: int
    """The depth that leads to the leaf; set once the leaf has been found."""

    def __init__(self, key: int, bits: int, keyspaces: KeyspaceMap, hint: int | None = None) -> None:
        """Start a search for a key of ``bits`` bits; ``hint`` is the depth to try first, or None.

        Raises :class:`BadKey` if the key is longer.
        """
        check_key(key, bits)
        self._key, self._bits, self._keyspaces = key, bits, keyspaces
        self._low, self._high = 0, bits
        self._step = bits if hint is None else 1
        self.probes = 1
        """Number of probes so far, including the current one."""
        self.probe = self._probe_at(bits // 2 if hint is None else min(hint, bits))

    def on_answer(self, answer: AcceptObjectReply) -> Accepted | None:
        """Process a keyspace's answer to :attr:`probe`; return the key's leaf if the answer contains it.

        If the result is None, :attr:`probe` is the next probe to send. Raises :class:`KeyGroupMoving` after
        ``MAX_PROBES`` probes.
        """
        if isinstance(answer, Accepted):
            self.depth = self._depth_leading_to(answer.group)
            return answer
        if self.probes == MAX_PROBES:
            raise KeyGroupMoving(f"The key group of {self._key:#x} keeps moving. Try again.")
        self.probes += 1
        if answer.moved is not None:
            self.probe = Probe(answer.moved.taker, self._key, answer.moved.depth, answer.moved)
        else:
            self.probe = self._probe_at(self._next_depth(answer.min_depth))
        return None

    def _next_depth(self, min_depth: int) -> int:
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

    def _probe_at(self, depth: int) -> Probe:
        return Probe(self._keyspace(depth), self._key, depth)

    def _keyspace(self, depth: int) -> Keyspace:
        return self._keyspaces.keyspace_of(KeyGroup.containing(self._key, depth, self._bits))

    def _depth_leading_to(self, leaf: KeyGroup) -> int:
        in_its_own = self._keyspaces.keyspace_of(leaf) == self.probe.keyspace
        return leaf.depth if in_its_own else leaf.depth - 1


class LeafGroupSearch:
    """A search for all leaf groups under a prefix.

    The caller sends :attr:`probe` and passes the answer to :meth:`on_answer`, until :attr:`probe` is None. The groups
    that are found are disjoint and cover the prefix, even if groups split and merge during the search: if a found group
    contains keys that were found before, only its other part is returned.
    """

    def __init__(self, prefix: KeyGroup, keyspaces: KeyspaceMap, depths: DepthCache) -> None:
        self._prefix, self._keyspaces, self._depths = prefix, keyspaces, depths
        self.probe: Probe | None = None
        self._start_search(prefix.key)

    def on_answer(self, answer: AcceptObjectReply) -> KeyGroup | None:
        """Process a keyspace's answer to :attr:`probe`; return the next leaf group under the prefix.

        The result is None if more probes are needed to find this group. Raises :class:`KeyGroupMoving` as
        :meth:`DepthSearch.on_answer` does.
        """
        found = self._search.on_answer(answer)
        if found is None:
            self.probe = self._search.probe
            return None
        self._depths.record(found.group, self._search.depth)
        unit = found.group.intersection(self._prefix) or self._prefix
        while unit.key < self._key:
            unit = unit.right if self._key in unit.right else unit.left
        if unit.last < self._prefix.last:
            self._start_search(unit.last + 1)
        else:
            self.probe = None
        return unit

    def _start_search(self, key: int) -> None:
        self._key = key
        self._search = DepthSearch(key, self._prefix.bits, self._keyspaces, self._depths.depth(key))
        self.probe = self._search.probe
