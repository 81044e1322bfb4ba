"""Model of the effect of a polling policy on the current channels, computed with the workers' own optimizer.

The figures follow Corona §3.1 and §3.2: polls are evenly spaced and all of them succeed. The model leaves out failed
polls, and polls that are delayed by the request limits of sites.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import msgspec
import numpy as np

from service.corona import node_optimizer
from service.corona.fleet_policy import NO_BOUNDS, SECONDS_PER_MINUTE, ChannelBounds, FleetPolicy
from service.corona.honeycomb import UNBOUNDED_SCALE, scale_for_budget
from service.corona.node_optimizer import ChannelFactors, FactorTable, factor_table
from service.corona.objectives import Floats, detection_s, mean_delay_s, size_for_wait
from service.corona.poll_explanation import BindingConstraint, limited_size
from service.corona.site_budgets import POLL_BUDGET_SHARE

_SHARES = np.linspace(0.0, 1.0, 101)
_TOLERANCE = 1e-6


class ChannelLoad(msgspec.Struct, frozen=True):
    """The properties of one channel that determine its poll rate.

    ``site`` is the site whose request budget the channel's polls use; "" if they use none. ``bounds`` are the channel's
    own bounds on its poll rate.
    """

    subscribers: int
    update_interval_s: float
    private: bool
    site: str
    bounds: ChannelBounds = NO_BOUNDS

    def factors(self) -> ChannelFactors:
        """Return the optimizer's input for this channel, as if its site had an unlimited request budget."""
        longest_s, shortest_s = self.bounds.longest_wait_s or 0.0, self.bounds.shortest_interval_s or 0.0
        return ChannelFactors(
            self.subscribers, self.update_interval_s, self.private, UNBOUNDED_SCALE, longest_s, shortest_s
        )


class Outcome(msgspec.Struct, frozen=True):
    """The effect of a policy. Delays are mean detection delays in seconds, from a change to the poll that finds it.

    ``delay_s`` is averaged over subscriptions, ``news_delay_s`` over notifications. ``waits_s`` are the quantiles 0, 1,
    …, 100 % of the delays of all subscriptions. ``scale`` is the optimizer's factor that fits all polls into the
    fleet's budget, null without channels. ``bounds`` counts the channels by the constraint that determines their poll
    rate.
    """

    polls_per_minute: float
    delay_s: float
    news_delay_s: float
    waits_s: tuple[float, ...]
    scale: float | None
    bounds: dict[BindingConstraint, int]


class ChannelDelays(NamedTuple):
    """The mean detection delays of one channel before and after a change, in seconds.

    ``row`` is the position of the channel in the list that the model was built from.
    """

    row: int
    before_s: float
    after_s: float


class SlowChannel(NamedTuple):
    """A channel with its mean detection delay in seconds, and the constraint that determines its number of polls.

    ``row`` is the position of the channel in the list that the model was built from.
    """

    row: int
    wait_s: float
    bound: BindingConstraint


class _Solution(NamedTuple):
    """The optimum for all channels.

    ``size`` has the polls of each channel in one poll interval, ``table`` the optimizer's input for each channel, with
    its site's scale. ``scale`` is the fleet's scale; None if there are no channels.
    """

    size: Floats
    table: FactorTable
    scale: float | None


