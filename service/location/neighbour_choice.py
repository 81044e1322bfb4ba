"""Choice of neighbours: nodes build and repair a network by round-trip times (Rhea and Kubiatowicz §V, future work).

A peer is *near* or *far*, by one limit of the round-trip time for all nodes. Every node seeks links to the nearest of
its near peers. In each group of nodes that are near each other, only the few with the lowest ids are *gateways*, which
also seek links to far peers. Few links are therefore expensive, and information about a group crosses them once. This
is the paper's restricted overlay, in which source filtering pays off, without global knowledge.

How links are agreed:

1. A link needs the agreement of both ends.
2. A node that finds a nearer neighbour drops its farthest one. If both ends measure similar times, the result is a
   stable matching.
3. A node whose request was declined does not repeat it until :meth:`Neighbourhood.reset_declined`. The negotiation
   therefore always ends.

These links alone may leave the network in separate parts. Every node therefore also links to its *anchor*, its nearest
peer with a lower id, which must accept the link. From any node, a chain of anchors leads to the lowest id. The network
is therefore connected, whichever nodes leave, as soon as every other node knows a peer with a lower id. The cost is
small: only one node of a group has a far anchor. A node is the anchor of about as many nodes as the logarithm of its
group's size, because ids are hashes.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice

import msgspec

from service.model import NodeId


class Offer(Enum):
    """Kinds of messages by which nodes negotiate links.

    - ``REQUEST`` requests a link. It also states that the receiver is not, or no longer, the sender's anchor (its
      nearest peer with a lower id).
    - ``ANCHOR`` requests a link to the receiver as the sender's anchor. The receiver must accept it.
    - ``DECLINE`` refuses or ends a link.
    """

    REQUEST = 1
    ACCEPT = 2
    DECLINE = 3
    ANCHOR = 4


class NeighbourLimits(msgspec.Struct, frozen=True):
    """The limits by which a node chooses neighbours.

    - ``near_s``: the maximum round-trip time in seconds of a peer that counts as near.
    - ``near``, ``far``: the maximum numbers of near and far neighbours of a node.
    - ``gateways``: the number of nodes that seek far neighbours in each group of nodes that are near each other.
    """

    near_s: float
    near: int = 6
    far: int = 3
    gateways: int = 2


class SendOffer(msgspec.Struct, frozen=True):
    """Instruction to the caller: send ``offer`` to the peer ``to``."""

    to: NodeId
    offer: Offer


class LinkAdded(msgspec.Struct, frozen=True):
    """Notice to the caller: ``neighbour`` is a neighbour of this node from now on.

    ``rtt_s`` is the round-trip time in seconds.
    """

    neighbour: NodeId
    rtt_s: float


class LinkRemoved(msgspec.Struct, frozen=True):
    """Notice to the caller: ``neighbour`` is no longer a neighbour of this node."""

    neighbour: NodeId


Effect = SendOffer | LinkAdded | LinkRemoved


class Neighbourhood:
    """One node's side of the negotiation of links to other nodes.

    Each method returns instructions and notices (type ``Effect``), which the caller carries out in order.
    """

    def __init__(self, node_id: NodeId, limits: NeighbourLimits) -> None:
        """Create the neighbourhood of the node ``node_id`` without peers; ``limits`` bound its choice of neighbours."""
        self.node_id = node_id
        self.links: set[NodeId] = set()
        self._limits = limits
        self._rtt_s: dict[NodeId, float] = {}
        self._order: dict[bool, list[NodeId]] = {True: [], False: []}
        """The near peers (True) and the far peers (False), each the nearest first."""
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
        """Record measured round-trip times; return the resulting changes of links and messages to peers.

        ``rtts_s`` are pairs (peer, seconds).
        """
        self._rtt_s.update((peer, rtt_s) for peer, rtt_s in rtts_s if peer != self.node_id)
        self._sort_peers()
        effects: list[Effect] = []
        for peer in sorted((self._dependents & self._rtt_s.keys()) - self.links):
            effects += self._add_link(peer, Offer.ANCHOR)
        return self._update_links(effects)

    def on_peer_left(self, peer: NodeId) -> list[Effect]:
        """Remove ``peer``, which has left or does not respond; return the resulting changes of links and messages."""
        self._rtt_s.pop(peer, None)
        self._sort_peers()
        self._requested.discard(peer)
        self._declined.discard(peer)
        self._dependents.discard(peer)
        return self._update_links(self._remove_link(peer))

    def reset_declined(self) -> list[Effect]:
        """Forget refused and unanswered requests for links, and return new requests.

        The caller calls this method periodically.
        """
        self._declined.clear()
        self._requested.clear()
        self._anchor = None
        return self._update_links([])

    def on_offer(self, peer: NodeId, offer: Offer) -> list[Effect]:
        """Process a request for a link, or a refusal of one, from ``peer``; return the reply and other effects.

        A request from a peer whose round-trip time is unknown is declined. A request ``ANCHOR`` is not declined: the
        link is added as soon as the round-trip time has been measured.
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
        """Process a peer's refusal: remove the link to this peer, and send it no further requests.

        The *anchor* (the nearest peer with a lower id) is an exception: this node sends it a request ``ANCHOR``, which
        it has to accept.
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
        """Return those of ``peers`` that are near (far if ``near`` is false), sorted by round-trip time.

        The nearest peer comes first. If there are more peers than the limits allow, the farthest ones are left out.
        """
        most = self._limits.near if near else self._limits.far if self.is_gateway else 0
        return list(islice((peer for peer in self._order[near] if peer in peers), most))

    def _links_to_keep(self, peers: AbstractSet[NodeId]) -> AbstractSet[NodeId]:
        """Return the peers among ``peers`` to which this node seeks or keeps a link."""
        nearest = {*self._nearest(peers, near=True), *self._nearest(peers, near=False)}
        return nearest | (peers & (self._dependents | {self._nearest_with_lesser_id()}))

    def _update_links(self, effects: list[Effect]) -> list[Effect]:
        """Drop superfluous links, update the *anchor* (the nearest peer with a lower id), and request missing links.

        Return ``effects`` with the effects of these changes appended.
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
