"""A node's part in the optimisation: its own channels as a problem, and the scale c from the fleet's aggregate (§3.2).

The scale c follows from the tradeoff clusters of the whole fleet. A channel's number n of polls per τ follows from c
and the channel's exact factors. So nodes have to agree on one number only, and coarse clusters cost little.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from math import inf, sqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.corona.fleet_policy import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, FleetPolicy, Goal, Levels
from service.corona.messages import CONTINUOUS, Aggregate
from service.corona.optimizer.honeycomb import UNBOUNDED_SCALE, AllocationProblem, apply_site_scales, sizes
from service.corona.optimizer.objectives import Floats, size_for_wait, weights
from service.corona.optimizer.poll_explanation import (
    LIMIT_CONSTRAINTS,
    ROUNDING,
    BindingConstraint,
    SizeLimits,
    limited_size,
)
from service.corona.optimizer.polling_levels import LevelChoices, LevelSteps, decode_steps, line_part
from service.corona.optimizer.tradeoff_clusters import decode, encode, summarise
from service.corona.polling_limits import LimitReason
from service.model import ChannelId

POLL_COST = 1.0
"""Cost of a poll, equal for all channels: publishers count requests, and most responses have no body."""

LONGEST_WAIT_SHARE = 0.25
"""Most of a budget in polls per minute that longest waits may take; the rest is spent where updates are expected."""

DIGITS = 6
"""Decimals to which sizes are rounded, so that a rounding error above three polls does not become a fourth node."""


FactorTable = NDArray[Any]
"""Factors of many channels as rows of an array; see :func:`factor_table`."""


class ChannelFactors(NamedTuple):
    """The properties of one channel that determine its number of polls per τ.

    ``subscribers`` is at least 1 if an admin has listed the channel or a subscription is pending. ``private`` channels
    are exempt from the limit on polls of public ones.
    """

    subscribers: int
    update_interval_s: float
    private: bool
    site_scale: float = UNBOUNDED_SCALE
    """The scale of the channel's site; see ``honeycomb.apply_site_scales``."""
    longest_wait_s: float = 0.0
    """The longest wait that admins set for this channel; 0 for the objective's."""
    shortest_interval_s: float = 0.0
    """The shortest interval that admins set for this channel; 0 for none."""
    publisher_interval_s: float = 0.0
    """The shortest interval that the publisher, or the failures of polls, allow now; 0 for none."""
    weight_factor: float = 1.0
    """The factor of the channel's mean delay due to polls that follow its rhythm (``rhythm.weight_factors``)."""
    present_speed: float = 1.0
    """The channel's polls per time relative to their mean over the week, if the problem is that of the present hour."""


FACTORS_ROW = np.dtype(
    [
        *(("subscribers", "<u4"), ("update_interval_s", "<f8"), ("private", "?"), ("site_scale", "<f8")),
        *(("longest_wait_s", "<f8"), ("shortest_interval_s", "<f8"), ("publisher_interval_s", "<f8")),
        *(("weight_factor", "<f8"), ("present_speed", "<f8")),
    ]
)
"""The columns of a :data:`FactorTable`: the fields of :class:`ChannelFactors`."""


def factor_table(channels: Iterable[ChannelFactors], count: int) -> FactorTable:
    """Return the factors of ``count`` channels as rows of an array, which needs a tenth of the memory of objects."""
    return np.fromiter(channels, dtype=FACTORS_ROW, count=count)


_FIRST_ROWS = 64

_PLAN_ROW = np.dtype(
    [
        *((name, FACTORS_ROW[name].str) for name in FACTORS_ROW.names or ()),
        ("planned_interval_s", "<f8"),
        *(("rate", "<f8"), ("set_size", "<u4")),
        *(("gap_s", "<f8"), ("size", "<u4"), ("slowest", "<f4"), ("fastest", "<f4")),
        ("recorded_gap_s", "<f8"),
    ]
)


