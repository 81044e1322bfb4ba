"""A node's part in the optimisation of polling rates (§3.2).

It describes the node's own channels as an optimisation problem, and computes the *scale* c from a summary of all
channels of the fleet. All polling rates follow from c: a channel's number of polls depends on c and on the channel's
own, exact factors, such as its number of subscribers. Nodes therefore have to agree on one number only, and a coarse
summary causes only small errors.
"""

from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.corona.fleet_policy import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, FleetPolicy, Goal, Levels
from service.corona.messages import CONTINUOUS, Aggregate
from service.corona.optimizer.allocation_solver import UNBOUNDED_SCALE, AllocationProblem, apply_site_scales, sizes
from service.corona.optimizer.objectives import Floats, size_for_wait, weights
from service.corona.optimizer.polling_levels import LevelChoices, LevelSteps, below_first_step, decode_steps
from service.corona.optimizer.tradeoff_clusters import decode, encode, summarise

POLL_COST = 1.0
"""Cost of a poll, equal for all channels: publishers count requests, and most responses have no body."""

LONGEST_WAIT_SHARE = 0.25
"""The maximum share of a budget in polls per minute that is spent to keep all channels within the longest wait.

The rest is spent where updates are expected.
"""

DIGITS = 6
"""Number of decimals to which sizes are rounded.

A size of 3 with a rounding error would otherwise require a fourth node.
"""


FactorTable = NDArray[Any]
"""Factors of many channels as rows of an array; see :func:`factor_table`."""


class ChannelFactors(NamedTuple):
    """The properties of one channel that determine how often it is polled.

    - ``subscribers``: at least 1 if an admin has listed the channel or a subscription is pending.
    - ``private``: whether the channel is exempt from the limit on polls of public channels.
    """

    subscribers: int
    update_interval_s: float
    private: bool
    site_scale: float = UNBOUNDED_SCALE
    """The scale of the channel's site. It limits the channel's polls; see ``allocation_solver.apply_site_scales``."""
    longest_wait_s: float = 0.0
    """The upper bound of the mean wait for an update's detection that admins set for this channel, in seconds.

    The value 0 means the bound of the objective.
    """
    shortest_interval_s: float = 0.0
    """The shortest interval between polls that admins set for this channel; 0 for none."""
    publisher_interval_s: float = 0.0
    """The shortest interval between polls, in seconds, that the publisher or failed polls currently allow; 0 for none.
    """
    weight_factor: float = 1.0
    """The mean delay with polls that follow the channel's weekly rhythm, divided by the mean delay with even polls."""
    present_speed: float = 1.0
    """How often the channel is polled in the present hour, as a multiple of its mean over the week.

    The value 1 ignores the hour.
    """


FACTORS_ROW = np.dtype(
    [(name, {int: "<u4", float: "<f8", bool: "?"}[kind]) for name, kind in ChannelFactors.__annotations__.items()]
)
"""The type of a row of a :data:`FactorTable`: its columns are the fields of :class:`ChannelFactors`."""


def factor_table(channels: Iterable[ChannelFactors], count: int) -> FactorTable:
    """Return the factors of ``count`` channels as rows of an array."""
    # It needs a tenth of the memory of objects.
    return np.fromiter(channels, dtype=FACTORS_ROW, count=count)


def allocation_problem(policy: FleetPolicy, nodes: int, channels: FactorTable) -> AllocationProblem:
    """Return the optimisation problem of these channels on ``nodes`` nodes, within the budgets of their sites.

    Numbers of polls are averages over the week, per poll interval τ. Costs are those of the present hour.
    """
    # A channel that follows its weekly rhythm is polled ``present_speed`` times as often as on average, so its cost is
    # multiplied by ``present_speed``. Its weight is multiplied by the same factor, so that sizes do not depend on the
    # hour.
    found = weights(
        policy.objective.goal, _subscribers(channels), channels["update_interval_s"], policy.poll_interval_s
    )
    speed = channels["present_speed"]
    least, most = size_bounds(policy, nodes, channels)
    problem = AllocationProblem.of(found * channels["weight_factor"] * speed, POLL_COST * speed, least=least, most=most)
    return apply_site_scales(problem, channels["site_scale"])


