"""The plans for the channels that one node owns: how often they are polled, and their schedules.

A channel's polling rate depends on its own *factors*, such as its number of subscribers, and on the *scale*, one factor
for the whole fleet. A node that has just joined does not know the scale yet. Until it does, it keeps the schedules of
channels that it takes over.

The amount of work depends on the number of changes, not on the number of channels:

- A channel's factors are recomputed when an event has changed them, and when its pause ends. They are also recomputed
  every ``REVIEW_INTERVAL_S`` seconds, because estimates change with time.
- A new schedule is computed only for channels whose schedule no longer fits.
- The summary of the channels, which other nodes need, is recomputed when the polls have changed by more than the
  fraction ``SUMMARY_TOLERANCE``.

Polling rates of channels whose site's request budget is exhausted fall at once, but rise one to two maintenance
intervals later. By then, the owners of the site's other channels have lowered the rates of these channels.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import ceil, inf
from sys import intern

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.corona import weekly_rhythm
from service.corona.events import OwnershipTaken, Send
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds, FleetObjective, FleetPolicy, Levels
from service.corona.fleet_scale import GAP_TOLERANCE, SUMMARY_TOLERANCE, FleetScale
from service.corona.messages import Aggregate, PollingLimit, SiteScales, SiteShares, SummaryMessage
from service.corona.optimizer import node_allocation
from service.corona.optimizer.allocation_solver import UNBOUNDED_SCALE
from service.corona.optimizer.node_allocation import (
    ChannelFactors,
    FactorTable,
    factor_table,
)
from service.corona.optimizer.objectives import Floats
from service.corona.optimizer.poll_explanation import (
    BindingConstraint,
    PollExplanation,
    binding_constraints,
    explain_polling,
)
from service.corona.optimizer.polling_levels import LevelChoices, level_of
from service.corona.plan_table import PlanTable
from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.polling_schedule import (
    HANDOVER_S,
    LONGEST_WAIT_FOR_SCALE_S,
    PollingSchedule,
    new_schedule,
    polling_set_size,
    revised_schedule,
)
from service.corona.site_budgets import SiteBudgets
from service.corona.update_rates import UpdateHistory, history_after_delta
from service.model import ChannelId, Delta, NodeId
from service.overlay.ring import RingView

NOTABLE_GAP_CHANGE = 0.1
"""Relative change of the time between polls above which the new time is recorded in the channel's history."""
REVIEW_INTERVAL_S = 600.0
"""Time in seconds within which the factors of every channel are read again, even if no event has changed them."""
_LEAST_REVIEWED = 16
"""Minimum number of channels that are reviewed per maintenance interval on average."""
_REVIEWED_TOGETHER = 64
"""Minimum number of channels that are reviewed at once, unless there are fewer. A review of one channel costs almost as
much as a review of 64."""
_ROWS_PER_CHECK = 8_192
"""Number of channels that are compared with their schedules at once; it limits the memory needed."""
_CLOCK_JUMP_S = 1.0
"""All schedules are examined if the store's clock minus monotonic time changes by more than this many seconds."""


class _ChannelPlan(msgspec.Struct, gc=False):
    subscribers: int
    private: bool
    updates: UpdateHistory
    schedule: PollingSchedule | None
    site: str
    bounds: ChannelBounds
    limits: PollingLimits
    row: int
    """The channel's row in the plan table."""


