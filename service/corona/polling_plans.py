"""Polling plans of a node's own channels: what determines each channel's rate, the fleet's scale c, and the schedules.

A node that has just joined does not know c and keeps the schedules that it takes over. A node solves for c while it has
the aggregates of all nodes. If it has lacked some of them for the lifetime of soft state, it solves for c without them.
After a change of the ring, c is frozen for one maintenance interval: the channels of nodes that left or joined are in
no aggregate until they are acquired, and all polling sets would follow c away and back.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from sys import intern

import msgspec
import numpy as np

from service.corona import node_optimizer
from service.corona.aggregation import Aggregation
from service.corona.events import Send
from service.corona.fleet_policy import NO_BOUNDS, SECONDS_PER_HOUR, ChannelBounds, FleetObjective, FleetPolicy, Levels
from service.corona.honeycomb import UNBOUNDED_SCALE, AllocationProblem
from service.corona.messages import PollingLimit, SiteScales, SiteShares, Summary
from service.corona.node_optimizer import POLL_COST, ChannelFactors, FactorTable, factor_table
from service.corona.poll_explanation import BindingConstraint, PollExplanation, explain_polling
from service.corona.polling_levels import LevelChoices, RingLevels, level_of
from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.polling_schedule import PollingSchedule, new_schedule, polling_set_size, revised_schedule
from service.corona.rhythm import (
    HOUR_S,
    are_similar,
    are_within,
    decode_rates,
    decode_speeds,
    delay_factors,
    encode_speeds,
    polling_speeds,
    weight_factors,
)
from service.corona.site_budgets import SiteBudgets
from service.corona.update_rates import UpdateHistory, history_after_delta
from service.model import ChannelId, Delta, NodeId
from service.overlay.ring import RingView

NOTABLE_GAP_CHANGE = 0.1
"""Relative change of the time between polls from which it is recorded in the channel's history."""
LEVEL_TOLERANCE = 1e-4
"""Relative change of the scale from which schedules follow it at once if only whole polling levels are allowed: then a
small change can move many channels by a level.
"""
GAP_TOLERANCE = 0.01
"""Relative deviation of the time between polls up to which a schedule is kept, so that members need not replan for
every new subscriber of any channel.
"""


class _ChannelPlan(msgspec.Struct, gc=False):
    subscribers: int
    private: bool
    updates: UpdateHistory
    schedule: PollingSchedule | None
    site: str
    bounds: ChannelBounds
    limits: PollingLimits
    recorded_gap_s: float = 0.0
    planned_rhythm: bytes = b""
    """The rhythm from which the speeds of the schedule's clock were computed."""


