"""Corona's polling schedules, computed by production code for a fleet with a fixed request budget.

The fleet's maintenance interval is one hour. In each interval, the fleet does the following:

1. It updates its estimates of update intervals and weekly rhythms from the results of polls (``update_rates``,
   ``weekly_rhythm``).
2. It computes each channel's weight, and the minimum and maximum of the channel's poll rate (``node_allocation``).
3. It computes the factor by which all channels' poll rates are multiplied so that polls use the whole budget
   (``allocation_solver``).
4. It revises each channel's schedule (``polling_schedule``).

Like every other scheduler, the fleet knows only how many subscribers each channel has, and the dated entries that its
polls have returned.
"""

import msgspec
import numpy as np

from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal
from service.corona.optimizer.allocation_solver import scale_for_budget
from service.corona.optimizer.node_allocation import (
    ChannelFactors,
    affordable_policy,
    allocation_problem,
    channel_sizes,
    factor_table,
    size_bounds,
)
from service.corona.polling_schedule import PollingSchedule, revised_schedule
from service.corona.update_rates import UpdateEstimate, estimate_after_poll, estimate_from_dates
from service.corona.weekly_rhythm import (
    FACTORS,
    MEMORY_S,
    SPEEDS_BYTES,
    Steps,
    are_similar,
    are_within,
    count_entries,
    encode_speeds,
    estimate_rates,
    hourly_speeds,
    polling_speeds,
    weight_factors,
)
from service.simulate.numerics import HOUR_S, MINUTE_S, Floats, Ints
from service.simulate.schedulers.polls import PlannedSimulation, PollObservations, PollPlan, WeeklyClocks
from service.simulate.schedulers.publication_trace import PublicationTrace

MAINTENANCE_S = HOUR_S
MIN_CHANGE = 0.02
"""If a channel's number of polls changes by at most this share, its schedule is not revised. Production saves messages
in the same way."""
MIN_SILENCE = 1 / 4
"""Polls without new entries change the estimate of a channel's update interval only if they cover a time of at least
this share of the interval."""
_UNLIMITED = 1e9


def unlimited_policy(goal: Goal, *, weekly_rhythm: bool) -> FleetPolicy:
    """Return a policy with the optimisation goal ``goal``. It does not limit the poll rate of a single channel.

    If ``weekly_rhythm`` is true, the polls of each channel follow the weekly rhythm that has been learnt for it.
    """
    return FleetPolicy(
        poll_interval_s=1800.0,
        max_polls_per_hour=_UNLIMITED,
        maintenance_interval_s=MAINTENANCE_S,
        objective=FleetObjective(goal=goal, longest_wait_s=_UNLIMITED),
        weekly_rhythm=weekly_rhythm,
    )


def with_budget(policy: FleetPolicy, requests_per_s: float) -> FleetPolicy:
    """Return a copy of ``policy`` with a budget of ``requests_per_s`` requests per second for the whole fleet."""
    objective = msgspec.structs.replace(policy.objective, budget_polls_per_minute=requests_per_s * MINUTE_S)
    return msgspec.structs.replace(policy, objective=objective)


