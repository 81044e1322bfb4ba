"""Corona's scheduler on a publication trace: the production code for a fleet with a fixed number of requests.

Once an hour, like the maintenance of owners, the fleet updates its estimates from the polls (``update_rates``), weights
the channels by its goal (``objectives``), computes the scale that spends the budget (``honeycomb``), and revises each
channel's schedule (``polling_schedule``). It knows what every other scheduler knows: subscribers, and the entries that
polls returned, with their dates.

With a ``rhythm``, an extension that only this experiment has, schedules and estimates use weekly clocks.

*Rhythm*: each channel has two clocks, which run faster and slower in the course of a week but neither gain nor lose
over the whole week. The *publishing* clock runs at the rate λ(t) at which the channel publishes at this time of the
week. By this clock a publisher has no daily or weekly pattern, so that update estimates are not misled by silent
nights. The *polling* clock runs at √λ(t). Polls that are evenly spaced by this clock are dense in busy hours and rare
at night. This minimises the mean delay of notifications for a given number of polls (by the Cauchy-Schwarz inequality,
which also gives the square root between channels). λ is the product of a rate per hour of the day and one per day of
the week, learnt from the dates of entries. Prior counts keep the clocks of rarely updated channels even.
"""

import numpy as np

from service.corona.honeycomb import AllocationProblem, scale_for_budget, sizes
from service.corona.objectives import Goal, weights
from service.corona.polling_schedule import PollingSchedule, polling_set_size, revised_schedule
from service.corona.update_rates import UpdateEstimate, estimate_after_poll, estimate_from_dates
from service.simulate.schedulers.polls import PollObservations, PollSimulation
from service.simulate.schedulers.publication_trace import DAY_S, HOUR_S, WEEK_S, Floats, Ints, PublicationTrace

HOURS, DAYS = 24, 7
PRIOR_PER_HOUR = 2.0
"""Prior number of entries per hour of the day; days of the week have that of their hours."""


class WeeklyClocks:
    """A clock for each channel that runs at different speeds in the hours of a week.

    Over a whole week, a clock neither gains nor loses time. At first all clocks run evenly.
    """

    def __init__(self, channels: int) -> None:
        self._apart_s = 2 * WEEK_S * np.arange(channels)
        self._show(np.tile(np.arange(HOURS * DAYS + 1) * HOUR_S, (channels, 1)))

    def set_speed(self, speed: Floats) -> None:
        """Set the relative speed of each clock in each hour of the week; ``speed`` has one row per channel."""
        shown = np.cumsum(speed, axis=1)
        self._show(np.pad(shown / shown[:, -1:] * WEEK_S, ((0, 0), (1, 0))))

    def shown_s(self, channel: Ints, at_s: Floats) -> Floats:
        """Return the time that the clock of each ``channel`` shows at the real time ``at_s``."""
        week_s = np.floor(at_s / WEEK_S) * WEEK_S
        hour = np.minimum(((at_s - week_s) / HOUR_S).astype(np.int64), HOURS * DAYS - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + begin_s + ((at_s - week_s) / HOUR_S - hour) * (end_s - begin_s))

    def time_s(self, channel: Ints, shown_s: Floats) -> Floats:
        """Return the real time at which the clock of each ``channel`` shows ``shown_s``.

        This is the inverse of :meth:`shown_s`.
        """
        week_s = np.floor(shown_s / WEEK_S) * WEEK_S
        inside_s = shown_s - week_s
        place = np.searchsorted(self._all_shown_s, inside_s + self._apart_s[channel], side="right") - 1
        hour = np.minimum(place - channel * (HOURS * DAYS + 1), HOURS * DAYS - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + (hour + (inside_s - begin_s) / (end_s - begin_s)) * HOUR_S)

    def _show(self, shown_s: Floats) -> None:
        self._shown_s = shown_s
        """The time of each clock at every full hour of the week."""
        self._all_shown_s = (shown_s + self._apart_s[:, None]).ravel()
        """The same in one ascending array, to search for all channels at once."""