class UpperBounds(NamedTuple):
    """The upper bounds of each channel's polls per poll interval τ; each array has shape (M,) for M channels.

    - ``channel_interval`` follows from the shortest intervals that admins have set for the channels.
    - ``publisher`` follows from the present limits of publishers and failed polls.
    - ``channel_budget`` is the limit on polls of a public channel (:meth:`FleetPolicy.most_polls_per_hour`).
    - ``nodes`` follows from the number of nodes. A node polls a channel at most ``FleetPolicy.most_polls_per_node``
      times per τ, unless the longest wait requires more polls.

    The request budgets of sites are not included.
    """

    channel_interval: Floats
    publisher: Floats
    channel_budget: Floats
    nodes: Floats


def upper_bounds(policy: FleetPolicy, nodes: int, channels: FactorTable) -> UpperBounds:
    """Return the upper bounds of each channel's polls per poll interval τ, for a fleet of ``nodes`` nodes."""
    with np.errstate(divide="ignore"):
        return UpperBounds(
            policy.poll_interval_s / channels["shortest_interval_s"],
            policy.poll_interval_s / channels["publisher_interval_s"],
            np.where(channels["private"], inf, polite_sizes(policy, channels)),
            np.maximum(policy.most_polls_per_node * nodes, least_sizes(policy, channels)),
        )


def least_sizes(policy: FleetPolicy, channels: FactorTable) -> Floats:
    """Return each channel's minimum number of polls per poll interval τ, shape (M,).

    With this number, the mean time from an update to its detection is the longest that is allowed.
    """
    waits_s = channels["longest_wait_s"]
    return size_for_wait(1.0, policy.poll_interval_s) / np.where(waits_s > 0, waits_s, policy.longest_wait_s)


def size_bounds(policy: FleetPolicy, nodes: int, channels: FactorTable) -> tuple[Floats, Floats]:
    """Return the minimum and the maximum of each channel's polls per poll interval τ, two arrays of shape (M,).

    ``nodes`` is the number of nodes of the fleet. The request budgets of sites are not included.
    """
    return least_sizes(policy, channels), np.minimum.reduce(upper_bounds(policy, nodes, channels))


def channel_demands(policy: FleetPolicy, nodes: int, channels: FactorTable) -> Floats:
    """Return the cost per poll interval τ of the polls that each channel's subscribers justify, shape (M,).

    Each subscriber justifies one poll per τ, as their own reader would make (§3.2). The result is the channel's
    *demand*.

    - Public channels: at most what politeness (:meth:`FleetPolicy.most_polls_per_hour`) and the number of ``nodes``
      allow.
    - Private channels: no upper bound, and at least the number of polls that one node makes per τ.
    """
    # Sites' budgets and bounds of single channels prevent polls but do not change the demand, so that these polls are
    # spent on other channels.
    subscribers = _subscribers(channels)
    private = np.maximum(subscribers, policy.most_polls_per_node)
    polite = np.minimum(polite_sizes(policy, channels), policy.most_polls_per_node * nodes)
    return np.where(channels["private"], private, np.minimum(subscribers, polite)) * POLL_COST


def _subscribers(channels: FactorTable) -> Floats:
    found: Floats = np.maximum(channels["subscribers"], 1).astype(np.float64)
    return found


def polite_sizes(policy: FleetPolicy, channels: FactorTable) -> Floats:
    """Return each channel's maximum number of polls per poll interval τ out of politeness to its publisher, shape (M,).

    The maximum follows from :meth:`FleetPolicy.most_polls_per_hour`. Private channels are treated as public ones.
    """
    growing = policy.polls_per_hour_for_one_subscriber * np.sqrt(_subscribers(channels))
    return np.minimum(growing, policy.max_polls_per_hour) * (policy.poll_interval_s / SECONDS_PER_HOUR)


def own_aggregate(
    policy: FleetPolicy, nodes: int, channels: FactorTable, choices: LevelChoices | None = None
) -> Aggregate:
    """Return a summary of one node's ``channels``, which can be added to those of other nodes.

    - ``nodes``: the number of nodes of the fleet.
    - ``choices``: the numbers of nodes that may poll each channel; None if any number of polls is allowed.
    """
    base = aggregate_base(policy.objective.levels)
    if not len(channels):
        return Aggregate(1, 0.0, b"", base)
    problem, demand = allocation_problem(policy, nodes, channels), float(channel_demands(policy, nodes, channels).sum())
    if choices is None:
        return Aggregate(1, demand, encode(summarise(problem)), base, channels=len(channels))
    steps = LevelSteps.of(problem, choices)
    return Aggregate(1, demand, encode(summarise(below_first_step(problem))), base, steps.encode(), len(channels))


