"""Polling schedules: when each of the nodes that share a channel polls it (Corona §3.1, §3.3).

All times are *fleet time*: seconds of the store's clock, which all nodes read. If a channel has n polls per poll
interval τ, the nodes take turns, τ/n apart. The schedules of different channels start at different times, so that the
polls made by one node are spread over τ as well.

- n may be any real number (see ``allocation_solver``). The number of nodes is n rounded up, so that each of them polls
  at most once per τ. If n exceeds the number of nodes in the fleet, all nodes share the polls, and each may poll more
  than once per τ. If n is below 1, a single node polls every τ/n seconds.
- When n or the set of nodes changes, the next schedule continues the current one.
- If a channel has a weekly rhythm (:mod:`service.corona.weekly_rhythm`), its polls are evenly spaced by a clock that
  runs faster in some hours of the week and slower in others. Over a whole week, this clock neither gains nor loses
  time.

Deviation from the paper: in the paper, each node waits a random time in (0, τ). An update is then detected after
τ/(n+1) on average, up to twice as late as with even spacing (τ/(2n)).
"""

from math import ceil, floor
from typing import Annotated

import msgspec

from service.corona.weekly_rhythm import SPEEDS_BYTES, WeeklyClock, weekly_clock
from service.model import ChannelId
from service.overlay.ring import BITS, from_hex

ROUNDING_S = 2e-6
"""Difference in seconds below which the times of two polls count as equal.

Unix times have a resolution of a quarter of a microsecond.
"""

CLOCK_ROUNDING_S = 1e-4
"""Replaces ``ROUNDING_S`` for times of weekly clocks, because their conversion to real time has larger rounding errors.
"""

HANDOVER_S = 3.0
"""Time within which all nodes of a polling set learn about a new schedule, unless messages are lost."""

LONGEST_WAIT_FOR_SCALE_S = 30.0
"""How long a node that does not know the fleet's scale yet puts off the first polls of channels without a schedule.

The wait ends earlier when the scale is known, or when soft state expires.
"""

OWNER_BITS = 24
"""Number of leading bits of a channel's id that do not influence when a new schedule begins.

These bits determine the channel's owner. The channels of one owner have most of them in common, so they would not
spread the schedules' beginnings.
"""


def polling_set_size(polls_per_interval: float, nodes: int) -> int:
    """Return how many nodes share the polls of one channel, at most ``nodes``.

    It is ``polls_per_interval`` (the channel's polls per poll interval τ) rounded up, and at least 1.
    """
    return max(1, nodes if polls_per_interval >= nodes else ceil(polls_per_interval))


