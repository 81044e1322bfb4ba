"""Aggregation: how every node learns what the whole fleet's channels weigh (Corona §3.3).

Nodes with d digits in common are a subtree of the ring, and what its nodes own is its *part*. A node's
own part is that of the deepest subtree that it has to itself. The part of any other subtree around it is
the sum of its own next smaller one and those of that one's siblings, each told by a contact of the
routing rows (§3.1): row i holds, for each digit but the node's own, the node nearest to it among those that
have i digits in common with it and that digit next. So each node counts exactly once in the fleet's part,
which is that of no digits at all.

Each tick a node tells every part to those whose contact it is; after as many ticks as there are rows,
everybody has the same fleet, to the last bit. It is soft state: what is silent for too long, or came from
a node that has left, is dropped, and ``nodes`` tells how much of the fleet a part really covers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from service.corona.clusters import decode, encode, merge
from service.corona.events import Send
from service.corona.messages import Aggregate, Summary
from service.model import NodeId
from service.overlay.id_space import BITS, digit, from_hex, shared_digits, to_hex
from service.overlay.ring import RingView

BASE = 16
"""As the paper has it: three rows for a thousand nodes."""

EMPTY_AGGREGATE = Aggregate(1, 0.0, b"")
"""What a node without channels has to tell."""


def combine(parts: tuple[Aggregate, ...]) -> Aggregate:
    """Return what these parts, all of them sound, are together."""
    if len(parts) == 1:
        return parts[0]
    found = [clusters for part in parts if (clusters := decode(part.clusters)) is not None]
    return Aggregate(sum(part.nodes for part in parts), sum(part.demand for part in parts), encode(merge(found)))


@dataclass(slots=True)
class _SiblingAggregate:
    sender: NodeId
    part: Aggregate
    at_s: float


class Aggregation:
    """One node's share in it.

    ``own`` is what the node itself owns; set it whenever that changes.
    """

    def __init__(
        self,
        me: NodeId,
        silence_s: float,
        *,
        base: int = BASE,
        join: Callable[[tuple[Aggregate, ...]], Aggregate] = combine,
    ) -> None:
        """Forget what is not repeated for ``silence_s``.

        ``join`` is :func:`combine` or does the same: whoever runs many nodes in one process may remember sums, which
        come out equal for all nodes of a subtree, or bin as the paper does.
        """
        self.own = EMPTY_AGGREGATE
        self._me = me
        self._mine = from_hex(me)
        self._silence_s = silence_s
        self._base = base
        self._join = join
        self._view = RingView(0, ())
        self._followers: tuple[tuple[NodeId, ...], ...] | None = ()
        self._heard: dict[tuple[int, int], _SiblingAggregate] = {}
        """By row and digit: the part of the sibling subtree there."""
        self._sums: dict[int, tuple[tuple[Aggregate, ...], Aggregate]] = {}
        """By row: what was added up last, and to what."""

    def ring_changed(self, view: RingView) -> None:
        """Forget what was heard from nodes that have left."""
        self._view = view
        self._followers = None  # found when they are needed: a ring may change often between two ticks
        self._heard = {place: heard for place, heard in self._heard.items() if heard.sender in view}

    def heard(self, sender: NodeId, summary: Summary, now_s: float) -> None:
        """Keep what a contact tells of a sibling subtree, unless it makes no sense here."""
        point, part = from_hex(sender), summary.part
        row = shared_digits(self._mine, point, self._base)
        if sender == self._me or sender not in self._view or summary.digits != row + 1:
            return
        place = row, digit(point, row, self._base)
        known = self._heard.get(place)
        if known is not None and known.part == part:
            self._heard[place] = _SiblingAggregate(sender, known.part, now_s)
        elif part.demand < inf and decode(part.clusters) is not None:
            self._heard[place] = _SiblingAggregate(sender, part, now_s)

    def tick(self, now_s: float) -> Iterator[Send]:
        """Drop what has been silent for too long, and tell the rest."""
        self._heard = {place: heard for place, heard in self._heard.items() if now_s - heard.at_s < self._silence_s}
        parts = self._parts()
        for row, nodes in enumerate(self._rows()):
            summary = Summary(row + 1, parts[row + 1])
            for node in nodes:
                yield Send(node, summary)

    def fleet(self) -> Aggregate:
        """Return what all nodes own, as far as it is known here."""
        return self._parts()[0]

    def _rows(self) -> tuple[tuple[NodeId, ...], ...]:
        if self._followers is None:
            self._followers = summary_recipients(self._view, self._me, self._base)
        return self._followers

    def _parts(self) -> list[Aggregate]:
        """Return the parts of all subtrees around this node, by their number of digits."""
        part, parts = self.own, [self.own]
        for row in reversed(range(len(self._rows()))):
            told = {place[1]: heard.part for place, heard in self._heard.items() if place[0] == row}
            told[digit(self._mine, row, self._base)] = part
            part = self._summed(row, tuple(told[at] for at in sorted(told)))
            parts.append(part)
        return parts[::-1]

    def _summed(self, row: int, addends: tuple[Aggregate, ...]) -> Aggregate:
        """Return the sum of a row, adding up only what is new."""
        known = self._sums.get(row)
        if known is None or known[0] != addends:
            known = self._sums[row] = addends, self._join(addends)
        return known[1]


def summary_recipients(view: RingView, me: NodeId, base: int) -> tuple[tuple[NodeId, ...], ...]:
    """Return, for each row, the nodes that have ``me`` as a contact in it.

    A node's contact for a digit owns the node's own id with that digit in the place of the first that differs.
    """
    mine, rows = from_hex(me), list[list[NodeId]]()
    for node in view.ids if me in view else ():
        if node == me:
            continue
        point = from_hex(node)
        row = shared_digits(mine, point, base)
        rows.extend([] for _ in range(row + 1 - len(rows)))
        beside = point ^ (digit(mine, row, base) ^ digit(point, row, base)) << BITS - (base - 1).bit_length() * (
            row + 1
        )
        if view.has_among(to_hex(beside), me, 1):
            rows[row].append(node)
    return tuple(map(tuple, rows))
