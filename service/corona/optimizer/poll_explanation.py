"""Poll explanations: why a channel is polled as often as it is, for the console, ``coronet inspect`` and chat."""

from collections.abc import Sequence
from enum import StrEnum
from math import ceil, inf, sqrt

import msgspec
import numpy as np

from service.corona.fleet_policy import Levels
from service.corona.optimizer.honeycomb import AllocationProblem
from service.corona.optimizer.polling_levels import LevelChoices, highest_level, level_of
from service.corona.polling_limits import NO_LIMITS, LimitReason, PollingLimits
from service.corona.polling_schedule import PollingSchedule, size_for_wait
from service.model import ChannelId, NodeId

ROUNDING = 1e-6
"""A relative difference below this counts as equal, because c comes from clusters in single precision."""


class BindingConstraint(StrEnum):
    """The reason for a channel's number of polls: its weight, or the bound that makes the number higher or lower."""

    NONE = "none"
    LONGEST_WAIT = "longest-wait"
    """Raised to keep the longest wait of all channels."""
    CHANNEL_WAIT = "channel-wait"
    """Raised to keep the longest wait that admins set for this channel."""
    CHANNEL_INTERVAL = "channel-interval"
    """Lowered to keep the shortest interval that admins set for this channel."""
    PUBLISHER = "publisher"
    """Lowered to the interval that the publisher's documents and responses ask for."""
    FAILURE = "failure"
    """Lowered because the channel's polls fail."""
    PAUSE = "pause"
    """Lowered because the channel is paused, at its publisher's or an admin's request."""
    NODES = "nodes"
    """Lowered to the most polls that the fleet's nodes make of one channel."""
    CHANNEL_BUDGET = "channel-budget"
    """Lowered to the publisher's, or the settings', limit for one channel."""
    HOST_BUDGET = "host-budget"
    """Lowered to the channel's share of its site's request budget."""
    FLEET_BUDGET = "fleet-budget"
    """Below what the longest wait requires, because the fleet's budget does not suffice for all longest waits."""


LIMIT_CONSTRAINTS = {
    LimitReason.HINT: BindingConstraint.PUBLISHER,
    LimitReason.FAILURE: BindingConstraint.FAILURE,
    LimitReason.PAUSE: BindingConstraint.PAUSE,
}
"""The constraint that each kind of limit is."""


class SizeLimits(msgspec.Struct, frozen=True):
    """The bounds of a channel's polls per τ; infinite values have no effect.

    ``longest_wait_s`` is the longest mean wait in seconds, and ``own_wait`` states whether admins have set it for this
    channel. If the fleet's budget does not suffice for the longest wait that admins have set for all channels,
    ``wait_factor`` is how many times as long ``longest_wait_s`` is. The others are the most polls per τ:
    ``channel_interval`` follows from the channel's shortest interval, ``publisher`` from what the publisher or failures
    allow now, whose constraint is ``publisher_constraint``, ``nodes`` from the number of nodes, and ``channel_budget``
    from the limit on polls of one channel. ``host_budget`` is what the request budget of the channel's site allows
    (``honeycomb.apply_site_scales``).
    """

    longest_wait_s: float = inf
    own_wait: bool = False
    wait_factor: float = 1.0
    channel_interval: float = inf
    publisher: float = inf
    publisher_constraint: BindingConstraint = BindingConstraint.PUBLISHER
    nodes: float = inf
    channel_budget: float = inf
    host_budget: float = inf

    def most(self) -> tuple[float, BindingConstraint]:
        """Return the most polls per τ that all these bounds allow, and the constraint that sets it."""
        most = {
            BindingConstraint.CHANNEL_INTERVAL: self.channel_interval,
            self.publisher_constraint: self.publisher,
            BindingConstraint.CHANNEL_BUDGET: self.channel_budget,
            BindingConstraint.HOST_BUDGET: self.host_budget,
            BindingConstraint.NODES: self.nodes,
        }
        by = min(most, key=lambda bound: most[bound])
        return most[by], by


