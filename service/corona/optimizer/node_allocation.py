"""A node's part in the optimisation of polling rates (§3.2).

This module describes the node's own channels as an optimisation problem, and computes the *scale* c from a summary of
all channels of the fleet. How often a channel is polled depends on c and on the channel's own properties, such as its
number of subscribers. The channel's owner knows these properties exactly. Nodes therefore only have to agree on c, for
which a coarse summary of the channels is sufficient.
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

    - ``subscribers``: the number of subscribers; at least 1 if an admin has listed the channel or a subscription is
      pending.
    - ``update_interval_s``: the estimated mean time between the channel's updates, in seconds.
    - ``private``: whether the publisher is on a private network. The limit on polls of public channels then does not
      apply.
    """

    subscribers: int
    update_interval_s: float
    private: bool
    site_scale: float = UNBOUNDED_SCALE
    """The scale of the channel's site. It limits the channel's polls; see ``allocation_solver.apply_site_scales``."""
    longest_wait_s: float = 0.0
    """The upper limit that admins set for this channel's mean time from an update to its detection, in seconds.

    The value 0 means the limit of the objective.
    """
    shortest_interval_s: float = 0.0
    """The shortest interval between polls, in seconds, that admins set for this channel; 0 for none."""
    publisher_interval_s: float = 0.0
    """The shortest interval between polls, in seconds, that the publisher or failed polls currently allow; 0 for none.
    """
    weight_factor: float = 1.0
    """The mean delay with polls that follow the channel's weekly rhythm, divided by the mean delay with even polls."""
    present_speed: float = 1.0
    """How often the channel is polled in the present hour, as a multiple of its mean over the week.

    With the value 1, the hour is ignored.
    """


FACTORS_ROW = np.dtype(
    [(name, {int: "<u4", float: "<f8", bool: "?"}[kind]) for name, kind in ChannelFactors.__annotations__.items()]
)
"""The type of a row of a :data:`FactorTable`: its columns are the fields of :class:`ChannelFactors`."""


def factor_table(channels: Iterable[ChannelFactors], count: int) -> FactorTable:
    """Return the properties of ``count`` channels as an array with one row per channel.

    The columns are the fields of :class:`ChannelFactors`. ``channels`` must have ``count`` elements.
    """
    # It needs a tenth of the memory of objects.
    return np.fromiter(channels, dtype=FACTORS_ROW, count=count)


def allocation_problem(policy: FleetPolicy, nodes: int, channels: FactorTable) -> AllocationProblem:
    """Return the optimisation problem for ``channels`` in a fleet of ``nodes`` nodes.

    - The minimum and the maximum of each channel are averages over the week, in polls per poll interval τ. They take
      the request budgets of sites into account.
    - The weight and the cost of each channel are multiplied by its ``present_speed``: how often it is polled in the
      present hour, as a multiple of its average. Their ratio is therefore the same in every hour.
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

    - ``channel_interval``: the bound that follows from the shortest interval that admins have set for the channel.
    - ``publisher``: the bound that follows from the current limits set by the publisher or by failed polls.
    - ``channel_budget``: the limit on polls of a public channel (:meth:`FleetPolicy.most_polls_per_hour`).
    - ``nodes``: the bound that follows from the number of nodes. A node polls a channel at most
      ``FleetPolicy.most_polls_per_node`` times per τ, unless the longest wait requires more polls.

    The request budgets of sites are not included.
    """

    channel_interval: Floats
    publisher: Floats
    channel_budget: Floats
    nodes: Floats


def upper_bounds(policy: FleetPolicy, nodes: int, channels: FactorTable) -> UpperBounds:
    """Return the upper bounds of each channel's polls per poll interval τ, in a fleet of ``nodes`` nodes."""
    with np.errstate(divide="ignore"):
        return UpperBounds(
            policy.poll_interval_s / channels["shortest_interval_s"],
            policy.poll_interval_s / channels["publisher_interval_s"],
            np.where(channels["private"], inf, polite_sizes(policy, channels)),
            np.maximum(policy.most_polls_per_node * nodes, least_sizes(policy, channels)),
        )


