"""Phases: when each node of a polling set polls (Corona §3.1, §3.3).

Times are *fleet time*: seconds of one clock that all nodes read (the store's).

Node of rank r among n polls at t ≡ offset(channel) + r/n·τ (mod τ), so that the set's polls are
exactly τ/n apart. We deviate: the paper waits a random time in (0, τ), which leaves gaps of mean
τ/(n+1) but a mean wait of the same size, twice that of even spacing. The offset differs between
channels, so that one node's polls spread over τ as well.
"""

from math import floor

from service.model import ChannelId
from service.overlay.ids import BITS, from_hex

SECONDS_PER_HOUR = 3600.0


def effective_interval_s(poll_interval_s: float, size: int, max_polls_per_hour: float, *, private: bool) -> float:
    """Return τ, stretched where needed for ``size`` nodes to stay below a public channel's polls per hour."""
    if private:
        return poll_interval_s
    return max(poll_interval_s, size * SECONDS_PER_HOUR / max_polls_per_hour)


def next_poll_s(channel: ChannelId, rank: int, size: int, interval_s: float, after_s: float) -> float:
    """Return the first time after ``after_s`` at which the node of this rank polls."""
    phase_s = (from_hex(channel) / (1 << BITS) + rank / size) * interval_s
    due_s = phase_s + (floor((after_s - phase_s) / interval_s) + 1) * interval_s
    return due_s if due_s > after_s else due_s + interval_s


def replanned_poll_s(
    planned_s: float, channel: ChannelId, rank: int, size: int, interval_s: float, after_s: float
) -> float:
    """Return when to poll next after rank, size or interval changed while a poll was planned.

    The planned poll is never put off, only brought forward; from then on the new phase holds.
    So no change, nor any row of changes, skips a poll.
    """
    return min(planned_s, next_poll_s(channel, rank, size, interval_s, after_s))
