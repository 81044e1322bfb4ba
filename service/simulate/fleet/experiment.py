"""One run of ``coronet simulate fleet``: a forecast of the load of a fleet's control plane.

The control plane is all traffic that coordinates nodes; polls are not counted. The load is measured in three successive
situations:

1. At rest: no channel is updated and no node fails.
2. Channels are updated.
3. Channels are updated and nodes fail.
"""

from collections import defaultdict
from collections.abc import Callable
from math import ceil, log2
from typing import NamedTuple

import msgspec
import numpy as np

from service.corona.fleet_policy import DEFAULT_POLICY, FleetPolicy
from service.corona.update_rates import UpdateEstimate, UpdateHistory
from service.model import ChannelId
from service.overlay.ring import RingView
from service.simulate.corona.protocol_fleet import StoredChannel
from service.simulate.corona.workload import DRAWN_BITS, draw_intervals_s, hex_id, zipf_subscribers
from service.simulate.fleet import costs
from service.simulate.fleet.costs import total_bytes
from service.simulate.fleet.section_fleet import FLEET_AHEAD_S, SectionFleet, Traffic
from service.simulate.numerics import HOUR_S
from service.tick_interval import tick_interval_s, ticks_per_run

STEPS = 5
MAX_SECTION_BITS = 4
"""Maximum number of bits that the ids of a simulated section have in common: the bits of one hexadecimal digit. With
more bits, the summaries that nodes send each other would be incomplete, because they cover all channels with the same
digits."""
MIN_SECTION_NODES = 8
"""Minimum number of nodes in a section. It is greater than the number of nodes that usually poll one channel."""
_SETTLE_INTERVALS = 6
_WINDOW_INTERVALS = 3
_VERSIONS = 200
_NODES_IN_MEMORY = 3
_LEAST_PUBLIC = 2
_HEAL_WITHIN_S = 120.0
_KNOWN_UPDATES = 30.0


class FleetSetup(msgspec.Struct, frozen=True):
    """A fleet and its workload.

    - ``churn`` is the fraction of nodes that fail per hour. The same number of nodes join. By default, each node fails
      once a day.
    - ``updates``: if true, channels change as often as in Corona's survey (§5); if false, no channel changes.
    - ``subscribers`` is the mean number of subscribers of a channel. Subscriber counts have a Zipf distribution, and
      are at least 1.
    - ``private``: if true, all channels are private, and exempt from the limits on polls of public channels.
    - ``nodes_per_worker`` is the number of nodes that share a process and its memory.
    - ``simulated_channels`` is the maximum number of channels to simulate. In a larger fleet, only the channels and
      nodes in one section of the id space are simulated.
    """

    # The simulated section of the id space may have more channels if it would otherwise be less than a sixteenth of the
    # id space, or have fewer than MIN_SECTION_NODES nodes.

    nodes: int = 1_000
    channels: int = 1_000_000
    subscribers: int = 50
    private: bool = False
    churn: float = 1 / 24
    updates: bool = True
    policy: FleetPolicy = DEFAULT_POLICY
    lease_s: float = 6.0
    nodes_per_worker: int = 1
    simulated_channels: int = 65_000

    @property
    def section_bits(self) -> int:
        """The number of leading bits that the ids of all simulated channels have in common."""
        enough = ceil(log2(max(1.0, self.channels / self.simulated_channels)))
        return max(0, min(MAX_SECTION_BITS, enough, int(log2(self.nodes / MIN_SECTION_NODES))))


class ControlLoad(msgspec.Struct, frozen=True):
    """The load that coordinating a fleet causes; polls are not included.

    - ``messages_per_node_s`` is the number of messages that one node sends per second to nodes in other processes.
    - ``bytes_per_node_s`` is the number of bytes per second for these messages, including request headers and
      responses.
    - ``redis_commands_per_s`` is the number of Redis commands of the whole fleet per second, including those executed
      by scripts.
    - ``redis_bytes_per_s`` is the number of bytes per second that Redis receives and sends for these commands.
    """

    messages_per_node_s: float
    bytes_per_node_s: float
    redis_commands_per_s: float
    redis_bytes_per_s: float


