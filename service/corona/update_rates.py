"""Estimates of the time between a channel's updates, based on its polls and on how many new entries each poll found.

A poll without new entries shows that there was no update since the previous poll. A poll with five new entries shows
that there were five updates in that time. The estimated rate is the number of updates divided by the time observed, so
both kinds of polls contribute to it. The estimate is correct whether a channel is polled more often or less often than
it publishes.

- In statistical terms, the estimate is the rate of a Poisson process with a gamma prior and exponential forgetting.
- The time observed is measured by a clock that follows the hours at which the channel usually publishes
  (:mod:`service.corona.weekly_rhythm`). A night without updates therefore does not make the channel look less active.

Deviation from the paper: Corona §3.3 uses the time between detected updates, which is known only within bounds.
"""

from collections.abc import Sequence
from math import exp

import msgspec

from service.corona.weekly_rhythm import DAY_S, HOUR_S, learn_rhythm, publishing_clock
from service.model import Delta

SHORTEST_UPDATE_INTERVAL_S = 10.0
"""Lower bound of estimates u of update intervals, in seconds; the formula of Fair-Log needs a positive log u."""

LONGEST_UPDATE_INTERVAL_S = 90 * 86_400.0
"""Upper bound of estimates, in seconds; a channel that has been silent for longer may still resume."""

DEFAULT_UPDATE_INTERVAL_S = 86_400.0
"""Prior estimate for a channel without history, with the weight of one update."""

MEMORY_UPDATES = 64.0
"""The number of updates, observed or expected, after which the weight of an observation has decayed to 1/e."""

RECENT_UPDATES = 16.0
"""Like ``MEMORY_UPDATES``, but for the estimate of the recent update rate.

The recent rate shows whether the publisher has changed its rate.
"""

CHANGE_FACTOR = 4.0
"""If the recent update rate differs from the long-term rate by more than this factor, older observations are dropped.
"""

SILENCE_FACTOR = 6.0
"""A silence of this many update intervals lengthens the estimate at once.

By chance, 1 in 400 silences is this long if updates are a Poisson process, and 1 in 7 if a publisher releases three
entries at a time.
"""


class UpdateEstimate(msgspec.Struct, frozen=True, array_like=True):
    """An estimate of the time between a channel's updates.

    - ``updates``: how many updates were observed. The count decays exponentially, so that recent polls count most.
    - ``watched_s``: for how many seconds the channel was observed. This time decays exponentially too.
    - ``silence_s``: the time observed since the last update, in seconds.
    - ``recent_updates``, ``recent_watched_s``: like ``updates`` and ``watched_s``, but decaying faster.
    """

    updates: float = 1.0
    watched_s: float = DEFAULT_UPDATE_INTERVAL_S
    silence_s: float = 0.0
    recent_updates: float = 1.0
    recent_watched_s: float = DEFAULT_UPDATE_INTERVAL_S

    @property
    def interval_s(self) -> float:
        """The estimated mean time between updates in seconds, between 10 s and 90 days."""
        usual_s = self.watched_s / max(self.updates, self.watched_s / LONGEST_UPDATE_INTERVAL_S, 1e-300)
        return _bounded_s(max(usual_s, self.silence_s / SILENCE_FACTOR))


def initial_estimate(interval_s: float) -> UpdateEstimate:
    """Return the initial estimate for a channel that is expected to publish every ``interval_s`` seconds."""
    watched_s = _bounded_s(interval_s)
    return UpdateEstimate(watched_s=watched_s, recent_watched_s=watched_s)


def estimate_from_dates(published_s: Sequence[float], now_s: float) -> UpdateEstimate:
    """Return the initial estimate of the time between a channel's updates, from the dates of its current entries.

    - ``published_s``: the entries' publication dates, as Unix times. Dates after ``now_s`` are ignored.
    - ``now_s``: the present Unix time.

    If fewer than two different dates remain, the result is the default estimate.
    """
    past_s = [at_s for at_s in published_s if at_s <= now_s]
    gaps = len(past_s) - 1
    if gaps < 1 or max(past_s) == min(past_s):
        return UpdateEstimate()
    oldest_s = min(past_s)
    return estimate_after_poll(initial_estimate((max(past_s) - oldest_s) / gaps), gaps, now_s - oldest_s)


def estimate_after_poll(estimate: UpdateEstimate, new_entries: int, elapsed_s: float) -> UpdateEstimate:
    """Return the estimate of the time between a channel's updates, brought up to date after a poll.

    Args:
        estimate: The previous estimate.
        new_entries: Number of updates since the channel was last polled by any node; entries that were published
            together may count as one.
        elapsed_s: The time since that poll in seconds. A negative time, caused by a clock that was set back, counts
            as zero.
    """
    elapsed_s = max(0.0, elapsed_s)
    expected = max(new_entries, elapsed_s / estimate.interval_s)
    decay, recent_decay = exp(-expected / MEMORY_UPDATES), exp(-expected / RECENT_UPDATES)
    updates, watched_s = decay * estimate.updates + new_entries, decay * estimate.watched_s + elapsed_s
    recent_updates = recent_decay * estimate.recent_updates + new_entries
    recent_watched_s = recent_decay * estimate.recent_watched_s + elapsed_s
    ratio = recent_updates * watched_s / max(updates * recent_watched_s, 1e-300)
    if not 1 / CHANGE_FACTOR <= ratio <= CHANGE_FACTOR:
        updates, watched_s = recent_updates, recent_watched_s
    silence_s = 0.0 if new_entries else estimate.silence_s + elapsed_s
    return UpdateEstimate(updates, watched_s, silence_s, recent_updates, recent_watched_s)