class ChannelRhythms:
    """The weekly rhythms of all channels. A rhythm is a channel's publication rate in each hour of the week.

    Rhythms are learnt from the entries that polls return.
    """

    def __init__(self, channels: int) -> None:
        self.rates = np.zeros((channels, FACTORS), dtype=np.int8)
        self.publishing_clocks = WeeklyClocks(channels)
        self._counts = np.zeros((channels, FACTORS))
        self._counted_s = np.zeros(channels)
        """For each channel, the time up to which the decay of its counts has been applied."""
        self._since_s = np.full(channels, np.inf)
        """When the observation of each channel began."""
        self._new: list[tuple[Ints, Floats]] = []
        """Entries that are not yet counted: their channels and publication times."""

    def add(self, channel: Ints, published_s: Floats) -> None:
        """Add entries that polls have returned. The two arrays have one element per entry.

        - ``channel``: index of the entry's channel.
        - ``published_s``: publication time of the entry.
        """
        np.minimum.at(self._since_s, channel, published_s)
        self._new.append((channel, published_s))

    def learn(self, now_s: float) -> None:
        """Update the estimated rhythms of the channels for which entries were added since the last call."""
        if not self._new:
            return
        entry_channel, published_s = (np.concatenate(parts) for parts in zip(*self._new, strict=True))
        self._new = []
        channel, row = np.unique(entry_channel, return_inverse=True)
        self._counts[channel] *= np.exp((self._counted_s[channel] - now_s) / MEMORY_S)[:, None]
        self._counts[channel] += count_entries(row, published_s, now_s, len(channel))
        self._counted_s[channel] = now_s
        self.rates[channel] = estimate_rates(self._counts[channel], self._since_s[channel], now_s)
        self.publishing_clocks.set_speed(channel, hourly_speeds(self.rates[channel]))


