"""Corona's own scheduler on a trace: production rooms, one fleet, a fixed number of requests.

Once an hour, as owners do in maintenance, the fleet tells its estimates what the polls have shown (``estimates``),
weighs the channels by its goal (``goals``), solves for the one scale that spends the budget (``honeycomb``) and hands
each channel's rota over to its new size (``schedule``). It knows what every peer knows: subscribers, and what polls
have shown, dates included.

With a ``rhythm`` (an addition that only this experiment has so far) rotas and estimates go by its clocks.

*Rhythm*: each channel has two clocks, both a week long each week. The *publishing* clock runs with λ(t), how much a
channel publishes at this time of the week. On it a publisher has no habits any more, so that a silent night is no
silence: update estimates read it. The *polling* clock runs with √λ(t). Polls that are evenly spaced on it are dense in
busy hours and rare at night, and for their number they make the mean delay of a notification least (Cauchy and Schwarz:
the same square root as between channels). λ is learnt as hour of the day times day of the week, from entries' dates,
each with some entries more to begin with, so that the clocks of whoever publishes rarely are even.
"""

import numpy as np

from service.corona.honeycomb import AllocationProblem, scale_for_budget, sizes
from service.corona.objectives import Goal, weights
from service.corona.polling_schedule import PollingSchedule, revised_schedule
from service.corona.update_rates import UpdateEstimate, estimate_after_poll, estimate_from_dates
from service.simulate.schedulers.polls import Polling, Seen
from service.simulate.schedulers.publication_trace import DAY_S, HOUR_S, WEEK_S, Floats, Ints, Trace

HOURS, DAYS = 24, 7
PRIOR_PER_HOUR = 2.0
"""Entries that every hour of the day is taken to have had; every day of the week as many as its hours."""


class Clocks:
    """One clock for each channel; all begin even."""

    def __init__(self, channels: int) -> None:
        self._apart_s = 2 * WEEK_S * np.arange(channels)
        self._show(np.tile(np.arange(HOURS * DAYS + 1) * HOUR_S, (channels, 1)))

    def set_speed(self, speed: Floats) -> None:
        """Let each clock run with these speeds in the hours of the week, relative to one another."""
        shown = np.cumsum(speed, axis=1)
        self._show(np.pad(shown / shown[:, -1:] * WEEK_S, ((0, 0), (1, 0))))

    def shown_s(self, channel: Ints, at_s: Floats) -> Floats:
        """Return what the clocks of these channels show at these times."""
        week_s = np.floor(at_s / WEEK_S) * WEEK_S
        hour = np.minimum(((at_s - week_s) / HOUR_S).astype(np.int64), HOURS * DAYS - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + begin_s + ((at_s - week_s) / HOUR_S - hour) * (end_s - begin_s))

    def time_s(self, channel: Ints, shown_s: Floats) -> Floats:
        """Return when the clocks of these channels show this; the inverse of :meth:`shown_s`."""
        week_s = np.floor(shown_s / WEEK_S) * WEEK_S
        inside_s = shown_s - week_s
        place = np.searchsorted(self._all_shown_s, inside_s + self._apart_s[channel], side="right") - 1
        hour = np.minimum(place - channel * (HOURS * DAYS + 1), HOURS * DAYS - 1)
        begin_s, end_s = self._shown_s[channel, hour], self._shown_s[channel, hour + 1]
        return np.asarray(week_s + (hour + (inside_s - begin_s) / (end_s - begin_s)) * HOUR_S)

    def _show(self, shown_s: Floats) -> None:
        self._shown_s = shown_s
        """What each clock shows at every full hour of the week."""
        self._all_shown_s = (shown_s + self._apart_s[:, None]).ravel()
        """The same in one ascending row, for all channels to be searched at once."""


