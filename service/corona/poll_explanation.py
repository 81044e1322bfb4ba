"""Why a channel is polled as it is, as one value: for the console, ``inspect``, and whoever debugs a fleet."""

from collections.abc import Sequence
from enum import StrEnum
from math import inf, sqrt

import msgspec

from service.corona.polling_schedule import PollingSchedule, size_for_wait
from service.model import ChannelId, NodeId

ROUNDING = 1e-6
"""What is nearer than that to a bound is at it: c comes from clusters in single precision."""


class BindingConstraint(StrEnum):
    """What kept a channel's size from what its weight would have it."""

    NONE = "none"
    LONGEST_WAIT = "longest-wait"
    """Raised: nobody is to wait longer."""
    CHANNEL_WAIT = "channel-wait"
    """Raised: admins want nobody to wait longer for this channel."""
    CHANNEL_INTERVAL = "channel-interval"
    """Lowered: admins want no two polls of this channel to be nearer."""
    NODES = "nodes"
    """Lowered: as many polls as the fleet makes of one channel."""
    CHANNEL_BUDGET = "channel-budget"
    """Lowered: the publisher, or the settings, allow one channel no more."""
    HOST_BUDGET = "host-budget"
    """Lowered: the host's channels share what the host may be asked."""
    FLEET_BUDGET = "fleet-budget"
    """Lowered: not even the longest waits of all channels can be kept."""


class SizeLimits(msgspec.Struct, frozen=True):
    """What bounds a channel's polls per τ, from whichever side; infinite where nothing does.

    ``longest_wait_s`` is a mean wait in seconds, ``own_wait`` whether it is the channel's own instead of everybody's;
    the others are polls per τ. ``channel_interval`` is the most that the channel's shortest interval leaves,
    ``host_budget`` the channel's own share of it: the ``most`` that ``honeycomb.within_sites`` left it.
    """

    longest_wait_s: float = inf
    own_wait: bool = False
    channel_interval: float = inf
    nodes: float = inf
    channel_budget: float = inf
    host_budget: float = inf

    def most(self) -> tuple[float, BindingConstraint]:
        """Return the most polls per τ, and what sets it."""
        most = {
            BindingConstraint.CHANNEL_INTERVAL: self.channel_interval,
            BindingConstraint.CHANNEL_BUDGET: self.channel_budget,
            BindingConstraint.HOST_BUDGET: self.host_budget,
            BindingConstraint.NODES: self.nodes,
        }
        by = min(most, key=lambda bound: most[bound])
        return most[by], by


class PollingTurn(msgspec.Struct, frozen=True):
    """One node's part: its ``rank`` in the polling set, its ``phase_s`` after the rota's begin, its next poll."""

    node: NodeId
    rank: int
    phase_s: float
    next_poll_s: float


class PollExplanation(msgspec.Struct, frozen=True):
    """A channel's polls and why.

    ``wanted`` is c·√(w/s), ``size`` what the bounds left of it, both in polls per τ, and ``bound`` the one that
    did. ``wait_s`` is the mean time from an update to the poll that sees it, ``update_interval_s`` that between
    updates, as far as it is known. Times of turns are fleet time.
    """

    channel: ChannelId
    weight: float
    cost: float
    scale: float
    wanted: float
    least: float
    most: float
    size: float
    bound: BindingConstraint
    wait_s: float
    update_interval_s: float
    interval_s: float
    turns: tuple[PollingTurn, ...]


def limited_size(slope: float, scale: float, least: float, limits: SizeLimits) -> tuple[float, BindingConstraint]:
    """Return a channel's size, as :func:`~service.corona.honeycomb.sizes` has it, and the bound that made it so.

    Args:
        slope: √(w/s).
        scale: c.
        least: Polls per τ that keep the longest wait.
        limits: What bounds it from above.
    """
    most, by = limits.most()
    if scale < 0:
        return max(0.0, 1 + scale) * min(least, most), BindingConstraint.FLEET_BUDGET
    wanted = scale * slope
    # A fleet that has polls to spare takes the least c that has channels at their most.
    if max(wanted, least) >= most * (1 - ROUNDING):
        return most, by
    if wanted < least:
        return least, BindingConstraint.CHANNEL_WAIT if limits.own_wait else BindingConstraint.LONGEST_WAIT
    return wanted, BindingConstraint.NONE


def explain_polling(
    channel: ChannelId,
    *,
    weight: float,
    cost: float,
    scale: float,
    limits: SizeLimits,
    poll_interval_s: float,
    update_interval_s: float,
    polling_set: Sequence[NodeId],
    rota: PollingSchedule,
    now_s: float,
) -> PollExplanation:
    """Return why the channel is polled as it is.

    Args:
        channel: The channel.
        weight: Its weight, by the goal.
        cost: What one poll costs.
        scale: c, which the fleet agrees on.
        limits: What bounds its size.
        poll_interval_s: τ.
        update_interval_s: u, as estimated.
        polling_set: Who polls, by rank, as many as the rota has.
        rota: When they poll.
        now_s: Fleet time; next polls are after it.
    """
    least = size_for_wait(limits.longest_wait_s, poll_interval_s)
    slope = sqrt(weight / cost)
    size, bound = limited_size(slope, scale, least, limits)
    return PollExplanation(
        channel=channel,
        weight=weight,
        cost=cost,
        scale=scale,
        wanted=max(scale, 0.0) * slope,
        least=least,
        most=limits.most()[0],
        size=size,
        bound=bound,
        wait_s=poll_interval_s / (2 * size) if size > 0 else inf,
        update_interval_s=update_interval_s,
        interval_s=rota.interval_s,
        turns=tuple(
            PollingTurn(node, rank, rota.phase_s(rank) - rota.first_s, rota.next_poll_s(rank, now_s))
            for rank, node in enumerate(polling_set[: rota.size])
        ),
    )