class PollingTurn(msgspec.Struct, frozen=True):
    """One node's part in a channel's schedule.

    ``rank`` is the node's place in the order of turns, from 0. ``phase_s`` is the time from the start of the schedule
    to the node's first poll, in seconds. ``next_poll_s`` is the time of its next poll, in fleet time.
    """

    node: NodeId
    rank: int
    phase_s: float
    next_poll_s: float


class PollExplanation(msgspec.Struct, frozen=True):
    """A channel's polls and what determines them.

    ``weight`` is the channel's weight under the goal, ``cost`` the cost of one poll, and ``scale`` the fleet's scale.
    ``wanted``, scale·√(weight/cost), is the number of polls per τ that these would give; ``least`` and ``most`` are its
    bounds, ``size`` is the result within them, and ``bound`` the constraint that determines it. ``wait_s`` is the mean
    time from an update to its detection, ``update_interval_s`` the estimated mean time between updates, and
    ``interval_s`` the time between two polls of one node. ``turns`` are the nodes' parts in the schedule.

    ``nodes`` of the fleet's ``ring_nodes`` nodes poll the channel: those of polling level ``level``. It is a whole
    number if the policy allows whole levels only. Level 0 is the whole ring, and ``highest_level`` is the level of one
    node (:mod:`service.corona.optimizer.polling_levels`).

    ``publisher_interval_s`` is the shortest interval between polls that the publisher, or the failures of polls, allow
    now, and ``limit_reason`` its reason; 0.0 and None if there is none. It may be longer than the channel's polls need.
    ``paused_until_s`` is the end of a pause in fleet time, or 0.0 if the channel is not paused. ``subscribers`` is the
    channel's number of subscribers.

    A channel that follows its weekly rhythm (:mod:`service.corona.rhythm`) is polled ``present_speed`` times as often
    at this hour as on average over the week. ``size`` and ``interval_s`` are these averages.
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
    level: float = 0.0
    highest_level: int = 0
    nodes: int = 1
    ring_nodes: int = 1
    publisher_interval_s: float = 0.0
    limit_reason: LimitReason | None = None
    paused_until_s: float = 0.0
    subscribers: int = 1
    present_speed: float = 1.0

    @property
    def gap_s(self) -> float:
        """The time between two polls of the channel, by whatever node, in seconds."""
        return self.interval_s / self.nodes

    def next_poll_s(self, earliest_s: float = 0.0) -> float:
        """Return the fleet time of the channel's next poll; infinity if none is due.

        Polls that are due before the end of a pause are left out. ``earliest_s`` is the end of a pause that the owner
        may not know yet, in fleet time.
        """
        earliest_s = max(earliest_s, self.paused_until_s)
        first_s = min((turn.next_poll_s for turn in self.turns), default=inf)
        skipped = ceil((earliest_s - first_s) / self.gap_s) if first_s < earliest_s < inf else 0
        return max(first_s + skipped * self.gap_s, earliest_s)


def limited_size(slope: float, scale: float, least: float, limits: SizeLimits) -> tuple[float, BindingConstraint]:
    """Return a channel's number of polls per τ, and the constraint that determines it.

    The number equals the result of :func:`~service.corona.optimizer.honeycomb.sizes`.

    Args:
        slope: √(weight/cost) of the channel.
        scale: The fleet's scale, by which the slope is multiplied.
        least: Polls per τ that keep the longest wait.
        limits: The upper bounds.
    """
    most, by = limits.most()
    if scale < 0:
        return max(0.0, 1 + scale) * min(least, most), BindingConstraint.FLEET_BUDGET
    unbounded = scale * slope
    # With budget to spare, c is the least at which all channels reach their most.
    if max(unbounded, least) >= most * (1 - ROUNDING):
        return most, by
    if limits.wait_factor > 1 and unbounded < least * limits.wait_factor:
        return max(unbounded, least), BindingConstraint.FLEET_BUDGET
    if unbounded < least:
        return least, BindingConstraint.CHANNEL_WAIT if limits.own_wait else BindingConstraint.LONGEST_WAIT
    return unbounded, BindingConstraint.NONE


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
    schedule: PollingSchedule,
    now_s: float,
    ring_nodes: int = 1,
    polling_limits: PollingLimits = NO_LIMITS,
    subscribers: int = 1,
    delay_factor: float = 1.0,
    present_speed: float = 1.0,
    choices: LevelChoices | None = None,
) -> PollExplanation:
    """Return why the channel is polled as often as it is.

    Args:
        channel: The channel.
        weight: Its weight under the goal.
        cost: Cost of one poll.
        scale: The fleet's scale, which determines the polls of all channels.
        limits: The bounds of the channel's polls per τ.
        poll_interval_s: τ, in seconds.
        update_interval_s: The estimated mean time between the channel's updates.
        polling_set: The nodes that poll the channel, in the order of their turns.
        schedule: The channel's schedule.
        now_s: Fleet time; the next polls in the result are after it.
        ring_nodes: Number of nodes on the ring.
        polling_limits: What the publisher and failures allow.
        subscribers: Number of subscribers of the channel.
        delay_factor: The factor of the mean wait due to polls that follow the channel's rhythm.
        present_speed: Polls per time at ``now_s`` relative to the average over the week.
        choices: The channel's polling levels; None if numbers of polls are continuous.
    """
    publisher_interval_s, reason = polling_limits.shortest_interval(now_s)
    if reason is not None:
        limits = msgspec.structs.replace(limits, publisher_constraint=LIMIT_CONSTRAINTS[reason])
    least = size_for_wait(limits.longest_wait_s, poll_interval_s)
    slope = sqrt(weight / cost)
    if choices is None:
        base, (size, bound) = Levels.CONTINUOUS.base, limited_size(slope, scale, least, limits)
        level, highest = level_of(size, ring_nodes, base), highest_level(ring_nodes, base)
    else:
        problem = AllocationProblem.of([weight], cost, least=least, most=limits.most()[0])
        size, bound = _size_at_level(problem, scale, limits, choices)
        level, highest = float(choices.levels(schedule.size)[0]), int(choices.levels(1)[0])
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
        wait_s=delay_factor * poll_interval_s / (2 * size) if size > 0 else inf,
        update_interval_s=update_interval_s,
        interval_s=schedule.interval_s,
        turns=tuple(
            PollingTurn(node, rank, schedule.first_poll_s(rank) - schedule.first_s, schedule.next_poll_s(rank, now_s))
            for rank, node in enumerate(polling_set[: schedule.size])
        ),
        level=level,
        highest_level=highest,
        nodes=schedule.size,
        ring_nodes=ring_nodes,
        publisher_interval_s=publisher_interval_s,
        limit_reason=reason,
        paused_until_s=float(polling_limits.paused_until_s) if polling_limits.paused_until_s > now_s else 0.0,
        subscribers=subscribers,
        present_speed=present_speed,
    )


def _size_at_level(
    problem: AllocationProblem, scale: float, limits: SizeLimits, choices: LevelChoices
) -> tuple[float, BindingConstraint]:
    """Return a channel's polls per τ if only whole levels are allowed, and the constraint that determines them.

    ``problem`` has this channel only. The other arguments are those of :func:`limited_size`.
    """
    slope, least = float(problem.slopes()[0]), float(problem.least[0])
    size, bound = limited_size(slope, scale, least, limits)
    if scale < 0:
        return size, bound
    wanted = scale * problem.slopes()
    found = float(choices.rates(problem, wanted)[0])
    unlimited = AllocationProblem(problem.weights, problem.costs, problem.least, np.full(1, inf))
    if bound is BindingConstraint.NONE and float(choices.rates(unlimited, wanted)[0]) > found:
        _, bound = limits.most()
    return found, bound