def least_sizes(policy: FleetPolicy, channels: FactorTable) -> Floats:
    """Return each channel's minimum number of polls per poll interval τ, shape (M,).

    With this number of polls, the mean time from an update to its detection equals the longest wait allowed.
    """
    waits_s = channels["longest_wait_s"]
    return size_for_wait(1.0, policy.poll_interval_s) / np.where(waits_s > 0, waits_s, policy.longest_wait_s)


def size_bounds(policy: FleetPolicy, nodes: int, channels: FactorTable) -> tuple[Floats, Floats]:
    """Return (minimum, maximum): the bounds of each channel's polls per poll interval τ, as two arrays of shape (M,).

    ``nodes`` is the number of nodes in the fleet. The request budgets of sites are not included.
    """
    return least_sizes(policy, channels), np.minimum.reduce(upper_bounds(policy, nodes, channels))


def channel_demands(policy: FleetPolicy, nodes: int, channels: FactorTable) -> Floats:
    """Return the cost of each channel's polls if every subscriber polled it once per poll interval τ; shape (M,).

    This cost per τ is the channel's *demand*. It assumes one poll per subscriber, as if they all used feed readers of
    their own (§3.2). This number of polls has bounds:

    - Public channels: at most :meth:`FleetPolicy.most_polls_per_hour`, and at most as many polls as ``nodes`` nodes
      may make.
    - Private channels: at least ``FleetPolicy.most_polls_per_node``, without an upper bound.
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
    """Return how often each channel may be polled per poll interval τ without burdening its publisher, shape (M,).

    This is :meth:`FleetPolicy.most_polls_per_hour`, converted to polls per τ. Private channels are treated like public
    ones.
    """
    growing = policy.polls_per_hour_for_one_subscriber * np.sqrt(_subscribers(channels))
    return np.minimum(growing, policy.max_polls_per_hour) * (policy.poll_interval_s / SECONDS_PER_HOUR)


def own_aggregate(
    policy: FleetPolicy, nodes: int, channels: FactorTable, choices: LevelChoices | None = None
) -> Aggregate:
    """Return a summary of one node's ``channels``, which can be added to the summaries of other nodes.

    - ``nodes``: the number of nodes in the fleet.
    - ``choices``: how many nodes may poll each channel at each polling level; None if any number of polls is allowed.
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
    """Return ``policy`` with the shortest wait that its budget allows for every channel, as ``affordable_wait_s``.

    The wait is a channel's mean time from an update to its detection, in seconds. At most the fraction
    ``LONGEST_WAIT_SHARE`` of the budget is used to guarantee it for all ``channels`` channels of the fleet. Without a
    budget, ``affordable_wait_s`` is 0. The longest waits that admins have set for individual channels do not change.
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
    """Return the *scale* c at which the fleet's polls meet the objective; None if there are no channels.

    A channel has c·√(weight/cost) polls per poll interval τ, within its bounds.

    - ``nodes``: the number of nodes in the fleet.
    - ``fleet``: a summary of the channels of ``fleet.nodes`` nodes. If it covers fewer than ``nodes`` nodes, its
      channels get a proportionate part of the budget.

    Under every goal except Fast, the polls may cost ``demand_factor`` times the demand (:func:`channel_demands`),
    or more if the longest wait requires it. Under all goals, the cost is limited to the budget.
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

    - ``nodes``: the number of nodes in the fleet.
    - ``scale``: the scale c; a channel has c·√(weight/cost) polls per τ. None if c is unknown.
    - ``choices``: how many nodes may poll each channel at each polling level; None if any number of polls is
      allowed.
    - ``owned``: the number of channels that this node owns; used only while c is unknown.

    If c is unknown, a channel's number of polls is its demand (:func:`channel_demands`) multiplied by the
    objective's ``demand_factor``. If the fleet also has a budget, the number is at most
    budget/(``nodes``·``owned``).
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