class PollingPlans:
    """The plans for the channels that one node owns: what determines each polling rate, and the resulting schedule.

    In all methods, ``now_s`` is monotonic time and ``fleet_s`` is Unix time by the store's clock, both in seconds.
    """

    def __init__(self, node_id: NodeId, policy: FleetPolicy) -> None:
        self._fleet = FleetScale(node_id, policy)
        self._plans: dict[ChannelId, _ChannelPlan] = {}
        self._table = PlanTable()
        self._stale: set[ChannelId] = set()
        """Channels whose factors have to be read again."""
        self._outdated: set[ChannelId] = set()
        """Channels whose schedule may not fit their factors, the scale or the ring."""
        self._provisional: set[ChannelId] = set()
        """Channels whose first schedule was made before the scale was known.

        Such a schedule is replaced when the scale is known, if possible before its first poll.
        """
        self._reviewed_rows = 0
        """The row at which the next review begins."""
        self._reviewed_s = -inf
        self._ahead_s = 0.0
        """Fleet time minus monotonic time, when it was last compared."""
        self._is_aggregate_current = False
        """Whether this node's aggregate is up to date, apart from the gradual changes that ``_drift`` adds up."""
        self._owned = 0
        """The number of channels that this node owns or is about to own, when schedules were last updated."""
        self._summarised: int | None = None
        """The number of channels in this node's aggregate; None without an aggregate."""
        self._aggregated_s = -inf
        self._drift: float | None = None
        """Sum of the changes in channels' polls per τ since this node's aggregate was computed; infinity if unknown.

        None if no factor has changed.
        """
        self._hours = 0.0, 0.0
        """The hours of fleet time whose speeds this node's shares take into account."""
        self._present_hours: tuple[float, float] | None = None
        """The hours of fleet time whose speeds are in the column ``present_speed``; None if all speeds are 1."""
        self._sites = SiteBudgets(node_id, policy)
        self._crowded: set[str] = set()
        """Sites for which nodes exchange shares, because the site's budget may be exceeded."""
        self._can_crowd_change = False
        """Whether channels, subscribers, the ring or budgets have changed since ``_crowded`` was found."""
        self._outdated_shares: set[str] = set()
        """Sites whose channels have changed since this node's share was computed."""
        self._are_site_limits_rising = False
        """Whether the factors or the scale of a crowded site's channel may allow more polls than its ``site_limit``."""
        self.revision = 0
        """A number that increases with each change that can change the results of the ``count_…`` methods."""
        self._bounds: Mapping[ChannelId, ChannelBounds] = {}
        """Bounds that admins have set for individual channels of the fleet."""

    @property
    def scale(self) -> float | None:
        """The factor that determines all polling rates of the fleet; None before this node has computed it."""
        return self._fleet.scale

    def set_objective(
        self, objective: FleetObjective, site_rates: Mapping[str, float], bounds: Mapping[ChannelId, ChannelBounds]
    ) -> Collection[ChannelId]:
        """Adopt the optimisation goal, and the limits that admins have set for individual sites and channels.

        - ``site_rates``: the allowed requests per second of each site for which an admin has set a limit.
        - ``bounds``: the limits for the polls of each channel for which an admin has set limits.

        Return this node's channels whose limits have changed; the caller must update their schedules at once.
        """
        before, self._bounds = self._bounds, bounds
        changed = [
            channel
            for channel in (before.keys() | bounds.keys()) & self._plans.keys()
            if before.get(channel) != bounds.get(channel)
        ]
        for channel in changed:
            self._plans[channel].bounds = bounds.get(channel, NO_BOUNDS)
        self._stale.update(changed)
        have_rates_changed = self._sites.set_rates(site_rates)
        if changed or have_rates_changed:
            self._can_crowd_change = True
        if changed or objective != self._policy.objective:
            if objective.goal.depends_on_updates is not self._policy.objective.goal.depends_on_updates:
                self._stale.update(self._plans)
            self._fleet.set_objective(objective)
            self._is_aggregate_current = False
        return changed

    def on_ring_changed(self, view: RingView, now_s: float) -> None:
        """Adopt ``view`` as the ring, and keep the fleet's scale unchanged for one maintenance interval."""
        self._fleet.on_ring_changed(view, now_s)
        self._sites.on_ring_changed(view)
        self._is_aggregate_current = False
        self._can_crowd_change = True

    def on_message(self, sender: NodeId, message: SummaryMessage | SiteShares, now_s: float) -> list[Send]:
        """Process another node's summaries of channels, or its share of sites' budgets; return the replies to send."""
        if isinstance(message, SiteShares):
            self._sites.on_shares(sender, message, now_s)
            return []
        return self._fleet.aggregation.on_message(sender, message, now_s)

    def on_site_scales(
        self, sender: NodeId, message: SiteScales, now_s: float, fleet_s: float
    ) -> Collection[ChannelId]:
        """Adopt the limits of sites that the node ``sender`` coordinates.

        Return this node's channels on these sites whose schedules no longer fit; the caller must update them at once.
        """
        changed = set(self._sites.on_scales(sender, message, now_s))
        for site in changed:
            self._on_site_scale_changed(site)
        self._review(fleet_s)
        return sorted(channel for channel in self._outdated if self._plans[channel].site in changed)

    def send_summaries(
        self, now_s: float, fleet_s: float, owned: int | None, *, is_maintenance: bool
    ) -> Iterator[Send]:
        """Send summaries of this node's channels, and of other nodes' channels, to the nodes that need them.

        - ``owned``: the number of channels that this node owns or is about to own; None if it is not known yet.
        - ``is_maintenance``: true in one call per maintenance interval. This call also confirms unchanged summaries. In
          addition, it reviews some of the channels: it reads the inputs of their polling rates again, such as the
          number of subscribers. Each channel is reviewed at least once per ``REVIEW_INTERVAL_S``.
        """
        if is_maintenance:
            self._choose_reviewed(now_s, fleet_s)
            self._update_present_speeds(fleet_s)
        is_due = is_maintenance or not self._is_aggregate_current
        if is_due:
            self._review(fleet_s)
        if is_maintenance:
            self._raise_site_limits()
        if self._can_crowd_change:
            self._update_crowded_sites()
        if is_due:
            self._update_shares()
        yield from self._sites.send_shares(is_maintenance=is_maintenance)
        for site in self._sites.expire(now_s):
            self._on_site_scale_changed(site)
        yield from self._sites.send_scales(is_maintenance=is_maintenance)
        if owned is not None and (
            not self._is_aggregate_current
            or owned != self._summarised
            or (is_maintenance and self._is_aggregate_due(now_s))
        ):
            self._is_aggregate_current, self._aggregated_s, self._drift = True, now_s, None
            self._summarised = owned
            self._fleet.aggregation.own = self._summarise(owned)
        yield from self._fleet.aggregation.tick(now_s, is_maintenance=is_maintenance)

    def solve(self, now_s: float) -> bool:
        """Compute the fleet's scale; return whether it has changed so much that all schedules have to be updated.

        The *scale* is the factor that determines all polling rates. After an admin has changed the allowed polling
        levels, the former scale and levels are used until all nodes have sent summaries for the new levels.
        """
        # A scale is valid only for the levels for which it was solved.
        longest_wait_s = self._policy.longest_wait_s
        moved = self._fleet.solve(now_s)
        if self._policy.longest_wait_s != longest_wait_s:
            self._is_aggregate_current = False
        return moved

    def outdated_channels(self, fleet_s: float) -> AbstractSet[ChannelId]:
        """Return this node's channels whose schedules may be outdated at ``fleet_s``.

        A channel remains in the result until :meth:`update_schedules` is called with it.
        """
        self._review(fleet_s)
        return frozenset(self._outdated)

    def add_channel(self, taken: OwnershipTaken, subscribers: int, previous_schedule: PollingSchedule | None) -> None:
        """Add the channel of the event ``taken``; if it is already present, replace its state with that of the event.

        - ``subscribers``: the channel's number of subscribers.
        - ``previous_schedule``: the schedule by which the channel was polled for its previous owner; None if this node
          does not know that schedule.
        """
        channel, plan = taken.channel, self._plans.get(taken.channel)
        if plan is None:
            self._plans[channel] = _ChannelPlan(
                subscribers,
                taken.private,
                taken.updates,
                previous_schedule,
                intern(taken.site),
                self._bounds.get(channel, NO_BOUNDS),
                taken.limits,
                row=self._table.add(channel, taken.site),
            )
            self._can_crowd_change = True
            self._is_aggregate_current = False
        else:
            plan.private, plan.updates, plan.limits = taken.private, taken.updates, taken.limits
        self._stale.add(channel)
        self._outdated.add(channel)

    def remove_channel(self, channel: ChannelId) -> None:
        """Remove a channel if it is present."""
        plan = self._plans.pop(channel, None)
        if plan is not None:
            self._is_aggregate_current = False
            self._stale.discard(channel)
            self._outdated.discard(channel)
            self._provisional.discard(channel)
            self.revision += 1
            if (moved := self._table.remove(plan.row)) is not None:
                self._plans[moved].row = plan.row
            self._can_crowd_change = True
            self._outdated_shares.add(plan.site)

    def set_subscribers(self, channel: ChannelId, subscribers: int) -> None:
        """Set a channel's number of subscribers; a channel that is not present is ignored."""
        plan = self._plans.get(channel)
        if plan is not None and plan.subscribers != subscribers:
            plan.subscribers = subscribers
            self._can_crowd_change = True
            self._stale.add(channel)
            self._is_aggregate_current = False

    def schedule_and_limits(self, channel: ChannelId) -> tuple[PollingSchedule, PollingLimits]:
        """Return a channel's schedule, and the limits for its polls that this node knows.

        :meth:`update_schedules` must have been called for the channel before.
        """
        plan = self._plans[channel]
        assert plan.schedule is not None  # noqa: S101 - it was computed
        return plan.schedule, plan.limits

    def set_limit(self, limit: PollingLimit) -> bool:
        """Replace one of a channel's limits; return whether this changes anything. An unknown channel is ignored."""
        # This node's aggregate is updated at the next tick if the channel may be polled more often than before.
        # Otherwise it is updated in the next maintenance interval, because failing channels report longer intervals
        # frequently.
        plan = self._plans.get(limit.channel)
        if plan is None:
            return False
        before = plan.limits
        plan.limits = before.with_limit(limit.reason, limit.shortest_interval_s, limit.until_s)
        if plan.limits.hint_s < before.hint_s or plan.limits.failure_s < before.failure_s:
            self._is_aggregate_current = False
        if plan.limits != before:
            self.revision += 1  # the kind of the limit may have changed, but not its length
            self._stale.add(limit.channel)
        return plan.limits != before

    def history_after(self, delta: Delta, fleet_s: float) -> UpdateHistory:
        """Return the update history that a channel will have once the changes ``delta`` are stored.

        The channel's plan is not changed. ``fleet_s`` is Unix time by the store's clock.
        """
        return history_after_delta(self._plans[delta.channel].updates, delta, fleet_s)

    def set_history(self, channel: ChannelId, updates: UpdateHistory) -> None:
        """Set a channel's update history; a channel that is not present is ignored."""
        if (plan := self._plans.get(channel)) is not None:
            plan.updates = updates
            self._stale.add(channel)
            self._outdated.add(channel)

    def update_schedules(
        self, channels: Collection[ChannelId], fleet_s: float, owned: int
    ) -> Iterator[tuple[PollingSchedule | None, PollingSchedule]]:
        """Adapt the schedules of ``channels`` to the present inputs; yield (old schedule, new schedule) for each.

        The old schedule is None if the channel had none. If the schedule has not changed, both are the same object.
        ``owned`` is the number of channels that this node owns or is about to own.
        """
        self._owned = owned
        self._review(fleet_s)
        outdated = [channel for channel in channels if channel in self._outdated]
        clocks = dict(zip(outdated, self._choose_speeds(outdated), strict=True)) if outdated else {}
        interval_s = self._policy.poll_interval_s
        for channel in channels:
            plan = self._plans[channel]
            before = plan.schedule
            if (speeds := clocks.get(channel)) is not None:
                row = self._table.rows[plan.row]
                rate, set_size = float(row["rate"]), int(row["set_size"])
                if before is None or self._is_replaceable(channel, before, fleet_s):
                    begin_s = fleet_s
                    if self.scale is None:
                        self._provisional.add(channel)
                        begin_s += min(self._policy.soft_state_ttl_s, LONGEST_WAIT_FOR_SCALE_S)
                    plan.schedule = new_schedule(channel, rate, set_size, interval_s, begin_s, speeds=speeds)
                else:
                    plan.schedule = self._fit_schedule(before, rate, set_size, speeds, fleet_s)
                row["gap_s"], row["size"] = plan.schedule.gap_s, plan.schedule.size
                self.revision += 1
                if before is None or before.speeds != speeds:
                    self._stale.add(channel)  # its present speed has changed
                self._outdated.discard(channel)
                if self.scale is not None:
                    self._provisional.discard(channel)
            assert plan.schedule is not None  # noqa: S101 - a channel without a schedule is outdated
            yield before, plan.schedule

    def count_by_level(self) -> Counter[int]:
        """Count the channels at each polling level; levels are rounded, and 0 means that all nodes poll the channel."""
        sizes, channels = np.unique(self._table.rows["size"], return_counts=True)
        base, counts = self._fleet.applied_levels.base, Counter[int]()
        for size, count in zip(sizes.tolist(), channels.tolist(), strict=True):
            if size:
                counts[round(level_of(size, self._nodes, base))] += count
        return counts

    def count_by_constraint(self, fleet_s: float) -> Counter[BindingConstraint]:
        """Count this node's channels by the constraint that decides their polling rate.

        ``fleet_s`` is Unix time by the store's clock. The result is empty if no polling rates have been computed yet.
        """
        if self.scale is None:
            return Counter()
        channels = self._table.channels
        found = binding_constraints(
            self._policy,
            self._nodes,
            self._table.rows,
            self.scale,
            self._choices(None, self._policy.objective.levels),
            reason=lambda row: self._plans[channels[row]].limits.shortest_interval(fleet_s)[1],
        )
        return Counter(found)

    def find_changed_gaps(self, most: int) -> list[tuple[ChannelId, float]]:
        """Return (channel, seconds) for channels whose time between polls differs notably from the recorded time.

        The recorded time is the one that was last passed to :meth:`record_gaps`. At most ``most`` channels are
        returned.
        """
        if self.scale is None:
            return []
        gaps_s, recorded_s = self._table.rows["gap_s"], self._table.rows["recorded_gap_s"]
        is_notable = (gaps_s > 0) & (np.abs(gaps_s - recorded_s) > NOTABLE_GAP_CHANGE * recorded_s)
        return [(self._table.channels[row], float(gaps_s[row])) for row in np.flatnonzero(is_notable)[:most].tolist()]

    def record_gaps(self, gaps_s: Iterable[tuple[ChannelId, float]]) -> None:
        """Remember the times between polls that have been recorded in the channels' histories.

        ``gaps_s`` contains pairs (channel, seconds).
        """
        for channel, gap_s in gaps_s:
            if (plan := self._plans.get(channel)) is not None:
                self._table.rows["recorded_gap_s"][plan.row] = gap_s

    def explain(self, channel: ChannelId, polling_set: Sequence[NodeId], fleet_s: float) -> PollExplanation | None:
        """Explain how often a channel is polled at ``fleet_s`` (Unix time by the store's clock).

        ``polling_set`` contains the nodes that poll the channel, in the order of their turns. The result is None if
        this node does not own the channel, or has not computed the fleet's polling rates yet.
        """
        plan = self._plans.get(channel)
        if plan is None or plan.schedule is None or self.scale is None:
            return None
        return explain_polling(
            channel,
            self._policy,
            self._nodes,
            self._read_factors([plan], fleet_s),
            self.scale,
            updates=plan.updates,
            limits=plan.limits,
            polling_set=polling_set,
            schedule=plan.schedule,
            now_s=fleet_s,
            choices=self._choices(np.array([plan.row]), self._fleet.applied_levels),
        )

    def _choose_reviewed(self, now_s: float, fleet_s: float) -> None:
        """Choose the channels to review, and mark them as stale.

        A review reads the inputs of a channel's polling rate again, such as its number of subscribers. Channels are
        reviewed when their pause has ended, and in turn: the next channels are chosen as soon as enough are due. If the
        store's clock has jumped, all schedules are also marked as outdated.
        """
        ahead_s = fleet_s - now_s
        if abs(ahead_s - self._ahead_s) > _CLOCK_JUMP_S:
            self._outdated.update(self._plans)
        self._ahead_s = ahead_s
        # A set that once had all channels keeps its size when they are removed one by one.
        self._outdated, self._provisional = set(self._outdated), set(self._provisional)
        ends_s = self._table.rows["paused_until_s"]
        self._mark_stale(np.flatnonzero((ends_s > 0) & (ends_s <= fleet_s)))
        total = len(self._table.channels)
        elapsed_s = min(now_s - self._reviewed_s, REVIEW_INTERVAL_S)
        per_s = max(total / REVIEW_INTERVAL_S, _LEAST_REVIEWED / self._policy.maintenance_interval_s)
        begin, reviewed = min(self._reviewed_rows, total), min(total, ceil(per_s * elapsed_s))
        if reviewed >= min(_REVIEWED_TOGETHER, total):
            self._mark_stale(np.arange(begin, begin + reviewed) % max(1, total))
            self._reviewed_rows = (begin + reviewed) % max(1, total)
            self._reviewed_s = now_s

    def _review(self, fleet_s: float) -> None:
        """Read the inputs of stale channels again, and mark channels that may need new schedules as outdated.

        The inputs, such as the number of subscribers, determine a channel's polling rate. A channel is *stale* if an
        event or the periodic review requires its inputs to be read again. If the fleet's scale, the member nodes or the
        policy have changed, the schedules of all channels are checked.
        """
        stale = [channel for channel in self._stale if channel in self._plans]
        self._stale.clear()
        if stale:
            changed = self._write_factors([self._plans[channel] for channel in stale], fleet_s)
            if len(changed):
                self._outdated_shares |= {self._plans[self._table.channels[row]].site for row in changed.tolist()}
                self._compare_changed(changed)
        if self._fleet.take_change():
            self.revision += 1
            if self._drift is not None:
                self._drift = inf  # factors that made no difference by the former scale may make one by this
            self._compare_schedules(np.arange(len(self._table.channels)))
            if self.scale is not None:
                self._outdated |= self._provisional

    def _raise_site_limits(self) -> None:
        """Raise the limits of channels on crowded sites to the lowest values since the last maintenance.

        A channel's limit falls at once, but rises only after it could have been higher for a whole maintenance
        interval. In this time, the site's other owners receive a scale that takes the higher limit into account, and
        lower the limits of their channels. Unless messages are late or lost, the owners' polls together therefore stay
        within the site's budget.
        """
        if self._are_site_limits_rising:
            self._are_site_limits_rising = False
            table = self._table.rows
            rows = np.flatnonzero(np.isfinite(table["site_limit"]))
            table["site_limit"], table["next_site_limit"] = table["next_site_limit"], inf
            self._compare_changed(rows)

    def _compare_changed(self, rows: NDArray[np.intp]) -> None:
        """Compare the schedules of channels whose factors or limits have changed, and add up how much polls change."""
        self.revision += 1
        before = self._table.rows["rate"][rows]
        self._compare_schedules(rows)
        drift = float(np.abs(self._table.rows["rate"][rows] - before).sum())
        is_unknown = self._fleet.has_changed or self.scale is None
        self._drift = inf if is_unknown else (self._drift or 0.0) + drift

    def _write_factors(self, plans: Sequence[_ChannelPlan], fleet_s: float) -> NDArray[np.intp]:
        """Update the table rows of the channels in ``plans``; return the indices of the rows that have changed notably.

        The rows contain the inputs of the channels' polling rates, such as the number of subscribers. Small changes of
        estimates are ignored, so that they do not change schedules and summaries.
        """
        rows = np.array([plan.row for plan in plans], dtype=np.intp)
        found, table = self._read_factors(plans, fleet_s), self._table.rows
        longest_pause_s = self._policy.poll_interval_s
        planned_s = np.array([plan.limits.shortest_interval(fleet_s, longest_pause_s)[0] for plan in plans])
        if self._present_hours is not None:
            found["present_speed"] = self._present_speeds(plans, self._present_hours)
        is_changed = table["planned_interval_s"][rows] != planned_s
        for name in ChannelFactors._fields:
            before, after = table[name][rows], found[name]
            is_estimate = name in {"update_interval_s", "publisher_interval_s"}
            differs = np.abs(after - before) > 2 * GAP_TOLERANCE * before if is_estimate else before != after
            if name in {"present_speed", "publisher_interval_s"} and differs.any():
                self._drift = inf  # costs or bounds change, but perhaps no present polls
            is_changed |= differs
        changed: NDArray[np.intp] = rows[is_changed]
        for name in ChannelFactors._fields:
            table[name][changed] = found[name][is_changed]
        table["planned_interval_s"][changed] = planned_s[is_changed]
        ends_s = np.array([plan.limits.paused_until_s for plan in plans])
        table["paused_until_s"][rows] = np.where(ends_s > fleet_s, ends_s, 0)
        return changed

    def _compare_schedules(self, rows: NDArray[np.intp]) -> None:
        """Compute how often channels should be polled, and mark a channel as outdated if its schedule does not fit.

        ``rows`` are the channels' rows in the table. A schedule does not fit if :meth:`_fit_schedule` would change
        it, or if its polls violate a limit in some hour of the week.
        """
        interval_s, nodes, table = self._policy.poll_interval_s, self._nodes, self._table.rows
        for start in range(0, len(rows), _ROWS_PER_CHECK):
            some = rows[start : start + _ROWS_PER_CHECK]
            part = self._planned_rows(some)
            self._apply_site_limits(part, some)
            rates, set_sizes = self._rates_and_set_sizes(part, some)
            table["rate"][some], table["set_size"][some] = rates, set_sizes
            with np.errstate(divide="ignore", invalid="ignore"):
                fits = np.abs(interval_s / rates / part["gap_s"] - 1) <= GAP_TOLERANCE
            if self._fleet.applied_levels.are_whole:
                fits &= part["size"] == set_sizes
            else:
                least = np.clip(np.ceil(rates * (1 - GAP_TOLERANCE)), 1, nodes)
                fits &= (part["size"] >= least) & (part["size"] <= nodes)
            lowest, highest = node_allocation.size_bounds(self._policy, nodes, part)
            fits &= part["slowest"] >= lowest / rates * (1 - GAP_TOLERANCE)
            fits &= part["fastest"] <= highest / rates * (1 + GAP_TOLERANCE)
            self._outdated.update(self._table.channels[row] for row in some[~fits].tolist())

    def _apply_site_limits(self, part: FactorTable, rows: NDArray[np.intp]) -> None:
        """Lower the site scales in ``part``, a copy of the table rows ``rows``, so that the site limits are kept.

        Before that, site limits that are higher than the present factors and site scales allow are lowered.
        """
        is_crowded = np.isfinite(part["site_scale"])
        is_limited = is_crowded | np.isfinite(part["site_limit"])
        if not is_limited.any():
            return
        table, limited = self._table.rows, rows[is_limited]
        problem = node_allocation.allocation_problem(self._policy, self._nodes, part[is_limited])
        most = np.where(is_crowded[is_limited], problem.most, inf)
        for name in ("site_limit", "next_site_limit"):
            table[name][limited] = np.minimum(table[name][limited], most)
        limits = table["site_limit"][limited]
        self._are_site_limits_rising |= bool((most > limits).any())
        part["site_scale"][is_limited] = np.minimum(part["site_scale"][is_limited], limits / problem.slopes())

    def _planned_rows(self, rows: NDArray[np.intp]) -> FactorTable:
        """Return a copy of the table rows with these indices, in which a pause counts as at most τ."""
        # Polls are therefore attempted every τ even during a pause, and resume soon after an admin ends the pause.
        part: FactorTable = self._table.rows[rows]
        part["publisher_interval_s"] = part["planned_interval_s"]
        return part

    def _is_aggregate_due(self, now_s: float) -> bool:
        """Return whether this node's summary has to be recomputed because the polls have gradually changed."""
        if self._drift is None:
            return False
        is_old = now_s - self._aggregated_s >= REVIEW_INTERVAL_S
        return is_old or self._drift > SUMMARY_TOLERANCE * float(self._table.rows["rate"].sum())

    def _summarise(self, owned: int) -> Aggregate | None:
        """Return the summary of this node's channels; None if it is about to own channels but has none yet.

        ``owned`` is the number of channels that this node owns or is about to own. Until it has all of them, the
        summary contains the present channels several times, to represent the missing ones.
        """
        # They represent the others. Otherwise a fleet that starts would divide its whole budget among its first
        # channels.
        known, rows = len(self._table.channels), None
        if known < owned:
            if not known:
                return None
            rows = np.resize(np.arange(known, dtype=np.intp), owned)
        table: FactorTable = self._table.rows if rows is None else self._table.rows[rows]
        choices = self._choices(rows, self._policy.objective.levels)
        return node_allocation.own_aggregate(self._policy, self._nodes, table, choices)

    def _read_factors(self, plans: Sequence[_ChannelPlan], fleet_s: float) -> FactorTable:
        """Return the current inputs from which polling rates are computed, one row for each channel in ``plans``.

        The columns are the fields of ``ChannelFactors``. The field ``present_speed`` is always 1 in the result.
        ``fleet_s`` is the present Unix time by the store's clock.
        """
        table = factor_table((self._factors(plan, fleet_s) for plan in plans), len(plans))
        if self._policy.weekly_rhythm:
            table["weight_factor"] = weekly_rhythm.weight_factors(
                weekly_rhythm.decode_rates([plan.updates.rhythm for plan in plans])
            )
        return table

    def _update_present_speeds(self, fleet_s: float) -> None:
        """If a new hour has begun, update how often channels with a weekly rhythm are polled in this hour."""
        # If the hour has changed, the shares (summaries of channels) of sites whose budget may be exceeded become
        # outdated. If the fleet has a budget per minute, the column ``present_speed`` of the table is updated.
        # The hours of this time and of the time when changed schedules apply, counted since the epoch.
        until_s = fleet_s + min(self._policy.soft_state_ttl_s, weekly_rhythm.HOUR_S)
        hours = fleet_s // weekly_rhythm.HOUR_S, until_s // weekly_rhythm.HOUR_S
        if hours != self._hours:
            self._hours = hours
            self._outdated_shares |= self._crowded
        present_hours = None if self._policy.objective.budget_polls_per_minute is None else hours
        if present_hours != self._present_hours:
            self._present_hours = present_hours
            plans = (self._plans[channel] for channel in self._table.channels)
            self._table.rows["present_speed"] = 1.0 if present_hours is None else self._present_speeds(plans, hours)
            self._drift = inf

    def _present_speeds(self, plans: Iterable[_ChannelPlan], hours: tuple[float, float]) -> list[float]:
        """Return the higher of each channel's polling rates in two hours, relative to its mean rate over the week.

        ``hours`` contains the two hours, counted from the Unix epoch. The result is 1.0 for a channel without a weekly
        rhythm.
        """
        clocks = (plan.schedule.clock if plan.schedule else None for plan in plans)
        return [
            1.0 if clock is None else max(clock.speed(hour * weekly_rhythm.HOUR_S) for hour in hours)
            for clock in clocks
        ]

    def _choose_speeds(self, channels: Sequence[ChannelId]) -> Sequence[bytes]:
        """Choose, for each channel, the clock by which its polls are evenly spaced; return the clocks' encoded speeds.

        A clock runs faster in the hours of the week in which the channel is to be polled more often; b"" stands for
        real time. With the chosen clocks, the channels' limits are respected in every hour. The lowest and the highest
        speed of each clock are written into the table.
        """
        plans = [self._plans[channel] for channel in channels]
        found = [plan.schedule.speeds if plan.schedule else b"" for plan in plans]
        numbers = np.array([plan.row for plan in plans], dtype=np.intp)
        # Without a rhythm, every clock keeps the bounds.
        self._table.rows["slowest"][numbers], self._table.rows["fastest"][numbers] = inf, 0.0
        if not self._policy.weekly_rhythm:
            return [b""] * len(plans)
        rows = [row for row, plan in enumerate(plans) if found[row] or plan.updates.rhythm]
        if not rows:
            return found
        table = self._planned_rows(numbers[rows])
        bounds = node_allocation.size_bounds(self._policy, self._nodes, table)
        lowest, highest = (bound / table["rate"] for bound in bounds)
        present = weekly_rhythm.decode_speeds([found[row] for row in rows])
        rates = weekly_rhythm.decode_rates([plans[row].updates.rhythm for row in rows])
        wanted = weekly_rhythm.polling_speeds(rates, lowest, highest)
        is_within = weekly_rhythm.are_within(present, lowest * (1 - GAP_TOLERANCE), highest * (1 + GAP_TOLERANCE))
        is_kept = is_within & weekly_rhythm.are_similar(wanted, present)
        speeds = np.where(is_kept[:, None], present, wanted)
        for row, encoded in zip(rows, weekly_rhythm.encode_speeds(speeds), strict=True):
            found[row] = encoded
        hourly = weekly_rhythm.hourly_speeds(speeds)
        self._table.rows["slowest"][numbers[rows]] = hourly.min(axis=1)
        self._table.rows["fastest"][numbers[rows]] = hourly.max(axis=1)
        return found

    def _factors(self, plan: _ChannelPlan, fleet_s: float) -> ChannelFactors:
        interval_s = plan.updates.interval_s(fleet_s) if self._policy.objective.goal.depends_on_updates else 0.0
        return ChannelFactors(
            plan.subscribers,
            interval_s,
            plan.private,
            self._sites.scale(plan.site),
            plan.bounds.longest_wait_s or 0.0,
            plan.bounds.shortest_interval_s or 0.0,
            plan.limits.shortest_interval(fleet_s)[0] if plan.limits is not NO_LIMITS else 0.0,
        )

    def _on_site_scale_changed(self, site: str) -> None:
        self._mark_stale(self._table.rows_of_site(site))
        self._is_aggregate_current = False

    def _mark_stale(self, rows: NDArray[np.intp]) -> None:
        self._stale.update(self._table.channels[row] for row in rows.tolist())

    def _update_crowded_sites(self) -> None:
        """Determine the sites whose request budget may be exceeded; drop this node's summaries for all others."""
        self._can_crowd_change = False
        rows, sites = self._table.rows, self._table.sites
        most = np.bincount(rows["site"], node_allocation.polite_sizes(self._policy, rows), len(sites)).astype(
            np.float64
        )
        # A channel's own longest wait may require more polls than other channels get.
        urgent = {
            plan.site
            for channel, bounds in self._bounds.items()
            if bounds.longest_wait_s and (plan := self._plans.get(channel)) is not None and plan.site
        }
        crowded = self._sites.find_crowded(sites, most) | urgent
        for site in self._crowded - crowded:
            self._sites.set_share(site, None)
        self._outdated_shares |= crowded - self._crowded
        self._crowded = crowded

    def _update_shares(self) -> None:
        """Recompute this node's summary of its channels on each site whose request budget may be exceeded.

        A site is skipped if neither its channels nor the hours of the week in which they are polled have changed.
        """
        for site in self._outdated_shares & self._crowded:
            rows = self._table.rows_of_site(site)
            table: FactorTable = self._table.rows[rows]
            table["site_scale"] = UNBOUNDED_SCALE
            plans = (self._plans[self._table.channels[row]] for row in rows.tolist())
            table["present_speed"] = self._present_speeds(plans, self._hours)
            self._sites.set_share(site, node_allocation.allocation_problem(self._policy, self._nodes, table))
        self._outdated_shares.clear()

    @property
    def _nodes(self) -> int:
        return self._fleet.nodes

    @property
    def _policy(self) -> FleetPolicy:
        return self._fleet.policy

    def _choices(self, rows: NDArray[np.intp] | None, levels: Levels) -> LevelChoices | None:
        """Return how many nodes may poll each of the channels in ``rows`` at each polling level.

        If ``rows`` is None, all channels are included. The result is None if ``levels`` allows any number of nodes.
        """
        channels = self._table.channels
        return self._fleet.choices(channels if rows is None else [channels[row] for row in rows.tolist()], levels)

    def _rates_and_set_sizes(self, table: FactorTable, rows: NDArray[np.intp]) -> tuple[Floats, NDArray[np.intp]]:
        """Return (rates, set sizes): how often each channel in ``rows`` should be polled per τ, and by how many nodes.

        ``table`` is a copy of the rows. A channel keeps its present rate if:

        - the fleet's *scale* (the factor that determines all rates) is unknown,
        - the scale was computed for other polling levels, or
        - only whole polling levels are allowed, and the groups of nodes at these levels have changed since the scale
          was computed, because a node has joined or left.
        """
        interval_s = self._policy.poll_interval_s
        choices = self._choices(rows, self._fleet.applied_levels)
        found = node_allocation.channel_sizes(self._policy, self._nodes, table, self.scale, choices, owned=self._owned)
        is_outdated = choices is not None and not self._fleet.is_current
        if self.scale is None or is_outdated or self._fleet.applied_levels is not self._policy.objective.levels:
            schedules = [self._plans[self._table.channels[row]].schedule for row in rows.tolist()]
            kept = np.array([interval_s / schedule.gap_s if schedule else 0.0 for schedule in schedules])
            if self.scale is not None:
                kept = np.minimum(kept, node_allocation.allocation_problem(self._policy, self._nodes, table).most)
            found = np.where(kept > 0, kept, found)
        if choices is None:
            return found, np.clip(np.ceil(found), 1, self._nodes).astype(np.intp)
        return found, choices.set_sizes(found).astype(np.intp)

    def _is_replaceable(self, channel: ChannelId, schedule: PollingSchedule, fleet_s: float) -> bool:
        """Return whether a channel's first schedule may be replaced with a new one that does not continue it.

        This is the case once the scale is known, if the schedule was made before that and no poll of it is due soon.
        """
        # Without the scale, a node assumes that its channels get an equal part of the budget. The nodes' parts differ,
        # and so do the times within which they would poll all their channels. If these schedules were continued, the
        # second polls of some channels would coincide with the first polls of others, and exceed the budget.
        is_provisional = self.scale is not None and channel in self._provisional
        return is_provisional and schedule.first_s - fleet_s > HANDOVER_S

    def _fit_schedule(
        self, schedule: PollingSchedule, rate: float, set_size: int, speeds: bytes, fleet_s: float
    ) -> PollingSchedule:
        """Return a schedule with ``rate`` polls per poll interval τ, made by ``set_size`` nodes.

        The result is ``schedule`` itself if it already fits. ``speeds`` encodes the clock by which the polls are evenly
        spaced.
        """
        gap_s = self._policy.poll_interval_s / rate
        fits = abs(gap_s / schedule.gap_s - 1) <= GAP_TOLERANCE and speeds == schedule.speeds
        full = schedule.size == set_size
        if not self._fleet.applied_levels.are_whole:
            least = min(self._nodes, polling_set_size(rate * (1 - GAP_TOLERANCE), self._nodes))
            full = least <= schedule.size <= self._nodes
        if fits and full and not schedule.is_far_ahead(fleet_s, schedule.next_channel_poll_s(fleet_s), gaps=2):
            return schedule
        return revised_schedule(
            schedule,
            rate,
            set_size,
            self._policy.poll_interval_s,
            fleet_s,
            speeds=speeds,
            can_hand_over=self._fleet.is_current,  # else the node may be one that has left the ring
        )