class PollingSchedule(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A channel's polls: one every ``gap_s`` seconds from ``first_s`` on, made by ``size`` nodes in turn.

    - ``first_s``: the time of the first poll (Unix time by the store's clock).
    - ``first_rank``: the rank of the node that makes the first poll. Nodes have the ranks 0 to ``size`` - 1. Poll k (0,
      1, …) is due at ``first_s + k·gap_s`` and is made by the node of rank ``(first_rank + k) mod size``.
    - ``speeds``: for a channel that is polled more often in some hours of the week, the speeds of the clock that
      measures ``gap_s`` (:class:`~service.corona.weekly_rhythm.WeeklyClock`). If ``speeds`` is empty or has the wrong
      length, gaps are measured in real time.
    """

    # An owner that changes the number of polls, or whose ring changes, derives the next schedule from the current one.
    # A new owner that does not know the current schedule starts a new one, at the cost of one irregular gap.

    first_s: float
    gap_s: Annotated[float, msgspec.Meta(gt=0)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    first_rank: int = 0
    speeds: bytes = b""

    @property
    def interval_s(self) -> float:
        """The mean time in seconds between two polls by the same node."""
        return self.size * self.gap_s

    @property
    def clock(self) -> WeeklyClock | None:
        """The clock that measures the times between polls; None for real time."""
        return weekly_clock(self.speeds) if len(self.speeds) == SPEEDS_BYTES else None

    def first_poll_s(self, rank: int) -> float:
        """Return the time of the first poll made by the node with rank ``rank``, its index in the order of turns.

        The result is Unix time by the store's clock.
        """
        return self._poll_s(self._turn(rank))

    def next_poll_s(self, rank: int, after_s: float) -> float:
        """Return the time of the next poll after ``after_s`` made by the node with rank ``rank``.

        The rank is the node's index in the order of turns. Both times are Unix times by the store's clock.
        """
        due_s = self._next_s(self._turn(rank), self.size, after_s)
        if self.is_far_ahead(after_s, due_s, gaps=2 * self.size):
            # Its schedule begins too late. It is treated as if it had already begun.
            return self._next_s(self._turn(rank), self.size, after_s, is_begun=True)
        return due_s

    def next_channel_poll_s(self, after_s: float) -> float:
        """Return the time of the channel's next poll after ``after_s``, whichever node makes it.

        Both times are Unix times by the store's clock.
        """
        return self._next_s(0, 1, after_s)

    def rank_at(self, poll_s: float) -> int:
        """Return the rank (the index in the order of turns) of the node that makes the poll due at ``poll_s``.

        ``poll_s`` is Unix time by the store's clock.
        """
        return (self.first_rank + round(self.gaps_between(self.first_s, poll_s))) % self.size

    def gaps_between(self, begin_s: float, end_s: float) -> float:
        """Return the time from ``begin_s`` to ``end_s``, measured in gaps (times between two polls).

        The result may be fractional. Both times are Unix times by the store's clock.
        """
        clock = self.clock
        if clock is None:
            return (end_s - begin_s) / self.gap_s
        return (clock.shown_s(end_s) - clock.shown_s(begin_s)) / self.gap_s

    def is_far_ahead(self, after_s: float, due_s: float, gaps: int) -> bool:
        """Return whether a poll is so far ahead that it was planned before the fleet's clock was set back.

        The poll is due at ``due_s``, and ``after_s`` is the present time, both in Unix seconds by the store's clock.
        ``gaps`` is the greatest number of gaps until a poll that was planned by the present clock.
        """
        # Schedules that are made while the scale is unknown begin later.
        return self.gaps_between(after_s + LONGEST_WAIT_FOR_SCALE_S, due_s) > gaps

    def _turn(self, rank: int) -> int:
        """Return the index k (from 0) of the first poll made by the node with rank ``rank``."""
        return (rank - self.first_rank) % self.size

    def _poll_s(self, number: int) -> float:
        clock = self.clock
        if clock is None:
            return self.first_s + number * self.gap_s
        return clock.time_s(clock.shown_s(self.first_s) + number * self.gap_s) if number else self.first_s

    def _next_s(self, first: int, step: int, after_s: float, *, is_begun: bool = False) -> float:
        """Return the time of the first of the polls ``first``, ``first + step``, … that is due after ``after_s``.

        If ``is_begun`` is true, earlier polls (``first - step``, ``first - 2·step``, …) are considered as well. Times
        are Unix times by the store's clock.
        """
        clock, begin_s = self.clock, self._poll_s(first)
        if clock is None:
            found_s = _next_multiple_s(begin_s, step * self.gap_s, after_s)
        else:
            phase_s, after_shown_s = clock.shown_s(begin_s), clock.shown_s(after_s)
            found_s = clock.time_s(_next_multiple_s(phase_s, step * self.gap_s, after_shown_s, CLOCK_ROUNDING_S))
        return found_s if is_begun else max(begin_s, found_s)


def new_schedule(
    channel: ChannelId,
    polls_per_interval: float,
    size: int,
    poll_interval_s: float,
    now_s: float,
    *,
    speeds: bytes = b"",
) -> PollingSchedule:
    """Return a channel's initial schedule, whose first poll is at most one gap (time between polls) from now.

    Args:
        channel: The channel's id, from which the time of the first poll is derived. Different channels are thus polled
            at different times.
        polls_per_interval: The channel's number of polls per poll interval τ, positive.
        size: Number of nodes that take turns.
        poll_interval_s: τ, in seconds.
        now_s: Unix time by the store's clock.
        speeds: The speeds of the clock by which the polls are evenly spaced; empty for real time.
    """
    gap_s = poll_interval_s / polls_per_interval
    offset = from_hex(channel) % (1 << BITS - OWNER_BITS) / (1 << BITS - OWNER_BITS)
    begun = PollingSchedule(offset * gap_s, gap_s, size, 0, speeds)
    return msgspec.structs.replace(begun, first_s=begun.next_channel_poll_s(now_s))


def revised_schedule(
    schedule: PollingSchedule,
    polls_per_interval: float,
    size: int,
    poll_interval_s: float,
    now_s: float,
    *,
    speeds: bytes = b"",
    can_hand_over: bool = False,
) -> PollingSchedule:
    """Return a schedule that continues ``schedule`` with another polling rate, number of nodes, or weekly rhythm.

    Args:
        schedule: The channel's current schedule.
        polls_per_interval: The channel's new number of polls per poll interval τ, positive.
        size: The new number of nodes that take turns.
        poll_interval_s: τ, in seconds.
        now_s: Unix time by the store's clock.
        speeds: The speeds of the clock by which the polls are evenly spaced from now on; empty for real time.
        can_hand_over: Whether a node that no longer takes turns can still make the channel's next poll.

    A *gap* is the time between two polls. The result begins with the channel's next poll. This poll keeps its time,
    or is due one to two new gaps from now if that is earlier. The next poll is thus never postponed, and two
    polls are never closer together than the shorter of the old and the new gap. If the poll keeps its time, it also
    keeps its node, provided that this node still takes turns.

    There is one exception if ``can_hand_over`` is true. If the next poll is due within ``HANDOVER_S`` and its
    node no longer takes turns, that node still makes the poll, and the result begins one gap later.
    """
    # A poll that is moved forward is due (1 + f) new gaps from now, where f (at most 1) is the fraction of the current
    # gap that is left. The fraction differs between channels. Without it, all channels that an owner speeds up at once
    # would be polled in step.
    # Why a poll that is due soon is not reassigned: one of the two nodes may receive the change too late, and then
    # neither or both of them poll.
    gap_s = poll_interval_s / polls_per_interval
    kept_s = schedule.next_channel_poll_s(now_s)
    gaps = 1 + min(1.0, schedule.gaps_between(now_s, kept_s))
    revised = PollingSchedule(kept_s, gap_s, size, schedule.rank_at(kept_s) % size, speeds)
    clock = revised.clock
    soon_s = now_s + gaps * gap_s if clock is None else clock.time_s(clock.shown_s(now_s) + gaps * gap_s)
    if soon_s < kept_s:
        return msgspec.structs.replace(revised, first_s=soon_s)
    if can_hand_over and kept_s - now_s < HANDOVER_S and schedule.rank_at(kept_s) >= size:
        next_s = revised.next_channel_poll_s(kept_s)
        return msgspec.structs.replace(revised, first_s=next_s, first_rank=revised.rank_at(next_s))
    return revised


def _next_multiple_s(phase_s: float, gap_s: float, after_s: float, rounding_s: float = ROUNDING_S) -> float:
    """Return the first time after ``after_s`` that equals ``phase_s`` + k·``gap_s`` for a whole number k.

    A time that is less than ``rounding_s`` after ``after_s`` counts as equal to ``after_s`` and is skipped.
    """
    return phase_s + (floor((after_s + rounding_s - phase_s) / gap_s) + 1) * gap_s
