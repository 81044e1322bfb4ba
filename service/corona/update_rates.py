"""How often a channel is updated, learnt from polls that saw so many new entries since the last one.

Corona §3.3 takes the time between detected updates. We deviate, because that time is censored: a poll
that finds nothing says "not for so long", and one that finds five says "five in this time". Counting
updates over the time watched uses both, and is right for channels that are polled slower or faster
than they publish: the rate of a Poisson process with a gamma prior, forgetting exponentially.
"""

from collections.abc import Sequence
from math import exp

import msgspec

from service.model import Delta

SHORTEST_UPDATE_INTERVAL_S = 10.0
"""Nobody publishes faster, as far as weights go; it keeps log u away from zero."""

LONGEST_UPDATE_INTERVAL_S = 90 * 86_400.0
"""A channel that says nothing for longer is taken to speak this often: it may still come back."""

DEFAULT_UPDATE_INTERVAL_S = 86_400.0
"""What is assumed of a channel of which nothing is known, with the weight of one update."""

MEMORY_UPDATES = 16.0
"""After so many updates, or the time they usually take, evidence weighs 1/e of what it did."""

SILENCE_FACTOR = 3.0
"""A silence of so many intervals raises the estimate at once: a Poisson process is silent so long once in 20 times."""


class UpdateEstimate(msgspec.Struct, frozen=True):
    """What is known of a channel's updates: ``updates`` were seen in ``watched_s`` seconds, both fading.

    ``silence_s`` is how long the last update has been ago, as far as polls tell.
    """

    updates: float = 1.0
    watched_s: float = DEFAULT_UPDATE_INTERVAL_S
    silence_s: float = 0.0

    @property
    def interval_s(self) -> float:
        """The mean time between updates in seconds, between 10 s and 90 days."""
        usual_s = self.watched_s / max(self.updates, self.watched_s / LONGEST_UPDATE_INTERVAL_S, 1e-300)
        return _bounded_s(max(usual_s, self.silence_s / SILENCE_FACTOR))


def initial_estimate(interval_s: float) -> UpdateEstimate:
    """Return the estimate to begin with, where something suggests this interval."""
    return UpdateEstimate(watched_s=_bounded_s(interval_s))


def estimate_from_dates(published_s: Sequence[float], now_s: float) -> UpdateEstimate:
    """Return the estimate to begin with, by the dates of what a channel lists when it is first seen.

    Dates to come tell nothing, and one alone, or all at once, no interval.
    """
    past_s = [at_s for at_s in published_s if at_s <= now_s]
    gaps = len(past_s) - 1
    if gaps < 1 or max(past_s) == min(past_s):
        return UpdateEstimate()
    oldest_s = min(past_s)
    return estimate_after_poll(initial_estimate((max(past_s) - oldest_s) / gaps), gaps, now_s - oldest_s)


def estimate_after_poll(estimate: UpdateEstimate, new_entries: int, elapsed_s: float) -> UpdateEstimate:
    """Return the estimate after a poll.

    Args:
        estimate: What was known before.
        new_entries: How many updates came since the last poll of the channel, by whichever node; entries that
            came together may be counted as one.
        elapsed_s: The time since that poll; what is negative (a clock was set) counts as none.
    """
    elapsed_s = max(0.0, elapsed_s)
    kept = exp(-max(new_entries, elapsed_s / estimate.interval_s) / MEMORY_UPDATES)
    return UpdateEstimate(
        updates=kept * estimate.updates + new_entries,
        watched_s=kept * estimate.watched_s + elapsed_s,
        silence_s=0.0 if new_entries else estimate.silence_s + elapsed_s,
    )


class UpdateHistory(msgspec.Struct, frozen=True, gc=False):
    """What an owner remembers with a channel: the estimate as of ``since_s``; no update has been seen since.

    ``since_s`` is fleet time, 0 if nobody has watched the channel yet.
    """

    estimate: UpdateEstimate = UpdateEstimate()
    since_s: float = 0.0

    def interval_s(self, fleet_s: float) -> float:
        """Return the mean time between updates in seconds, the silence since then included."""
        return (
            estimate_after_poll(self.estimate, 0, fleet_s - self.since_s).interval_s
            if self.since_s
            else self.estimate.interval_s
        )


def history_after_delta(updates: UpdateHistory, delta: Delta, fleet_s: float) -> UpdateHistory:
    """Return what is known once a delta is versioned.

    A channel's first content tells nothing, and neither does the time before it: nobody had been watching.
    A page that changes has one update, however many lines it touches.
    """
    if delta.initial or not updates.since_s:
        return UpdateHistory(updates.estimate, fleet_s)
    if delta.notice is not None:
        return updates
    additions = sum(change.kind == "addition" and not change.line for change in delta.changes)
    on_a_page = any(change.line for change in delta.changes)
    return UpdateHistory(
        estimate_after_poll(updates.estimate, additions + on_a_page, fleet_s - updates.since_s), fleet_s
    )


def _bounded_s(interval_s: float) -> float:
    return min(max(interval_s, SHORTEST_UPDATE_INTERVAL_S), LONGEST_UPDATE_INTERVAL_S)
