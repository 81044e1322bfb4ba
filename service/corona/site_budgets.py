"""Site budgets: the exchange by which owners keep the polls of all channels of one site within the site's budget.

A site's channels are spread over all owners. Each owner sends the tradeoff clusters of its own to the site's
*coordinator*, the node nearest to the site's id; the coordinator solves for the site's scale (see
``honeycomb.apply_site_scales``) and returns it to the owners. It is soft state: shares and scales that are not repeated
in time, or whose sender has left the ring, are dropped. While a scale is unknown or inaccurate, polls wait for the
site's token bucket, which no schedule can overdraw.

Most sites have so few channels that their budget cannot bind; these are not exchanged at all.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha1

import msgspec

from service.corona.events import Send
from service.corona.fleet_policy import FleetPolicy
from service.corona.honeycomb import UNBOUNDED_SCALE, AllocationProblem
from service.corona.messages import Site, SiteScale, SiteScales, SiteShare, SiteShares
from service.corona.tradeoff_clusters import decode, encode, merge, summarise
from service.model import NodeId
from service.overlay.ring import RingView

POLL_BUDGET_SHARE = 0.9
"""Share of a site's request budget that polls are planned for; the rest is for redirects and new subscriptions."""
CLUSTERS_PER_SITE = 64
"""Maximum number of clusters for one owner's channels of a site."""
_MAX_IMBALANCE = 4
"""An owner is assumed to have at least the mean number of a site's channels per owner divided by this."""


class _OwnerShare(msgspec.Struct):
    clusters: bytes
    received_s: float


class _KnownScale(msgspec.Struct):
    scale: float
    received_s: float


class SiteBudgets:
    """One node's part in the exchange, as an owner and as a coordinator."""

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._node_id = node_id
        self._policy = policy
        self._view = RingView(0, ())
        self._rates: Mapping[Site, float] = {}
        self._scales: dict[Site, _KnownScale] = {}
        """Scales received from coordinators."""
        self._shares: dict[Site, dict[NodeId, _OwnerShare]] = {}
        """Shares received from owners, for the sites that this node coordinates."""

    def set_rates(self, rates: Mapping[Site, float]) -> None:
        """Set sites' requests per second as configured by admins; other sites have the policy's."""
        self._rates = rates

    def on_ring_changed(self, view: RingView) -> None:
        """Drop shares of nodes that have left, and of sites that another node coordinates now."""
        self._view = view
        for site, shares in list(self._shares.items()):
            if view.owner(_point(site)) != self._node_id:
                del self._shares[site]
            else:
                self._shares[site] = {node: share for node, share in shares.items() if node in view}

    def scale(self, site: Site) -> float:
        """Return a site's scale; ``UNBOUNDED_SCALE`` if the site's budget does not bind or its scale is unknown."""
        known = self._scales.get(site)
        return known.scale if known else UNBOUNDED_SCALE

    def can_exceed_budget(self, site: Site, own_polls: float) -> bool:
        """Return whether a site may exceed its budget, if this node's channels of it need ``own_polls`` polls per τ."""
        return own_polls * max(1, len(self._view.nodes)) * _MAX_IMBALANCE >= self._budget(site)

    def send_shares(self, own: Iterable[tuple[Site, AllocationProblem]]) -> Iterator[Send]:
        """Send this node's channels of these sites, without the sites' bounds, to the sites' coordinators."""
        by_coordinator: dict[NodeId, list[SiteShare]] = {}
        for site, problem in own:
            coordinator = self._view.owner(_point(site))
            if coordinator is not None:
                share = SiteShare(site, encode(summarise(problem, limit=CLUSTERS_PER_SITE)))
                by_coordinator.setdefault(coordinator, []).append(share)
        for coordinator, shares in by_coordinator.items():
            yield Send(coordinator, SiteShares(tuple(shares)))

    def on_shares(self, sender: NodeId, message: SiteShares, now_s: float) -> None:
        """Store an owner's shares of the sites that this node coordinates."""
        if sender not in self._view:
            return
        for share in message.shares:
            if self._view.owner(_point(share.site)) == self._node_id and decode(share.clusters) is not None:
                self._shares.setdefault(share.site, {})[sender] = _OwnerShare(share.clusters, now_s)

    def on_scales(self, sender: NodeId, message: SiteScales, now_s: float) -> bool:
        """Store the scales from a coordinator; return whether any has changed."""
        news = False
        for update in message.scales:
            if self._view.owner(_point(update.site)) == sender:
                news = news or self.scale(update.site) != update.scale
                self._scales[update.site] = _KnownScale(update.scale, now_s)
        return news

    def tick(self, now_s: float) -> Iterator[Send]:
        """Drop expired scales and shares, and send owners the scales of sites that exceed their budget."""
        self._scales = {site: known for site, known in self._scales.items() if self._fresh(known.received_s, now_s)}
        by_owner: dict[NodeId, list[SiteScale]] = {}
        for site, shares in list(self._shares.items()):
            for node in [node for node, share in shares.items() if not self._fresh(share.received_s, now_s)]:
                del shares[node]
            if not shares:
                del self._shares[site]
            elif (scale := self._scale_of(site)) != UNBOUNDED_SCALE:
                for node in shares:
                    by_owner.setdefault(node, []).append(SiteScale(site, scale))
        for node, scales in by_owner.items():
            yield Send(node, SiteScales(tuple(scales)))

    def _scale_of(self, site: Site) -> float:
        parts = [clusters for share in self._shares[site].values() if (clusters := decode(share.clusters)) is not None]
        together, budget = merge(parts), self._budget(site)
        return UNBOUNDED_SCALE if float(together.most_cost.sum()) <= budget else together.scale_for_budget(budget)

    def _budget(self, site: Site) -> float:
        """Return the number of polls per τ that is planned for a site."""
        return (
            POLL_BUDGET_SHARE * self._rates.get(site, self._policy.site_requests_per_s) * self._policy.poll_interval_s
        )

    def _fresh(self, received_s: float, now_s: float) -> bool:
        # Scales are repeated each tick and expire earlier than other soft state, because c depends on them.
        return now_s - received_s < self._policy.maintenance_interval_s


def _point(site: Site) -> str:
    return sha1(site.encode(), usedforsecurity=False).hexdigest()