class PolicyModel:
    """A model of the current channels, nodes and request limits of sites, which predicts the effect of any policy."""

    def __init__(self, channels: Sequence[ChannelLoad], nodes: int, site_rates: Mapping[str, float]) -> None:
        """Create a model of ``channels`` that ``nodes`` nodes poll.

        ``site_rates`` are the request limits that admins have set, by site, in requests per second.
        """
        self._table = factor_table((each.factors() for each in channels), len(channels))
        self._nodes = max(1, nodes)
        self._rates = site_rates
        self._site_names, self._sites = _enumerate_names([each.site for each in channels])
        self._solutions: dict[FleetPolicy, _Solution] = {}

    def sizes(self, policy: FleetPolicy) -> _Solution:
        """Return how often each channel is polled under ``policy``.

        A scale is the optimizer's factor that fits polls into a budget: that of one site, or that of the fleet.
        """
        if policy not in self._solutions:
            self._solutions[policy] = self._solve(policy)
        return self._solutions[policy]

    def _solve(self, policy: FleetPolicy) -> _Solution:
        table = self._table.copy()
        table["site_scale"] = self._site_scales(policy)
        part = msgspec.structs.replace(node_optimizer.own_aggregate(policy, self._nodes, table), nodes=self._nodes)
        scale = node_optimizer.solve_scale(policy, self._nodes, part)
        return _Solution(node_optimizer.channel_sizes(policy, self._nodes, table, scale), table, scale)

    def outcome(self, policy: FleetPolicy) -> Outcome:
        """Return the effect that ``policy`` would have on the current channels."""
        size, table, scale = self.sizes(policy)
        subscriptions = np.maximum(table["subscribers"].astype(np.float64), 1.0)
        interval_s = policy.poll_interval_s
        waits_s = detection_s(size, interval_s)
        return Outcome(
            polls_per_minute=float(size.sum()) / interval_s * SECONDS_PER_MINUTE,
            delay_s=mean_delay_s(subscriptions, size, interval_s),
            news_delay_s=mean_delay_s(subscriptions / table["update_interval_s"], size, interval_s),
            waits_s=_quantiles(waits_s, subscriptions),
            scale=scale,
            bounds={} if scale is None else dict(node_optimizer.count_by_constraint(policy, self._nodes, table, scale)),
        )

    def slowest(self, policy: FleetPolicy, max_count: int) -> Sequence[SlowChannel]:
        """Return up to ``max_count`` channels with the longest detection delays under ``policy``, slowest first."""
        size, table, scale = self.sizes(policy)
        if scale is None:
            return []
        waits_s = detection_s(size, policy.poll_interval_s)
        rows = np.argsort(-waits_s, kind="stable")[:max_count].tolist()
        return [SlowChannel(row, float(waits_s[row]), self._bound(policy, table[row], scale)) for row in rows]

    def _bound(self, policy: FleetPolicy, row: np.void, scale: float) -> BindingConstraint:
        """Return the constraint that determines the number of polls of the channel in a ``row`` of the table."""
        factors = ChannelFactors(*(row[name].item() for name in ChannelFactors._fields))
        limits = node_optimizer.limits_with_site(policy, self._nodes, factors)
        slope = sqrt(node_optimizer.channel_weight(policy, factors) / node_optimizer.POLL_COST)
        least = size_for_wait(limits.longest_wait_s, policy.poll_interval_s)
        return limited_size(slope, scale, least, limits)[1]

    def largest_delay_changes(
        self, before: FleetPolicy, after: FleetPolicy, max_count: int
    ) -> tuple[Sequence[ChannelDelays], Sequence[ChannelDelays]]:
        """Return the channels whose delay decreases most, and those whose delay increases most.

        The policy changes from ``before`` to ``after``. Each list has at most ``max_count`` channels, most affected
        first. Channels are ranked by the logarithm of the ratio of both delays, multiplied by the number of
        subscribers.
        """
        size_after, _, _ = self.sizes(after)
        size_before, _, _ = self.sizes(before)
        before_s = detection_s(size_before, before.poll_interval_s)
        after_s = detection_s(size_after, after.poll_interval_s)
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = np.nan_to_num(np.log(before_s / after_s)) * np.maximum(self._table["subscribers"], 1)
        order = np.argsort(gain, kind="stable")
        sooner = (index for index in order[::-1][:max_count] if gain[index] > _TOLERANCE)
        later = (index for index in order[:max_count] if gain[index] < -_TOLERANCE)

        def delays_of(indices: Iterable[np.int64]) -> Sequence[ChannelDelays]:
            return [ChannelDelays(int(index), float(before_s[index]), float(after_s[index])) for index in indices]

        return delays_of(sooner), delays_of(later)

    def _site_scales(self, policy: FleetPolicy) -> Floats:
        """Return for each channel the scale that fits the polls of its site into the site's request budget.

        A scale is a factor of the optimizer; it is ``UNBOUNDED_SCALE`` if the budget does not restrict the polls. The
        worker that manages a site's budget computes the same scale.
        """
        scales = np.full(len(self._table), UNBOUNDED_SCALE)
        unbound = node_optimizer.allocation_problem(policy, self._nodes, self._table)
        at_most = np.bincount(self._sites, weights=unbound.costs * unbound.most, minlength=len(self._site_names))
        by_site = np.argsort(self._sites, kind="stable")
        ends = np.cumsum(np.bincount(self._sites, minlength=len(self._site_names)))
        for number, name in enumerate(self._site_names):
            rate = self._rates.get(name, policy.site_requests_per_s)
            budget = POLL_BUDGET_SHARE * rate * policy.poll_interval_s
            if name and at_most[number] > budget:
                own = by_site[ends[number - 1] if number else 0 : ends[number]]
                scales[own] = scale_for_budget(
                    node_optimizer.allocation_problem(policy, self._nodes, self._table[own]), budget
                )
        return scales


def _quantiles(waits_s: Floats, subscriptions: Floats) -> tuple[float, ...]:
    """Return the quantiles 0, 1, …, 100 % of ``waits_s``, each weighted by its number of ``subscriptions``."""
    if not len(waits_s):
        return (0.0,) * len(_SHARES)
    order = np.argsort(waits_s)
    cumulative = np.cumsum(subscriptions[order])
    places = np.searchsorted(cumulative, _SHARES * cumulative[-1])
    return tuple(waits_s[order][np.minimum(places, len(order) - 1)].tolist())


def _enumerate_names(names: Sequence[str]) -> tuple[list[str], "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """Return the distinct names, and for each of ``names`` its index in the distinct names."""
    unique = list(dict.fromkeys(names))
    numbers = {name: number for number, name in enumerate(unique)}
    return unique, np.fromiter((numbers[name] for name in names), dtype=np.int64, count=len(names))
