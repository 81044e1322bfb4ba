"""How the owners of a site's channels learn what the site may be asked for them all together.

A site's channels are spread over all owners. Each owner tells the site's *keeper*, the node nearest to the site's
id, the tradeoff clusters of those that it owns; the keeper finds the site's scale (see ``honeycomb.within_sites``)
and tells it to them. It is soft state: what is silent for too long, or came from a node that has left, is forgotten.
Until a scale is known, and where it errs, polls wait for the site's token bucket, which no optimiser can overdraw.

Most sites have so few channels that their budget cannot bind: they are not told of at all.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha1

import msgspec

from service.corona.clusters import decode, encode, merge, summarise
from service.corona.events import Send
from service.corona.fleet_policy import FleetPolicy
from service.corona.honeycomb import UNBOUNDED_SCALE, AllocationProblem
from service.corona.messages import Site, SiteScale, SiteScales, SiteShare, SiteShares
from service.model import NodeId
from service.overlay.ring import RingView

POLL_BUDGET_SHARE = 0.9
"""The share of a site's requests that polls are planned for; redirects, and people who subscribe, need some as well."""
CLUSTERS_PER_SITE = 64
"""Of one owner's channels."""
_MAX_IMBALANCE = 4
"""An owner that has so many times fewer of a site's channels than the mean of all is not to be expected."""


class _OwnerShare(msgspec.Struct):
    clusters: bytes
    at_s: float


class _KnownScale(msgspec.Struct):
    scale: float
    at_s: float


class SiteBudgets:
    """One node's part in it, as an owner and as a keeper."""

    def __init__(self, me: NodeId, policy: FleetPolicy) -> None:
        self._me = me
        self._policy = policy
        self._view = RingView(0, ())
        self._rates: Mapping[Site, float] = {}
        self._scales: dict[Site, _KnownScale] = {}
        """What keepers told."""
        self._shares: dict[Site, dict[NodeId, _OwnerShare]] = {}
        """What owners told of the sites that this node keeps."""

    def set_rates(self, rates: Mapping[Site, float]) -> None:
        """Go on with these sites' requests per second, as an admin set them; others have the policy's."""
        self._rates = rates

    def ring_changed(self, view: RingView) -> None:
        """Forget nodes that have left, and what is another's to keep."""
        self._view = view
        for site, shares in list(self._shares.items()):
            if view.owner(_point(site)) != self._me:
                del self._shares[site]
            else:
                self._shares[site] = {node: heard for node, heard in shares.items() if node in view}

    def scale(self, site: Site) -> float:
        """Return a site's scale; ``UNBOUNDED_SCALE`` where none is known."""
        known = self._scales.get(site)
        return known.scale if known else UNBOUNDED_SCALE

    def may_bind(self, site: Site, wanted: float) -> bool:
        """Say whether a site may be over its budget, of whose channels this node's own may want so many polls per τ."""
        return wanted * max(1, len(self._view.nodes)) * _MAX_IMBALANCE >= self._budget(site)

    def tell(self, own: Iterable[tuple[Site, AllocationProblem]]) -> Iterator[Send]:
        """Tell keepers of our channels of these sites, as they would be without the sites' budgets."""
        by_keeper: dict[NodeId, list[SiteShare]] = {}
        for site, problem in own:
            keeper = self._view.owner(_point(site))
            if keeper is not None:
                share = SiteShare(site, encode(summarise(problem, limit=CLUSTERS_PER_SITE)))
                by_keeper.setdefault(keeper, []).append(share)
        for keeper, shares in by_keeper.items():
            yield Send(keeper, SiteShares(tuple(shares)))

    def shares_heard(self, sender: NodeId, message: SiteShares, now_s: float) -> None:
        """Keep what an owner has of the sites that we keep."""
        if sender not in self._view:
            return
        for share in message.shares:
            if self._view.owner(_point(share.site)) == self._me and decode(share.clusters) is not None:
                self._shares.setdefault(share.site, {})[sender] = _OwnerShare(share.clusters, now_s)

    def scales_heard(self, sender: NodeId, message: SiteScales, now_s: float) -> bool:
        """Take over the scales that keepers tell; say whether any is news."""
        news = False
        for told in message.scales:
            if self._view.owner(_point(told.site)) == sender:
                news = news or self.scale(told.site) != told.scale
                self._scales[told.site] = _KnownScale(told.scale, now_s)
        return news

    def tick(self, now_s: float) -> Iterator[Send]:
        """Forget what has been silent for too long, and tell owners the scales of the sites that are over budget."""
        self._scales = {site: known for site, known in self._scales.items() if self._fresh(known.at_s, now_s)}
        by_owner: dict[NodeId, list[SiteScale]] = {}
        for site, shares in list(self._shares.items()):
            for node in [node for node, heard in shares.items() if not self._fresh(heard.at_s, now_s)]:
                del shares[node]
            if not shares:
                del self._shares[site]
            elif (scale := self._scale_of(site)) != UNBOUNDED_SCALE:
                for node in shares:
                    by_owner.setdefault(node, []).append(SiteScale(site, scale))
        for node, scales in by_owner.items():
            yield Send(node, SiteScales(tuple(scales)))

    def _scale_of(self, site: Site) -> float:
        parts = [clusters for heard in self._shares[site].values() if (clusters := decode(heard.clusters)) is not None]
        together, budget = merge(parts), self._budget(site)
        return UNBOUNDED_SCALE if float(together.most_cost.sum()) <= budget else together.scale_for_budget(budget)

    def _budget(self, site: Site) -> float:
        """Return the polls per τ that are planned for a site."""
        return (
            POLL_BUDGET_SHARE * self._rates.get(site, self._policy.site_requests_per_s) * self._policy.poll_interval_s
        )

    def _fresh(self, at_s: float, now_s: float) -> bool:
        # Said each tick, and believed less long than other soft state: c is found after it, and has to heal in time.
        return now_s - at_s < self._policy.maintenance_interval_s


def _point(site: Site) -> str:
    return sha1(site.encode(), usedforsecurity=False).hexdigest()
