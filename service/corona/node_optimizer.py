"""One node's share in the optimisation: its own channels as a problem, and the scale c from everybody's (Corona §3.2).

c follows from the tradeoff clusters of the whole fleet, a channel's n from c and what is known of the channel
itself, to the last digit: so nodes have to agree on one number, and coarse clusters cost next to nothing.
"""

from collections.abc import Iterable
from math import inf, sqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.corona.clusters import decode, encode, summarise
from service.corona.fleet_policy import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, Goal, Policy
from service.corona.honeycomb import UNBOUND, Problem, sizes, within_sites
from service.corona.messages import Part
from service.corona.objectives import Floats, size_for_wait, weights
from service.corona.poll_explanation import Limits, bounded

POLL_COST = 1.0
"""Polls cost the same whatever the channel: publishers count requests, and most are answered without a body."""

DIGITS = 6
"""Sizes are told apart to so many decimals, so that three polls are never three and a rounding error by four nodes."""


Table = NDArray[Any]
"""Factors of many channels, in rows; see :func:`tabled`."""


class Factors(NamedTuple):
    """What one channel's size depends on. Who listed it, or is about to subscribe, is a subscriber as well."""

    subscribers: int
    update_interval_s: float
    private: bool
    site_scale: float = UNBOUND
    """That of its site: see ``honeycomb.within_sites``."""
    longest_wait_s: float = 0.0
    """What admins set for this channel; 0 for that of the aims."""
    shortest_interval_s: float = 0.0
    """The same; 0 for none."""


_ROW = np.dtype(
    [
        *(("subscribers", "<u4"), ("update_interval_s", "<f8"), ("private", "?"), ("site_scale", "<f8")),
        *(("longest_wait_s", "<f8"), ("shortest_interval_s", "<f8")),
    ]
)


def tabled(channels: Iterable[Factors], count: int) -> Table:
    """Return the factors of so many channels as rows of an array: a tenth of what they take up as objects."""
    return np.fromiter(channels, dtype=_ROW, count=count)


def limits(policy: Policy, nodes: int, channel: Factors) -> Limits:
    """Return what bounds a channel's polls per τ on a ring of so many nodes, besides its site.

    A node polls a channel once per τ, and more often only if nothing else keeps the longest wait.
    """
    wait_s, interval_s = channel.longest_wait_s or policy.aims.longest_wait_s, policy.poll_interval_s
    return Limits(
        longest_wait_s=wait_s,
        own_wait=channel.longest_wait_s > 0,
        channel_interval=interval_s / channel.shortest_interval_s if channel.shortest_interval_s else inf,
        nodes=max(nodes, size_for_wait(wait_s, interval_s)),
        channel_budget=inf if channel.private else policy.max_polls_per_hour * interval_s / SECONDS_PER_HOUR,
    )


def limits_of(policy: Policy, nodes: int, channel: Factors) -> Limits:
    """Return what bounds one channel's polls per τ, its site included."""
    bounds = limits(policy, nodes, channel)
    if channel.site_scale == UNBOUND:
        return bounds
    least = size_for_wait(bounds.longest_wait_s, policy.poll_interval_s)
    most, _ = bounded(sqrt(weight(policy, channel) / POLL_COST), channel.site_scale, least, bounds)
    return msgspec.structs.replace(bounds, host_budget=most)


def problem(policy: Policy, nodes: int, channels: Table) -> Problem:
    """Return what the sizes of these channels have to weigh up."""
    subscribers = np.maximum(channels["subscribers"], 1)
    found = weights(policy.aims.goal, subscribers, channels["update_interval_s"], policy.poll_interval_s)
    least, most = bounds_of(policy, nodes, channels)
    return within_sites(Problem.of(found, POLL_COST, least=least, most=most), channels["site_scale"])


def bounds_of(policy: Policy, nodes: int, channels: Table) -> tuple[Floats, Floats]:
    """Return what :func:`limits` has for many channels: the polls per τ of each at least, and at most, shape (M,)."""
    waits_s, interval_s = channels["longest_wait_s"], policy.poll_interval_s
    least = size_for_wait(1.0, interval_s) / np.where(waits_s > 0, waits_s, policy.aims.longest_wait_s)
    politeness = policy.max_polls_per_hour * interval_s / SECONDS_PER_HOUR
    with np.errstate(divide="ignore"):
        apart = interval_s / channels["shortest_interval_s"]
    most = np.minimum(np.where(channels["private"], inf, politeness), np.minimum(np.maximum(nodes, least), apart))
    return least, most


def demands(policy: Policy, channels: Table) -> Floats:
    """Return s·q: what each channel's subscribers would impose by themselves, in polls per τ."""
    found: Floats = np.maximum(channels["subscribers"], policy.aims.polls_per_channel) * POLL_COST
    return found


def part(policy: Policy, nodes: int, channels: Table) -> Part:
    """Return what the fleet has to know of one node's channels."""
    if not len(channels):
        return Part(1, 0.0, b"")
    summary = summarise(problem(policy, nodes, channels))
    return Part(1, float(demands(policy, channels).sum()), encode(summary))


def scale(policy: Policy, nodes: int, fleet: Part) -> float | None:
    """Return c for all channels of the fleet, as far as it is known; None if it has no channels."""
    clusters = decode(fleet.clusters)
    if clusters is None or not len(clusters.rise):
        return None
    aims = policy.aims
    cap = inf
    if aims.budget_polls_per_minute is not None:
        known = min(1.0, fleet.nodes / nodes)
        cap = aims.budget_polls_per_minute * policy.poll_interval_s / SECONDS_PER_MINUTE * known
    if aims.goal is not Goal.FAST:
        return clusters.scale_for_budget(min(fleet.demand, cap))
    fast = clusters.scale_for_delay(aims.delay_s, policy.poll_interval_s)
    return min(fast, clusters.scale_for_budget(cap)) if cap < inf else fast


def weight(policy: Policy, channel: Factors) -> float:
    """Return a channel's weight, by the goal."""
    subscribers = max(channel.subscribers, 1)
    return float(weights(policy.aims.goal, subscribers, channel.update_interval_s, policy.poll_interval_s))


def decided(policy: Policy, nodes: int, channels: Table, scale: float | None) -> Floats:
    """Return each channel's n: by the scale, or as long as that is not known, what its subscribers would impose."""
    bounds = problem(policy, nodes, channels)
    if scale is None:
        found = np.minimum(np.maximum(demands(policy, channels), bounds.least), bounds.most)
    else:
        found = sizes(bounds, scale)
    return np.where(found > 1, np.round(found, DIGITS), found)
