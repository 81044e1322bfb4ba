"""Aggregation: the exchange by which every node learns a summary of the whole fleet's channels (Corona §3.3).

Nodes with d leading digits in common form a subtree of the ring. A subtree's *aggregate* summarises the channels that
its nodes own. The aggregate of the deepest subtree around a node, which contains only the node, is its own. The
aggregate of each larger one is the sum of the next smaller one and its siblings, each of which is received from a
contact in the routing rows (§3.1): row i holds, for each digit but the node's own, the nearest of the nodes that share
i digits with it and have that digit next. Each node therefore counts exactly once in the fleet's aggregate, that of the
subtree of no digits.

In each tick a node sends every aggregate to the nodes whose contact it is; after as many ticks as there are rows, all
nodes have the same fleet aggregate, to the last bit. It is soft state: an aggregate that is not repeated in time, or
whose sender has left the ring, is dropped, and ``Aggregate.nodes`` states how much of the fleet is covered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from service.corona.events import Send
from service.corona.messages import MIXED, Aggregate, Summary
from service.corona.polling_levels import LevelSteps, decode_steps
from service.corona.tradeoff_clusters import decode, encode, merge
from service.model import NodeId
from service.overlay.id_space import BITS, digit, from_hex, shared_digits, to_hex
from service.overlay.ring import RingView

BASE = 16
"""The paper's base b: three routing rows for a thousand nodes."""

EMPTY_AGGREGATE = Aggregate(1, 0.0, b"")
"""The aggregate of one node without channels."""


def combine(aggregates: tuple[Aggregate, ...]) -> Aggregate:
    """Return the sum of these aggregates, which must be valid: the aggregate of all channels that they summarise."""
    if len(aggregates) == 1:
        return aggregates[0]
    found = [clusters for aggregate in aggregates if (clusters := decode(aggregate.clusters)) is not None]
    bases = {aggregate.base for aggregate in aggregates}
    steps = [steps for aggregate in aggregates if (steps := decode_steps(aggregate.steps)) is not None]
    return Aggregate(
        sum(aggregate.nodes for aggregate in aggregates),
        sum(aggregate.demand for aggregate in aggregates),
        encode(merge(found)),
        bases.pop() if len(bases) == 1 else MIXED,
        LevelSteps.merge(steps).encode(),
    )


@dataclass(slots=True)
class _SiblingAggregate:
    sender: NodeId
    aggregate: Aggregate
    received_s: float


