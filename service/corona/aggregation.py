"""Aggregation: the exchange by which every node learns a summary of the whole fleet's channels (Corona §3.3).

Nodes with d leading digits in common form a subtree of the ring. A subtree's *aggregate* summarises the channels that
its nodes own. The aggregate of the deepest subtree around a node, which contains only the node, is its own. The
aggregate of a larger subtree is the sum of the aggregates of its parts: the next smaller subtree around the node, and
the *siblings* of that subtree. The node receives the aggregate of each sibling from a *contact*, which is a node of the
sibling in its routing table (§3.1). Row i of this table has a contact for each digit but the node's own: the nearest of
the nodes that share i digits with the node and have that digit next. Each node therefore counts exactly once in the
fleet's aggregate, that of the subtree of no digits.

In each tick a node sends every aggregate that has changed to the nodes that have this node as a contact; after as many
ticks as there are rows, all nodes have the same fleet aggregate, to the last bit. Aggregates are soft state: the digest
of an unchanged aggregate confirms it in each maintenance interval, and a node whose digest differs, because a message
was lost, requests the aggregate again. An aggregate that is not confirmed in time, or whose sender has left the ring,
is dropped, and ``Aggregate.nodes`` states how much of the fleet is covered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from service.corona.events import Send
from service.corona.fleet_policy import SOFT_STATE_INTERVALS
from service.corona.messages import (
    MIXED,
    Aggregate,
    Summary,
    SummaryConfirmation,
    SummaryMessage,
    SummaryRequest,
    aggregate_digest,
)
from service.corona.optimizer.polling_levels import LevelSteps, decode_steps
from service.corona.optimizer.tradeoff_clusters import decode, encode, merge
from service.model import NodeId
from service.overlay.ring import BITS, RingView, digit, from_hex, shared_digits

BASE = 16
"""The base of the digits of ids, b in the paper. With it, a thousand nodes need three routing rows."""

_ROUNDING_S = 1e-6

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
        sum(aggregate.channels for aggregate in aggregates),
    )


def is_valid(aggregate: Aggregate) -> bool:
    """Return whether an aggregate that another node has sent can be combined with others."""
    return (
        aggregate.demand < inf and decode(aggregate.clusters) is not None and decode_steps(aggregate.steps) is not None
    )


@dataclass(slots=True)
class _SiblingAggregate:
    sender: NodeId
    aggregate: Aggregate
    received_s: float


@dataclass(slots=True)
class _SentAggregate:
    aggregate: Aggregate
    at_s: float
    """Monotonic time in seconds at which the aggregate was last sent or confirmed."""


class Aggregation:
    """One node's part in the exchange of aggregates, by which each node obtains a summary of all channels of the fleet.

    ``now_s`` is monotonic time in seconds.
    """

    def __init__(
        self,
        node_id: NodeId,
        soft_state_ttl_s: float,
        *,
        base: int = BASE,
        join: Callable[[tuple[Aggregate, ...]], Aggregate] = combine,
        validate: Callable[[Aggregate], bool] = is_valid,
    ) -> None:
        """Create the state of the node ``node_id``; other nodes' aggregates expire after ``soft_state_ttl_s`` seconds.

        ``base`` is the base of the digits of ids. ``join`` is called in place of :func:`combine` to add aggregates, and
        ``validate`` in place of :func:`is_valid`. A simulation of many nodes in one process replaces both by functions
        that cache their results, or that add aggregates as in the paper.
        """
        self.own: Aggregate | None = None
        """The aggregate of the node's own channels, which the caller sets whenever these change.

        It is None until the node has determined which channels it owns. In this state the node sends nothing, and
        others' aggregates do not cover it.
        """
        self._node_id = node_id
        self._own_point = from_hex(node_id)
        self._silence_s = soft_state_ttl_s
        self._base = base
        self._join = join
        self._validate = validate
        self._view = RingView(0, ())
        self._recipients: tuple[tuple[NodeId, ...], ...] | None = ()
        self._siblings: dict[tuple[int, int], _SiblingAggregate] = {}
        """Aggregates of sibling subtrees, by row and digit."""
        self._sums: dict[int, tuple[tuple[Aggregate, ...], Aggregate]] = {}
        """The last sum of each row: its addends and the result."""
        self._sent: dict[NodeId, _SentAggregate] = {}
        """The aggregate that each recipient was sent last."""

    def on_ring_changed(self, view: RingView) -> None:
        """Adopt the ring, and drop the aggregates received from nodes that are no longer on it."""
        self._view = view
        self._recipients = None  # computed on demand, because the ring may change often between two ticks
        self._siblings = {place: sibling for place, sibling in self._siblings.items() if sibling.sender in view}
        self._sent = {}

    def on_message(self, sender: NodeId, message: SummaryMessage, now_s: float) -> list[Send]:
        """Process another node's message, and return the messages to send in reply.

        The message is ignored if it is invalid, or if it is about a subtree that is not a sibling of a subtree around
        this node.
        """
        match message:
            case Summary():
                self._store(sender, message, now_s)
            case SummaryConfirmation() if not self._renew(sender, message, now_s):
                return [Send(sender, SummaryRequest(message.digits))]
            case SummaryRequest(digits) if 0 < digits <= len(rows := self._rows()) and sender in rows[digits - 1]:
                if self.own is None:
                    return []
                return [self._send(sender, digits - 1, self._subtree_aggregates()[digits], now_s)]
        return []

    def _store(self, sender: NodeId, summary: Summary, now_s: float) -> None:
        """Store the aggregate in ``summary``, which ``sender`` has sent, if it is valid and of a sibling subtree."""
        place, aggregate = self._place(sender, summary.digits), summary.aggregate
        if place is None:
            return
        known = self._siblings.get(place)
        if known is not None and known.aggregate == aggregate:
            known.sender, known.received_s = sender, now_s
        elif self._validate(aggregate):
            self._siblings[place] = _SiblingAggregate(sender, aggregate, now_s)

    def _renew(self, sender: NodeId, message: SummaryConfirmation, now_s: float) -> bool:
        """Renew the aggregate that ``sender`` confirms; return whether this node has the confirmed aggregate.

        If the result is False, the caller requests the aggregate: this node has another one for the subtree, or none. A
        confirmation that is not about a sibling subtree is ignored, and the result is True.
        """
        place = self._place(sender, message.digits)
        if place is None:
            return True
        known = self._siblings.get(place)
        if known is None or aggregate_digest(known.aggregate) != message.digest:
            return False
        known.sender, known.received_s = sender, now_s
        return True

    def tick(self, now_s: float) -> Iterator[Send]:
        """Drop expired aggregates, and send the aggregate of each subtree around this node to its recipients.

        The recipients of a subtree's aggregate are the nodes that have this node as their contact in the subtree. An
        aggregate that has not changed since it was sent is confirmed by its digest once per maintenance interval.
        """
        self._siblings = {
            place: sibling for place, sibling in self._siblings.items() if now_s - sibling.received_s < self._silence_s
        }
        if self.own is None:
            return
        aggregates = self._subtree_aggregates()
        for row, nodes in enumerate(self._rows()):
            aggregate = aggregates[row + 1]
            for node in nodes:
                sent = self._sent.get(node)
                if sent is None or sent.aggregate != aggregate:
                    yield self._send(node, row, aggregate, now_s)
                elif now_s - sent.at_s >= self._silence_s / SOFT_STATE_INTERVALS - _ROUNDING_S:
                    sent.at_s = now_s
                    yield Send(node, SummaryConfirmation(row + 1, aggregate_digest(aggregate)))

    def _send(self, node: NodeId, row: int, aggregate: Aggregate, now_s: float) -> Send:
        self._sent[node] = _SentAggregate(aggregate, now_s)
        return Send(node, Summary(row + 1, aggregate))

    def _place(self, sender: NodeId, digits: int) -> tuple[int, int] | None:
        """Return the routing row and the digit of the sibling subtree whose aggregate ``sender`` sends or confirms.

        This subtree consists of the nodes whose ids have the first ``digits`` digits of the sender's id. It is a
        sibling if this node's id has all of these digits except the last. Otherwise, or if the sender is not on the
        ring, the result is None.
        """
        if sender == self._node_id or sender not in self._view:
            return None
        point = from_hex(sender)
        row = shared_digits(self._own_point, point, self._base)
        if digits != row + 1:
            return None
        return row, digit(point, row, self._base)

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
        aggregate = self.own or EMPTY_AGGREGATE
        aggregates = [aggregate]
        for row in reversed(range(len(self._rows()))):
            by_digit = {place[1]: sibling.aggregate for place, sibling in self._siblings.items() if place[0] == row}
            by_digit[digit(self._own_point, row, self._base)] = aggregate
            addends = tuple(by_digit[at] for at in sorted(by_digit))
            known = self._sums.get(row)
            if known is None or known[0] != addends:
                known = self._sums[row] = addends, self._join(addends)
            aggregate = known[1]
            aggregates.append(aggregate)
        return aggregates[::-1]


def summary_recipients(view: RingView, node_id: NodeId, base: int) -> tuple[tuple[NodeId, ...], ...]:
    """Return, for each routing row, the nodes that have ``node_id`` as a contact in that row.

    Row i of a node's routing table is about the nodes whose ids share exactly the first i digits with the node's id;
    digits have the base ``base``. For each value of the next digit, the node's contact is the nearest of the nodes with
    this value.
    """
    branchings = view.branchings(node_id)
    if branchings is None:
        return ()
    point, width, rows = from_hex(node_id), (base - 1).bit_length(), list[tuple[NodeId, ...]]()
    while (below := (1 << BITS - width * len(rows)) - 1) & branchings:
        # Nodes that share all digits before the row's, and all bits behind it at which the path to this node branches.
        mask = ~below | branchings & below >> width
        rows.append(tuple(node for node in view.nodes_with_bits(mask, point) if node != node_id))
    return tuple(rows)