def affordable_policy(policy: FleetPolicy, channels: int) -> FleetPolicy:
    """Return the policy with ``affordable_wait_s``, the shortest mean wait of all channels that the budget can pay for.

    ``channels`` is the number of channels in the fleet. The polls that such a wait requires may take at most
    ``LONGEST_WAIT_SHARE`` of the budget. Longest waits that admins have set for single channels do not change.
    """
    # affordable_wait_s replaces the objective's longest wait if that is shorter.
    objective = policy.objective
    if objective.budget_polls_per_minute is None:
        return msgspec.structs.replace(policy, affordable_wait_s=0.0)
    usable_per_s = LONGEST_WAIT_SHARE * objective.budget_polls_per_minute / SECONDS_PER_MINUTE
    # A channel that is polled every t seconds has a mean wait of t/2.
    return msgspec.structs.replace(policy, affordable_wait_s=channels / (2 * usable_per_s))


def aggregate_base(levels: Levels) -> int:
    """Return the value of ``Aggregate.base`` for these polling levels: their number base, or ``CONTINUOUS``."""
    return CONTINUOUS if levels is Levels.CONTINUOUS else levels.base


def solve_scale(policy: FleetPolicy, nodes: int, fleet: Aggregate) -> float | None:
    """Return the *scale* c, at which the fleet's polls reach the objective; None if there are no channels.

    A channel has c·√(weight/cost) polls per poll interval τ, within its bounds.

    - ``nodes``: the number of nodes of the fleet.
    - ``fleet``: a summary of the channels of ``fleet.nodes`` nodes. If these are fewer than ``nodes``, their channels
      get a proportionate part of the budget.

    The polls that longest waits require are made even if the subscribers do not justify them, but not beyond the
    budget.
    """
    clusters, steps = decode(fleet.clusters), decode_steps(fleet.steps)
    if clusters is None or steps is None or not len(clusters.rise):
        return None
    objective = policy.objective
    cap = inf
    if objective.budget_polls_per_minute is not None:
        known = min(1.0, fleet.nodes / nodes)
        cap = objective.budget_polls_per_minute * policy.poll_interval_s / SECONDS_PER_MINUTE * known
    if objective.goal is not Goal.FAST:
        longest_waits = float(clusters.least_cost.sum())
        return steps.scale_for_budget(clusters, min(max(fleet.demand * objective.demand_factor, longest_waits), cap))
    fast = steps.scale_for_delay(clusters, objective.delay_s, policy.poll_interval_s)
    return min(fast, steps.scale_for_budget(clusters, cap)) if cap < inf else fast


def channel_sizes(
    policy: FleetPolicy,
    nodes: int,
    channels: FactorTable,
    scale: float | None,
    choices: LevelChoices | None = None,
    *,
    owned: int = 1,
) -> Floats:
    """Return each channel's number of polls per poll interval τ, within its bounds.

    - ``nodes``: the number of nodes of the fleet.
    - ``scale``: the number c; a channel has c·√(weight/cost) polls per τ. None if it is unknown.
    - ``choices``: the numbers of nodes that may poll each channel; None if any number of polls is allowed.
    - ``owned``: the number of channels of this node; used only while the scale is unknown.

    If the scale is unknown, a channel gets ``demand_factor`` times the polls that its subscribers justify. If the fleet
    has a budget, it gets at most budget/(``nodes``·``owned``).
    """
    bounds = allocation_problem(policy, nodes, channels)
    share = channel_demands(policy, nodes, channels) * policy.objective.demand_factor
    if policy.objective.budget_polls_per_minute is not None:
        budget = policy.objective.budget_polls_per_minute * policy.poll_interval_s / SECONDS_PER_MINUTE
        share = np.minimum(share, budget / (nodes * max(1, owned)))
    if choices is not None and (scale is None or scale >= 0):
        found = choices.rates(bounds, share if scale is None else scale * bounds.slopes())
    elif scale is None:
        found = np.minimum(np.maximum(share, bounds.least), bounds.most)
    else:
        found = sizes(bounds, scale)
    return np.where(found > 1, np.round(found, DIGITS), found)