class FleetScheduler(PollPlan):
    """Computes when a Corona fleet polls each channel. Call :meth:`plan` regularly to revise the schedules.

    A :class:`PlannedSimulation` simulates the polls. The fleet has ``nodes`` nodes, and makes ``requests_per_s``
    polls per second in total.
    """

    def __init__(self, policy: FleetPolicy, nodes: int, subscribers: Ints, requests_per_s: float) -> None:
        channels = len(subscribers)
        self._policy = affordable_policy(with_budget(policy, requests_per_s), channels)
        self._nodes = nodes
        self._budget = requests_per_s * policy.poll_interval_s
        self._table = factor_table((ChannelFactors(count, 0.0, False) for count in subscribers.tolist()), channels)
        self._rhythms = ChannelRhythms(channels)
        self._polling_clocks = WeeklyClocks(channels)
        gap_s = np.full(channels, channels / requests_per_s)
        super().__init__(gap_s, self._polling_clocks if policy.weekly_rhythm else None)
        self._speeds: Steps = np.zeros((channels, SPEEDS_BYTES), dtype=np.int8)
        """The speeds of the polling clocks."""
        self._estimates = [UpdateEstimate()] * channels
        self._interval_s = np.full(channels, UpdateEstimate().interval_s)
        self._planned_rates = self._rhythms.rates.copy()
        """The rhythms from which the speeds of the polling clocks were computed."""
        self._estimated_until_s = np.full(channels, -np.inf)
        """Time until which each channel's estimate includes the polls; -inf: never polled."""
        self._polled_s = np.full(channels, -np.inf)
        self._new = np.zeros(channels, dtype=np.int64)
        """Number of new entries since ``_estimated_until_s``."""

    def record(self, seen: PollObservations) -> None:
        """Record the results of polls. The next call of :meth:`plan` uses them to update the estimates."""
        channel = seen.channel
        fresh = self._estimated_until_s[channel] == -np.inf
        if fresh.any():
            self._begin(seen, np.flatnonzero(fresh))
        self._new[channel] += np.where(fresh, 0, seen.new)
        self._polled_s[channel] = seen.now_s
        if self._policy.weekly_rhythm:
            rows, entries = seen.new_entries()
            if len(rows):
                self._rhythms.add(channel[rows], seen.published_s[entries])

    def plan(self, now_s: float, due_s: Floats) -> None:
        """Update all estimates and schedules at ``now_s``.

        ``due_s`` contains the time of each channel's next poll according to the previous schedules. It is updated in
        place to the times of the new schedules.
        """
        self._learn(now_s)
        self._table["update_interval_s"] = self._interval_s
        self._table["weight_factor"] = weight_factors(self._rhythms.rates)
        scale = scale_for_budget(allocation_problem(self._policy, self._nodes, self._table), self._budget)
        size = channel_sizes(self._policy, self._nodes, self._table, scale)
        least, most = size_bounds(self._policy, self._nodes, self._table)
        is_moved = np.abs(size * self.gap_s / self._policy.poll_interval_s - 1) > MIN_CHANGE
        speeds = self._speeds
        if self._policy.weekly_rhythm:
            speeds = speeds.copy()
            is_within = are_within(speeds, least / size, most / size)
            is_planned = (self._planned_rates == self._rhythms.rates).all(axis=1)
            rows = np.flatnonzero(is_moved | ~is_within | ~is_planned)
            found = polling_speeds(self._rhythms.rates[rows], (least / size)[rows], (most / size)[rows])
            self._planned_rates[rows] = self._rhythms.rates[rows]
            is_changed = ~(are_similar(found, speeds[rows]) & is_within[rows])
            speeds[rows[is_changed]] = found[is_changed]
            is_moved[rows[is_changed]] = True
        self._revise_schedules(np.flatnonzero(is_moved), size, speeds, now_s, due_s)

    def _begin(self, seen: PollObservations, rows: Ints) -> None:
        """Initialise the estimates for channels that have been polled for the first time.

        The estimates are computed from the dates of the entries in the channels' first documents. ``rows`` contains the
        positions of these channels in the arrays of ``seen``.
        """
        for row in rows:
            channel, listed = seen.channel[row], seen.published_s[seen.first[row] : seen.upto[row]]
            self._estimated_until_s[channel] = seen.now_s[row]
            if len(listed) > 1:
                self._estimates[channel] = estimate_from_dates(listed.tolist(), float(seen.now_s[row]))

    def _learn(self, now_s: float) -> None:
        pending_s = self._polled_s - self._estimated_until_s
        channel = np.flatnonzero((self._new > 0) | (pending_s > MIN_SILENCE * self._interval_s))
        begin_s, end_s = self._estimated_until_s[channel], self._polled_s[channel]
        if self._policy.weekly_rhythm:
            clocks = self._rhythms.publishing_clocks
            begin_s, end_s = clocks.shown_s(channel, begin_s), clocks.shown_s(channel, end_s)
        for which, new, elapsed_s in zip(
            channel.tolist(), self._new[channel].tolist(), (end_s - begin_s).tolist(), strict=True
        ):
            self._estimates[which] = estimate_after_poll(self._estimates[which], new, elapsed_s)
            self._interval_s[which] = self._estimates[which].interval_s
        self._estimated_until_s[channel] = self._polled_s[channel]
        self._new[channel] = 0
        self._rhythms.learn(now_s)

    def _revise_schedules(self, channel: Ints, size: Floats, speeds: Steps, now_s: float, due_s: Floats) -> None:
        before, after = encode_speeds(self._speeds[channel]), encode_speeds(speeds[channel])
        for which, former, new in zip(channel.tolist(), before, after, strict=True):
            schedule = revised_schedule(
                PollingSchedule(float(due_s[which]), float(self.gap_s[which]), 1, 0, former),
                float(size[which]),
                1,
                self._policy.poll_interval_s,
                now_s,
                speeds=new,
            )
            due_s[which], self.gap_s[which] = schedule.first_s, schedule.gap_s
        self._speeds[channel] = speeds[channel]
        self._polling_clocks.set_speed(channel, hourly_speeds(speeds[channel]))


def run_fleet(
    trace: PublicationTrace, fleet: FleetScheduler, first_s: Floats, window_s: tuple[float, float]
) -> PlannedSimulation:
    """Simulate a fleet's polls until all entries published in the measurement window have been found.

    - ``first_s`` contains the time of each channel's first poll.
    - ``window_s`` contains the beginning and the end of the measurement window.
    """
    # The fleet revises its schedules (maintenance) once an hour.
    polling = PlannedSimulation(trace, fleet, first_s, window_s)
    for now_s in np.arange(MAINTENANCE_S, window_s[1] + MAINTENANCE_S, MAINTENANCE_S):
        polling.advance(float(now_s))
        fleet.plan(float(now_s), polling.due_s)
    polling.finish()
    return polling
