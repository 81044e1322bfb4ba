"""The exchange through which every node learns a summary of the whole fleet's channels (Corona §3.3).

A *subtree* is the set of all nodes whose ids begin with the same d digits. Its *aggregate* summarises the channels that
these nodes own. Nodes exchange aggregates in such a way that each channel counts exactly once:

1. A node starts with the smallest subtree, which contains only the node itself. Its aggregate summarises the node's own
   channels.
2. The next larger subtree, with one digit less, consists of this subtree and its *siblings*: other subtrees of the same
   size. The node adds up their aggregates.
3. The node receives each sibling's aggregate from one node of that sibling, its *contact* (§3.1): the node whose id is
   nearest to its own.
4. The largest subtree, with d = 0, is the whole fleet.

The siblings of one subtree form a *routing row*. In each tick, a node sends the aggregates that have changed to all
nodes whose contact it is. After as many ticks as there are routing rows, all nodes have the same aggregate of the
fleet, bit for bit.

To make up for lost messages, a node sends the hash of each unchanged aggregate once per maintenance interval. A
receiver that has stored a different aggregate then requests the sender's aggregate. A node drops an aggregate if the
sender does not confirm it in time or has left the ring. ``Aggregate.nodes`` states how many nodes an aggregate covers.
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
"""The base of the digits of ids, b in the paper. The ids of a thousand nodes differ in their first three digits."""

_MOST_EARLY = 100
"""Greatest number of summaries that a node keeps from nodes that are not on its ring."""

EMPTY_AGGREGATE = Aggregate(1, 0.0, b"")
"""The aggregate of one node without channels."""


def combine(aggregates: tuple[Aggregate, ...]) -> Aggregate:
    """Return the sum of ``aggregates``: one summary of all the channels that they cover.

    Each of ``aggregates`` must be valid (:func:`is_valid`).
    """
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
    """Return whether a summary from another node is well-formed and can be added to other summaries."""
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
    """One node's part in the exchange from which every node learns a summary of all channels of the fleet.

    Each node adds the summaries that it receives to a summary of its own channels, and sends the sums to other nodes.
    In all methods, ``now_s`` is monotonic time in seconds.
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
        """Create the state of the node ``node_id``, which has no summaries from other nodes yet.

        - ``soft_state_ttl_s``: the time in seconds after which another node's summary expires unless that node
          confirms it.
        - ``base``: the number base of the digits of node ids.
        - ``join``: the function that adds up summaries.
        - ``validate``: the function that checks whether a summary is well-formed.
        """
        # A simulation of many nodes in one process replaces ``join`` and ``validate`` by functions that cache their
        # results, or that add aggregates as in the paper.
        self._own: Aggregate | None = None
        self._node_id = node_id
        self._own_point = from_hex(node_id)
        self._silence_s = soft_state_ttl_s
        self._base = base
        self._join = join
        self._validate = validate
        self._view = RingView(0, ())
        self._recipients: tuple[tuple[NodeId, ...], ...] | None = ()
        self._siblings: dict[tuple[int, int], _SiblingAggregate] = {}
        """The aggregates of sibling subtrees, keyed by (routing row, digit)."""
        self._early: dict[NodeId, tuple[Summary, float]] = {}
        """Summaries from nodes that are not on this node's ring yet, and the times at which they were received."""
        self._aggregates: list[Aggregate] | None = None
        """This node's summaries, as :meth:`_subtree_aggregates` returns them; None if they may have changed."""
        self._sums: dict[int, tuple[tuple[Aggregate, ...], Aggregate]] = {}
        """The last sum that was computed for each routing row, as (addends, result)."""
        self._sent: dict[NodeId, _SentAggregate] = {}
        """The last aggregate that was sent to each recipient."""

    @property
    def own(self) -> Aggregate | None:
        """The aggregate of the node's own channels, which the caller sets whenever these change.

        It is None until the node has determined which channels it owns. In this state the node sends nothing, and
        others' aggregates do not cover it.
        """
        return self._own

    @own.setter
    def own(self, aggregate: Aggregate | None) -> None:
        self._own, self._aggregates = aggregate, None

    def on_ring_changed(self, view: RingView) -> None:
        """Adopt ``view`` as the members of the ring, and drop summaries from nodes that are no longer members.

        Summaries that new members have sent before are stored now.
        """
        self._view, self._aggregates = view, None
        self._recipients = None  # computed on demand, because the ring may change often between two ticks
        self._siblings = {place: sibling for place, sibling in self._siblings.items() if sibling.sender in view}
        self._sent = {}
        early, self._early = self._early, {}
        for sender, (summary, received_s) in early.items():
            if sender in view:
                self._store(sender, summary, received_s)

    def on_message(self, sender: NodeId, message: SummaryMessage, now_s: float) -> list[Send]:
        """Process another node's message, and return the messages to send in reply.

        A message is ignored if it is invalid, or if it is about a summary that this node does not need.
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
        """Store the summary that ``sender`` has sent, if it is valid and this node needs it.

        The summary of a node that is not on this node's ring yet is kept until the ring changes.
        """
        # The sender may have joined a moment ago. It would send its summary again only after a maintenance interval.
        if sender not in self._view and (sender in self._early or len(self._early) < _MOST_EARLY):
            self._early[sender] = summary, now_s
        place, aggregate = self._place(sender, summary.digits), summary.aggregate
        if place is None:
            return
        known = self._siblings.get(place)
        if known is not None and known.aggregate == aggregate:
            known.sender, known.received_s = sender, now_s
        elif self._validate(aggregate):
            self._siblings[place], self._aggregates = _SiblingAggregate(sender, aggregate, now_s), None

    def _renew(self, sender: NodeId, message: SummaryConfirmation, now_s: float) -> bool:
        """Renew the stored summary that ``sender`` confirms; return False if it must be requested from ``sender``.

        The summary must be requested if this node has stored none, or a different one. If this node does not need the
        summary, it ignores the confirmation and returns True.
        """
        place = self._place(sender, message.digits)
        if place is None:
            return True
        known = self._siblings.get(place)
        if known is None or aggregate_digest(known.aggregate) != message.digest:
            return False
        known.sender, known.received_s = sender, now_s
        return True

    def tick(self, now_s: float, *, is_maintenance: bool) -> Iterator[Send]:
        """Drop expired summaries, and send this node's summaries to the nodes that need them.

        This node has several summaries: one of all nodes whose ids begin with the same digit as its own id, one of
        those whose ids begin with the same two digits, and so on. A recipient that already has the current summary
        gets only its hash, at about every maintenance.

        ``is_maintenance``: true in one call per maintenance interval.
        """
        for place, sibling in list(self._siblings.items()):
            if now_s - sibling.received_s >= self._silence_s:
                del self._siblings[place]
                self._aggregates = None
        if self.own is None:
            return
        aggregates = self._subtree_aggregates()
        for row, nodes in enumerate(self._rows()):
            aggregate = aggregates[row + 1]
            for node in nodes:
                sent = self._sent.get(node)
                if sent is None or sent.aggregate != aggregate:
                    yield self._send(node, row, aggregate, now_s)
                elif is_maintenance and now_s - sent.at_s >= self._silence_s / SOFT_STATE_INTERVALS / 2:
                    sent.at_s = now_s
                    yield Send(node, SummaryConfirmation(row + 1, aggregate_digest(aggregate)))

    def _send(self, node: NodeId, row: int, aggregate: Aggregate, now_s: float) -> Send:
        self._sent[node] = _SentAggregate(aggregate, now_s)
        return Send(node, Summary(row + 1, aggregate))

    def _place(self, sender: NodeId, digits: int) -> tuple[int, int] | None:
        """Return where to store a summary from ``sender``, as (row, digit); None if the summary is not needed.

        - The row is the number of leading digits that the sender's id has in common with this node's id.
        - The digit is the next digit of the sender's id.

        The summary covers all nodes whose ids begin with the first ``digits`` digits of the sender's id. It is needed
        only if ``digits`` is the row plus 1, and the sender is another node on the ring.
        """
        if sender == self._node_id or sender not in self._view:
            return None
        point = from_hex(sender)
        row = shared_digits(self._own_point, point, self._base)
        if digits != row + 1:
            return None
        return row, digit(point, row, self._base)

    def fleet(self) -> Aggregate:
        """Return the summary of all channels of the fleet.

        The summary's field ``nodes`` states how many nodes it covers so far.
        """
        return self._subtree_aggregates()[0]

    def _rows(self) -> tuple[tuple[NodeId, ...], ...]:
        if self._recipients is None:
            self._recipients = summary_recipients(self._view, self._node_id, self._base)
        return self._recipients

    def _subtree_aggregates(self) -> list[Aggregate]:
        """Return this node's summaries, from the one of the whole fleet to the one of its own channels.

        The summary at index i covers the channels of all nodes whose ids begin with the first i digits of this node's
        id.
        """
        if self._aggregates is not None:
            return self._aggregates
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
        self._aggregates = aggregates[::-1]
        return self._aggregates


def summary_recipients(view: RingView, node_id: NodeId, base: int) -> tuple[tuple[NodeId, ...], ...]:
    """Return the recipients of summaries from ``node_id``, grouped by how many leading digits they share with it.

    The tuple at index i contains nodes whose ids share exactly the first i digits (in base ``base``) with
    ``node_id``. These nodes need the summary of all nodes whose ids begin with the first i + 1 digits of ``node_id``.
    Several nodes have this summary. A recipient gets it from only one of them: the node whose id is nearest to the
    recipient's id.
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
