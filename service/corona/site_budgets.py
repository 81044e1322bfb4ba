"""How the nodes of a fleet keep the polls of all channels of one site within the site's request budget.

A site's channels are spread over all nodes. Most sites have so few channels that their polls cannot exceed the budget;
nodes exchange no messages about these sites. For the other sites:

1. The site's *coordinator* is the node whose id is nearest to the site's id. Each node sends it a *share*: a summary of
   the node's own channels on the site.
2. The coordinator computes the site's *scale* and returns it to the nodes.
3. The scale limits a channel's polls per poll interval τ to scale·√(weight/cost), so that the site's channels use
   exactly the budget (see ``allocation_solver.apply_site_scales``).
4. If a channel's limit falls, its owner lowers the channel's polls at once. If the limit rises, the owner waits for one
   to two maintenance intervals. By then, the owners of the site's other channels have adopted the new scale, and
   the polls of all owners together stay within the budget.

Shares and scales are sent when they have changed, and repeated once per maintenance interval. They are dropped if they
are not repeated in time, or if their sender has left the fleet. In addition, each poll waits for the site's token
bucket, so the budget is respected even while a scale is unknown or inaccurate.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha1

import msgspec
import numpy as np

from service.corona.events import Send
from service.corona.fleet_policy import FleetPolicy
from service.corona.messages import Site, SiteScale, SiteScales, SiteShare, SiteShares
from service.corona.optimizer.allocation_solver import UNBOUNDED_SCALE, AllocationProblem
from service.corona.optimizer.objectives import Floats
from service.corona.optimizer.tradeoff_clusters import decode, encode, merge, summarise
from service.model import NodeId
from service.overlay.ring import RingView

POLL_BUDGET_SHARE = 0.9
"""Share of a site's request budget that polls are planned for; the rest is for redirects and new subscriptions."""
CLUSTERS_PER_SITE = 64
"""Maximum number of tradeoff clusters in one owner's share, which summarises its channels of a site."""
SCALE_TOLERANCE = 1e-4
"""Relative change of a site's scale above which the polls of its channels are adapted to the new scale.

The scale limits the polls per τ of a site's channels to scale·√(weight/cost).
"""
_TTL_INTERVALS = 2
"""Number of maintenance intervals after which shares and scales expire.

Other soft state lives longer, but outdated shares and scales would distort the scale of the whole fleet.
"""
_CACHED_SOLUTIONS = 4_096
"""Number of cached solutions of :func:`_solve_scale`."""
_MAX_IMBALANCE = 4
"""Each owner is assumed to own at least the mean number of a site's channels per owner, divided by this number."""


class _OwnerShare(msgspec.Struct):
    clusters: bytes = b""
    received_s: float = 0.0
    sent_scale: float | None = None
    """The scale that was sent to the owner; None if none was sent on the present ring."""


class _KnownScale(msgspec.Struct):
    scale: float
    received_s: float