class PlanTable:
    """The factors and the schedules of one owner's channels: numbers in arrays, one row per channel.

    An owner has tens of thousands of channels. Which of them need another schedule, for example after the fleet's scale
    has changed, is computed for all of them at once, and only these are looked at one by one. The columns of
    :class:`ChannelFactors` are each channel's factors when they were last
    read. The other columns:

    - ``planned_interval_s``: like ``publisher_interval_s``, but a pause counts as one of τ at most.
    - ``rate``, ``set_size``: polls per τ, and the number of nodes that make them, by the present scale and ring.
    - ``gap_s``, ``size``: those of the channel's schedule; 0 if it has none.
    - ``slowest``, ``fastest``: the lowest and the highest speed of the schedule's clock in any hour of the week.
    - ``recorded_gap_s``: the time between polls that was last recorded in the channel's history; 0 for none.
    """

    def __init__(self) -> None:
        self._rows: FactorTable = np.zeros(_FIRST_ROWS, dtype=_PLAN_ROW)
        self.channels: list[ChannelId] = []
        """The channel of each row."""

    @property
    def rows(self) -> FactorTable:
        """The rows of all channels; changes of this array change the table, until a channel is added or removed."""
        return self._rows[: len(self.channels)]

    def add(self, channel: ChannelId) -> int:
        """Append a row of zeros for a channel, and return its number."""
        row = len(self.channels)
        if row == len(self._rows):
            self._rows = np.concatenate((self._rows, np.zeros(max(_FIRST_ROWS, row // 2), dtype=_PLAN_ROW)))
        self._rows[row] = np.zeros((), dtype=_PLAN_ROW)
        self.channels.append(channel)
        return row

    def remove(self, row: int) -> ChannelId | None:
        """Remove a row. The last row takes its place; return the channel of that row, or None if it was the last."""
        last = self.channels.pop()
        if row == len(self.channels):
            return None
        self._rows[row] = self._rows[len(self.channels)]
        self.channels[row] = last
        return last

    def find_notable_gap_changes(self, change: float) -> NDArray[np.intp]:
        """Return the rows whose time between polls differs from the recorded one by more than this share of it."""
        rows = self.rows
        notable = np.abs(rows["gap_s"] - rows["recorded_gap_s"]) > change * rows["recorded_gap_s"]
        return np.flatnonzero(notable & (rows["gap_s"] > 0))


def limits_without_site(policy: FleetPolicy, nodes: int, channel: ChannelFactors) -> SizeLimits:
    """Return the bounds of a channel's polls per τ on a ring of ``nodes`` nodes, except its site's request budget.

    A node polls a channel at most ``policy.most_polls_per_node`` times per τ, unless the longest wait requires more
    polls. The limit on polls of a public channel is :meth:`FleetPolicy.most_polls_per_hour`.
    """
    wait_s, interval_s = channel.longest_wait_s or policy.longest_wait_s, policy.poll_interval_s
    return SizeLimits(
        longest_wait_s=wait_s,
        own_wait=channel.longest_wait_s > 0,
        wait_factor=1.0 if channel.longest_wait_s else policy.longest_wait_s / policy.objective.longest_wait_s,
        channel_interval=interval_s / channel.shortest_interval_s if channel.shortest_interval_s else inf,
        publisher=interval_s / channel.publisher_interval_s if channel.publisher_interval_s else inf,
        nodes=max(policy.most_polls_per_node * nodes, size_for_wait(wait_s, interval_s)),
        channel_budget=(
            inf if channel.private else policy.most_polls_per_hour(channel.subscribers) * interval_s / SECONDS_PER_HOUR
        ),
    )


def limits_with_site(policy: FleetPolicy, nodes: int, channel: ChannelFactors) -> SizeLimits:
    """Return the bounds of a channel's polls per τ on a ring of ``nodes`` nodes, with its site's request budget."""
    bounds = limits_without_site(policy, nodes, channel)
    if channel.site_scale == UNBOUNDED_SCALE:
        return bounds
    least = size_for_wait(bounds.longest_wait_s, policy.poll_interval_s)
    most, _ = limited_size(sqrt(channel_weight(policy, channel) / POLL_COST), channel.site_scale, least, bounds)
    return msgspec.structs.replace(bounds, host_budget=most) if most < bounds.most()[0] else bounds


def allocation_problem(policy: FleetPolicy, nodes: int, channels: FactorTable) -> AllocationProblem:
    """Return the optimisation problem of these channels on a ring of ``nodes`` nodes, within their sites' budgets.

    Sizes are polls per τ as the mean over a week. Costs are those of the present hour, in which a channel that follows
    its rhythm is polled ``present_speed`` times as often. The weights have this factor too, so that it changes no size.
    """
    found = weights(
        policy.objective.goal, _subscribers(channels), channels["update_interval_s"], policy.poll_interval_s
    )
    speed = channels["present_speed"]
    least, most = size_bounds(policy, nodes, channels)
    problem = AllocationProblem.of(found * channels["weight_factor"] * speed, POLL_COST * speed, least=least, most=most)
    return apply_site_scales(problem, channels["site_scale"])


def size_bounds(policy: FleetPolicy, nodes: int, channels: FactorTable) -> tuple[Floats, Floats]:
    """Return two arrays of shape (M,): the least and the most polls per τ of each channel on a ring of ``nodes`` nodes.

    The bounds for each channel are those of :func:`limits_without_site`.
    """
    waits_s, interval_s = channels["longest_wait_s"], policy.poll_interval_s
    least = size_for_wait(1.0, interval_s) / np.where(waits_s > 0, waits_s, policy.longest_wait_s)
    polite = np.where(channels["private"], inf, _polite_sizes(policy, _subscribers(channels)))
    with np.errstate(divide="ignore"):
        apart = interval_s / np.maximum(channels["shortest_interval_s"], channels["publisher_interval_s"])
    return least, np.minimum(polite, np.minimum(np.maximum(policy.most_polls_per_node * nodes, least), apart))


def count_by_constraint(
    policy: FleetPolicy,
    nodes: int,
    channels: FactorTable,
    scale: float,
    choices: LevelChoices | None = None,
    *,
    reason: Callable[[int], LimitReason | None] = lambda _: None,
) -> Counter[BindingConstraint]:
    """Return the number of channels by the constraint that determines their polls, as their explanations name it.

    Args:
        policy: The fleet's policy.
        nodes: Number of nodes on the ring.
        channels: The channels.
        scale: The fleet's scale.
        choices: The channels' polling levels; None if numbers of polls are continuous.
        reason: Returns the kind of the publisher's limit of the channel in a row of ``channels``; None is a hint.
    """
    if scale < 0:
        return +Counter({BindingConstraint.FLEET_BUDGET: len(channels)})
    interval_s, problem = policy.poll_interval_s, allocation_problem(policy, nodes, channels)
    least, most_without_site = size_bounds(policy, nodes, channels)
    with np.errstate(divide="ignore"):
        limits = {
            BindingConstraint.CHANNEL_INTERVAL: interval_s / channels["shortest_interval_s"],
            BindingConstraint.PUBLISHER: interval_s / channels["publisher_interval_s"],
            BindingConstraint.CHANNEL_BUDGET: np.where(
                channels["private"], inf, _polite_sizes(policy, _subscribers(channels))
            ),
            BindingConstraint.HOST_BUDGET: np.where(problem.most < most_without_site, problem.most, inf),
            BindingConstraint.NODES: np.maximum(policy.most_polls_per_node * nodes, least),
        }
    sizes_allowed = np.stack(list(limits.values()))
    most, wanted = sizes_allowed.min(axis=0), scale * problem.slopes()
    at_most = np.maximum(wanted, least) >= most * (1 - ROUNDING)
    raised = ~at_most & (wanted < least)
    if choices is not None:  # a channel may be kept from a larger wedge, although its size is below its upper bound
        unlimited = AllocationProblem(problem.weights, problem.costs, problem.least, np.full(len(channels), inf))
        at_most |= ~raised & (choices.rates(unlimited, wanted) > choices.rates(problem, wanted))
    own_wait = raised & (channels["longest_wait_s"] > 0)
    places = sizes_allowed.argmin(axis=0)
    found = Counter[BindingConstraint]()
    for place, constraint in enumerate(limits):
        rows = np.flatnonzero(at_most & (places == place)).tolist()
        if constraint is BindingConstraint.PUBLISHER:
            found.update(LIMIT_CONSTRAINTS[reason(row) or LimitReason.HINT] for row in rows)
        else:
            found[constraint] = len(rows)
    late = np.zeros(len(channels), dtype=bool)
    if policy.longest_wait_s > policy.objective.longest_wait_s:
        required = size_for_wait(policy.objective.longest_wait_s, interval_s)
        late = ~at_most & (channels["longest_wait_s"] == 0) & (wanted < required)
    found[BindingConstraint.FLEET_BUDGET] = int(late.sum())
    found[BindingConstraint.CHANNEL_WAIT] = int(own_wait.sum())
    found[BindingConstraint.LONGEST_WAIT] = int((raised & ~own_wait & ~late).sum())
    found[BindingConstraint.NONE] = int((~at_most & ~raised & ~late).sum())
    return +found


def imposed_loads(policy: FleetPolicy, nodes: int, channels: FactorTable) -> Floats:
    """Return the demand of each channel: the cost per τ of the polls that its subscribers justify, shape (M,).

    Each subscriber justifies one poll per τ, as their own reader would make (§3.2). A public channel's demand is at
    most what politeness (:meth:`FleetPolicy.most_polls_per_hour`) and the ring's ``nodes`` nodes allow. That of a
    private channel, which has no such limit, is at least what one node polls. Sites' budgets and bounds of single
    channels do not change demand: what they withhold from one channel is left to others.
    """
    subscribers = _subscribers(channels)
    private = np.maximum(subscribers, policy.most_polls_per_node)
    polite = np.minimum(_polite_sizes(policy, subscribers), policy.most_polls_per_node * nodes)
    return np.where(channels["private"], private, np.minimum(subscribers, polite)) * POLL_COST


def _subscribers(channels: FactorTable) -> Floats:
    found: Floats = np.maximum(channels["subscribers"], 1).astype(np.float64)
    return found


def _polite_sizes(policy: FleetPolicy, subscribers: Floats) -> Floats:
    """Return :meth:`FleetPolicy.most_polls_per_hour` of many channels, as polls per τ.

    ``subscribers`` has their numbers of subscribers, at least 1 each.
    """
    growing = policy.polls_per_hour_for_one_subscriber * np.sqrt(subscribers)
    return np.minimum(growing, policy.max_polls_per_hour) * (policy.poll_interval_s / SECONDS_PER_HOUR)


def own_aggregate(
    policy: FleetPolicy, nodes: int, channels: FactorTable, choices: LevelChoices | None = None
) -> Aggregate:
    """Return the summary (aggregate) of one node's ``channels``, on a ring of ``nodes`` nodes.

    ``choices`` are the channels' polling levels; None if numbers of polls are continuous.
    """
    base = aggregate_base(policy.objective.levels)
    if not len(channels):
        return Aggregate(1, 0.0, b"", base)
    problem, demand = allocation_problem(policy, nodes, channels), float(imposed_loads(policy, nodes, channels).sum())
    if choices is None:
        return Aggregate(1, demand, encode(summarise(problem)), base, channels=len(channels))
    steps = LevelSteps.of(problem, choices)
    return Aggregate(1, demand, encode(summarise(line_part(problem))), base, steps.encode(), len(channels))


def affordable_policy(policy: FleetPolicy, channels: int) -> FleetPolicy:
    """Return the policy with the longest wait that its budget can pay for ``channels`` channels.

    The longest wait of the objective is kept if the polls that it requires of the fleet's channels take at most
    ``LONGEST_WAIT_SHARE`` of a budget in polls per minute. Otherwise the shortest wait applies of which this is true.
    Longest waits that admins have set for single channels do not change.
    """
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
    """Return the scale at which the fleet's channels reach the objective; None if there are no channels.

    ``fleet`` summarises the known channels, and ``nodes`` is the number of nodes on the ring. If ``fleet`` covers fewer
    nodes, the channels get that share of the objective's budget. Polls that longest waits require are made although
    they exceed the demand, but not beyond the objective's budget.
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


def channel_weight(policy: FleetPolicy, channel: ChannelFactors) -> float:
    """Return the weight of a channel under the fleet's optimisation goal."""
    subscribers = max(channel.subscribers, 1)
    found = weights(policy.objective.goal, subscribers, channel.update_interval_s, policy.poll_interval_s)
    return float(found) * channel.weight_factor


def channel_sizes(
    policy: FleetPolicy,
    nodes: int,
    channels: FactorTable,
    scale: float | None,
    choices: LevelChoices | None = None,
    *,
    owned: int = 1,
) -> Floats:
    """Return each channel's number of polls per τ at this scale, on a ring of ``nodes`` nodes.

    ``choices`` are the channels' polling levels; None if numbers of polls are continuous. If the scale is None
    (unknown), each channel gets its own demand's share of the polls, within its bounds, but at most an equal share of
    the fleet's budget, of which each node gets an equal part for the ``owned`` channels that it owns.
    """
    bounds = allocation_problem(policy, nodes, channels)
    share = imposed_loads(policy, nodes, channels) * policy.objective.demand_factor
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
