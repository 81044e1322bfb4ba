"""Phases: when each node of a polling set polls (Corona §3.1, §3.3).

Times are *fleet time*: seconds of one clock that all nodes read (the store's).

Node of rank r among n polls at t ≡ offset(channel) + r/n·τ (mod τ), so that the set's polls are
exactly τ/n apart. We deviate: the paper waits a random time in (0, τ), which leaves gaps of mean
τ/(n+1) but a mean wait of the same size, twice that of even spacing. The offset differs between
channels, so that one node's polls spread over τ as well.
"""

from math import floor, inf

from service.model import ChannelId
from service.overlay.ids import BITS, from_hex

SECONDS_PER_HOUR = 3600.0


def effective_interval_s(poll_interval_s: float, size: int, max_polls_per_hour: float, *, private: bool) -> float:
    """Return τ, stretched where needed for ``size`` nodes to stay below a public channel's polls per hour."""
    if private:
        return poll_interval_s
    return max(poll_interval_s, size * SECONDS_PER_HOUR / max_polls_per_hour)


def next_poll_s(
    channel: ChannelId, rank: int, size: int, interval_s: float, after_s: float, *, planned_s: float = inf
) -> float:
    """Return the first time after ``after_s`` at which the node of this rank polls.

    ``planned_s`` is the poll that was planned when rank, size or interval changed: it is never
    put off, only brought forward, and from then on the new phase holds. So no change, nor any
    row of changes, skips a poll.
    """
    phase_s = (from_hex(channel) / (1 << BITS) + rank / size) * interval_s
    due_s = phase_s + (floor((after_s - phase_s) / interval_s) + 1) * interval_s
    if due_s <= after_s:  # rounding, when after_s is a poll's own time
        due_s += interval_s
    return min(due_s, planned_s)