class Aggregation:
    """One node's part in aggregation. ``now_s`` is monotonic time in seconds.

    ``own`` is the aggregate of the node's own channels; set it whenever these change.
    """

    def __init__(
        self,
        node_id: NodeId,
        soft_state_ttl_s: float,
        *,
        base: int = BASE,
        join: Callable[[tuple[Aggregate, ...]], Aggregate] = combine,
    ) -> None:
        """Start without other nodes' aggregates, which expire after ``soft_state_ttl_s`` seconds.

        ``base`` is the number of values of a digit. ``join`` adds aggregates in place of :func:`combine`: a simulation
        of many nodes in one process caches sums, which are equal for all nodes of a subtree, or uses the paper's bins.
        """
        self.own = EMPTY_AGGREGATE
        self._node_id = node_id
        self._own_point = from_hex(node_id)
        self._silence_s = soft_state_ttl_s
        self._base = base
        self._join = join
        self._view = RingView(0, ())
        self._recipients: tuple[tuple[NodeId, ...], ...] | None = ()
        self._siblings: dict[tuple[int, int], _SiblingAggregate] = {}
        """Aggregates of sibling subtrees, by row and digit."""
        self._sums: dict[int, tuple[tuple[Aggregate, ...], Aggregate]] = {}
        """The last sum of each row: its addends and the result."""

    def on_ring_changed(self, view: RingView) -> None:
        """Adopt the ring, and drop the aggregates received from nodes that are no longer on it."""
        self._view = view
        self._recipients = None  # computed on demand, because the ring may change often between two ticks
        self._siblings = {place: sibling for place, sibling in self._siblings.items() if sibling.sender in view}

    def on_summary(self, sender: NodeId, summary: Summary, now_s: float) -> None:
        """Store the aggregate of a sibling subtree that a contact has sent.

        An invalid summary is ignored, and so is one whose sender is not a contact of this node.
        """
        point, aggregate = from_hex(sender), summary.aggregate
        row = shared_digits(self._own_point, point, self._base)
        if sender == self._node_id or sender not in self._view or summary.digits != row + 1:
            return
        place = row, digit(point, row, self._base)
        known = self._siblings.get(place)
        if known is not None and known.aggregate == aggregate:
            self._siblings[place] = _SiblingAggregate(sender, known.aggregate, now_s)
        elif (
            aggregate.demand < inf
            and decode(aggregate.clusters) is not None
            and decode_steps(aggregate.steps) is not None
        ):
            self._siblings[place] = _SiblingAggregate(sender, aggregate, now_s)

    def tick(self, now_s: float) -> Iterator[Send]:
        """Drop expired aggregates, and send those of the subtrees around this node to the nodes that depend on them."""
        self._siblings = {
            place: sibling for place, sibling in self._siblings.items() if now_s - sibling.received_s < self._silence_s
        }
        aggregates = self._subtree_aggregates()
        for row, nodes in enumerate(self._rows()):
            summary = Summary(row + 1, aggregates[row + 1])
            for node in nodes:
                yield Send(node, summary)

    def fleet(self) -> Aggregate:
        """Return the aggregate of the whole fleet; ``nodes`` states how many nodes it covers so far."""
        return self._subtree_aggregates()[0]

    def _rows(self) -> tuple[tuple[NodeId, ...], ...]:
        if self._recipients is None:
            self._recipients = summary_recipients(self._view, self._node_id, self._base)
        return self._recipients

    def _subtree_aggregates(self) -> list[Aggregate]:
        """Return the aggregates of all subtrees around this node.

        The index of an aggregate is the number of leading digits that the subtree's nodes have in common.
        """
        aggregate, aggregates = self.own, [self.own]
        for row in reversed(range(len(self._rows()))):
            by_digit = {place[1]: sibling.aggregate for place, sibling in self._siblings.items() if place[0] == row}
            by_digit[digit(self._own_point, row, self._base)] = aggregate
            aggregate = self._join_cached(row, tuple(by_digit[at] for at in sorted(by_digit)))
            aggregates.append(aggregate)
        return aggregates[::-1]

    def _join_cached(self, row: int, addends: tuple[Aggregate, ...]) -> Aggregate:
        """Return the sum of ``addends``, the aggregates for the routing row ``row``.

        The sum is cached until the row's aggregates change.
        """
        known = self._sums.get(row)
        if known is None or known[0] != addends:
            known = self._sums[row] = addends, self._join(addends)
        return known[1]


def summary_recipients(view: RingView, node_id: NodeId, base: int) -> tuple[tuple[NodeId, ...], ...]:
    """Return, for each routing row, the nodes that have ``node_id`` as a contact in that row.

    A row is a number of leading digits, of base ``base``, that two nodes have in common. A node's contact for another
    digit in the next place is the node nearest to the node's own id with that digit.
    """
    own_point, rows = from_hex(node_id), list[list[NodeId]]()
    for node in view.ids if node_id in view else ():
        if node == node_id:
            continue
        point = from_hex(node)
        row = shared_digits(own_point, point, base)
        rows.extend([] for _ in range(row + 1 - len(rows)))
        beside = point ^ (digit(own_point, row, base) ^ digit(point, row, base)) << BITS - (base - 1).bit_length() * (
            row + 1
        )
        if view.is_among_nearest(to_hex(beside), node_id, 1):
            rows[row].append(node)
    return tuple(map(tuple, rows))