class FleetForecast(ControlLoad, frozen=True):
    """The results of one run. The inherited fields are the load while channels are updated and nodes fail.

    - ``at_rest`` is the load without updates and failures.
    - ``heal_s`` is the time from the death of a node until each channel is again polled by its whole polling set
      (the nodes nearest to it). It is None if this takes more than two minutes.
    - ``heal_half_s`` is the corresponding time if half of the nodes die at once.
    - ``simulated_nodes`` is the number of nodes that were simulated.
    - ``scaled_by`` is the size of the whole fleet, divided by the size of its simulated section.
    """

    # "As before" means that each channel is polled by all nodes of its polling set.

    experiment: str
    seed: int
    setup: FleetSetup
    memory_per_node_bytes: float
    heal_s: float | None
    heal_half_s: float | None
    at_rest: ControlLoad
    bytes_per_node_s_by_kind: dict[str, float]
    redis_commands_per_s_by_task: dict[str, float]
    redis_bytes_per_s_by_task: dict[str, float]
    mean_polling_set: float
    simulated_nodes: int
    simulated_channels: int
    scaled_by: int


def run(setup: FleetSetup, seed: int, report: Callable[[str], None]) -> FleetForecast:
    """Run the simulation with ``setup`` and ``seed``, and return the forecast.

    ``report`` is called after each step with the name of the step.
    """
    rng = np.random.default_rng(seed)
    workload = _draw_workload(setup, rng)
    fleet = SectionFleet(
        workload.channels,
        setup.policy,
        rng,
        section="0" * setup.section_bits,
        lease_s=setup.lease_s,
        nodes_per_worker=setup.nodes_per_worker,
    )
    interval_s = setup.policy.maintenance_interval_s
    fleet.join(setup.nodes)
    fleet.run_until(_SETTLE_INTERVALS * interval_s)
    report("fleet settled")
    simulated, window_s = fleet.alive, _WINDOW_INTERVALS * interval_s
    fleet.take_traffic()
    fleet.run_until(fleet.now_s + window_s)
    rest = Traffic().plus(fleet.take_traffic(), 1 / window_s)
    memory = _memory_per_node(setup, fleet)
    set_sizes = [len(node.instructions) for node in simulated]
    report("fleet at rest")
    changed = rest
    if setup.updates:
        chosen = rng.choice(sorted(fleet.channels), min(_VERSIONS, len(fleet.channels)), replace=False).tolist()
        for channel in chosen:
            fleet.publish_entry(channel)
        changed = changed.plus(_excess(fleet, rest, window_s), workload.updates_per_s / len(chosen))
    report("entries published")
    fleet.kill([simulated[int(rng.integers(len(simulated)))].node_id])
    others = Traffic().plus(rest, 1 - 1 / len(simulated))
    heal_s, failure = _heal(fleet, others, window_s)
    fleet.join()
    failure = failure.plus(_excess(fleet, rest, window_s))
    changed = changed.plus(failure, setup.churn * len(simulated) / HOUR_S)
    report("a node failed")
    fleet.kill(rng.permutation(fleet.view.ids)[: setup.nodes // 2].tolist())
    heal_half_s, _ = _heal(fleet, rest, 0.0)
    report("half of the fleet failed")
    at_rest, _ = _load(setup, workload, rest, len(simulated), churn=0.0)
    load, by_task = _load(setup, workload, changed, len(simulated), churn=setup.churn)
    return FleetForecast(
        experiment="fleet",
        seed=seed,
        setup=setup,
        **msgspec.structs.asdict(load),
        memory_per_node_bytes=memory,
        heal_s=heal_s,
        heal_half_s=heal_half_s,
        at_rest=at_rest,
        bytes_per_node_s_by_kind={kind: size / len(simulated) for kind, size in changed.message_bytes.items()},
        redis_commands_per_s_by_task={task: cost.commands for task, cost in by_task.items()},
        redis_bytes_per_s_by_task={task: cost.bytes for task, cost in by_task.items()},
        mean_polling_set=sum(set_sizes) / len(fleet.channels),
        simulated_nodes=len(simulated),
        simulated_channels=len(fleet.channels),
        scaled_by=2**setup.section_bits,
    )


class _Workload(NamedTuple):
    """The workload of the simulated section of a fleet.

    - ``channels`` contains the simulated channels.
    - ``public`` is the number of public channels in the whole fleet.
    - ``updates_per_s`` is the number of updates to simulated channels per second.
    """

    channels: dict[ChannelId, StoredChannel]
    public: int
    updates_per_s: float


def _draw_workload(setup: FleetSetup, rng: np.random.Generator) -> _Workload:
    count = setup.channels >> setup.section_bits
    subscribers = zipf_subscribers(setup.channels, rng, setup.subscribers)
    histories = draw_histories(count, rng, FLEET_AHEAD_S)
    points = rng.integers(0, 1 << DRAWN_BITS - setup.section_bits, count, dtype=np.uint64)
    columns = zip(points.tolist(), subscribers.tolist(), histories, strict=False)
    channels = {
        hex_id(point): StoredChannel(number, history, private=setup.private) for point, number, history in columns
    }
    public = 0 if setup.private else int((subscribers >= _LEAST_PUBLIC).sum())
    updates_per_s = sum(1 / history.estimate.interval_s for history in histories) if setup.updates else 0.0
    return _Workload(channels, public, updates_per_s)


def draw_histories(count: int, rng: np.random.Generator, fleet_s: float) -> list[UpdateHistory]:
    """Draw the update histories of ``count`` channels.

    Update intervals have the distribution of Corona §5. The time since a channel's last update is random, and less
    than the channel's update interval. ``fleet_s`` is the current time of the fleet's clock.
    """
    intervals_s = draw_intervals_s(count, rng)
    since_s = fleet_s - rng.random(count) * intervals_s
    return [
        UpdateHistory(
            UpdateEstimate(
                _KNOWN_UPDATES, _KNOWN_UPDATES * interval_s, 0.0, _KNOWN_UPDATES, _KNOWN_UPDATES * interval_s
            ),
            last_s,
        )
        for interval_s, last_s in zip(intervals_s.tolist(), since_s.tolist(), strict=True)
    ]


def _excess(fleet: SectionFleet, rest: Traffic, seconds: float) -> Traffic:
    """Simulate ``seconds`` seconds; return by how much the traffic exceeds the traffic at rest.

    Traffic is counted since the last call of ``take_traffic``. ``rest`` is the fleet's traffic per second without
    failures and updates.
    """
    fleet.run_until(fleet.now_s + seconds)
    return fleet.take_traffic().plus(rest, -seconds)


def _heal(fleet: SectionFleet, rest: Traffic, then_s: float) -> tuple[float | None, Traffic]:
    """Simulate until the fleet has recovered from failures, and then for ``then_s`` more seconds.

    The fleet has recovered when each channel is polled by its whole polling set (the nodes nearest to it). ``rest``
    is the traffic per second of the living nodes without failures and updates. Return (seconds, excess):

    - ``seconds`` is the time until the fleet has recovered. It is None if this takes more than two minutes.
    - ``excess`` is the traffic during the whole simulated time, minus the traffic at rest for the same time.
    """
    begin_s = fleet.now_s
    whole_s = fleet.seconds_until_whole(_HEAL_WITHIN_S)
    traffic = _excess(fleet, rest, then_s)
    return whole_s, traffic.plus(rest, begin_s + then_s - fleet.now_s)


def _memory_per_node(setup: FleetSetup, fleet: SectionFleet) -> float:
    """Return the memory of one node in bytes, including the node's share of its process's basic memory."""
    some = fleet.alive[:_NODES_IN_MEMORY]
    ring = RingView(fleet.view.version, fleet.view.nodes)
    assert ring.points  # noqa: S101 - the caches that each node fills
    protocols = sum(total_bytes(node.protocol, without=(RingView,)) for node in some) / len(some)
    polled = sum(len(node.instructions) for node in some) / len(some)
    shell = costs.NODE_BYTES + polled * costs.SCHEDULED_CHANNEL_BYTES
    return costs.PROCESS_BYTES / setup.nodes_per_worker + protocols + total_bytes(ring) + shell


def _load(
    setup: FleetSetup, workload: _Workload, traffic: Traffic, simulated: int, *, churn: float
) -> tuple[ControlLoad, dict[str, costs.RedisCost]]:
    """Return (load of the whole fleet, dict from the name of each task to its Redis cost per second).

    - ``traffic`` is the traffic of the simulated nodes per second.
    - ``simulated`` is the number of simulated nodes.
    - ``churn`` is the fraction of nodes that die per hour.
    """
    interval_s, counts = setup.policy.maintenance_interval_s, traffic.counts
    tick_s = tick_interval_s(interval_s, setup.lease_s)
    matrix_upkeep_s = tick_s * ticks_per_run(costs.MATRIX_UPKEEP_S, tick_s)
    all_counts = defaultdict(float, {name: number * setup.nodes / simulated for name, number in counts.items()})
    ring_readings = 2 * churn * setup.nodes / HOUR_S * setup.nodes / setup.nodes_per_worker
    runs_per_s = {
        "heartbeats": (costs.HEARTBEAT, setup.nodes / tick_s),
        "changes of the ring": (costs.RING_CHANGE, ring_readings),
        "maintenance": (costs.MAINTENANCE, setup.nodes / interval_s),
        "pairs of names": (costs.PAIRS_READ, setup.nodes / interval_s),
        "upkeep of matrices": (costs.MATRIX_UPKEEP, setup.nodes / matrix_upkeep_s),
        "key groups": (costs.KEYSPACE, costs.KEYSPACES / interval_s),
        "inboxes at rest": (costs.INBOX_READ, setup.nodes / costs.INBOX_WAIT_S),
        "messages": (costs.INBOX_MESSAGE, all_counts["inbox_messages"]),
        "ownership": (costs.OWNERSHIP, all_counts["ownerships"]),
        "versions": (costs.VERSION, all_counts["versions"]),
        "full listings": (costs.LISTED_CHANNEL, setup.channels / costs.FULL_LISTING_INTERVAL_S),
        "names": (costs.REFRESHED_NAME, workload.public / costs.REFRESH_INTERVAL_S),
    }
    redis = {
        task: costs.RedisCost(cost.commands * number, cost.bytes * number)
        for task, (cost, number) in runs_per_s.items()
    }
    message_bytes = redis["messages"].bytes + costs.INBOX_COPIES * all_counts["inbox_bytes"]
    redis["messages"] = redis["messages"]._replace(bytes=message_bytes)
    messages = sum(traffic.messages.values())
    heads = (
        counts["inbox_messages"] * costs.INBOX_HEAD_BYTES
        + (messages - counts["inbox_messages"]) * costs.PEER_MESSAGE_BYTES
        + counts["peer_requests"] * costs.PEER_REQUEST_BYTES
    )
    load = ControlLoad(
        messages_per_node_s=messages / simulated,
        bytes_per_node_s=(sum(traffic.message_bytes.values()) + heads) / simulated,
        redis_commands_per_s=sum(cost.commands for cost in redis.values()),
        redis_bytes_per_s=sum(cost.bytes for cost in redis.values()),
    )
    return load, redis
