"""The product's default polling policy on Corona's workload, compared with equal polls of all channels.

``coronet simulate corona --as-shipped`` runs this experiment. It uses exactly the policy of a fleet with default
settings, including its limits for public channels. The comparison is the *uniform* schedule: the same number of
requests, but all channels are polled equally often.

Publishers of this workload have no weekly rhythm, and their feeds request no poll intervals.
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
    """The results of one run with the product's default policy; times are in seconds.

    They are compared with the *uniform* schedule, which makes as many requests but polls all channels equally often. A
    delay is the time from an entry's publication until a poll finds it.

    - ``uniform_notification_delay_s`` is the uniform schedule's mean delay per notification. It is measured with
      updates at each channel's own rate.
    - ``uniform_requests_at_equal_delay`` is the number of requests of a second run, divided by that of the uniform
      schedule. The second run polls less, so that its predicted delay equals the uniform schedule's.
    - ``equal_delay_notification_delay_s`` is the mean notification delay measured in the second run.
    - ``share_at_one_bound`` is the share of channels whose number of polls is set by the policy's most frequent limit,
      the limit that applies to the most channels.
    """

    # The second run's policy has a lower demand factor, the share of subscribers' demand for polls that is met. The
    # prediction is D = τ/(2n) for a channel with n polls per τ.

    uniform_notification_delay_s: float
    uniform_requests_at_equal_delay: float
    equal_delay_notification_delay_s: float
    share_at_one_bound: float


def run(setup: CoronaSetup, seed: int, report: Callable[[str], None]) -> ShippedOutcome:
    """Run the simulation with the default policy, and with a policy that makes fewer polls; return the results.

    The second policy has the same predicted delay as equal polls of all channels (:func:`with_uniform_delay`).
    ``setup`` has the workload and the fleet. The policy replaces the goal, polling interval and delay limits of
    ``setup``. ``report`` is called with the name of each step after the step.
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
    """Return the default policy, changed so that its mean delay is that of equal polls of all channels.

    Only the demand factor is changed: the share of the subscribers' demand for polls that a fleet meets.

    - ``nodes`` is the number of nodes of the fleet. It limits the number of polls of a channel.
    - ``polls_per_tau`` is the number of equal polls of each channel per polling interval τ.
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
    """Return the factor c by which all channels' numbers of polls are multiplied so that the fleet meets its goal.

    ``table`` has the channels. A channel's number of polls is computed from its weight and c. If the number is not
    within the channel's limits, the nearest limit is used instead.
    """
    fleet = msgspec.structs.replace(node_allocation.own_aggregate(policy, nodes, table), nodes=nodes)
    return node_allocation.solve_scale(policy, nodes, fleet) or 0.0


def uniform_notification_delay_s(
    channels: SimulatedChannels, setup: CoronaSetup, polls_per_tau: float, seed: int
) -> float:
    """Return the mean notification delay if each channel is polled ``polls_per_tau`` times per polling interval τ.

    The polls of a channel are evenly spaced, and begin at a random time.
    """
    rng = np.random.default_rng(seed)
    gap_s = setup.poll_interval_s / polls_per_tau
    phases_s = rng.random(setup.channels) * gap_s

    def next_s(channel: Ints, at_s: Floats) -> Floats:
        return np.asarray(at_s + (phases_s[channel] - at_s) % gap_s)

    updates = poisson_updates(np.arange(setup.channels), channels, setup, next_s, rng)
    return updates.mean_s(channels.subscribers.astype(np.float64))


def share_at_one_bound(policy: FleetPolicy, nodes: int, channels: SimulatedChannels) -> float:
    """Return the share of channels to which the most frequent limit of the policy applies; 0 if no channel is limited.

    A limit applies to a channel if it makes the channel's number of polls higher or lower.
    """
    table = channels.factors()
    counts = Counter(binding_constraints(policy, nodes, table, _scale(policy, nodes, table)))
    del counts[BindingConstraint.NONE]
    return max(counts.values(), default=0) / len(table)
