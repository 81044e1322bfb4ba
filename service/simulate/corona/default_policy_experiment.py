"""The product's default polling policy on Corona's workload, compared with polling all channels at the same rate.

``coronet simulate corona --as-shipped`` runs this experiment. It uses exactly the policy of a fleet with default
settings, including its limits for public channels. The policy is compared with the *uniform* schedule, which makes the
same number of requests, but polls all channels at the same rate.

In this workload, publishers have no weekly rhythm, and feeds do not suggest poll intervals.
"""

# Earlier default settings led to the uniform schedule: every channel was polled three times per 15 minutes, the upper
# limit. With the default number of channels and subscriptions, that is the same number of requests as by the present
# default policy.

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
    """The results of a run with the product's default policy, and a comparison with the *uniform* schedule.

    The uniform schedule makes as many requests as the default policy, but polls all channels at the same rate. A
    delay is the time in seconds from an entry's publication until a poll finds it.

    A second run makes fewer polls. Its policy is chosen such that its predicted delay equals that of the uniform
    schedule.

    - ``uniform_notification_delay_s`` is the uniform schedule's mean delay per notification.
    - ``uniform_requests_at_equal_delay`` is the number of requests of the second run, divided by the number of
      requests of the uniform schedule.
    - ``equal_delay_notification_delay_s`` is the mean notification delay measured in the second run.
    - ``share_at_one_bound`` is the fraction of channels that are at the most common limit of the default policy.
    """

    # The second run's policy has a lower demand factor, the share of subscribers' demand for polls that is met. The
    # prediction is D = τ/(2n) for a channel with n polls per τ.

    uniform_notification_delay_s: float
    uniform_requests_at_equal_delay: float
    equal_delay_notification_delay_s: float
    share_at_one_bound: float


def run(setup: CoronaSetup, seed: int, report: Callable[[str], None]) -> ShippedOutcome:
    """Run the simulation with the default policy, then with a policy that makes fewer polls; return the results.

    The second policy's predicted delay equals that of polling all channels at the same rate
    (:func:`with_uniform_delay`). ``setup`` describes the workload and the fleet; the policies replace its goal, polling
    interval and delay limits. ``report`` is called after each step with the name of the step.
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
    """Return a variant of the default policy with the same mean delay as polling all channels at the same rate.

    The variant differs only in its demand factor, which is the fraction of the subscribers' demand for polls that the
    fleet meets.

    - ``nodes`` is the number of nodes in the fleet. It limits how often a channel can be polled.
    - ``polls_per_tau`` is the rate at which all channels are polled in this comparison, in polls per polling interval
      τ.
    """
    # Both delays are means per notification, predicted by D = τ/(2n) for a channel with n polls per τ.
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
    """Return the factor by which all channels' poll rates are multiplied so that the fleet meets its goal.

    ``table`` describes the channels. A channel whose rate would be outside its limits gets the nearest limit instead.
    The result is 0 if no factor can be computed.
    """
    fleet = msgspec.structs.replace(node_allocation.own_aggregate(policy, nodes, table), nodes=nodes)
    return node_allocation.solve_scale(policy, nodes, fleet) or 0.0


def uniform_notification_delay_s(
    channels: SimulatedChannels, setup: CoronaSetup, polls_per_tau: float, seed: int
) -> float:
    """Return the mean notification delay if each channel is polled ``polls_per_tau`` times per polling interval τ.

    Each channel's polls are evenly spaced, and the first one is at a random time.
    """
    rng = np.random.default_rng(seed)
    gap_s = setup.poll_interval_s / polls_per_tau
    phases_s = rng.random(setup.channels) * gap_s

    def next_s(channel: Ints, at_s: Floats) -> Floats:
        return np.asarray(at_s + (phases_s[channel] - at_s) % gap_s)

    updates = poisson_updates(np.arange(setup.channels), channels, setup, next_s, rng)
    return updates.mean_s(channels.subscribers.astype(np.float64))


def share_at_one_bound(policy: FleetPolicy, nodes: int, channels: SimulatedChannels) -> float:
    """Return the fraction of channels that are at the most common limit of ``policy``.

    The policy has several upper and lower limits on channels' poll rates. A channel is at a limit if its poll rate
    would be higher or lower without this limit. The result is 0 if no channel is at a limit.
    """
    table = channels.factors()
    counts = Counter(binding_constraints(policy, nodes, table, _scale(policy, nodes, table)))
    del counts[BindingConstraint.NONE]
    return max(counts.values(), default=0) / len(table)