class UpdateHistory(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is known about when a channel is updated.

    - ``estimate``: the estimated time between updates, as of ``since_s``.
    - ``since_s``: the time of the last detected update (Unix time by the store's clock). Before the first update, it is
      the time at which the channel was first observed, or 0 if it has not been observed yet.
    - ``rhythm``: the hours of the week at which the channel usually publishes (:mod:`service.corona.weekly_rhythm`);
      empty if they are unknown.
    """

    estimate: UpdateEstimate = UpdateEstimate()
    since_s: float = 0.0
    rhythm: bytes = b""

    def interval_s(self, fleet_s: float) -> float:
        """Return the estimated mean time between the channel's updates at the time ``fleet_s``, in seconds.

        ``fleet_s`` is Unix time by the store's clock. The estimate grows with the time that has passed since the last
        update.
        """
        return (
            estimate_after_poll(self.estimate, 0, self.observed_s(fleet_s)).interval_s
            if self.since_s
            else self.estimate.interval_s
        )

    def observed_s(self, fleet_s: float) -> float:
        """Return the time since the last update in seconds, as measured by the channel's publishing clock.

        This clock runs faster in the hours of the week in which the channel usually publishes more. ``fleet_s`` is the
        present Unix time by the store's clock.
        """
        clock = publishing_clock(self.rhythm)
        return fleet_s - self.since_s if clock is None else clock.shown_s(fleet_s) - clock.shown_s(self.since_s)


def history_from_dates(published_s: Sequence[float], now_s: float) -> UpdateHistory:
    """Return a channel's initial update history, from the publication dates of its current entries.

    - ``published_s``: the publication dates, as Unix times. Dates after ``now_s`` are ignored.
    - ``now_s``: the present Unix time.
    """
    past_s = [at_s for at_s in published_s if at_s <= now_s]
    exact_s = [at_s for at_s in past_s if _is_exact(at_s)]
    # The observation begins with the oldest entry, which would be a biased sample.
    rhythm = learn_rhythm(b"", sorted(exact_s)[1:], min(exact_s), now_s) if len(exact_s) > 1 else b""
    return UpdateHistory(estimate_from_dates(past_s, now_s), now_s, rhythm)


def history_after_delta(updates: UpdateHistory, delta: Delta, fleet_s: float) -> UpdateHistory:
    """Return a channel's update history after the changes in ``delta`` have been stored.

    Args:
        updates: The previous history.
        delta: The changes. Each added entry counts as one update. A changed page counts as one update, however many of
            its lines have changed. A notice (a message about the channel itself) does not count, nor does a channel's
            first content, which only begins the observation.
        fleet_s: When the changes were stored (Unix time by the store's clock).
    """
    if delta.initial or not updates.since_s:
        return UpdateHistory(updates.estimate, fleet_s, updates.rhythm)
    if delta.notice is not None:
        return updates
    times_s = _update_times_s(delta, updates.since_s, fleet_s)
    return UpdateHistory(
        estimate_after_poll(updates.estimate, len(times_s), updates.observed_s(fleet_s)),
        fleet_s,
        learn_rhythm(updates.rhythm, times_s, updates.since_s, fleet_s) if times_s else updates.rhythm,
    )


def _update_times_s(delta: Delta, since_s: float, fleet_s: float) -> list[float]:
    """Return the Unix time of each update in ``delta``.

    - ``since_s``: the time at which the channel's previous changes were stored.
    - ``fleet_s``: the time at which the changes in ``delta`` were stored.

    The time of an entry is its publication date if this is plausible: it includes a time of day, is at most an hour
    before ``since_s``, and is not later than the detection. Other entries, and a changed page, get the time of the
    detection, limited to the range from ``since_s`` to ``fleet_s``.
    """
    earliest_s, detected_s = since_s - HOUR_S, min(max(delta.detected_s, since_s), fleet_s)
    times_s = []
    for change in delta.changes:
        if change.kind == "addition" and not change.line:
            at_s = change.entry.published
            is_known = at_s is not None and earliest_s <= at_s <= detected_s and _is_exact(at_s)
            times_s.append(at_s if at_s is not None and is_known else detected_s)
    return times_s + [detected_s] * any(change.line for change in delta.changes)


def _is_exact(published_s: float) -> bool:
    """Return whether a publication date includes a time of day; a date at exactly midnight counts as one without."""
    return published_s % DAY_S != 0


def _bounded_s(interval_s: float) -> float:
    return min(max(interval_s, SHORTEST_UPDATE_INTERVAL_S), LONGEST_UPDATE_INTERVAL_S)