class Rhythm:
    """When each channel tends to publish, and its two clocks."""

    def __init__(self, channels: int) -> None:
        self.publishing = Clocks(channels)
        self.polling = Clocks(channels)
        self._by_hour = np.full((channels, HOURS), PRIOR_PER_HOUR)
        self._by_day = np.full((channels, DAYS), PRIOR_PER_HOUR * HOURS)

    def count(self, channel: Ints, published_s: Floats) -> None:
        """Take note of entries' dates, one channel each."""
        np.add.at(self._by_hour, (channel, (published_s // HOUR_S).astype(np.int64) % HOURS), 1.0)
        np.add.at(self._by_day, (channel, (published_s // DAY_S).astype(np.int64) % DAYS), 1.0)

    def learn(self) -> None:
        """Set all clocks by what was counted. Only at the end of a week do they show the same before and after."""
        busy = (self._by_day[:, :, None] * self._by_hour[:, None, :]).reshape(len(self._by_day), -1)
        self.publishing.set_speed(busy)
        self.polling.set_speed(np.sqrt(busy))


NODES = 60
POLL_INTERVAL_S = 1800.0
"""τ of Corona §5. With sizes that may be any number it is a unit, no bound."""
MAINTENANCE_S = HOUR_S
MOVED = 0.02
"""A size that moved by less is left alone: it is not worth telling a polling set."""
WORTH_TELLING = 1 / 4
"""Of its interval, the silence that an estimate is told of; what polls find in vain may be summed up."""


class Fleet:
    """All nodes of one fleet, as the scheduler of a :class:`Polling`."""

    def __init__(
        self,
        subscribers: Ints,
        goal: Goal,
        requests_per_s: float,
        *,
        most_per_hour: float = np.inf,
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
        self._told_s = np.full(channels, -np.inf)
        """Up to when each channel's estimate knows what polls have shown; -inf: never polled."""
        self._polled_s = np.full(channels, -np.inf)
        self._new = np.zeros(channels, dtype=np.int64)
        """Entries that its estimate has not been told."""

    def wait_s(self, seen: Seen) -> Floats:
        """Take note of what was found; return how long until each channel's rota says to poll it again."""
        channel = seen.channel
        fresh = self._told_s[channel] == -np.inf
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
        """Learn, decide all sizes anew, and return when each channel is polled next."""
        self._learn(now_s)
        weight = weights(self._goal, self._subscribers, self._interval_s, POLL_INTERVAL_S)
        problem = AllocationProblem.of(weight, most=self._most)
        size = sizes(problem, scale_for_budget(problem, self._budget))
        moved = np.flatnonzero(np.abs(size * self._gap_s / POLL_INTERVAL_S - 1) > MOVED)
        now, due = np.full(len(moved), now_s), due_s[moved]
        if self._rhythm is not None:
            now, due = self._rhythm.polling.shown_s(moved, now), self._rhythm.polling.shown_s(moved, due)
        due = self._hand_over(moved, size[moved], now, due)
        due_s[moved] = due if self._rhythm is None else self._rhythm.polling.time_s(moved, due)
        return due_s

    def _begin(self, seen: Seen, rows: Ints) -> None:
        """Read the dates in the first document of each of these channels as the first observation."""
        for row in rows:
            channel, listed = seen.channel[row], seen.published_s[seen.first[row] : seen.upto[row]]
            self._told_s[channel] = seen.now_s[row]
            if len(listed) > 1:
                self._estimates[channel] = estimate_from_dates(listed.tolist(), float(seen.now_s[row]))

    def _learn(self, now_s: float) -> None:
        untold_s = self._polled_s - self._told_s
        channel = np.flatnonzero((self._new > 0) | (untold_s > WORTH_TELLING * self._interval_s))
        begin_s, end_s = self._told_s[channel], self._polled_s[channel]
        if self._rhythm is not None:
            begin_s, end_s = (self._rhythm.publishing.shown_s(channel, at_s) for at_s in (begin_s, end_s))
        for which, new, elapsed_s in zip(
            channel.tolist(), self._new[channel].tolist(), (end_s - begin_s).tolist(), strict=True
        ):
            self._estimates[which] = estimate_after_poll(self._estimates[which], new, elapsed_s)
            self._interval_s[which] = self._estimates[which].interval_s
        self._told_s[channel] = self._polled_s[channel]
        self._new[channel] = 0
        if self._rhythm is not None and now_s % WEEK_S == 0:
            self._rhythm.learn()

    def _hand_over(self, channel: Ints, size: Floats, now_s: Floats, due_s: Floats) -> Floats:
        next_s = np.empty(len(channel))
        for row, (gap_s, polls, now, due) in enumerate(
            zip(self._gap_s[channel].tolist(), size.tolist(), now_s.tolist(), due_s.tolist(), strict=True)
        ):
            rota = revised_schedule(PollingSchedule(due, gap_s, 1), polls, NODES, POLL_INTERVAL_S, now)
            next_s[row] = rota.first_s
            self._gap_s[channel[row]] = rota.gap_s
        return next_s


def run_fleet(trace: Trace, fleet: Fleet, first_s: Floats, window_s: tuple[float, float]) -> Polling:
    """Poll with maintenance every hour, until all that was published within the window is found."""
    polling = Polling(trace, fleet, first_s, window_s)
    for now_s in np.arange(MAINTENANCE_S, window_s[1] + MAINTENANCE_S, MAINTENANCE_S):
        polling.advance(float(now_s))
        polling.due_s = fleet.plan(float(now_s), polling.due_s)
    polling.advance(np.inf)
    return polling
