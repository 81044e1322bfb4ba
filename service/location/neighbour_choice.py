"""Choice of neighbours: nodes build and repair a network by round-trip times (Rhea and Kubiatowicz §V, future work).

A peer is *near* if its round-trip time is within a limit that is the same for all nodes; otherwise it is *far*. Every
node seeks links to the nearest of its near peers. In each group of nodes that are near each other, only the few nodes
with the lowest ids also seek links to far peers. These nodes are called *gateways*. Therefore few links have a long
round-trip time, and information about a group crosses them only once.

This is the paper's restricted overlay, in which dropping updates at the source pays off. In contrast to the paper, no
node needs to know the whole network.

Links are agreed as follows:

1. A link needs the agreement of both ends.
2. A node that finds a nearer neighbour drops its farthest one. If both ends of each link measure similar times, the
   result is a stable matching.
3. A node whose request was declined does not repeat it until :meth:`Neighbourhood.reset_declined` is called. Therefore
   the negotiation always ends.

With these links alone, the network could consist of separate parts. Every node therefore also links to its *anchor*,
its nearest peer with a lower id. The anchor must accept the link. From any node, a chain of anchors leads to the node
with the lowest id. The network is therefore connected as soon as every other node knows a peer with a lower id, no
matter which nodes have left.

The cost is small. Only one node of a group has a far anchor. Because ids are hashes, a node in a group of n nodes is
the anchor of about log n nodes at most.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice

import msgspec

from service.model import NodeId


class Offer(Enum):
    """The kinds of messages with which nodes negotiate links.

    A node's *anchor* is its nearest peer with a lower id.

    - ``REQUEST`` requests a link to a peer that is not the sender's anchor. If the sender's anchor has changed, the
      message also tells the previous anchor that it has lost this role.
    - ``ANCHOR`` requests a link to the sender's anchor. The anchor must accept it.
    - ``ACCEPT`` accepts a requested link.
    - ``DECLINE`` declines a requested link or ends an existing one.
    """

    REQUEST = 1
    ACCEPT = 2
    DECLINE = 3
    ANCHOR = 4


class NeighbourLimits(msgspec.Struct, frozen=True):
    """The limits within which a node chooses its neighbours.

    - ``near_s``: the maximum round-trip time of a near peer, in seconds. All other peers are far.
    - ``near``, ``far``: the maximum number of near neighbours and of far neighbours.
    - ``gateways``: how many nodes in each group of nearby nodes seek far neighbours.
    """

    near_s: float
    near: int = 6
    far: int = 3
    gateways: int = 2


class SendOffer(msgspec.Struct, frozen=True):
    """An instruction to the caller to send ``offer`` to the peer ``to``."""

    to: NodeId
    offer: Offer


class LinkAdded(msgspec.Struct, frozen=True):
    """A notice to the caller that this node now has a link to ``neighbour``.

    ``rtt_s`` is the round-trip time in seconds.
    """

    neighbour: NodeId
    rtt_s: float


class LinkRemoved(msgspec.Struct, frozen=True):
    """A notice to the caller that this node no longer has a link to ``neighbour``."""

    neighbour: NodeId


Effect = SendOffer | LinkAdded | LinkRemoved


class Neighbourhood:
    """One node's side of the negotiation of links to other nodes.

    The methods return instructions and notices (type ``Effect``), which the caller must process in the given order.
    """

    def __init__(self, node_id: NodeId, limits: NeighbourLimits) -> None:
        """Create the neighbourhood of the node ``node_id``, which has no peers yet.

        ``limits`` restricts the node's choice of neighbours.
        """
        self.node_id = node_id
        self.links: set[NodeId] = set()
        self._limits = limits
        self._rtt_s: dict[NodeId, float] = {}
        self._order: dict[bool, list[NodeId]] = {True: [], False: []}
        """Maps True to the near peers and False to the far peers. Both lists begin with the nearest peer."""
        self._requested: set[NodeId] = set()
        """Peers that have not answered this node's request for a link."""
        self._declined: set[NodeId] = set()
        self._anchor: NodeId | None = None
        self._dependents: set[NodeId] = set()
        """Peers that have this node as their anchor."""

    @property
    def is_gateway(self) -> bool:
        """Whether this node also seeks links to far peers (those with a long round-trip time)."""
        return sum(peer < self.node_id for peer in self._order[True]) < self._limits.gateways

    def on_measurements(self, rtts_s: Iterable[tuple[NodeId, float]]) -> list[Effect]:
        """Record measured round-trip times; return the resulting link changes and the messages to send to peers.

        ``rtts_s`` are pairs (peer, round-trip time in seconds).
        """
        self._rtt_s.update((peer, rtt_s) for peer, rtt_s in rtts_s if peer != self.node_id)
        self._sort_peers()
        effects: list[Effect] = []
        for peer in sorted((self._dependents & self._rtt_s.keys()) - self.links):
            effects += self._add_link(peer, Offer.ANCHOR)
        return self._update_links(effects)

    def on_peer_left(self, peer: NodeId) -> list[Effect]:
        """Remove ``peer``, which has left or does not respond; return the link changes and messages."""
        self._rtt_s.pop(peer, None)
        self._sort_peers()
        self._requested.discard(peer)
        self._declined.discard(peer)
        self._dependents.discard(peer)
        return self._update_links(self._remove_link(peer))

    def reset_declined(self) -> list[Effect]:
        """Forget which link requests were declined or not answered; return new requests.

        The caller must call this method periodically.
        """
        self._declined.clear()
        self._requested.clear()
        self._anchor = None
        return self._update_links([])

    def on_offer(self, peer: NodeId, offer: Offer) -> list[Effect]:
        """Process a message from ``peer`` in the negotiation of links; return the reply and the link changes.

        A ``REQUEST`` from a peer whose round-trip time is unknown is declined. An ``ANCHOR`` request is never declined:
        the link is added as soon as the round-trip time has been measured.
        """
        if offer is Offer.DECLINE:
            return self._update_links(self._on_decline(peer))
        if offer is not Offer.ACCEPT:
            (self._dependents.add if offer is Offer.ANCHOR and peer > self.node_id else self._dependents.discard)(peer)
        if peer in self.links:
            return self._update_links([] if offer is Offer.ACCEPT else [SendOffer(peer, Offer.ACCEPT)])
        if offer is Offer.ACCEPT:
            is_accepted = peer in self._requested
        else:
            is_accepted = peer in self._links_to_keep(self.links | {peer})
        if is_accepted and peer in self._rtt_s:
            return self._update_links(self._add_link(peer, offer))
        self._requested.discard(peer)
        return self._update_links([] if peer in self._dependents else [SendOffer(peer, Offer.DECLINE)])

    def _on_decline(self, peer: NodeId) -> list[Effect]:
        """Process a ``DECLINE`` from ``peer``: remove the link to it, and send it no further ``REQUEST`` for now.

        If the peer is this node's *anchor* (its nearest peer with a lower id), this node will send it an ``ANCHOR``
        request instead, which the peer must accept.
        """
        # The anchor has refused a REQUEST that was sent before it became the anchor. It has to accept the request
        # ANCHOR, which is sent next.
        self._requested.discard(peer)
        self._dependents.discard(peer)
        if peer == self._anchor:
            self._anchor = None
        else:
            self._declined.add(peer)
        return self._remove_link(peer)

    def _add_link(self, peer: NodeId, offer: Offer) -> list[Effect]:
        self._requested.discard(peer)
        self.links.add(peer)
        linked = LinkAdded(peer, self._rtt_s[peer])
        return [linked] if offer is Offer.ACCEPT else [SendOffer(peer, Offer.ACCEPT), linked]

    def _remove_link(self, peer: NodeId) -> list[Effect]:
        if peer not in self.links:
            return []
        self.links.discard(peer)
        return [LinkRemoved(peer)]

    def _sort_peers(self) -> None:
        self._order = {True: [], False: []}
        for peer in sorted(self._rtt_s, key=lambda peer: (self._rtt_s[peer], peer)):
            self._order[self._rtt_s[peer] <= self._limits.near_s].append(peer)

    def _nearest_with_lesser_id(self) -> NodeId | None:
        """Return the nearest known peer whose id is lower than this node's id; None if there is none."""
        # This is the anchor.
        return next((peer for near in (True, False) for peer in self._order[near] if peer < self.node_id), None)

    def _nearest(self, peers: AbstractSet[NodeId], *, near: bool) -> list[NodeId]:
        """Return the near peers in ``peers``, or the far ones if ``near`` is false, sorted by round-trip time.

        The nearest peer comes first. If there are more peers than the limits allow, the farthest ones are left out.
        """
        most = self._limits.near if near else self._limits.far if self.is_gateway else 0
        return list(islice((peer for peer in self._order[near] if peer in peers), most))

    def _links_to_keep(self, peers: AbstractSet[NodeId]) -> AbstractSet[NodeId]:
        """Return the peers in ``peers`` to which this node wants to have a link."""
        nearest = {*self._nearest(peers, near=True), *self._nearest(peers, near=False)}
        return nearest | (peers & (self._dependents | {self._nearest_with_lesser_id()}))

    def _update_links(self, effects: list[Effect]) -> list[Effect]:
        """Drop superfluous links, update the *anchor* (the nearest peer with a lower id), and request missing links.

        The resulting instructions and notices are appended to ``effects``, which is returned.
        """
        for peer in sorted(self.links - self._links_to_keep(self.links)):
            self._declined.add(peer)
            effects += [SendOffer(peer, Offer.DECLINE), *self._remove_link(peer)]
        anchor = self._nearest_with_lesser_id()
        if anchor != self._anchor:
            if self._anchor in self.links:
                effects.append(SendOffer(self._anchor, Offer.REQUEST))
            self._anchor = anchor
            if anchor is not None:
                effects.append(SendOffer(anchor, Offer.ANCHOR))
                if anchor not in self.links:
                    self._requested.add(anchor)
        willing = self._rtt_s.keys() - self._declined
        for near in (True, False):
            for peer in self._nearest(willing, near=near):
                if peer not in self.links and peer not in self._requested:
                    self._requested.add(peer)
                    effects.append(SendOffer(peer, Offer.REQUEST))
        return effects
