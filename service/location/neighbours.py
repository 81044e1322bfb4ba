"""Who is whose neighbour: an overlay that makes and mends itself, by measured round-trip times (§V, future work).

A peer is *near* or *far*, by one limit for all. Everybody wants a few near neighbours, the nearest. Of peers that are
near each other, only a few, those with the least ids, are *gateways* and want far neighbours as well, which they find
among other groups' gateways. So expensive links are few, whatever the number of nodes, and what is known of a
group crosses them once: the paper's restricted overlay, in which source filtering pays, without global knowledge.

Both sides must want a link, and whoever finds a nearer neighbour drops the farthest one. With round-trip times that
are alike on both sides this ends where no two would rather have each other than what they have. Those of whom one has
declined the other do not ask again until :meth:`Neighbourhood.forget`, so it ends in any case.

It does not make the whole one: where groups prefer each other, another one may be left without any far link. What it
has is then found by the ways that everybody falls back on.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice

import msgspec

from service.model import NodeId


class Offer(Enum):
    """What nodes say to those they are, or might be, linked with: ``DECLINE`` also ends a link."""

    ASK = 1
    ACCEPT = 2
    DECLINE = 3


class Limits(msgspec.Struct, frozen=True):
    """What is near, how many neighbours of each kind are wanted, and how many of a group have far ones."""

    near_s: float
    near: int = 6
    far: int = 3
    gateways: int = 2


class Offered(msgspec.Struct, frozen=True):
    """Send this offer."""

    to: NodeId
    offer: Offer


class Linked(msgspec.Struct, frozen=True):
    """There is a new neighbour, at this round-trip time."""

    neighbour: NodeId
    rtt_s: float


class Unlinked(msgspec.Struct, frozen=True):
    """It is no neighbour any more."""

    neighbour: NodeId


Effect = Offered | Linked | Unlinked


class Neighbourhood:
    """One node's part in the overlay. Methods return what is to be done, in this order."""

    def __init__(self, me: NodeId, limits: Limits) -> None:
        """Know nobody yet."""
        self.me = me
        self.links: set[NodeId] = set()
        self._limits = limits
        self._rtt_s: dict[NodeId, float] = {}
        self._order: dict[bool, list[NodeId]] = {True: [], False: []}
        self._asked: set[NodeId] = set()
        self._declined: set[NodeId] = set()

    @property
    def gateway(self) -> bool:
        """Whether this node is one of those of its group that have far neighbours."""
        return sum(peer < self.me for peer in self._order[True]) < self._limits.gateways

    def measured(self, rtts_s: Iterable[tuple[NodeId, float]]) -> list[Effect]:
        """Know these peers' round-trip times, for the first time or again."""
        self._rtt_s.update((peer, rtt_s) for peer, rtt_s in rtts_s if peer != self.me)
        self._ordered()
        return self._reviewed([])

    def gone(self, peer: NodeId) -> list[Effect]:
        """Be without a peer that has left, or answers no more."""
        self._rtt_s.pop(peer, None)
        self._ordered()
        self._asked.discard(peer)
        self._declined.discard(peer)
        effects: list[Effect] = [Unlinked(peer)] if peer in self.links else []
        self.links.discard(peer)
        return self._reviewed(effects)

    def forget(self) -> list[Effect]:
        """Forget who has declined whom; to be called from time to time, since they may think otherwise by now."""
        self._declined.clear()
        return self._reviewed([])

    def received(self, peer: NodeId, offer: Offer) -> list[Effect]:
        """Answer an offer. One of a peer that has not been measured is declined."""
        effects: list[Effect] = []
        if offer is Offer.DECLINE:
            self._declined.add(peer)
            self._asked.discard(peer)
            if peer in self.links:
                self.links.discard(peer)
                effects.append(Unlinked(peer))
        elif peer in self.links:
            if offer is Offer.ASK:
                effects.append(Offered(peer, Offer.ACCEPT))
        elif peer in self._rtt_s and (peer in self._asked if offer is Offer.ACCEPT else self._wanted(peer)):
            self._asked.discard(peer)
            self.links.add(peer)
            if offer is Offer.ASK:
                effects.append(Offered(peer, Offer.ACCEPT))
            effects.append(Linked(peer, self._rtt_s[peer]))
        else:
            self._asked.discard(peer)
            effects.append(Offered(peer, Offer.DECLINE))
        return self._reviewed(effects)

    def _near(self, peer: NodeId) -> bool:
        return self._rtt_s[peer] <= self._limits.near_s

    def _ordered(self) -> None:
        self._order = {True: [], False: []}
        for peer in sorted(self._rtt_s, key=lambda peer: (self._rtt_s[peer], peer)):
            self._order[self._near(peer)].append(peer)

    def _wanted(self, peer: NodeId) -> bool:
        return peer in self._nearest(self.links | {peer}, near=self._near(peer))

    def _nearest(self, peers: AbstractSet[NodeId], *, near: bool) -> list[NodeId]:
        """Return as many as are wanted of the peers of this kind."""
        most = self._limits.near if near else self._limits.far if self.gateway else 0
        return list(islice((peer for peer in self._order[near] if peer in peers), most))

    def _reviewed(self, effects: list[Effect]) -> list[Effect]:
        """Drop whom there is no room for, and ask whom there would be."""
        for near in (True, False):
            kept = set(self._nearest(self.links, near=near))
            for peer in sorted(self.links - kept):
                if self._near(peer) is near:
                    self.links.discard(peer)
                    self._declined.add(peer)
                    effects += [Offered(peer, Offer.DECLINE), Unlinked(peer)]
            willing = self._rtt_s.keys() - self._declined
            for peer in self._nearest(willing, near=near):
                if peer not in self.links and peer not in self._asked:
                    self._asked.add(peer)
                    effects.append(Offered(peer, Offer.ASK))
        return effects