class Rhythm:
    """The weekly publication pattern of each channel, and the clocks derived from it."""

    def __init__(self, channels: int) -> None:
        self.publishing = WeeklyClocks(channels)
        self.polling = WeeklyClocks(channels)
        self._by_hour = np.full((channels, HOURS), PRIOR_PER_HOUR)
        self._by_day = np.full((channels, DAYS), PRIOR_PER_HOUR * HOURS)

    def count(self, channel: Ints, published_s: Floats) -> None:
        """Count the entries published at the times ``published_s``; ``channel`` has the channel of each entry."""
        np.add.at(self._by_hour, (channel, (published_s // HOUR_S).astype(np.int64) % HOURS), 1.0)
        np.add.at(self._by_day, (channel, (published_s // DAY_S).astype(np.int64) % DAYS), 1.0)

    def learn(self) -> None:
        """Set the speeds of all clocks from the counted entries.

        This must be called at the end of a week, when all clocks show the real time.
        """
        busy = (self._by_day[:, :, None] * self._by_hour[:, None, :]).reshape(len(self._by_day), -1)
        self.publishing.set_speed(busy)
        self.polling.set_speed(np.sqrt(busy))


NODES = 60
POLL_INTERVAL_S = 1800.0
"""τ of Corona §5. As sizes can be any number here, it is only a unit."""
MAINTENANCE_S = HOUR_S
MIN_CHANGE = 0.02
"""Relative change of a size below which the schedule is not revised, to save messages."""
MIN_SILENCE = 1 / 4
"""Fraction of a channel's interval after which unsuccessful polls update its estimate; shorter silences accumulate."""


class FleetScheduler:
    """The decisions of a Corona fleet about its polls, in the form of a scheduler for :class:`PollSimulation`."""

    def __init__(
        self,
        subscribers: Ints,
        goal: Goal,
        requests_per_s: float,
        *,
        most_per_hour: float | Floats = np.inf,
        rhythm: Rhythm | None = None,
    ) -> None:
        channels = len(subscribers)
        self._subscribers = subscribers
        self._goal = goal
        self._budget = requests_per_s * POLL_INTERVAL_S
        self._most = most_per_hour * POLL_INTERVAL_S / HOUR_S
        self._rhythm = rhythm
        self._estimates = [UpdateEstimate()] * channels
        self._interval_s = np.full(channels, UpdateEstimate().interval_s)
        self._gap_s = np.full(channels, channels / requests_per_s)
        self._estimated_until_s = np.full(channels, -np.inf)
        """Time until which each channel's estimate includes the polls; -inf: never polled."""
        self._polled_s = np.full(channels, -np.inf)
        self._new = np.zeros(channels, dtype=np.int64)
        """New entries since then."""

    def wait_s(self, seen: PollObservations) -> Floats:
        """Record the results of polls, and return the time in seconds until the next poll of each polled channel."""
        channel = seen.channel
        fresh = self._estimated_until_s[channel] == -np.inf
        if fresh.any():
            self._begin(seen, np.flatnonzero(fresh))
        self._new[channel] += np.where(fresh, 0, seen.new)
        self._polled_s[channel] = seen.now_s
        if self._rhythm is None:
            return self._gap_s[channel]
        rows, entries = seen.new_entries()
        self._rhythm.count(channel[rows], seen.published_s[entries])
        clock_s = self._rhythm.polling.shown_s(channel, seen.now_s)
        return self._rhythm.polling.time_s(channel, clock_s + self._gap_s[channel]) - seen.now_s

    def plan(self, now_s: float, due_s: Floats) -> Floats:
        """Update all estimates and schedules at ``now_s``, and return the time of each channel's next poll.

        ``due_s`` has the times of the next polls by the previous schedules, and is changed.
        """
        self._learn(now_s)
        weight = weights(self._goal, self._subscribers, self._interval_s, POLL_INTERVAL_S)
        problem = AllocationProblem.of(weight, most=self._most)
        size = sizes(problem, scale_for_budget(problem, self._budget))
        moved = np.flatnonzero(np.abs(size * self._gap_s / POLL_INTERVAL_S - 1) > MIN_CHANGE)
        now, due = np.full(len(moved), now_s), due_s[moved]
        if self._rhythm is not None:
            now, due = self._rhythm.polling.shown_s(moved, now), self._rhythm.polling.shown_s(moved, due)
        due = self._revise_schedules(moved, size[moved], now, due)
        due_s[moved] = due if self._rhythm is None else self._rhythm.polling.time_s(moved, due)
        return due_s

    def _begin(self, seen: PollObservations, rows: Ints) -> None:
        """Initialise the estimates of newly polled channels from the dates in their first document.

        ``rows`` are the rows of ``seen`` with these channels.
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
        if self._rhythm is not None:
            begin_s, end_s = (self._rhythm.publishing.shown_s(channel, at_s) for at_s in (begin_s, end_s))
        for which, new, elapsed_s in zip(
            channel.tolist(), self._new[channel].tolist(), (end_s - begin_s).tolist(), strict=True
        ):
            self._estimates[which] = estimate_after_poll(self._estimates[which], new, elapsed_s)
            self._interval_s[which] = self._estimates[which].interval_s
        self._estimated_until_s[channel] = self._polled_s[channel]
        self._new[channel] = 0
        if self._rhythm is not None and now_s % WEEK_S == 0:
            self._rhythm.learn()

    def _revise_schedules(self, channel: Ints, size: Floats, now_s: Floats, due_s: Floats) -> Floats:
        next_s = np.empty(len(channel))
        for row, (gap_s, polls, now, due) in enumerate(
            zip(self._gap_s[channel].tolist(), size.tolist(), now_s.tolist(), due_s.tolist(), strict=True)
        ):
            schedule = revised_schedule(
                PollingSchedule(due, gap_s, 1), polls, polling_set_size(polls, NODES), POLL_INTERVAL_S, now
            )
            next_s[row] = schedule.first_s
            self._gap_s[channel[row]] = schedule.gap_s
        return next_s


def run_fleet(
    trace: PublicationTrace, fleet: FleetScheduler, first_s: Floats, window_s: tuple[float, float]
) -> PollSimulation:
    """Simulate a fleet's polls, with maintenance once an hour, until all entries published in the window are detected.

    ``first_s`` has the time of each channel's first poll; ``window_s`` is the begin and the end of the measurement.
    """
    polling = PollSimulation(trace, fleet, first_s, window_s)
    for now_s in np.arange(MAINTENANCE_S, window_s[1] + MAINTENANCE_S, MAINTENANCE_S):
        polling.advance(float(now_s))
        polling.due_s = fleet.plan(float(now_s), polling.due_s)
    polling.advance(np.inf)
    return polling
