"""Site budgets: the exchange by which owners keep the polls of all channels of one site within the site's budget.

A site's channels are spread over all owners. Each owner summarises its own channels of a site as tradeoff clusters, the
*share*, and sends them to the site's *coordinator*, the node nearest to the site's id. The coordinator computes the
site's *scale*, at which all these channels keep the budget (see ``honeycomb.apply_site_scales``), and returns it to the
owners. Shares and scales are soft state: they are dropped if they are not repeated in time, or if their sender has left
the ring. While a scale is unknown or inaccurate, polls wait for the site's token bucket, which no schedule can
overdraw.

Most sites have so few channels that their polls cannot exceed the budget. Nothing is exchanged about these sites.
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
    """One node's part in the exchange of site budgets, as an owner of channels and as a coordinator of sites.

    ``now_s`` is monotonic time in seconds.
    """

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
        """Set the requests per second that admins allow for single sites; other sites have the policy's rate."""
        self._rates = rates

    def on_ring_changed(self, view: RingView) -> None:
        """Adopt the ring; drop shares of nodes that have left it, and of sites that another node coordinates now."""
        self._view = view
        for site, shares in list(self._shares.items()):
            if view.owner(_site_point(site)) != self._node_id:
                del self._shares[site]
            else:
                self._shares[site] = {node: share for node, share in shares.items() if node in view}

    def scale(self, site: Site) -> float:
        """Return a site's scale, which limits the polls of its channels.

        The result is ``UNBOUNDED_SCALE`` if the site's channels keep its budget anyway, or if its scale is unknown.
        """
        known = self._scales.get(site)
        return known.scale if known else UNBOUNDED_SCALE

    def can_exceed_budget(self, site: Site, own_polls: float) -> bool:
        """Return whether all nodes' channels of a site may together exceed the site's budget.

        ``own_polls`` is the number of polls per τ that this node's channels of the site need at most.
        """
        return own_polls * max(1, len(self._view.nodes)) * _MAX_IMBALANCE >= self._budget(site)

    def send_shares(self, own: Iterable[tuple[Site, AllocationProblem]]) -> Iterator[Send]:
        """Send summaries of this node's channels to the coordinators of their sites.

        ``own`` has, for each site, this node's channels of the site as a problem without the site's own bound.
        """
        by_coordinator: dict[NodeId, list[SiteShare]] = {}
        for site, problem in own:
            coordinator = self._view.owner(_site_point(site))
            if coordinator is not None:
                share = SiteShare(site, encode(summarise(problem, limit=CLUSTERS_PER_SITE)))
                by_coordinator.setdefault(coordinator, []).append(share)
        for coordinator, shares in by_coordinator.items():
            yield Send(coordinator, SiteShares(tuple(shares)))

    def on_shares(self, sender: NodeId, message: SiteShares, now_s: float) -> None:
        """Store the shares in an owner's message, received at ``now_s``, of the sites that this node coordinates."""
        if sender not in self._view:
            return
        for share in message.shares:
            if self._view.owner(_site_point(share.site)) == self._node_id and decode(share.clusters) is not None:
                self._shares.setdefault(share.site, {})[sender] = _OwnerShare(share.clusters, now_s)

    def on_scales(self, sender: NodeId, message: SiteScales, now_s: float) -> bool:
        """Store the scales in a coordinator's message, received at ``now_s``; return whether any has changed."""
        news = False
        for update in message.scales:
            if self._view.owner(_site_point(update.site)) == sender:
                news = news or self.scale(update.site) != update.scale
                self._scales[update.site] = _KnownScale(update.scale, now_s)
        return news

    def tick(self, now_s: float) -> Iterator[Send]:
        """Drop expired scales and shares, and send scales to the owners of channels.

        Scales are sent only for sites that this node coordinates and whose channels would exceed the budget.
        """
        self._scales = {site: known for site, known in self._scales.items() if self._is_fresh(known.received_s, now_s)}
        by_owner: dict[NodeId, list[SiteScale]] = {}
        for site, shares in list(self._shares.items()):
            for node in [node for node, share in shares.items() if not self._is_fresh(share.received_s, now_s)]:
                del shares[node]
            if not shares:
                del self._shares[site]
            elif (scale := self._solve_scale(site)) != UNBOUNDED_SCALE:
                for node in shares:
                    by_owner.setdefault(node, []).append(SiteScale(site, scale))
        for node, scales in by_owner.items():
            yield Send(node, SiteScales(tuple(scales)))

    def _solve_scale(self, site: Site) -> float:
        parts = [clusters for share in self._shares[site].values() if (clusters := decode(share.clusters)) is not None]
        together, budget = merge(parts), self._budget(site)
        return UNBOUNDED_SCALE if float(together.most_cost.sum()) <= budget else together.scale_for_budget(budget)

    def _budget(self, site: Site) -> float:
        """Return the number of polls per τ that are planned for a site."""
        return (
            POLL_BUDGET_SHARE * self._rates.get(site, self._policy.site_requests_per_s) * self._policy.poll_interval_s
        )

    def _is_fresh(self, received_s: float, now_s: float) -> bool:
        # Scales are repeated each tick and expire earlier than other soft state, because c depends on them.
        return now_s - received_s < self._policy.maintenance_interval_s


def _site_point(site: Site) -> str:
    return sha1(site.encode(), usedforsecurity=False).hexdigest()
