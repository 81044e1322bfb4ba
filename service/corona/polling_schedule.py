"""Phases: when each node of a polling set polls (Corona §3.1, §3.3).

Times are *fleet time*: seconds of one clock that all nodes read (the store's).

The nodes of a polling set poll in turn, τ/n apart, by the channel's :class:`PollingSchedule`. We deviate: the paper
waits a random time in (0, τ), which leaves gaps of mean τ/(n+1) but a mean wait of the same size, twice
that of even spacing. Rotas of different channels begin at different times, so that one node's polls spread
over τ as well.

The number n of polls per τ may be any real number (see ``honeycomb``): the next whole number of
nodes take turns, each polling a little less often than every τ; and below 1 a single node polls every
τ/n. When n or the ring changes, the next rota goes on from the present one.
"""

from math import ceil, floor
from typing import Annotated

import msgspec

from service.model import ChannelId
from service.overlay.id_space import BITS, from_hex

ROUNDING_S = 2e-6
"""Times since 1970 are told apart to a quarter of a microsecond; what is nearer is one and the same poll."""

OWNER_BITS = 24
"""Of a channel's id, those that decide who owns it: an owner's channels have most of them in common."""


def size_for_wait(longest_wait_s: float, poll_interval_s: float) -> float:
    """Return the n whose mean wait D is ``longest_wait_s``: what a bound on waiting asks of every channel."""
    return poll_interval_s / (2 * longest_wait_s)


def polling_set_size(polls_per_interval: float, nodes: int) -> int:
    """Return how many of the ring's nodes (at least one) share n polls per τ: the next whole number."""
    return max(1, nodes if polls_per_interval >= nodes else ceil(polls_per_interval))


class PollingSchedule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A channel's polls from some time on: one every ``gap_s``, by ``size`` nodes in turn.

    Poll number k = 0, 1, … is due at ``first_s + k·gap_s`` and is made by the node of rank
    ``(first_rank + k) mod size``. An owner that changes n, or whose ring changes, makes the next rota from
    the present one; a new owner that does not know it begins anew, at the cost of one odd gap.
    """

    first_s: float
    gap_s: Annotated[float, msgspec.Meta(gt=0)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    first_rank: int = 0

    @property
    def interval_s(self) -> float:
        """How often each node polls, in seconds."""
        return self.size * self.gap_s

    def phase_s(self, rank: int) -> float:
        """Return when the node of this rank polls first."""
        return self.first_s + (rank - self.first_rank) % self.size * self.gap_s

    def next_poll_s(self, rank: int, after_s: float) -> float:
        """Return when the node of this rank polls first after ``after_s``."""
        first_s = self.phase_s(rank)
        return max(first_s, _next_multiple_s(first_s, self.interval_s, after_s))

    def next_s(self, after_s: float) -> float:
        """Return when the channel is polled first after ``after_s``, by whichever node."""
        return max(self.first_s, _next_multiple_s(self.first_s, self.gap_s, after_s))

    def rank_at(self, poll_s: float) -> int:
        """Return the rank of the node that makes the poll due at this time."""
        return (self.first_rank + round((poll_s - self.first_s) / self.gap_s)) % self.size


def new_schedule(
    channel: ChannelId, polls_per_interval: float, nodes: int, poll_interval_s: float, now_s: float
) -> PollingSchedule:
    """Return the rota of a channel that nobody is known to poll: within one gap from now, by the channel's offset.

    Args:
        channel: Its id decides the offset, so that channels that begin together are polled one after another.
        polls_per_interval: n, positive.
        nodes: How many there are on the ring.
        poll_interval_s: τ.
        now_s: Fleet time.
    """
    gap_s = poll_interval_s / polls_per_interval
    offset = from_hex(channel) % (1 << BITS - OWNER_BITS) / (1 << BITS - OWNER_BITS)
    return PollingSchedule(
        _next_multiple_s(offset * gap_s, gap_s, now_s), gap_s, polling_set_size(polls_per_interval, nodes)
    )


def revised_schedule(
    rota: PollingSchedule, polls_per_interval: float, nodes: int, poll_interval_s: float, now_s: float
) -> PollingSchedule:
    """Return the rota with another n, or for another ring, from the channel's next poll on.

    That poll stays where it is, and with the node it is due at if that one stays, or is brought forward to
    between one and two new gaps from now. So whatever row of changes comes, none puts off the channel's next poll, and
    two polls are never nearer than the shorter of the gaps that hold before and after.

    Where in between is told by how much of the present gap is left, which differs from channel to channel. Exactly one
    gap from now would have all channels that an owner speeds up at once polled in step from then on.
    """
    gap_s = poll_interval_s / polls_per_interval
    size = polling_set_size(polls_per_interval, nodes)
    kept_s = rota.next_s(now_s)
    left = min(1.0, (kept_s - now_s) / rota.gap_s)
    return PollingSchedule(min(kept_s, now_s + (1 + left) * gap_s), gap_s, size, rota.rank_at(kept_s) % size)


def _next_multiple_s(phase_s: float, gap_s: float, after_s: float) -> float:
    """Return the first time ≡ phase (mod gap) after ``after_s``; what is nearer than rounding is ``after_s`` itself."""
    return phase_s + (floor((after_s + ROUNDING_S - phase_s) / gap_s) + 1) * gap_s
