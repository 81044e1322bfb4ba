"""The client's search for a key's leaf group, one probe at a time (CLASH §V.C, Figure 5).

A *leaf group* is a key group that is not split. A *probe* is a request to the keyspace that follows from a guess of the
depth of the key's leaf group. The search is the paper's modified binary search between two bounds, low and high, which
each answer narrows:

- Theorem 1: an answer of p matching bits implies a depth of at least p + 1.
- Theorem 2: if p is less than the guessed depth, the true depth is less than the guess too.

Deviation: the first guess may be a hint, the depth of a cached leaf group. The next guesses are then the depths next to
the hint, in doubling steps, because a group that has split or merged usually did so by one or two bits. After that, and
without a hint, the guess is the middle of the bounds. A keyspace that has given the group away redirects the search to
the keyspace that receives it. The next probe then contains the group's move as a *proof*, by which the receiving
keyspace accepts the group even if it has not been informed yet. While groups move, the answers of two keyspaces can
contradict each other: the search then starts again.

:class:`DepthCache` is a client's cache of leaf groups (§V.C and §VI.A).
"""

from bisect import bisect_right

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, check_key
from service.clash.server_table import Move
from service.clash.table_transitions import Accepted, AcceptObjectReply
from service.errors import KeyGroupMoving


class DepthCache:
    """A client's cache of the *leaf groups* that it has found, from which searches take their first guess of a depth.

    Leaf groups are the key groups that are not split. A new group replaces the cached groups that it overlaps.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._groups: list[KeyGroup] = []

    def __len__(self) -> int:
        return len(self._groups)

    def record(self, group: KeyGroup) -> None:
        """Add the leaf group ``group``, in place of the cached groups that overlap it."""
        low = bisect_right(self._starts, group.key)
        if low and group.key in self._groups[low - 1]:
            low -= 1
        high = bisect_right(self._starts, group.last)
        self._starts[low:high] = [group.key]
        self._groups[low:high] = [group]

    def depth(self, key: int) -> int | None:
        """Return a first guess of the depth of the leaf group of ``key``; None if the cache is empty.

        The result is the depth of the cached leaf group whose prefix has the most leading bits in common with the key.
        """
        place = bisect_right(self._starts, key)
        beside = self._groups[max(place - 1, 0) : place + 1]
        nearest = max(beside, key=lambda group: group.common_bits(key), default=None)
        return None if nearest is None else nearest.depth

    def leaf_of(self, group: KeyGroup) -> KeyGroup | None:
        """Return the cached leaf group that contains all keys of ``group``; None if there is none."""
        place = bisect_right(self._starts, group.key) - 1
        if place < 0 or group.key not in self._groups[place] or self._groups[place].depth > group.depth:
            return None
        return self._groups[place]


MAX_PROBES = 100
"""Number of probes after which a search fails."""


class Probe(msgspec.Struct, frozen=True):
    """A request to ``keyspace`` to accept ``key`` (ACCEPT_OBJECT).

    ``depth`` is the guess of the depth of the key's leaf group; ``keyspace`` follows from this guess. ``proof`` is the
    move by which another keyspace has redirected the client to this keyspace; None if the client was not redirected.
    """

    keyspace: Keyspace
    key: int
    depth: int
    proof: Move | None = None


class DepthSearch:
    """A search for the leaf group of one key.

    The caller sends :attr:`probe`, passes the answer to :meth:`on_answer`, and repeats this until it returns a leaf.
    """

    def __init__(self, key: int, bits: int, keyspaces: KeyspaceMap, depths: DepthCache) -> None:
        """Start a search for a key of ``bits`` bits.

        ``keyspaces`` maps key groups to keyspaces. ``depths`` is the client's cache of leaf groups, from which the
        first guess is taken and to which the result is added. Raises :class:`BadKey` if ``key`` has more than ``bits``
        bits.
        """
        check_key(key, bits)
        self._key, self._bits, self._keyspaces, self._depths = key, bits, keyspaces, depths
        hint = depths.depth(key)
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
            self._depths.record(answer.group)
            return answer
        if self.probes == MAX_PROBES:
            raise KeyGroupMoving(f"The key group of {self._key:#x} keeps moving. Try again.")
        self.probes += 1
        if answer.moved is not None:
            self.probe = Probe(answer.moved.taker, self._key, answer.moved.leaf.depth, answer.moved)
        else:
            self.probe = self._probe_at(self._next_depth(answer.min_depth))
        return None

    def _next_depth(self, min_depth: int) -> int:
        """Return the next guess of the depth, after the answer that the depth is greater than ``min_depth``.

        The answer also narrows the bounds of the search.
        """
        guess, step = self.probe.depth, self._step
        self._step *= 2
        self._low = max(self._low, min_depth + 1)
        if min_depth < guess:
            self._high = min(self._high, guess - 1)
        if self._low > self._high:
            self._low, self._high = 0, self._bits
        middle = (self._low + self._high) // 2
        if min_depth < guess:
            return max(middle, self._high - step + 1)
        return min(middle, self._low + step - 1)

    def _probe_at(self, depth: int) -> Probe:
        keyspace = self._keyspaces.keyspace_of(KeyGroup.containing(self._key, depth, self._bits))
        return Probe(keyspace, self._key, depth)
