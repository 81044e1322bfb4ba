"""A model that predicts the effect of a polling policy on the current channels, using the workers' own optimizer.

The model follows Corona §3.1 and §3.2. Like the workers, it also takes into account that

- limits on the number of polls depend on a channel's number of subscribers,
- publishers give polling hints, and failing channels are polled less often,
- the requests to each site (a registrable domain with all its hosts) are limited,
- exactly as many nodes poll a channel as its level prescribes, if the policy permits only whole polling levels,
- channels with a weekly rhythm are polled more often at the hours and days at which they publish more.

The model ignores polls that fail or are late, and pauses of whole sites.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from service.corona.fleet_policy import NO_BOUNDS, SECONDS_PER_MINUTE, ChannelBounds, FleetPolicy
from service.corona.optimizer import node_allocation
from service.corona.optimizer.allocation_solver import UNBOUNDED_SCALE, scale_for_budget
from service.corona.optimizer.node_allocation import ChannelFactors, FactorTable, factor_table
from service.corona.optimizer.objectives import Floats, detection_s
from service.corona.optimizer.poll_explanation import BindingConstraint, binding_constraints
from service.corona.optimizer.polling_levels import LevelChoices, RingLevels
from service.corona.polling_limits import LimitReason
from service.corona.site_budgets import POLL_BUDGET_SHARE
from service.corona.weekly_rhythm import decode_rates, delay_factors, encode_speeds, polling_speeds, weight_factors
from service.model import ChannelId
from service.overlay.ring import RingView

_SHARES = np.linspace(0.0, 1.0, 101)
_TOLERANCE = 1e-6


class ChannelLoad(msgspec.Struct, frozen=True):
    """The properties of one channel that determine its poll rate.

    - ``private`` is true if the channel is exempt from the limits for public channels.
    - ``site`` is the site whose request budget the channel's polls use; "" means that they use none.
    - ``bounds`` are the channel's own bounds on its poll rate.
    - ``publisher_interval_s`` is the shortest interval between polls that is currently permitted by the publisher's
      hints and by the back-off after failures; 0.0 means that any interval is permitted.
    - ``limit_reason`` states whether a hint or the back-off determines ``publisher_interval_s``; None means that any
      interval is permitted.
    - ``rhythm`` is the channel's encoded weekly rhythm: its publication rate by hour and day.
    """

    id: ChannelId
    subscribers: int
    update_interval_s: float
    private: bool
    site: str
    bounds: ChannelBounds = NO_BOUNDS
    publisher_interval_s: float = 0.0
    limit_reason: LimitReason | None = None
    rhythm: bytes = b""

    def factors(self) -> ChannelFactors:
        """Return the optimizer's input for this channel.

        The channel's weekly rhythm and the request limit of its site are not included; the model adds them later.
        """
        return ChannelFactors(
            self.subscribers,
            self.update_interval_s,
            self.private,
            longest_wait_s=self.bounds.longest_wait_s or 0.0,
            shortest_interval_s=self.bounds.shortest_interval_s or 0.0,
            publisher_interval_s=self.publisher_interval_s,
        )


class Outcome(msgspec.Struct, frozen=True):
    """The effect of a policy. Delays are mean detection delays in seconds, from a change to the poll that finds it.

    - ``delay_s`` is the mean over all subscriptions, and ``news_delay_s`` the mean over all notifications.
    - ``waits_s`` are the quantiles 0, 1, …, 100 % of the delays of all subscriptions.
    - ``scale`` is the factor by which the optimizer multiplies the polls of all channels, so that all polls together
      use the fleet's budget; null means that there are no channels.
    - ``bounds`` maps each constraint to the number of channels whose poll rate it determines.
    """

    polls_per_minute: float
    delay_s: float
    news_delay_s: float
    waits_s: tuple[float, ...]
    scale: float | None
    bounds: dict[BindingConstraint, int]


class DelayChange(msgspec.Struct, frozen=True):
    """A channel whose mean detection delay would change.

    ``before_s`` and ``after_s`` are the delays before and after the change of policy, in seconds.
    """

    channel: ChannelId
    title: str
    subscribers: int
    before_s: float
    after_s: float


class SlowestChannel(msgspec.Struct, frozen=True):
    """A channel with a long mean detection delay.

    ``wait_s`` is this delay in seconds. ``bound_by`` is the constraint that determines the channel's poll rate.
    """

    channel: ChannelId
    title: str
    subscribers: int
    wait_s: float
    bound_by: BindingConstraint


class _Solution(NamedTuple):
    """The optimizer's solution for all channels under a policy: how often each channel is polled.

    - ``policy`` is the policy. Its ``affordable_wait_s`` is set to the shortest mean wait that its budget allows.
    - ``size`` contains one number for each channel: how many polls all nodes together make in one poll interval of
      the policy.
    - ``delays_s`` contains each channel's mean detection delay in seconds.
    - ``table`` contains the optimizer's input for each channel, including the effect of its site's request limit.
    - ``scale`` is a factor in the number of polls, the same for all channels. The optimizer chooses it so that all
      polls together fit into the fleet's budget. None means that there are no channels.
    - ``choices`` are the polling levels that each channel can have; None if any number of nodes may poll a channel.
    """

    policy: FleetPolicy
    size: Floats
    delays_s: Floats
    table: FactorTable
    scale: float | None
    choices: LevelChoices | None


class PolicyModel:
    """Predicts the effect of any polling policy on the current channels, nodes and request limits of sites."""

    def __init__(self, channels: Sequence[ChannelLoad], ring: RingView, site_rates: Mapping[str, float]) -> None:
        """Create a model of ``channels``, which are polled by the nodes of ``ring``.

        ``site_rates`` maps sites to the request limits that admins have set for them, in requests per second.
        """
        self._channels = channels
        self._table = factor_table((each.factors() for each in channels), len(channels))
        self._ring = ring
        self._nodes = max(1, len(ring.nodes))
        self._rates = site_rates
        self._site_names, self._sites = _enumerate_names([each.site for each in channels])
        self._solutions: dict[FleetPolicy, _Solution] = {}

    def solve(self, policy: FleetPolicy) -> _Solution:
        """Return the solution under ``policy``: each channel's number of polls and its detection delay.

        Workers compute the same results for the channels that they own. Solutions are cached.
        """
        if policy not in self._solutions:
            self._solutions[policy] = self._solve(node_allocation.affordable_policy(policy, len(self._channels)))
        return self._solutions[policy]

    def _solve(self, policy: FleetPolicy) -> _Solution:
        table, levels = self._table.copy(), policy.objective.levels
        rhythms = [each.rhythm for each in self._channels] if policy.weekly_rhythm else []
        if any(rhythms):
            table["weight_factor"] = weight_factors(decode_rates(rhythms))
        table["site_scale"] = self._site_scales(policy, table)
        choices = None
        if levels.are_whole and len(table):
            choices = RingLevels(self._ring, levels.base).choices([each.id for each in self._channels])
        own = node_allocation.own_aggregate(policy, self._nodes, table, choices)
        scale = node_allocation.solve_scale(policy, self._nodes, msgspec.structs.replace(own, nodes=self._nodes))
        size = node_allocation.channel_sizes(policy, self._nodes, table, scale, choices)
        delays_s = detection_s(size, policy.poll_interval_s)
        if any(rhythms) and (size > 0).all():
            least, most = node_allocation.size_bounds(policy, self._nodes, table)
            speeds = encode_speeds(polling_speeds(decode_rates(rhythms), least / size, most / size))
            delays_s = delays_s * delay_factors(rhythms, speeds)
        return _Solution(policy, size, delays_s, table, scale, choices)

    def predict_outcome(self, policy: FleetPolicy) -> Outcome:
        """Return the effect that ``policy`` would have on the current channels."""
        policy, size, delays_s, table, scale, choices = self.solve(policy)
        subscriptions = np.maximum(table["subscribers"].astype(np.float64), 1.0)
        bounds: Mapping[BindingConstraint, int] = {}
        if scale is not None:
            bounds = Counter(
                binding_constraints(
                    policy, self._nodes, table, scale, choices, reason=lambda row: self._channels[row].limit_reason
                )
            )
        return Outcome(
            polls_per_minute=float(size.sum()) / policy.poll_interval_s * SECONDS_PER_MINUTE,
            delay_s=_mean(delays_s, subscriptions),
            news_delay_s=_mean(delays_s, subscriptions / table["update_interval_s"]),
            waits_s=_quantiles(delays_s, subscriptions),
            scale=scale,
            bounds=dict(bounds),
        )

    def find_slowest(self, policy: FleetPolicy, max_count: int) -> tuple[SlowestChannel, ...]:
        """Return up to ``max_count`` channels with the longest detection delays under ``policy``, slowest first.

        The field ``title`` of these channels is empty, because the model does not know titles.
        """
        policy, _, delays_s, table, scale, choices = self.solve(policy)
        if scale is None:
            return ()
        rows = np.argsort(-delays_s, kind="stable")[:max_count]
        slowest = [self._channels[row] for row in rows.tolist()]
        if choices is not None:
            choices = LevelChoices(choices.sizes[rows], choices.factors[rows])
        constraints = binding_constraints(
            policy, self._nodes, table[rows], scale, choices, reason=lambda index: slowest[index].limit_reason
        )
        return tuple(
            SlowestChannel(each.id, "", each.subscribers, delay_s, constraint)
            for each, delay_s, constraint in zip(slowest, delays_s[rows].tolist(), constraints, strict=True)
        )

    def find_largest_delay_changes(
        self, before: FleetPolicy, after: FleetPolicy, max_count: int
    ) -> tuple[tuple[DelayChange, ...], tuple[DelayChange, ...]]:
        """Return (sooner, later): the channels with the largest decreases and the largest increases of detection delay.

        - ``before``, ``after``: the two policies between which the delays change.
        - ``max_count``: the maximum number of channels in each of the two tuples.

        In each tuple, the largest change comes first. The size of a change is the logarithm of the ratio between the
        two delays, multiplied by the number of subscribers. The field ``title`` of the channels is empty, because the
        model does not know titles.
        """
        before_s, after_s = self.solve(before).delays_s, self.solve(after).delays_s
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = np.nan_to_num(np.log(before_s / after_s)) * np.maximum(self._table["subscribers"], 1)
        order = np.argsort(gain, kind="stable")
        sooner = (index for index in order[::-1][:max_count] if gain[index] > _TOLERANCE)
        later = (index for index in order[:max_count] if gain[index] < -_TOLERANCE)

        def change(row: int) -> DelayChange:
            channel = self._channels[row]
            return DelayChange(channel.id, "", channel.subscribers, float(before_s[row]), float(after_s[row]))

        return tuple(map(change, sooner)), tuple(map(change, later))

    def _site_scales(self, policy: FleetPolicy, table: FactorTable) -> Floats:
        """Return one number for each channel: the *scale* of its site, which keeps the site within its request budget.

        The scale is a factor for the polls of all channels of the site. With it, these polls use exactly the site's
        request budget. If the budget does not restrict the polls, the scale is ``UNBOUNDED_SCALE``. The worker that
        manages the site's budget computes the same scale.
        """
        scales = np.full(len(table), UNBOUNDED_SCALE)
        unbound = node_allocation.allocation_problem(policy, self._nodes, table)
        at_most = np.bincount(self._sites, weights=unbound.costs * unbound.most, minlength=len(self._site_names))
        by_site = np.argsort(self._sites, kind="stable")
        ends = np.cumsum(np.bincount(self._sites, minlength=len(self._site_names)))
        for number, name in enumerate(self._site_names):
            rate = self._rates.get(name, policy.site_requests_per_s)
            budget = POLL_BUDGET_SHARE * rate * policy.poll_interval_s
            if name and at_most[number] > budget:
                own = by_site[ends[number - 1] if number else 0 : ends[number]]
                scales[own] = scale_for_budget(
                    node_allocation.allocation_problem(policy, self._nodes, table[own]), budget
                )
        return scales


def _mean(delays_s: Floats, weights: Floats) -> float:
    """Return the mean of ``delays_s``, weighted by ``weights``; 0.0 if there are no delays."""
    return float(np.average(delays_s, weights=weights)) if len(delays_s) else 0.0


def _quantiles(waits_s: Floats, subscriptions: Floats) -> tuple[float, ...]:
    """Return the quantiles 0, 1, …, 100 % of ``waits_s``, the mean detection delays of channels.

    ``subscriptions`` contains each channel's number of subscriptions, by which its delay is weighted.
    """
    if not len(waits_s):
        return (0.0,) * len(_SHARES)
    order = np.argsort(waits_s)
    cumulative = np.cumsum(subscriptions[order])
    places = np.searchsorted(cumulative, _SHARES * cumulative[-1])
    return tuple(waits_s[order][np.minimum(places, len(order) - 1)].tolist())


def _enumerate_names(names: Sequence[str]) -> tuple[list[str], "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """Return (distinct, indices): the distinct names, and for each of ``names`` its index in ``distinct``."""
    unique = list(dict.fromkeys(names))
    numbers = {name: number for number, name in enumerate(unique)}
    return unique, np.fromiter((numbers[name] for name in names), dtype=np.int64, count=len(names))
