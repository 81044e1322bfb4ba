"""How often an owner has its channels polled: what it knows of each, the fleet's c, and the rotas that follow.

A node without c (it has just joined) leaves the rotas that it takes over as they are. It solves for c only while
it knows the parts of all nodes, or has not for as long as anything silent is believed. When the ring changes, c stays
as it is for a maintenance interval: the channels of those who left or came are in nobody's part until they are adopted,
and all sets would follow c away and back.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from sys import intern

import msgspec

from service.corona import node_optimizer
from service.corona.aggregation import Aggregation
from service.corona.events import Send
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective, FleetPolicy
from service.corona.honeycomb import UNBOUNDED_SCALE, AllocationProblem
from service.corona.messages import SiteScales, SiteShares, Summary
from service.corona.node_optimizer import POLL_COST, ChannelFactors, factor_table
from service.corona.poll_explanation import PollExplanation, explain_polling
from service.corona.polling_schedule import PollingSchedule, new_schedule, polling_set_size, revised_schedule
from service.corona.site_budgets import SiteBudgets
from service.corona.update_rates import UpdateHistory, history_after_delta
from service.model import ChannelId, Delta, NodeId
from service.overlay.ring import RingView

NOTABLE_GAP_CHANGE = 0.1
"""How much a gap between polls has to change to be of note to people."""
GAP_TOLERANCE = 0.01
"""A gap this near to what it should be stays: members need not plan anew for every subscriber of any channel."""


class _ChannelPlan(msgspec.Struct, gc=False):
    subscribers: int
    private: bool
    updates: UpdateHistory
    rota: PollingSchedule | None
    site: str
    bounds: ChannelBounds
    noted_gap_s: float = 0.0


class PollingPlans:
    """The rates of one node's own channels. ``fleet_s`` is fleet time throughout."""

    def __init__(self, me: NodeId, policy: FleetPolicy) -> None:
        self._policy = policy
        self._aggregation = Aggregation(me, policy.silence_s)
        self._nodes = 1
        self.scale: float | None = None
        """c, as this node knows it; None before its first solution."""
        self._applied: float | None = None
        """The c that all channels followed last."""
        self._complete_s: float | None = None
        """When the parts of all nodes were known last."""
        self._held_until_s: float | None = None
        """Until when c stays, because the ring has changed; None once c has been solved for since."""
        self._paces: dict[ChannelId, _ChannelPlan] = {}
        self._is_summarised = False
        """Whether others are told of our own channels as they are."""
        self._sites = SiteBudgets(me, policy)
        self._per_site: Counter[str] = Counter()
        """How many of our channels each site has."""
        self._bounds: Mapping[ChannelId, ChannelBounds] = {}
        """What admins set for single channels of the fleet."""

    def aim(
        self, aims: FleetObjective, site_rates: Mapping[str, float], bounds: Mapping[ChannelId, ChannelBounds]
    ) -> Collection[ChannelId]:
        """Aim at something else from the next solution on, and plan for these sites' rates and channels' bounds.

        Returns our channels that are bounded otherwise than before: they are to be decided at once.
        """
        self._sites.set_rates(site_rates)
        before, self._bounds = self._bounds, bounds
        changed = [
            channel
            for channel in (before.keys() | bounds.keys()) & self._paces.keys()
            if before.get(channel) != bounds.get(channel)
        ]
        for channel in changed:
            self._paces[channel].bounds = bounds.get(channel, NO_BOUNDS)
        if changed or aims != self._policy.aims:
            self._policy = msgspec.structs.replace(self._policy, aims=aims)
            self._is_summarised = False
            self._held_until_s = None
        return changed

    def ring_changed(self, view: RingView, now_s: float) -> None:
        """Know how many nodes there are."""
        if self.scale is not None and self._held_until_s is None:
            self._held_until_s = now_s + self._policy.maintenance_interval_s
        self._nodes = max(1, len(view.nodes))
        self._aggregation.ring_changed(view)
        self._sites.ring_changed(view)
        self._is_summarised = False

    def heard(self, sender: NodeId, message: Summary | SiteShares | SiteScales, now_s: float) -> None:
        """Take in what others tell of their channels, and of the sites that they keep."""
        match message:
            case Summary():
                self._aggregation.heard(sender, message, now_s)
            case SiteShares():
                self._sites.shares_heard(sender, message, now_s)
            case SiteScales() if self._sites.scales_heard(sender, message, now_s):
                self._is_summarised = False

    def tell(self, now_s: float, fleet_s: float, *, anew: bool) -> Iterator[Send]:
        """Tell others of our channels, and of what they cannot hear elsewhere; ``anew``: maintenance is due."""
        yield from self._sites.tell(self._crowds(fleet_s))
        yield from self._sites.tick(now_s)
        if anew or not self._is_summarised:
            self._is_summarised = True
            factors = (self._factors(pace, fleet_s) for pace in self._paces.values())
            self._aggregation.own = node_optimizer.own_aggregate(
                self._policy, self._nodes, factor_table(factors, len(self._paces))
            )
        yield from self._aggregation.tick(now_s)

    def solve(self, now_s: float) -> bool:
        """Find the fleet's c; say whether it has moved so far since the last time it had that all should follow."""
        fleet = self._aggregation.fleet()
        if self._complete_s is None or fleet.nodes == self._nodes:
            self._complete_s = now_s
        is_known = fleet.nodes == self._nodes or now_s - self._complete_s >= self._policy.silence_s
        if is_known and (self._held_until_s is None or now_s >= self._held_until_s):
            self.scale, self._held_until_s = node_optimizer.solve_scale(self._policy, self._nodes, fleet), None
        before, after = self._applied, self.scale
        moved = after is not None and (before is None or abs(after - before) > GAP_TOLERANCE * abs(before))
        if moved:
            self._applied = after
        return moved

    def adopt(
        self,
        channel: ChannelId,
        subscribers: int,
        updates: UpdateHistory,
        known: PollingSchedule | None,
        *,
        private: bool,
        site: str,
    ) -> None:
        """Take a channel over, as the store and the rota that we polled it by have it; then :meth:`decide`."""
        pace = self._paces.get(channel)
        if pace is None:
            bounds = self._bounds.get(channel, NO_BOUNDS)
            self._paces[channel] = _ChannelPlan(subscribers, private, updates, known, intern(site), bounds)
            self._per_site[site] += 1
            self._is_summarised = False
        else:
            pace.private, pace.updates = private, updates

    def drop(self, channel: ChannelId) -> None:
        """Forget a channel."""
        pace = self._paces.pop(channel, None)
        if pace is not None:
            self._is_summarised = False
            self._per_site[pace.site] -= 1
            if not self._per_site[pace.site]:
                del self._per_site[pace.site]

    def subscribed(self, channel: ChannelId, subscribers: int) -> None:
        """Note how many subscribe."""
        pace = self._paces.get(channel)
        if pace is not None and pace.subscribers != subscribers:
            pace.subscribers = subscribers
            self._is_summarised = False

    def learnt(self, delta: Delta, fleet_s: float) -> UpdateHistory:
        """Return what is known of a channel's updates once this delta is versioned."""
        return history_after_delta(self._paces[delta.channel].updates, delta, fleet_s)

    def learn(self, channel: ChannelId, updates: UpdateHistory) -> None:
        """Go on from what was learnt."""
        if (pace := self._paces.get(channel)) is not None:
            pace.updates = updates

    def decide(
        self, channels: Collection[ChannelId], fleet_s: float
    ) -> Iterator[tuple[PollingSchedule | None, PollingSchedule]]:
        """Bring the rotas of these channels in line with c and the ring; return each as it was and as it is."""
        paces = [self._paces[channel] for channel in channels]
        for channel, pace, size in zip(channels, paces, self._sizes(paces, fleet_s), strict=True):
            before = pace.rota
            if before is None:
                pace.rota = new_schedule(channel, size, self._nodes, self._policy.poll_interval_s, fleet_s)
            elif self.scale is None:
                pace.rota = self._fitting(before, self._policy.poll_interval_s / before.gap_s, fleet_s)
            else:
                pace.rota = self._fitting(before, size, fleet_s)
            yield before, pace.rota

    def owned(self) -> Counter[int]:
        """Return how many of our channels are polled by at most so many nodes: by powers of two, above the last one."""
        rotas = (pace.rota for pace in self._paces.values())
        return Counter(1 << (rota.size - 1).bit_length() for rota in rotas if rota is not None)

    def to_note(self, most: int) -> list[tuple[ChannelId, float]]:
        """Return channels and the seconds between their polls where that has changed notably, at most so many."""
        if self.scale is None:
            return []
        notable = (
            (channel, pace.rota.gap_s)
            for channel, pace in self._paces.items()
            if pace.rota is not None and abs(pace.rota.gap_s - pace.noted_gap_s) > NOTABLE_GAP_CHANGE * pace.noted_gap_s
        )
        return list(islice(notable, most))

    def noted(self, gaps_s: Iterable[tuple[ChannelId, float]]) -> None:
        """Go on from what was noted of channels."""
        for channel, gap_s in gaps_s:
            if (pace := self._paces.get(channel)) is not None:
                pace.noted_gap_s = gap_s

    def why(self, channel: ChannelId, polling_set: Sequence[NodeId], fleet_s: float) -> PollExplanation | None:
        """Return why the channel is polled as it is; None as long as c is not known, or if it is not ours."""
        pace = self._paces.get(channel)
        if pace is None or pace.rota is None or self.scale is None:
            return None
        factors = self._factors(pace, fleet_s)
        return explain_polling(
            channel,
            weight=node_optimizer.channel_weight(self._policy, factors),
            cost=POLL_COST,
            scale=self.scale,
            limits=node_optimizer.limits_with_site(self._policy, self._nodes, factors),
            poll_interval_s=self._policy.poll_interval_s,
            update_interval_s=pace.updates.interval_s(fleet_s),
            polling_set=polling_set,
            rota=pace.rota,
            now_s=fleet_s,
        )

    def _factors(self, pace: _ChannelPlan, fleet_s: float) -> ChannelFactors:
        interval_s = pace.updates.interval_s(fleet_s) if self._policy.aims.goal.weighs_updates else 0.0
        return ChannelFactors(
            pace.subscribers,
            interval_s,
            pace.private,
            self._sites.scale(pace.site),
            pace.bounds.longest_wait_s or 0.0,
            pace.bounds.shortest_interval_s or 0.0,
        )

    def _crowds(self, fleet_s: float) -> Iterator[tuple[str, AllocationProblem]]:
        """Return our channels of each site that they may be too many for, as if nothing but the site bound them."""
        most, _ = node_optimizer.limits_without_site(
            self._policy, self._nodes, ChannelFactors(1, 0.0, private=False)
        ).most()
        crowded = {site for site, count in self._per_site.items() if site and self._sites.may_bind(site, count * most)}
        # A wait of its own may take more polls of a channel than others get.
        crowded |= {
            pace.site
            for channel, bounds in self._bounds.items()
            if bounds.longest_wait_s and (pace := self._paces.get(channel)) is not None and pace.site
        }
        if not crowded:
            return
        paces: dict[str, list[ChannelFactors]] = {}
        for pace in self._paces.values():
            if pace.site in crowded:
                paces.setdefault(pace.site, []).append(
                    self._factors(pace, fleet_s)._replace(site_scale=UNBOUNDED_SCALE)
                )
        for site, factors in paces.items():
            yield (
                site,
                node_optimizer.allocation_problem(self._policy, self._nodes, factor_table(factors, len(factors))),
            )

    def _sizes(self, paces: Sequence[_ChannelPlan], fleet_s: float) -> list[float]:
        table = factor_table((self._factors(pace, fleet_s) for pace in paces), len(paces))
        found: list[float] = node_optimizer.channel_sizes(self._policy, self._nodes, table, self.scale).tolist()
        return found

    def _fitting(self, rota: PollingSchedule, size: float, fleet_s: float) -> PollingSchedule:
        """Return a rota of n polls per τ on the present ring: the same, if it is one."""
        gap_s = self._policy.poll_interval_s / size
        fits = abs(gap_s / rota.gap_s - 1) <= GAP_TOLERANCE
        full = rota.size <= self._nodes and rota.size >= min(
            self._nodes, polling_set_size(size * (1 - GAP_TOLERANCE), self._nodes)
        )
        # A next poll further away than two gaps was planned before the fleet's clock was set back.
        if fits and full and rota.next_s(fleet_s) - fleet_s <= 2 * rota.gap_s * (1 + GAP_TOLERANCE):
            return rota
        return revised_schedule(rota, size, self._nodes, self._policy.poll_interval_s, fleet_s)