class SiteBudgets:
    """One node's part in keeping the polls of each site's channels within the site's request budget.

    The node sends summaries of its own channels to the nodes that coordinate the sites, and computes limits for the
    sites that it coordinates itself. In all methods, ``now_s`` is monotonic time in seconds.
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
        self._own: dict[Site, bytes] = {}
        """This node's own shares: for each site with a share, the clusters of this node's channels on the site."""
        self._unsent: set[Site] = set()
        """Sites whose share or coordinator has changed since the share was last sent."""

    def set_rates(self, rates: Mapping[Site, float]) -> bool:
        """Set the requests per second that admins allow for individual sites; return whether any rate has changed.

        For all other sites, the policy's rate applies.
        """
        before, self._rates = self._rates, rates
        return before != rates

    def on_ring_changed(self, view: RingView) -> None:
        """Adopt ``view`` as the members of the ring, and drop outdated summaries of channels.

        A summary is outdated if its sender has left, or if another node coordinates the site now.
        """
        self._view = view
        self._unsent = set(self._own)
        self._shares = {
            site: {
                node: _OwnerShare(share.clusters, share.received_s) for node, share in shares.items() if node in view
            }
            for site, shares in self._shares.items()
            if view.owner(_site_point(site)) == self._node_id
        }

    def scale(self, site: Site) -> float:
        """Return a site's scale: its channels have at most scale·√(weight/cost) polls per poll interval τ.

        The result is ``UNBOUNDED_SCALE`` if the site's channels stay within its budget, or if its scale is unknown.
        """
        known = self._scales.get(site)
        return known.scale if known else UNBOUNDED_SCALE

    def find_crowded(self, numbers: Mapping[Site, int], own_polls: Floats) -> set[Site]:
        """Return the sites whose request budget may be exceeded by the polls of all nodes.

        - ``numbers``: the index of each site in ``own_polls``. Index 0 is for channels without a site.
        - ``own_polls``: for each site, the sum of the maximum polls per poll interval τ of this node's channels.

        The other nodes' polls are estimated from those of this node.
        """
        budgets = np.full(len(own_polls), self._budget(""))
        for site in self._rates.keys() & numbers.keys():
            budgets[numbers[site]] = self._budget(site)
        is_crowded = own_polls * max(1, len(self._view.nodes)) * _MAX_IMBALANCE >= budgets
        sites = list(numbers)
        return {sites[number] for number in np.flatnonzero(is_crowded) if number}

    def set_share(self, site: Site, problem: AllocationProblem | None) -> None:
        """Set the summary of this node's channels on a site, which is sent to the node that coordinates the site.

        ``problem`` describes these channels, with bounds that do not take the site's budget into account. If it is
        None, this node stops sending a summary for the site.
        """
        if problem is None:
            self._own.pop(site, None)
            return
        clusters = encode(summarise(problem, limit=CLUSTERS_PER_SITE))
        if self._own.get(site) != clusters:
            self._own[site] = clusters
            self._unsent.add(site)

    def send_shares(self, *, is_maintenance: bool) -> Iterator[Send]:
        """Send the summaries of this node's channels, one per site, to the nodes that coordinate the sites.

        If ``is_maintenance`` is true, all summaries are sent, otherwise only those that have changed.
        """
        by_coordinator: dict[NodeId, list[SiteShare]] = {}
        for site in self._own if is_maintenance else self._unsent & self._own.keys():
            coordinator = self._view.owner(_site_point(site))
            if coordinator is not None:
                by_coordinator.setdefault(coordinator, []).append(SiteShare(site, self._own[site]))
        self._unsent.clear()
        for coordinator, shares in by_coordinator.items():
            yield Send(coordinator, SiteShares(tuple(shares)))

    def on_shares(self, sender: NodeId, message: SiteShares, now_s: float) -> None:
        """Store another node's summaries of its channels, one per site; ``now_s`` is the time of receipt.

        Summaries for sites that this node does not coordinate are ignored.
        """
        if sender not in self._view:
            return
        for share in message.shares:
            if self._view.owner(_site_point(share.site)) == self._node_id and decode(share.clusters) is not None:
                known = self._shares.setdefault(share.site, {}).setdefault(sender, _OwnerShare())
                known.clusters, known.received_s = share.clusters, now_s

    def on_scales(self, sender: NodeId, message: SiteScales, now_s: float) -> list[Site]:
        """Store limits for the channels of some sites; return the sites whose limit has changed.

        A limit is ignored unless ``sender`` is the node that coordinates the site. A negligible change is ignored too,
        so that schedules do not change. ``now_s`` is the time of receipt.
        """
        changed = []
        for update in message.scales:
            if self._view.owner(_site_point(update.site)) == sender:
                known = self._scales.get(update.site)
                if known is not None and abs(known.scale - update.scale) <= SCALE_TOLERANCE * abs(known.scale):
                    known.received_s = now_s
                else:
                    self._scales[update.site] = _KnownScale(update.scale, now_s)
                    changed.append(update.site)
        return changed

    def expire(self, now_s: float) -> list[Site]:
        """Drop site limits, and summaries from other nodes, that were not repeated in time.

        Return the sites whose limit is now unknown.
        """
        expired = [site for site, known in self._scales.items() if not self._is_fresh(known.received_s, now_s)]
        for site in expired:
            del self._scales[site]
        for site, shares in list(self._shares.items()):
            for node in [node for node, share in shares.items() if not self._is_fresh(share.received_s, now_s)]:
                del shares[node]
            if not shares:
                del self._shares[site]
        return expired

    def send_scales(self, *, is_maintenance: bool) -> Iterator[Send]:
        """Send limits for the sites that this node coordinates to the nodes that own channels on these sites.

        If ``is_maintenance`` is true, all limits are sent, otherwise only those that have changed. A site has no limit
        if its channels stay within the budget.
        """
        by_owner: dict[NodeId, list[SiteScale]] = {}
        for site, shares in self._shares.items():
            scale = _solve_scale(tuple(share.clusters for share in shares.values()), self._budget(site))
            for node, share in shares.items():
                if scale == UNBOUNDED_SCALE:
                    share.sent_scale = None
                elif is_maintenance or share.sent_scale != scale:
                    by_owner.setdefault(node, []).append(SiteScale(site, scale))
                    share.sent_scale = scale
        for node, scales in by_owner.items():
            yield Send(node, SiteScales(tuple(scales)))

    def _budget(self, site: Site) -> float:
        """Return the maximum number of polls of a site's channels per poll interval τ, by all nodes together."""
        return (
            POLL_BUDGET_SHARE * self._rates.get(site, self._policy.site_requests_per_s) * self._policy.poll_interval_s
        )

    def _is_fresh(self, received_s: float, now_s: float) -> bool:
        return now_s - received_s < _TTL_INTERVALS * self._policy.maintenance_interval_s


def _site_point(site: Site) -> str:
    return sha1(site.encode(), usedforsecurity=False).hexdigest()


@lru_cache(_CACHED_SOLUTIONS)
def _solve_scale(shares: tuple[bytes, ...], budget: float) -> float:
    """Return the highest scale at which a site's channels need at most ``budget`` polls per poll interval τ.

    A channel has scale·√(weight/cost) polls per τ. ``shares`` are encoded summaries of the site's channels. If the
    budget suffices for the maximum polls of all channels, the result is ``UNBOUNDED_SCALE``.
    """
    together = merge([clusters for share in shares if (clusters := decode(share)) is not None])
    return UNBOUNDED_SCALE if float(together.most_cost.sum()) <= budget else together.scale_for_budget(budget)
