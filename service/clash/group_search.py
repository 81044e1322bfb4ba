"""A client's search for the group to which a key belongs, one request at a time (CLASH §V.C, Figure 5).

Keys are divided into groups by their leading bits. The *depth* of a group is the number of these bits; a *leaf group*
is one that is not split. The client guesses the depth of the key's leaf group. The guess determines the keyspace to
which the client sends a request (a *probe*). Each answer narrows the range of possible depths, as in the paper's
modified binary search:

- Theorem 1: if the answer reports p matching bits, the depth is at least p + 1.
- Theorem 2: if p is less than the guessed depth, the true depth is also less than the guess.

While groups move between keyspaces:

- A keyspace that has given the group away redirects the search to the keyspace that receives the group.
- The next probe contains the move as a *proof*, so that the receiving keyspace accepts the group even if it has not
  been informed of the move yet.
- The answers of two keyspaces can contradict each other. The search then starts again with all depths possible.

Deviation from the paper: the first guess may be the depth of a leaf group found earlier (:class:`DepthCache`, §V.C and
§VI.A). The next guesses are close to the first one, at doubling distances, because the depth usually changes by only
one or two bits. After that, or if there is no first guess, each guess is the middle of the range.
"""

from bisect import bisect_right

import msgspec

from service.clash.key_groups import KeyGroup, Keyspace, KeyspaceMap, check_key
from service.clash.server_table import Move
from service.clash.table_transitions import Accepted, AcceptObjectReply
from service.errors import KeyGroupMoving


class DepthCache:
    """A client's cache of the *leaf groups* that it has found: groups of keys that are not split.

    The keys of a group begin with the same prefix. The *depth* of the group is the length of this prefix in bits. The
    cache provides the first guess when a client searches for the depth of a key's group. A new group replaces the
    cached groups that overlap it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._groups: list[KeyGroup] = []

    def __len__(self) -> int:
        return len(self._groups)

    def record(self, group: KeyGroup) -> None:
        """Add ``group``, a leaf group, and remove the cached groups that overlap it."""
        low = bisect_right(self._starts, group.key)
        if low and group.key in self._groups[low - 1]:
            low -= 1
        high = bisect_right(self._starts, group.last)
        self._starts[low:high] = [group.key]
        self._groups[low:high] = [group]

    def depth(self, key: int) -> int | None:
        """Guess the depth (prefix length in bits) of the group that contains ``key``; None if the cache is empty.

        The result is the depth of the cached group whose prefix has the most leading bits in common with the key.
        """
        place = bisect_right(self._starts, key)
        beside = self._groups[max(place - 1, 0) : place + 1]
        nearest = max(beside, key=lambda group: group.common_bits(key), default=None)
        return None if nearest is None else nearest.depth

    def leaf_of(self, group: KeyGroup) -> KeyGroup | None:
        """Return the cached group that contains all keys of ``group``; None if no cached group does."""
        place = bisect_right(self._starts, group.key) - 1
        if place < 0 or group.key not in self._groups[place] or self._groups[place].depth > group.depth:
            return None
        return self._groups[place]


MAX_PROBES = 100
"""Number of probes after which a search fails."""


class Probe(msgspec.Struct, frozen=True):
    """A client's request that asks a keyspace, a partition of the store, to accept a key (ACCEPT_OBJECT).

    - ``keyspace``: the keyspace that receives the request. The client derives it from ``depth``, or another keyspace
      has redirected the client to it.
    - ``depth``: the client's guess of how many leading bits all keys in the key's group have in common.
    - ``proof``: after a redirection, the split or merge in which the group has been given to ``keyspace``; otherwise
      None.
    """

    keyspace: Keyspace
    key: int
    depth: int
    proof: Move | None = None


class DepthSearch:
    """A search for the *leaf group* (a key group that is not split) to which one key belongs.

    The caller sends :attr:`probe`, passes the answer to :meth:`on_answer`, and repeats both until :meth:`on_answer`
    returns the group.
    """

    def __init__(self, key: int, bits: int, keyspaces: KeyspaceMap, depths: DepthCache) -> None:
        """Start a search for the group that contains ``key``, a key of ``bits`` bits.

        - ``keyspaces``: maps groups to keyspaces.
        - ``depths``: the client's cache of groups. It provides the first guess, and the search adds its result.

        Raises :class:`BadKey` if ``key`` has more than ``bits`` bits.
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
        """Process the answer to :attr:`probe`; return the answer if it contains the key's group, otherwise None.

        None means that the search continues with the new :attr:`probe`. Raises :class:`KeyGroupMoving` after
        ``MAX_PROBES`` requests without a result.
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
        """Narrow the range of possible depths, given that the depth exceeds ``min_depth``; return the next guess."""
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