class PollingPlans:
    """The plans of one node's own channels.

    ``now_s`` is monotonic time and ``fleet_s`` fleet time (Unix seconds of the store's clock), both in seconds.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._policy = policy
        self._aggregation = Aggregation(node_id, policy.soft_state_ttl_s)
        self._view = RingView(0, ())
        self._wedges: RingLevels | None = None
        """The polling levels of the ring, if only whole levels were allowed when they were last needed."""
        self.scale: float | None = None
        """c, the fleet's scale as this node knows it; None before its first solution."""
        self._applied_scale: float | None = None
        """The c by which all schedules were computed last."""
        self._levels: Levels | None = None
        """The polling levels for which c was solved; None before its first solution."""
        self._is_scale_current = True
        """Whether c was solved for the present ring."""
        self._last_complete_s: float | None = None
        """When the aggregates of all nodes were last known."""
        self._frozen_until_s: float | None = None
        """Until when c is frozen after a change of the ring; None once c has been solved for since."""
        self._plans: dict[ChannelId, _ChannelPlan] = {}
        self._is_aggregate_current = False
        """Whether this node's aggregate describes its channels as they are."""
        self._summarised: tuple[FactorTable, Sequence[_ChannelPlan], LevelChoices | None] | None = None
        """The factors of this node's channels in its aggregate, with their plans and polling levels."""
        self._sites = SiteBudgets(node_id, policy)
        self._channels_per_site: Counter[str] = Counter()
        """Number of this node's channels per site."""
        self._polls_per_site: defaultdict[str, float] = defaultdict(float)
        """The most polls per hour of this node's channels of each site, by the limit on each channel."""
        self._bounds: Mapping[ChannelId, ChannelBounds] = {}
        """Bounds that admins have set for single channels of the fleet."""

    def set_objective(
        self, objective: FleetObjective, site_rates: Mapping[str, float], bounds: Mapping[ChannelId, ChannelBounds]
    ) -> Collection[ChannelId]:
        """Use this objective, these sites' request rates and these channels' bounds from the next solution on.

        ``site_rates`` are in requests per second. The result is this node's channels whose bounds have changed; their
        schedules are to be updated at once.
        """
        self._sites.set_rates(site_rates)
        before, self._bounds = self._bounds, bounds
        changed = [
            channel
            for channel in (before.keys() | bounds.keys()) & self._plans.keys()
            if before.get(channel) != bounds.get(channel)
        ]
        for channel in changed:
            self._plans[channel].bounds = bounds.get(channel, NO_BOUNDS)
        if changed or objective != self._policy.objective:
            self._policy = msgspec.structs.replace(self._policy, objective=objective)
            self._is_aggregate_current = False
            self._frozen_until_s = None
        return changed

    def on_ring_changed(self, view: RingView, now_s: float) -> None:
        """Adopt the ring, and freeze the fleet's scale for a maintenance interval."""
        if self.scale is not None and self._frozen_until_s is None:
            self._frozen_until_s = now_s + self._policy.maintenance_interval_s
        self._view, self._wedges, self._is_scale_current = view, None, False
        self._aggregation.on_ring_changed(view)
        self._sites.on_ring_changed(view)
        self._is_aggregate_current = False

    def on_message(self, sender: NodeId, message: Summary | SiteShares | SiteScales, now_s: float) -> None:
        """Process a message of another node: a summary of channels, summaries of channels by site, or sites' scales."""
        match message:
            case Summary():
                self._aggregation.on_summary(sender, message, now_s)
            case SiteShares():
                self._sites.on_shares(sender, message, now_s)
            case SiteScales() if self._sites.on_scales(sender, message, now_s):
                self._is_aggregate_current = False

    def send_summaries(self, now_s: float, fleet_s: float, *, is_maintenance: bool) -> Iterator[Send]:
        """Send summaries of this node's channels, and of subtrees and sites, to the nodes that need them.

        With ``is_maintenance``, the summary of this node's channels is made anew although no plan has changed.
        """
        yield from self._sites.send_shares(self._site_problems(fleet_s))
        yield from self._sites.tick(now_s)
        if is_maintenance or not self._is_aggregate_current:
            self._is_aggregate_current = True
            has_budget = self._policy.objective.budget_polls_per_minute is not None
            plans, choices = [*self._plans.values()], self._choices(tuple(self._plans), self._policy.objective.levels)
            table = self._table(plans, fleet_s, is_present=has_budget)
            self._summarised = table, plans, choices
            self._aggregation.own = node_optimizer.own_aggregate(self._policy, self._nodes, table, choices)
        yield from self._aggregation.tick(now_s)

    def solve(self, now_s: float) -> bool:
        """Solve for the fleet's scale; return whether it differs notably from the scale that the schedules follow.

        After a change of the polling levels, the former scale and levels apply until all nodes have sent aggregates for
        the new ones: a scale suits only the levels for which it was solved.
        """
        fleet, levels = self._aggregation.fleet(), self._policy.objective.levels
        is_complete = fleet.nodes == self._nodes and fleet.base == node_optimizer.aggregate_base(levels)
        if self._last_complete_s is None or is_complete:
            self._last_complete_s = now_s
        is_known = is_complete or now_s - self._last_complete_s >= self._policy.soft_state_ttl_s
        moved = False
        if is_known and (self._frozen_until_s is None or now_s >= self._frozen_until_s):
            self.scale, self._frozen_until_s = node_optimizer.solve_scale(self._policy, self._nodes, fleet), None
            moved = levels is not self._levels or (levels.are_whole and not self._is_scale_current)
            self._levels, self._is_scale_current = levels, True
        before, after = self._applied_scale, self.scale
        if after is None:
            return False
        tolerance = LEVEL_TOLERANCE if levels.are_whole else GAP_TOLERANCE
        moved |= before is None or abs(after - before) > tolerance * abs(before)
        if moved:
            self._applied_scale = after
        return moved

    def add_channel(
        self,
        channel: ChannelId,
        subscribers: int,
        updates: UpdateHistory,
        known: PollingSchedule | None,
        *,
        private: bool,
        site: str,
        limits: PollingLimits = NO_LIMITS,
    ) -> None:
        """Add a channel, or replace ``private``, ``updates`` and ``limits`` of a channel that is present already.

        Args:
            channel: The channel.
            subscribers: Its number of subscribers.
            updates: Its update history.
            known: The schedule by which its previous owner had it polled; None if it is not known.
            private: Whether it is exempt from the limit on polls of public channels.
            site: The registrable domain or address whose request budget it shares; empty if there is none.
            limits: What its publisher and its failures allow.
        """
        plan = self._plans.get(channel)
        if plan is None:
            bounds = self._bounds.get(channel, NO_BOUNDS)
            self._plans[channel] = _ChannelPlan(subscribers, private, updates, known, intern(site), bounds, limits)
            self._channels_per_site[site] += 1
            self._polls_per_site[site] += self._policy.most_polls_per_hour(subscribers)
            self._is_aggregate_current = False
        else:
            plan.private, plan.updates, plan.limits = private, updates, limits

    def remove_channel(self, channel: ChannelId) -> None:
        """Remove a channel, if present."""
        plan = self._plans.pop(channel, None)
        if plan is not None:
            self._is_aggregate_current = False
            self._channels_per_site[plan.site] -= 1
            self._polls_per_site[plan.site] -= self._policy.most_polls_per_hour(plan.subscribers)
            if not self._channels_per_site[plan.site]:
                del self._channels_per_site[plan.site], self._polls_per_site[plan.site]

    def set_subscribers(self, channel: ChannelId, subscribers: int) -> None:
        """Set a channel's number of subscribers; an unknown channel is ignored."""
        plan = self._plans.get(channel)
        if plan is not None and plan.subscribers != subscribers:
            before, after = map(self._policy.most_polls_per_hour, (plan.subscribers, subscribers))
            self._polls_per_site[plan.site] += after - before
            plan.subscribers = subscribers
            self._is_aggregate_current = False

    def limits(self, channel: ChannelId) -> PollingLimits:
        """Return what a channel's publisher and its failures allow, as far as this node knows."""
        plan = self._plans.get(channel)
        return plan.limits if plan is not None else NO_LIMITS

    def schedule(self, channel: ChannelId) -> PollingSchedule | None:
        """Return a channel's schedule as it was last computed; None for an unknown channel or before that."""
        plan = self._plans.get(channel)
        return plan.schedule if plan is not None else None

    def set_limit(self, limit: PollingLimit) -> bool:
        """Replace one of a channel's limits; return whether it has changed. An unknown channel is ignored.

        The aggregate follows at the next tick if the channel may be polled more often than before, else in the next
        maintenance interval: channels that fail report ever longer intervals all the time.
        """
        plan = self._plans.get(limit.channel)
        if plan is None:
            return False
        before = plan.limits
        plan.limits = before.with_limit(limit.reason, limit.shortest_interval_s, limit.until_s)
        if plan.limits.hint_s < before.hint_s or plan.limits.failure_s < before.failure_s:
            self._is_aggregate_current = False
        return plan.limits != before

    def history_after(self, delta: Delta, fleet_s: float) -> UpdateHistory:
        """Return the update history that the channel of ``delta`` has once ``delta`` is stored; nothing is changed."""
        return history_after_delta(self._plans[delta.channel].updates, delta, fleet_s)

    def set_history(self, channel: ChannelId, updates: UpdateHistory) -> None:
        """Set a channel's update history; an unknown channel is ignored."""
        if (plan := self._plans.get(channel)) is not None:
            plan.updates = updates

    def update_schedules(
        self, channels: Collection[ChannelId], fleet_s: float
    ) -> Iterator[tuple[PollingSchedule | None, PollingSchedule]]:
        """Recompute these channels' schedules for the present scale and ring; yield pairs of old and new schedules.

        The old schedule is None for a channel without one. It is the same object as the new one if nothing has changed.
        """
        plans = [self._plans[channel] for channel in channels]
        table, rates, set_sizes = self._rates_and_set_sizes(channels, plans, fleet_s)
        clocks = self._speeds(plans, table, rates)
        for channel, plan, rate, set_size, speeds in zip(channels, plans, rates, set_sizes, clocks, strict=True):
            before = plan.schedule
            if before is None:
                interval_s = self._policy.poll_interval_s
                plan.schedule = new_schedule(channel, rate, set_size, interval_s, fleet_s, speeds=speeds)
            else:
                plan.schedule = self._fit_schedule(before, rate, set_size, speeds, fleet_s)
            yield before, plan.schedule

    def count_by_level(self) -> Counter[int]:
        """Return the number of channels at each polling level; levels, which are real numbers, are rounded."""
        sizes = Counter(plan.schedule.size for plan in self._plans.values() if plan.schedule is not None)
        base, counts = self._applied_levels.base, Counter[int]()
        for size, channels in sizes.items():
            counts[round(level_of(size, self._nodes, base))] += channels
        return counts

    def count_by_constraint(self, fleet_s: float) -> Counter[BindingConstraint]:
        """Return the number of this node's channels by the constraint that determines their polls.

        The numbers are those of the last summary; ``fleet_s`` is fleet time. The result is empty while the fleet's
        scale is unknown.
        """
        if self.scale is None or self._summarised is None:
            return Counter()
        table, plans, choices = self._summarised
        return node_optimizer.count_by_constraint(
            self._policy,
            self._nodes,
            table,
            self.scale,
            choices,
            reason=lambda row: plans[row].limits.shortest_interval(fleet_s)[1],
        )

    def changed_gaps(self, most: int) -> list[tuple[ChannelId, float]]:
        """Return up to ``most`` channels whose time between polls has changed notably since it was last recorded.

        Each channel comes with its present time between polls in seconds.
        """
        if self.scale is None:
            return []
        notable = (
            (channel, plan.schedule.gap_s)
            for channel, plan in self._plans.items()
            if plan.schedule is not None
            and abs(plan.schedule.gap_s - plan.recorded_gap_s) > NOTABLE_GAP_CHANGE * plan.recorded_gap_s
        )
        return list(islice(notable, most))

    def record_gaps(self, gaps_s: Iterable[tuple[ChannelId, float]]) -> None:
        """Mark these channels' times between polls, in seconds, as recorded in the channels' history."""
        for channel, gap_s in gaps_s:
            if (plan := self._plans.get(channel)) is not None:
                plan.recorded_gap_s = gap_s

    def explain(self, channel: ChannelId, polling_set: Sequence[NodeId], fleet_s: float) -> PollExplanation | None:
        """Return why a channel is polled as often as it is at ``fleet_s``.

        ``polling_set`` are the nodes that poll the channel, in the order of their turns. The result is None if the
        fleet's scale is unknown or this node does not own the channel.
        """
        plan = self._plans.get(channel)
        if plan is None or plan.schedule is None or self.scale is None:
            return None
        (row,) = self._table([plan], fleet_s)
        factors, clock = ChannelFactors(*row.item()), plan.schedule.clock
        return explain_polling(
            channel,
            weight=node_optimizer.channel_weight(self._policy, factors),
            cost=POLL_COST,
            scale=self.scale,
            limits=node_optimizer.limits_with_site(self._policy, self._nodes, factors),
            poll_interval_s=self._policy.poll_interval_s,
            update_interval_s=plan.updates.interval_s(fleet_s),
            polling_set=polling_set,
            schedule=plan.schedule,
            now_s=fleet_s,
            ring_nodes=self._nodes,
            polling_limits=plan.limits,
            subscribers=plan.subscribers,
            delay_factor=float(delay_factors([plan.updates.rhythm], [plan.schedule.speeds])[0]),
            present_speed=1.0 if clock is None else clock.speed(fleet_s),
            choices=self._choices((channel,), self._applied_levels),
        )

    def _table(
        self, plans: Sequence[_ChannelPlan], fleet_s: float, *, longest_pause_s: float = inf, is_present: bool = False
    ) -> FactorTable:
        """Return the factors of these channels at ``fleet_s``, one row each.

        A pause that is longer than ``longest_pause_s`` counts as one of this length. With ``is_present``, the channels'
        present speeds are those of the fastest hour until changed schedules take effect.
        """
        table = factor_table((self._factors(plan, fleet_s, longest_pause_s) for plan in plans), len(plans))
        if self._policy.weekly_rhythm:
            table["weight_factor"] = weight_factors(decode_rates([plan.updates.rhythm for plan in plans]))
        if is_present:
            until_s = fleet_s + min(self._policy.soft_state_ttl_s, HOUR_S)
            for row, plan in enumerate(plans):
                if plan.schedule and (clock := plan.schedule.clock):
                    table["present_speed"][row] = max(clock.speed(fleet_s), clock.speed(until_s))
        return table

    def _speeds(self, plans: Sequence[_ChannelPlan], table: FactorTable, sizes: Sequence[float]) -> Sequence[bytes]:
        """Return the speeds of the clock of each channel, by which its polls are evenly spaced; b"" for real time.

        The bounds of each channel's polls hold in every hour of the week.
        """
        found = [plan.schedule.speeds if plan.schedule else b"" for plan in plans]
        if not self._policy.weekly_rhythm:
            return [b""] * len(plans)
        rows = [row for row, plan in enumerate(plans) if found[row] or plan.updates.rhythm]
        if not rows:
            return found
        size = np.asarray(sizes)[rows]
        lowest, highest = (bound[rows] / size for bound in node_optimizer.size_bounds(self._policy, self._nodes, table))
        present = decode_speeds([found[row] for row in rows])
        is_within = are_within(present, lowest * (1 - GAP_TOLERANCE), highest * (1 + GAP_TOLERANCE))
        is_current = [self._is_speed_current(plans[row], sizes[row]) for row in rows]
        changed = np.flatnonzero(~(is_within & is_current))
        wanted = polling_speeds(
            decode_rates([plans[rows[place]].updates.rhythm for place in changed]), lowest[changed], highest[changed]
        )
        is_kept = is_within[changed] & are_similar(wanted, present[changed])
        for place, speeds, kept in zip(changed.tolist(), encode_speeds(wanted), is_kept.tolist(), strict=True):
            plans[rows[place]].planned_rhythm = plans[rows[place]].updates.rhythm
            if not kept:
                found[rows[place]] = speeds
        return found

    def _is_speed_current(self, plan: _ChannelPlan, size: float) -> bool:
        """Return whether the speeds of a channel's clock were computed from its present rhythm and for this size."""
        if plan.schedule is None or plan.planned_rhythm is not plan.updates.rhythm:
            return False
        return abs(self._policy.poll_interval_s / size / plan.schedule.gap_s - 1) <= GAP_TOLERANCE

    def _factors(self, plan: _ChannelPlan, fleet_s: float, longest_pause_s: float) -> ChannelFactors:
        interval_s = plan.updates.interval_s(fleet_s) if self._policy.objective.goal.depends_on_updates else 0.0
        return ChannelFactors(
            plan.subscribers,
            interval_s,
            plan.private,
            self._sites.scale(plan.site),
            plan.bounds.longest_wait_s or 0.0,
            plan.bounds.shortest_interval_s or 0.0,
            plan.limits.shortest_interval(fleet_s, longest_pause_s)[0] if plan.limits is not NO_LIMITS else 0.0,
        )

    def _site_problems(self, fleet_s: float) -> Iterator[tuple[str, AllocationProblem]]:
        """Yield the sites whose budget may be exceeded, with this node's channels of each as a problem.

        The problems are without the bounds that follow from the sites' budgets.
        """
        intervals_per_hour = SECONDS_PER_HOUR / self._policy.poll_interval_s
        crowded = {
            site
            for site, most_per_hour in self._polls_per_site.items()
            if site and self._sites.can_exceed_budget(site, most_per_hour / intervals_per_hour)
        }
        # A channel's own longest wait may require more polls than other channels get.
        crowded |= {
            plan.site
            for channel, bounds in self._bounds.items()
            if bounds.longest_wait_s and (plan := self._plans.get(channel)) is not None and plan.site
        }
        if not crowded:
            return
        plans: dict[str, list[_ChannelPlan]] = {}
        for plan in self._plans.values():
            if plan.site in crowded:
                plans.setdefault(plan.site, []).append(plan)
        for site, members in plans.items():
            table = self._table(members, fleet_s, is_present=True)
            table["site_scale"] = UNBOUNDED_SCALE
            yield site, node_optimizer.allocation_problem(self._policy, self._nodes, table)

    @property
    def _nodes(self) -> int:
        return max(1, len(self._view.nodes))

    @property
    def _applied_levels(self) -> Levels:
        """The polling levels by which schedules are made."""
        return self._levels or self._policy.objective.levels

    def _choices(self, channels: Sequence[ChannelId], levels: Levels) -> LevelChoices | None:
        """Return the wedges among which these channels choose; None if numbers of polls are continuous."""
        if not levels.are_whole:
            return None
        if self._wedges is None or self._wedges.base != levels.base:
            self._wedges = RingLevels(self._view, levels.base)
        return self._wedges.choices(channels)

    def _rates_and_set_sizes(
        self, channels: Collection[ChannelId], plans: Sequence[_ChannelPlan], fleet_s: float
    ) -> tuple[FactorTable, list[float], list[int]]:
        """Return these channels' factors, their polls per τ, and the numbers of nodes that make them.

        While the fleet's scale is unknown, channels with a schedule keep its rate. They also do so while it has not
        been solved for the policy's levels, and with whole levels until it has been solved for the present ring, where
        wedges have other sizes. A pause that is longer than τ counts as one of τ: a poll that is refused every τ
        notices when an admin ends it.
        """
        interval_s = self._policy.poll_interval_s
        table = self._table(plans, fleet_s, longest_pause_s=interval_s)
        choices = self._choices(tuple(channels), self._applied_levels)
        found = node_optimizer.channel_sizes(self._policy, self._nodes, table, self.scale, choices)
        is_outdated = choices is not None and not self._is_scale_current
        if self.scale is None or is_outdated or self._applied_levels is not self._policy.objective.levels:
            kept = np.array([interval_s / plan.schedule.gap_s if plan.schedule else 0.0 for plan in plans])
            if self.scale is not None:
                kept = np.minimum(kept, node_optimizer.allocation_problem(self._policy, self._nodes, table).most)
            found = np.where(kept > 0, kept, found)
        rates: list[float] = found.tolist()
        if choices is None:
            return table, rates, [polling_set_size(rate, self._nodes) for rate in rates]
        return table, rates, choices.set_sizes(found).astype(int).tolist()

    def _fit_schedule(
        self, schedule: PollingSchedule, rate: float, set_size: int, speeds: bytes, fleet_s: float
    ) -> PollingSchedule:
        """Return a schedule with ``rate`` polls per τ by ``set_size`` nodes and a clock with these ``speeds``.

        The result is ``schedule`` itself if it fits.
        """
        gap_s = self._policy.poll_interval_s / rate
        fits = abs(gap_s / schedule.gap_s - 1) <= GAP_TOLERANCE and speeds == schedule.speeds
        full = schedule.size == set_size
        if not self._applied_levels.are_whole:
            least = min(self._nodes, polling_set_size(rate * (1 - GAP_TOLERANCE), self._nodes))
            full = least <= schedule.size <= self._nodes
        # A next poll more than two gaps ahead was planned before the fleet's clock was set back.
        if fits and full:
            gaps = schedule.gaps_between(fleet_s, schedule.next_channel_poll_s(fleet_s))
            if gaps <= 2 * (1 + GAP_TOLERANCE):
                return schedule
        return revised_schedule(
            schedule,
            rate,
            set_size,
            self._policy.poll_interval_s,
            fleet_s,
            speeds=speeds,
            can_hand_over=self._is_scale_current,  # else the node may be one that has left the ring
        )
