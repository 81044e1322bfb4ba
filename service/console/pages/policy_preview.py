"""What aims would come to on the present channels, by the fleet's own optimiser. Pure.

The numbers are those of the model (Corona §3.1, §3.2): polls evenly spaced, each as good as the next. What courtesy
holds back at a site, and what fails, is not in them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from service.corona import node_optimizer
from service.corona.fleet_policy import NO_BOUNDS, SECONDS_PER_MINUTE, ChannelBounds, FleetPolicy
from service.corona.honeycomb import UNBOUNDED_SCALE, scale_for_budget
from service.corona.node_optimizer import ChannelFactors, FactorTable, factor_table
from service.corona.objectives import Floats, detection_s, mean_delay_s
from service.corona.poll_explanation import BindingConstraint
from service.corona.site_budgets import POLL_BUDGET_SHARE

_SHARES = np.linspace(0.0, 1.0, 101)
_NEAR = 1e-6


class Weighed(msgspec.Struct, frozen=True):
    """What counts of one channel: ``site`` is whose budget its polls are taken from, "" for none.

    ``bounds`` are the channel's own, as admins set them.
    """

    subscribers: int
    update_interval_s: float
    private: bool
    site: str
    bounds: ChannelBounds = NO_BOUNDS

    def factors(self) -> ChannelFactors:
        """Return what its size depends on, besides its site's scale."""
        longest_s, shortest_s = self.bounds.longest_wait_s or 0.0, self.bounds.shortest_interval_s or 0.0
        return ChannelFactors(
            self.subscribers, self.update_interval_s, self.private, UNBOUNDED_SCALE, longest_s, shortest_s
        )


class Outcome(msgspec.Struct, frozen=True):
    """What aims come to. Delays are from a publisher's change to the poll that sees it, on average, in seconds.

    ``delay_s`` is that of a subscription, ``news_delay_s`` that of a notification. ``waits_s`` has, for 0, 1, … 100 %
    of all subscriptions, what those do not wait longer than. ``bounds`` says how many channels each bound decides.
    """

    polls_per_minute: float
    delay_s: float
    news_delay_s: float
    waits_s: tuple[float, ...]
    scale: float | None
    bounds: dict[BindingConstraint, int]


class Move(NamedTuple):
    """A channel, by its place among those that were given, and its mean delays before and after, in seconds."""

    place: int
    before_s: float
    after_s: float


