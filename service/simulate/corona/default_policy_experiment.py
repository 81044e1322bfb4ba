"""The product's defaults on Corona's workload, compared with equal polls of all channels.

``coronet simulate corona --as-shipped`` runs the experiment ``corona`` with exactly the policy that a fleet has by its
default settings, including its limits for public channels. The comparison is the *uniform* schedule: the same number of
requests, spread evenly over all channels. Earlier default settings led to this schedule: all channels were at the same
bound, three polls per 15 minutes. With the default number of channels and subscriptions, the number of requests is the
same as well.

Publishers of this workload have no weekly rhythm, and polling hints are not simulated.
"""

from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from service.corona.fleet_policy import DEFAULT_POLICY, FleetPolicy
from service.corona.optimizer import node_allocation
from service.corona.optimizer.node_allocation import FactorTable
from service.corona.optimizer.objectives import mean_delay_s
from service.corona.optimizer.poll_explanation import BindingConstraint, binding_constraints
from service.simulate.corona import experiment
from service.simulate.corona.experiment import CoronaOutcome, poisson_updates
from service.simulate.corona.workload import CoronaSetup, SimulatedChannels, draw_channels, setup_with_policy
from service.simulate.numerics import Floats, Ints

STEPS = 2 * experiment.STEPS
_BISECTIONS = 40


class ShippedOutcome(CoronaOutcome, frozen=True):
    """The results of one run with the product's default policy; times are in seconds.

    The *uniform* schedule polls every channel equally often, with as many requests as the run made
    (``polls_per_channel_per_tau``). ``uniform_notification_delay_s`` is its mean delay per notification, measured with
    updates at each channel's own rate.

    ``uniform_requests_at_equal_delay`` is the number of requests of a second run, divided by those of the uniform
    schedule. The second run has the same policy, except that its demand factor is such that, by the formula τ/(2n), its
    mean notification delay is that of the uniform schedule. ``equal_delay_notification_delay_s`` is the delay that the
    second run measured.

    ``share_at_one_bound`` is the share of channels that are limited by the most frequent constraint.
    """

    uniform_notification_delay_s: float
    uniform_requests_at_equal_delay: float
    equal_delay_notification_delay_s: float
    share_at_one_bound: float


def run(setup: CoronaSetup, seed: int, report: Callable[[str], None]) -> ShippedOutcome:
    """Run the simulation with the default policy, and with the demand factor of the uniform schedule's delay.

    ``setup`` has the workload and the fleet; its goal, τ and waits are replaced by those of the policy. ``report`` is
    called after each step.
    """
    channels = draw_channels(setup, np.random.default_rng(seed))
    shipped = experiment.run(setup_with_policy(setup, DEFAULT_POLICY), seed, report)
    load = shipped.polls_per_channel_per_tau
    sparing = with_uniform_delay(channels, setup.nodes, load)
    fewer = experiment.run(setup_with_policy(setup, sparing), seed, report)
    return ShippedOutcome(
        **msgspec.structs.asdict(shipped),
        uniform_notification_delay_s=uniform_notification_delay_s(channels, shipped.setup, load, seed),
        uniform_requests_at_equal_delay=fewer.polls_per_channel_per_tau / load,
        equal_delay_notification_delay_s=fewer.mean_notification_delay_s,
        share_at_one_bound=share_at_one_bound(DEFAULT_POLICY, setup.nodes, channels),
    )


def with_uniform_delay(channels: SimulatedChannels, nodes: int, polls_per_tau: float) -> FleetPolicy:
    """Return the default policy with the demand factor at which its mean delay is that of the uniform schedule.

    The uniform schedule polls each channel ``polls_per_tau`` times per τ. The delays are means per notification by the
    formula D = τ/(2n), with the limits of a ring of ``nodes`` nodes.
    """
    target_s = DEFAULT_POLICY.poll_interval_s / (2 * polls_per_tau)
    notifications, table = channels.subscribers / channels.update_interval_s, channels.factors()
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        policy = _with_demand_factor((low + high) / 2)
        sizes = node_allocation.channel_sizes(policy, nodes, table, _scale(policy, nodes, table))
        if mean_delay_s(notifications, sizes, policy.poll_interval_s) > target_s:
            low = policy.objective.demand_factor
        else:
            high = policy.objective.demand_factor
    return _with_demand_factor(high)


def _with_demand_factor(demand_factor: float) -> FleetPolicy:
    objective = msgspec.structs.replace(DEFAULT_POLICY.objective, demand_factor=demand_factor)
    return msgspec.structs.replace(DEFAULT_POLICY, objective=objective)


def _scale(policy: FleetPolicy, nodes: int, table: FactorTable) -> float:
    """Return the scale c, the factor for all polling set sizes, in a fleet with the channels in ``table``."""
    fleet = msgspec.structs.replace(node_allocation.own_aggregate(policy, nodes, table), nodes=nodes)
    return node_allocation.solve_scale(policy, nodes, fleet) or 0.0


def uniform_notification_delay_s(
    channels: SimulatedChannels, setup: CoronaSetup, polls_per_tau: float, seed: int
) -> float:
    """Return the mean notification delay if each channel is polled ``polls_per_tau`` times per τ, at a random phase."""
    rng = np.random.default_rng(seed)
    gap_s = setup.poll_interval_s / polls_per_tau
    phases_s = rng.random(setup.channels) * gap_s

    def next_s(channel: Ints, at_s: Floats) -> Floats:
        return np.asarray(at_s + (phases_s[channel] - at_s) % gap_s)

    updates = poisson_updates(np.arange(setup.channels), channels, setup, next_s, rng)
    return updates.mean_s(channels.subscribers.astype(np.float64))


def share_at_one_bound(policy: FleetPolicy, nodes: int, channels: SimulatedChannels) -> float:
    """Return the share of channels that are limited by the most frequent constraint; 0 if no channel is limited."""
    table = channels.factors()
    counts = Counter(binding_constraints(policy, nodes, table, _scale(policy, nodes, table)))
    del counts[BindingConstraint.NONE]
    return max(counts.values(), default=0) / len(table)
