"""Who is whose neighbour: an overlay that makes and mends itself, by measured round-trip times (§V, future work).

A peer is *near* or *far*, by one limit for all. Everybody wants a few near neighbours, the nearest. Of peers that are
near each other, only a few, those with the least ids, are *gateways* and want far neighbours as well, which they find
among other groups' gateways. So expensive links are few, whatever the number of nodes, and what is known of a
group crosses them once: the paper's restricted overlay, in which source filtering pays, without global knowledge.

Both sides must want such a link, and whoever finds a nearer neighbour drops the farthest one. With round-trip times
that are alike on both sides this ends where no two would rather have each other than what they have. Those of whom one
has declined the other do not ask again until :meth:`Neighbourhood.forget`, so it ends in any case.

That alone can fall apart: groups that prefer each other leave others out. So everybody also *holds* on to its *elder*,
the nearest of the peers with a lesser id, who may not decline. From anyone a chain of elders leads to the least id of
all, so the overlay is one, whatever the round-trip times and whoever leaves, as soon as all but the least know somebody
with a lesser id. It is cheap: of peers that are near each other only the least has a far elder, so groups are joined by
one link fewer than there are groups. Ids are hashes, so those that hold on to a node are about the logarithm of its
group's size.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice

import msgspec

from service.model import NodeId


class Offer(Enum):
    """What nodes say to those they are, or might be, linked with.

    ``DECLINE`` also ends a link. ``HOLD`` asks an elder, who accepts; ``ASK`` also says that one holds no more.
    """

    ASK = 1
    ACCEPT = 2
    DECLINE = 3
    HOLD = 4


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
        self._held: NodeId | None = None
        self._holders: set[NodeId] = set()

    @property
    def gateway(self) -> bool:
        """Whether this node is one of those of its group that have far neighbours."""
        return sum(peer < self.me for peer in self._order[True]) < self._limits.gateways

    def measured(self, rtts_s: Iterable[tuple[NodeId, float]]) -> list[Effect]:
        """Know these peers' round-trip times, for the first time or again."""
        self._rtt_s.update((peer, rtt_s) for peer, rtt_s in rtts_s if peer != self.me)
        self._ordered()
        effects: list[Effect] = []
        for peer in sorted((self._holders & self._rtt_s.keys()) - self.links):
            effects += self._linked(peer, Offer.HOLD)
        return self._reviewed(effects)

    def gone(self, peer: NodeId) -> list[Effect]:
        """Be without a peer that has left, or answers no more."""
        self._rtt_s.pop(peer, None)
        self._ordered()
        self._asked.discard(peer)
        self._declined.discard(peer)
        self._holders.discard(peer)
        return self._reviewed(self._unlinked(peer))

    def forget(self) -> list[Effect]:
        """Forget who declined, and what was asked; to be called from time to time: they may think otherwise by now."""
        self._declined.clear()
        self._asked.clear()
        self._held = None
        return self._reviewed([])

    def received(self, peer: NodeId, offer: Offer) -> list[Effect]:
        """Answer an offer. A peer not yet measured is declined; one that holds on is linked once it has been."""
        if offer is Offer.DECLINE:
            return self._reviewed(self._declined_by(peer))
        if offer is not Offer.ACCEPT:
            (self._holders.add if offer is Offer.HOLD and peer > self.me else self._holders.discard)(peer)
        if peer in self.links:
            return self._reviewed([] if offer is Offer.ACCEPT else [Offered(peer, Offer.ACCEPT)])
        taken = peer in self._asked if offer is Offer.ACCEPT else peer in self._kept(self.links | {peer})
        if taken and peer in self._rtt_s:
            return self._reviewed(self._linked(peer, offer))
        self._asked.discard(peer)
        return self._reviewed([] if peer in self._holders else [Offered(peer, Offer.DECLINE)])

    def _declined_by(self, peer: NodeId) -> list[Effect]:
        """An elder declines only what it was asked before it was held: hold it again."""
        self._asked.discard(peer)
        self._holders.discard(peer)
        if peer == self._held:
            self._held = None
        else:
            self._declined.add(peer)
        return self._unlinked(peer)

    def _linked(self, peer: NodeId, offer: Offer) -> list[Effect]:
        self._asked.discard(peer)
        self.links.add(peer)
        linked = Linked(peer, self._rtt_s[peer])
        return [linked] if offer is Offer.ACCEPT else [Offered(peer, Offer.ACCEPT), linked]

    def _unlinked(self, peer: NodeId) -> list[Effect]:
        if peer not in self.links:
            return []
        self.links.discard(peer)
        return [Unlinked(peer)]

    def _near(self, peer: NodeId) -> bool:
        return self._rtt_s[peer] <= self._limits.near_s

    def _ordered(self) -> None:
        self._order = {True: [], False: []}
        for peer in sorted(self._rtt_s, key=lambda peer: (self._rtt_s[peer], peer)):
            self._order[self._near(peer)].append(peer)

    def _elder(self) -> NodeId | None:
        """Return the nearest of those with a lesser id."""
        return next((peer for near in (True, False) for peer in self._order[near] if peer < self.me), None)

    def _nearest(self, peers: AbstractSet[NodeId], *, near: bool) -> list[NodeId]:
        """Return as many as are wanted of the peers of this kind."""
        most = self._limits.near if near else self._limits.far if self.gateway else 0
        return list(islice((peer for peer in self._order[near] if peer in peers), most))

    def _kept(self, peers: AbstractSet[NodeId]) -> AbstractSet[NodeId]:
        """Return with which of these peers there is to be a link."""
        nearest = {*self._nearest(peers, near=True), *self._nearest(peers, near=False)}
        return nearest | (peers & (self._holders | {self._elder()}))

    def _reviewed(self, effects: list[Effect]) -> list[Effect]:
        """Drop whom there is no room for, hold on to the elder, and ask whom there would be room for."""
        for peer in sorted(self.links - self._kept(self.links)):
            self._declined.add(peer)
            effects += [Offered(peer, Offer.DECLINE), *self._unlinked(peer)]
        elder = self._elder()
        if elder != self._held:
            if self._held in self.links:
                effects.append(Offered(self._held, Offer.ASK))
            self._held = elder
            if elder is not None:
                effects.append(Offered(elder, Offer.HOLD))
                if elder not in self.links:
                    self._asked.add(elder)
        willing = self._rtt_s.keys() - self._declined
        for near in (True, False):
            for peer in self._nearest(willing, near=near):
                if peer not in self.links and peer not in self._asked:
                    self._asked.add(peer)
                    effects.append(Offered(peer, Offer.ASK))
        return effects