class Fleet:
    """The present channels, ready to be weighed up under different aims."""

    def __init__(self, channels: Sequence[Weighed], nodes: int, site_rates: Mapping[str, float]) -> None:
        """Take M channels as they are; ``site_rates`` are those that admins set, in requests per second."""
        self._table = factor_table((each.factors() for each in channels), len(channels))
        self._nodes = max(1, nodes)
        self._rates = site_rates
        self._site_names, self._sites = _numbered([each.site for each in channels])

    def sizes(self, policy: FleetPolicy) -> tuple[Floats, FactorTable, float | None]:
        """Return each channel's polls per τ, shape (M,), the table with its site's scale, and the fleet's."""
        table = self._table.copy()
        table["site_scale"] = self._site_scales(policy)
        part = msgspec.structs.replace(node_optimizer.own_aggregate(policy, self._nodes, table), nodes=self._nodes)
        scale = node_optimizer.solve_scale(policy, self._nodes, part)
        return node_optimizer.channel_sizes(policy, self._nodes, table, scale), table, scale

    def outcome(self, policy: FleetPolicy) -> Outcome:
        """Return what a policy comes to."""
        size, table, scale = self.sizes(policy)
        followers = np.maximum(table["subscribers"].astype(np.float64), 1.0)
        interval_s = policy.poll_interval_s
        waits_s = detection_s(size, interval_s)
        return Outcome(
            polls_per_minute=float(size.sum()) / interval_s * SECONDS_PER_MINUTE,
            delay_s=mean_delay_s(followers, size, interval_s),
            news_delay_s=mean_delay_s(followers / table["update_interval_s"], size, interval_s),
            waits_s=_quantiles(waits_s, followers),
            scale=scale,
            bounds=self._bounds(policy, size, table, scale),
        )

    def moved(self, before: FleetPolicy, after: FleetPolicy, most: int) -> tuple[Sequence[Move], Sequence[Move]]:
        """Return the channels whose news would come sooner, and those later, by how much in all, the most first."""
        then, _, _ = self.sizes(after)
        now, _, _ = self.sizes(before)
        before_s, after_s = detection_s(now, before.poll_interval_s), detection_s(then, after.poll_interval_s)
        with np.errstate(invalid="ignore", divide="ignore"):
            felt = np.nan_to_num(np.log(before_s / after_s)) * np.maximum(self._table["subscribers"], 1)
        order = np.argsort(felt, kind="stable")
        sooner = (place for place in order[::-1][:most] if felt[place] > _NEAR)
        later = (place for place in order[:most] if felt[place] < -_NEAR)

        def told(places: Iterable[np.int64]) -> Sequence[Move]:
            return [Move(int(place), float(before_s[place]), float(after_s[place])) for place in places]

        return told(sooner), told(later)

    def _site_scales(self, policy: FleetPolicy) -> Floats:
        """Return the scale of each channel's site, as its keeper would find it: where its budget binds, shape (M,)."""
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

    def _bounds(
        self, policy: FleetPolicy, size: Floats, table: FactorTable, scale: float | None
    ) -> dict[BindingConstraint, int]:
        """Count which bound decides, as :func:`service.corona.poll_explanation.bounded` names it."""
        if scale is None:
            return {}
        problem = node_optimizer.allocation_problem(policy, self._nodes, table)
        if scale < 0:
            return {BindingConstraint.FLEET_BUDGET: len(size)}
        at_most = size >= problem.most * (1 - _NEAR)
        at_least = ~at_most & (size <= problem.least * (1 + _NEAR)) & (problem.least > 0)
        least, most = node_optimizer.size_bounds(policy, self._nodes, table)
        by_site = at_most & (problem.most < most * (1 - _NEAR))
        with np.errstate(divide="ignore"):
            by_interval = at_most & ~by_site & (policy.poll_interval_s / table["shortest_interval_s"] <= most)
        by_nodes = at_most & ~by_site & ~by_interval & (np.maximum(self._nodes, least) <= most)
        politely = node_optimizer.limits_without_site(
            policy, self._nodes, ChannelFactors(1, 0.0, private=False)
        ).channel_budget
        by_channel = by_nodes & ~table["private"] & (politely <= most)
        by_channel |= at_most & ~by_site & ~by_interval & ~by_nodes
        own_wait = at_least & (table["longest_wait_s"] > 0)
        counts = {
            BindingConstraint.HOST_BUDGET: by_site.sum(),
            BindingConstraint.CHANNEL_INTERVAL: by_interval.sum(),
            BindingConstraint.CHANNEL_BUDGET: by_channel.sum(),
            BindingConstraint.NODES: (by_nodes & ~by_channel).sum(),
            BindingConstraint.CHANNEL_WAIT: own_wait.sum(),
            BindingConstraint.LONGEST_WAIT: (at_least & ~own_wait).sum(),
            BindingConstraint.NONE: (~at_most & ~at_least).sum(),
        }
        return {bound: int(count) for bound, count in counts.items() if count}


def _quantiles(waits_s: Floats, followers: Floats) -> tuple[float, ...]:
    """Return the waits that so many hundredths of all subscriptions do not exceed."""
    if not len(waits_s):
        return (0.0,) * len(_SHARES)
    order = np.argsort(waits_s)
    reached = np.cumsum(followers[order])
    places = np.searchsorted(reached, _SHARES * reached[-1])
    return tuple(waits_s[order][np.minimum(places, len(order) - 1)].tolist())


def _numbered(names: Sequence[str]) -> tuple[list[str], "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    found = dict.fromkeys(names)
    numbers = {name: number for number, name in enumerate(found)}
    return list(found), np.fromiter((numbers[name] for name in names), dtype=np.int64, count=len(names))
