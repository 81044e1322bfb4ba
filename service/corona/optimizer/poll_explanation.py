"""Explanations of how often channels are polled, and why, for the console, ``coronet inspect`` and the bot's chats."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import ceil, inf

import msgspec
import numpy as np

from service.corona.fleet_policy import FleetPolicy, Levels
from service.corona.optimizer.allocation_solver import AllocationProblem
from service.corona.optimizer.node_allocation import (
    FactorTable,
    allocation_problem,
    channel_sizes,
    least_sizes,
    upper_bounds,
)
from service.corona.optimizer.objectives import size_for_wait
from service.corona.optimizer.polling_levels import LevelChoices, highest_level, level_of
from service.corona.polling_limits import LimitReason, PollingLimits
from service.corona.polling_schedule import PollingSchedule
from service.corona.update_rates import UpdateHistory
from service.corona.weekly_rhythm import delay_factors
from service.model import ChannelId, NodeId

ROUNDING = 1e-6
"""Relative difference up to which two numbers count as equal.

The scale is inexact, because it is computed from numbers in single precision.
"""


class BindingConstraint(StrEnum):
    """What decides how often a channel is polled: its importance, or a limit that raises or lowers the polling rate."""

    NONE = "none"
    LONGEST_WAIT = "longest-wait"
    """The number of polls is raised so that the mean wait does not exceed the objective's longest wait."""
    CHANNEL_WAIT = "channel-wait"
    """The number of polls is raised because of the longest wait that admins set for this channel."""
    CHANNEL_INTERVAL = "channel-interval"
    """The number of polls is lowered, because of the shortest interval that admins set for this channel."""
    PUBLISHER = "publisher"
    """The number of polls is lowered to the poll interval that the publisher's documents and responses request."""
    FAILURE = "failure"
    """The number of polls is lowered because the channel's polls fail."""
    PAUSE = "pause"
    """The number of polls is lowered because the channel is paused, at its publisher's or an admin's request."""
    NODES = "nodes"
    """The number of polls is lowered to the maximum that the fleet's nodes together may make of one channel."""
    CHANNEL_BUDGET = "channel-budget"
    """The number of polls is lowered to the limit for public channels, which depends on the number of subscribers."""
    HOST_BUDGET = "host-budget"
    """The number of polls is lowered to the channel's share of its site's request budget."""
    FLEET_BUDGET = "fleet-budget"
    """The number of polls is lower than the longest wait requires.

    The fleet's budget does not suffice for the longest waits of all channels.
    """


LIMIT_CONSTRAINTS = {
    LimitReason.HINT: BindingConstraint.PUBLISHER,
    LimitReason.FAILURE: BindingConstraint.FAILURE,
    LimitReason.PAUSE: BindingConstraint.PAUSE,
}
"""The constraint that corresponds to each kind of limit."""


class PollingTurn(msgspec.Struct, frozen=True):
    """One node's part in a channel's polling schedule.

    - ``rank``: the node's place in the order in which the nodes take turns, starting from 0.
    - ``phase_s``: the time from the start of the schedule to the node's first poll, in seconds.
    - ``next_poll_s``: the time of the node's next poll (Unix time by the store's clock).
    """

    node: NodeId
    rank: int
    phase_s: float
    next_poll_s: float


class PollExplanation(msgspec.Struct, frozen=True):
    """An explanation of how often a channel is polled: the inputs, the decisive constraint, and the schedule.

    Numbers of polls are per poll interval τ and count the polls of all nodes together. Times are Unix times by the
    store's clock.

    Inputs:

    - ``weight``: the channel's importance under the optimisation goal.
    - ``cost``: the cost of one poll.
    - ``scale``: the factor from which the number of polls of every channel is computed.
    - ``subscribers``: the channel's number of subscribers.
    - ``update_interval_s``: the estimated mean time between updates in seconds.
    - ``publisher_interval_s``: the minimum time in seconds between polls that the publisher or failed polls currently
      require; 0.0 if there is no such limit. It is stated even if another constraint is decisive.
    - ``limit_reason``: the reason for ``publisher_interval_s``; None if there is no such limit.
    - ``paused_until_s``: the time at which the channel's pause ends; 0.0 if the channel is not paused.

    Number of polls:

    - ``wanted``: scale·√(weight/cost), the number of polls without limits.
    - ``least``, ``most``: the minimum and the maximum number of polls.
    - ``size``: the resulting number of polls, as an average over the week.
    - ``bound``: the constraint that decides ``size``.
    - ``wait_s``: the mean time in seconds from an update to its detection.
    - ``present_speed``: how often the channel is polled at this hour, as a multiple of its average over the week
      (:mod:`service.corona.weekly_rhythm`).

    Schedule:

    - ``interval_s``: the mean time in seconds between two polls by the same node.
    - ``turns``: each node's part in the schedule, in the order in which the nodes take turns.
    - ``nodes``: how many nodes poll the channel.
    - ``ring_nodes``: the number of nodes in the fleet.
    - ``level``: the channel's polling level, from 0 (all nodes poll it) to ``highest_level`` (one node polls it). It is
      a whole number if only whole levels are allowed (:mod:`service.corona.optimizer.polling_levels`).
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
        """The time in seconds between two successive polls of the channel, whichever nodes make them."""
        return self.interval_s / self.nodes

    def next_poll_s(self, earliest_s: float = 0.0) -> float:
        """Return the time of the channel's next poll (Unix time by the store's clock); infinity if no poll is planned.

        The channel is not polled before the end of a pause. Pass ``earliest_s``, the end of the pause, if the channel
        may have been paused since this explanation was computed.
        """
        earliest_s = max(earliest_s, self.paused_until_s)
        first_s = min((turn.next_poll_s for turn in self.turns), default=inf)
        skipped = ceil((earliest_s - first_s) / self.gap_s) if first_s < earliest_s < inf else 0
        return max(first_s + skipped * self.gap_s, earliest_s)


def binding_constraints(
    policy: FleetPolicy,
    nodes: int,
    channels: FactorTable,
    scale: float,
    choices: LevelChoices | None = None,
    *,
    reason: Callable[[int], LimitReason | None] = lambda _: None,
) -> list[BindingConstraint]:
    """Return, for each channel, the constraint that decides how often it is polled.

    Args:
        policy: The fleet's policy.
        nodes: Number of nodes in the fleet.
        channels: The channels, one per row.
        scale: The factor from which the number of polls of every channel is computed.
        choices: How many nodes may poll each channel at each polling level; None if any number of polls is allowed.
        reason: Function that takes the row index of a channel and returns the kind of its present polling limit:
            the publisher's hint, failed polls or a pause. If it returns None, the limit counts as a hint.
    """
    if scale < 0:
        return [BindingConstraint.FLEET_BUDGET] * len(channels)
    problem = allocation_problem(policy, nodes, channels)
    least, upper = least_sizes(policy, channels), upper_bounds(policy, nodes, channels)
    without_site = np.minimum.reduce(upper)
    limits = {
        BindingConstraint.CHANNEL_INTERVAL: upper.channel_interval,
        BindingConstraint.PUBLISHER: upper.publisher,
        BindingConstraint.CHANNEL_BUDGET: upper.channel_budget,
        BindingConstraint.HOST_BUDGET: np.where(problem.most < without_site, problem.most, inf),
        BindingConstraint.NODES: upper.nodes,
    }
    most, wanted = np.minimum(without_site, problem.most), scale * problem.slopes()
    # With budget to spare, c is the least at which all channels reach their most.
    at_most = np.maximum(wanted, least) >= most * (1 - ROUNDING)
    raised = ~at_most & (wanted < least)
    if choices is not None:  # a channel may be kept from a larger wedge, although its size is below its upper bound
        unlimited = AllocationProblem(problem.weights, problem.costs, problem.least, np.full(len(channels), inf))
        at_most |= ~raised & (choices.rates(unlimited, wanted) > choices.rates(problem, wanted))
    own_wait = channels["longest_wait_s"] > 0
    is_late = np.zeros(len(channels), dtype=bool)
    if policy.longest_wait_s > policy.objective.longest_wait_s:
        is_late = ~own_wait & (wanted < size_for_wait(policy.objective.longest_wait_s, policy.poll_interval_s))
    waits = (BindingConstraint.FLEET_BUDGET, BindingConstraint.CHANNEL_WAIT, BindingConstraint.LONGEST_WAIT)
    constraints = (*limits, *waits, BindingConstraint.NONE)
    places = np.select(
        [at_most, is_late, raised & own_wait, raised],
        [np.argmin(list(limits.values()), axis=0), *map(constraints.index, waits)],
        constraints.index(BindingConstraint.NONE),
    )
    found = [constraints[place] for place in places.tolist()]
    for row, constraint in enumerate(found):
        if constraint is BindingConstraint.PUBLISHER:
            found[row] = LIMIT_CONSTRAINTS[reason(row) or LimitReason.HINT]
    return found


def explain_polling(
    channel: ChannelId,
    policy: FleetPolicy,
    nodes: int,
    factors: FactorTable,
    scale: float,
    *,
    updates: UpdateHistory,
    limits: PollingLimits,
    polling_set: Sequence[NodeId],
    schedule: PollingSchedule,
    now_s: float,
    choices: LevelChoices | None = None,
) -> PollExplanation:
    """Explain how often a channel is polled, and why.

    Args:
        channel: The channel.
        policy: The fleet's policy.
        nodes: Number of nodes in the fleet.
        factors: The channel's factors, as a table of one row.
        scale: The factor from which the number of polls of every channel is computed.
        updates: The channel's update history.
        limits: The limits that the publisher and failed polls set for the channel's polls.
        polling_set: The nodes that poll the channel, in the order of their turns.
        schedule: The channel's schedule.
        now_s: Unix time by the store's clock. The result states the next polls after this time.
        choices: How many nodes may poll the channel at each polling level; None if any number of polls is allowed.
    """
    problem = allocation_problem(policy, nodes, factors)
    (size,) = channel_sizes(policy, nodes, factors, scale, choices).tolist()
    publisher_interval_s, reason = limits.shortest_interval(now_s)
    (bound,) = binding_constraints(policy, nodes, factors, scale, choices, reason=lambda _: reason)
    if choices is None:
        base = Levels.CONTINUOUS.base
        level, highest = level_of(size, nodes, base), highest_level(nodes, base)
    else:
        level, highest = float(choices.levels(schedule.size)[0]), int(choices.levels(1)[0])
    (delay_factor,) = delay_factors([updates.rhythm], [schedule.speeds]).tolist()
    clock = schedule.clock
    return PollExplanation(
        channel=channel,
        weight=float(problem.weights[0]),
        cost=float(problem.costs[0]),
        scale=scale,
        wanted=max(scale, 0.0) * float(problem.slopes()[0]),
        least=float(least_sizes(policy, factors)[0]),
        most=float(problem.most[0]),
        size=size,
        bound=bound,
        wait_s=delay_factor * policy.poll_interval_s / (2 * size) if size > 0 else inf,
        update_interval_s=updates.interval_s(now_s),
        interval_s=schedule.interval_s,
        turns=tuple(
            PollingTurn(node, rank, schedule.first_poll_s(rank) - schedule.first_s, schedule.next_poll_s(rank, now_s))
            for rank, node in enumerate(polling_set[: schedule.size])
        ),
        level=level,
        highest_level=highest,
        nodes=schedule.size,
        ring_nodes=nodes,
        publisher_interval_s=publisher_interval_s,
        limit_reason=reason,
        paused_until_s=float(limits.paused_until_s) if limits.paused_until_s > now_s else 0.0,
        subscribers=int(factors["subscribers"][0]),
        present_speed=1.0 if clock is None else clock.speed(now_s),
    )
