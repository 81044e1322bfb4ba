"""One run of the experiment ``corona`` with the production protocol: ``coronet simulate corona --protocol``.

Every node runs :class:`~service.corona.node_protocol.NodeProtocol`, and messages are actually encoded and decoded. The
network loses and delays messages, and nodes fail and join.

For comparison, the same setup is also run by the module ``experiment``, which is faster, because it uses arrays and
simulates fewer messages. The results of ``experiment`` are in the fields ``vectorised_…``.
"""

# Production code are aggregation, the assignment of polls, the takeover of a failed node's channels, and all steps from
# a change that a poll finds to a new stored version of the channel. The nodes of the vectorised run exchange only the
# messages of aggregation. If the setup has a base, the vectorised run solves for the paper's sizes N/bˡ directly, while
# the product rounds other sizes to the levels that exist. Their results then differ by a few percent at most.
#
# A poll that finds nothing changes nothing. Therefore polls are simulated one by one only while the channel has an
# entry that is missing in the version with which the node compares its polls. All other polls are computed from the
# polling schedules that nodes were assigned.

from array import array
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from service.corona import events
from service.corona.fleet_policy import FleetObjective, FleetPolicy, Levels
from service.corona.update_rates import LONGEST_UPDATE_INTERVAL_S, UpdateEstimate, UpdateHistory
from service.model import ChannelId, NodeId
from service.simulate.corona import experiment
from service.simulate.corona.experiment import DetectionResults
from service.simulate.corona.fleet import LEASE_S, MEDIAN_DELAY_S, TICKS_PER_MAINTENANCE, SimulatedNetwork
from service.simulate.corona.fleet_polls import AFTER_END_S, EnumeratedPolls
from service.simulate.corona.protocol_fleet import LossyNetwork, ProtocolFleet, ProtocolNode, StoredChannel
from service.simulate.corona.workload import (
    CoronaSetup,
    SimulatedChannels,
    draw_channels,
    initial_nodes,
    next_node_id,
)
from service.simulate.numerics import HOUR_S, Floats, Ints, ranges

STEPS = 3 + experiment.STEPS
_UNLIMITED = 1e9
_KNOWN_UPDATES = 1e6
"""Nodes know each channel's update interval from the start, as if learnt from this many updates, so that the updates in
the run hardly change it."""


class ProtocolOutcome(DetectionResults, frozen=True):
    """The results of one run with the production protocol. A version is one stored state of a channel's entries.

    These fields cover the entries that were published until one hour before the end:

    - ``updates`` is the number of entries.
    - ``versioned_updates`` is the number of these entries that were stored in a version before the end of the run.
    - ``mean_version_delay_s`` is the mean time from an entry's publication until it is in a version, weighted by
      subscribers.

    For comparison, the module ``experiment`` runs a faster simulation with the same setup and seed. Its results are
    in the fields that begin with ``vectorised``. ``detection_ratio`` and ``load_ratio`` are the mean detection
    delay and the load of this run, divided by those of the faster simulation.
    """

    vectorised_mean_detection_s: float
    detection_ratio: float
    vectorised_polls_per_channel_per_tau: float
    load_ratio: float
    vectorised_p99_detection_s: float
    vectorised_mean_notification_delay_s: float
    updates: int
    versioned_updates: int
    mean_version_delay_s: float
    messages_per_node_per_maintenance: float
    message_bytes_per_node_per_maintenance: float


def run(setup: CoronaSetup, seed: int, report: Callable[[str], None]) -> ProtocolOutcome:
    """Run the simulation with ``setup`` and ``seed``, and return its results.

    ``report`` is called after each step with the name of the step.
    """
    rng = np.random.default_rng(seed)
    channels = draw_channels(setup, rng)
    fleet = MeasuredFleet(setup, channels, rng)
    fleet.run()
    report("protocol simulated")
    polls = fleet.polls()
    even = experiment.uniform_updates(np.arange(setup.channels), setup, polls.next_s, rng)
    at_s = np.array(fleet.published_s)
    own = experiment.DetectedUpdates(fleet.published, at_s, polls.next_s(fleet.published, at_s) - at_s)
    report("updates detected")
    busiest = polls.max_over_mean_of(setup.nodes, setup.end_s / 2, setup.end_s)
    found = experiment.measure(
        "corona --protocol", seed, setup, channels, polls, even=even, own=own, busiest=busiest, sizes=fleet.sizes()
    )
    weight, versions_s = _version_delays_s(fleet, setup.end_s - HOUR_S)
    stored = np.isfinite(versions_s)
    report("polls counted")
    vectorised = experiment.run(setup, seed, report)
    return ProtocolOutcome(
        **msgspec.structs.asdict(found),
        vectorised_mean_detection_s=vectorised.mean_detection_s,
        detection_ratio=found.mean_detection_s / vectorised.mean_detection_s,
        vectorised_polls_per_channel_per_tau=vectorised.polls_per_channel_per_tau,
        load_ratio=found.polls_per_channel_per_tau / vectorised.polls_per_channel_per_tau,
        vectorised_p99_detection_s=vectorised.p99_detection_s,
        vectorised_mean_notification_delay_s=vectorised.mean_notification_delay_s,
        updates=len(versions_s),
        versioned_updates=int(stored.sum()),
        mean_version_delay_s=float(np.average(versions_s[stored], weights=weight[stored])),
        messages_per_node_per_maintenance=fleet.messages_sent / setup.nodes / setup.rounds,
        message_bytes_per_node_per_maintenance=fleet.bytes_sent / setup.nodes / setup.rounds,
    )


class MeasuredFleet(ProtocolFleet):
    """A simulated fleet that runs the production protocol and records every node's polling schedules over time."""

    def __init__(self, setup: CoronaSetup, channels: SimulatedChannels, rng: np.random.Generator) -> None:
        self.setup, self.simulated_channels, self._rng = setup, channels, rng
        self.ids = channels.ids()
        self._number = {channel: number for number, channel in enumerate(self.ids)}
        columns = zip(self.ids, channels.subscribers.tolist(), channels.update_interval_s.tolist(), strict=True)
        super().__init__(
            {channel: _stored(subscribers, interval_s) for channel, subscribers, interval_s in columns},
            _policy(setup),
            LossyNetwork(SimulatedNetwork(setup.loss, rng), SimulatedNetwork(0.0, rng)),
            tick_s=setup.maintenance_s / TICKS_PER_MAINTENANCE,
            prompt_s=MEDIAN_DELAY_S,
        )
        self._members: list[set[ProtocolNode]] = [set() for _ in self.ids]
        """The nodes that poll each channel."""
        self._rows: dict[tuple[int, int], int] = {}
        """The index of the current row of each pair (channel number, node number)."""
        self._node_numbers: dict[ProtocolNode, int] = {}
        self._channel_node = array("q")
        """Channel and node number of each row, alternately. A row is one schedule of one node."""
        self._times_s = array("d")
        """For each row: its node's first poll, the time between the node's polls, and when the row begins."""
        self._ends = array("d")
        self.published: Ints = np.zeros(0, dtype=np.int64)
        """The numbers of the channels of all published entries, in the order of publication."""
        self.published_s: list[float] = []
        self.versioned_s: dict[tuple[ChannelId, int], float] = {}
        """When each entry became part of a version, by channel and content (the value of the publisher's counter)."""

    def run(self) -> None:
        """Run the whole simulation: publish entries, let nodes fail and join, and advance the clock to the end."""
        setup, rng = self.setup, self._rng
        intervals_s = self.simulated_channels.update_interval_s
        published = np.repeat(np.arange(setup.channels), rng.poisson(setup.end_s / intervals_s))
        at_s = rng.random(len(published)) * setup.end_s
        order = np.argsort(at_s)
        self.published, self.published_s = published[order], at_s[order].tolist()
        for number, due_s in zip(self.published.tolist(), self.published_s, strict=True):
            self.after(due_s, partial(self._publish_entry, number))
        expected = setup.churn * setup.nodes * setup.end_s / HOUR_S
        for change in (self._fail_one, self._join_one):
            for due_s in (rng.random(int(rng.poisson(expected))) * setup.end_s).tolist():
                self.after(due_s, change)
        self._add(initial_nodes(setup, rng))
        self.run_until(setup.end_s)

    def polls(self) -> EnumeratedPolls:
        """Return all polls until two hours after the end of the run.

        For the time after the end, nodes are assumed to continue with their last schedules.
        """
        horizon_s = self.setup.end_s + AFTER_END_S
        channel, node = np.frombuffer(self._channel_node, dtype=np.int64).reshape(-1, 2).T
        first_s, interval_s, begin_s = np.frombuffer(self._times_s).reshape(-1, 3).T
        end_s = np.minimum(np.frombuffer(self._ends), horizon_s)
        first, last = (
            np.maximum(np.floor((at_s - first_s) / interval_s).astype(np.int64) + 1, 0) for at_s in (begin_s, end_s)
        )
        count = np.maximum(last - first, 0)
        row = np.repeat(np.arange(len(channel)), count)
        at_s = first_s[row] + ranges(first, count) * interval_s[row]
        return EnumeratedPolls(np.arange(self.setup.channels), channel[row], at_s, node[row], horizon_s)

    def sizes(self) -> Floats:
        """Return, for each channel, how often it is polled per polling interval; 0 if no node polls it.

        The value is taken from the schedule of one of the nodes that poll the channel.
        """
        found = np.zeros(self.setup.channels)
        for number, (channel, members) in enumerate(zip(self.ids, self._members, strict=True)):
            for node in members:
                found[number] = self.policy.poll_interval_s / node.instructions[channel].schedule.gap_s
        return found

    def simulates_polls_of(self, channel: ChannelId, node: ProtocolNode) -> bool:
        """Return whether the next poll of ``channel`` by ``node`` is simulated as an event.

        This is the case if the poll can find something: if the channel has an entry that the node does not know yet.
        """
        # What the node knows is the version with which it compares its polls.
        stored = self.channels[channel]
        return stored.published > stored.versions[node.known.get(channel, -1)]

    def on_instruction(self, node: ProtocolNode, channel: ChannelId, instruction: events.StartPolling | None) -> None:
        """Record that ``node`` polls ``channel`` according to ``instruction`` from now on.

        If ``instruction`` is None, record that the node stops polling the channel.
        """
        number, node_number = self._number[channel], self._node_numbers[node]
        before = self._rows.pop((number, node_number), None)
        if before is not None:
            self._ends[before] = self.now_s
        if instruction is None:
            self._members[number].discard(node)
            return
        schedule = instruction.schedule
        self._members[number].add(node)
        self._rows[number, node_number] = len(self._ends)
        self._channel_node.extend((number, node_number))
        self._times_s.extend((schedule.first_poll_s(instruction.rank), schedule.interval_s, self.now_s))
        self._ends.append(np.inf)

    def publish(self, effect: events.Publish) -> events.Event:
        """Store a change, which a poll has found, as the channel's next version; return the store's answer.

        ``effect`` contains the change. For each entry that is in a version for the first time, the current time is
        recorded.
        """
        stored = self.channels[effect.candidate.channel]
        before = stored.versions[-1]
        answer = super().publish(effect)
        for content in range(before + 1, stored.versions[-1] + 1):
            self.versioned_s[effect.candidate.channel, content] = self.now_s
        return answer

    def _publish_entry(self, number: int) -> None:
        channel = self.ids[number]
        self.channels[channel].published += 1
        for node in self._members[number]:
            node.plan_poll(channel)

    def _fail_one(self) -> None:
        alive = self.alive
        self.fail(alive[int(self._rng.integers(len(alive)))], LEASE_S)

    def _join_one(self) -> None:
        ids = [node.id for node in self.view.nodes]
        self._add([next_node_id(self.setup.ids, ids, self._rng)])

    def _add(self, ids: Sequence[NodeId]) -> None:
        self.add_nodes([(node_id, float(self._rng.random()) * self.tick_s) for node_id in ids])
        for node_id in ids:
            self._node_numbers[self.nodes[node_id]] = len(self._node_numbers)


def _policy(setup: CoronaSetup) -> FleetPolicy:
    """Return the product's policy with the goal and intervals of ``setup``, but without limits for public channels.

    The paper has no such limits. Weekly rhythms are not learnt, because the simulated updates have none.
    """
    return FleetPolicy(
        poll_interval_s=setup.poll_interval_s,
        max_polls_per_hour=_UNLIMITED,
        maintenance_interval_s=setup.maintenance_s,
        objective=FleetObjective(
            goal=setup.goal,
            demand_factor=1.0,
            delay_s=setup.target_delay_s,
            longest_wait_s=min(setup.longest_wait_s, _UNLIMITED),
            levels=Levels.CONTINUOUS if setup.base is None else Levels(str(setup.base)),
        ),
        weekly_rhythm=False,
    )


def _stored(subscribers: int, update_interval_s: float) -> StoredChannel:
    watched_s = min(update_interval_s, LONGEST_UPDATE_INTERVAL_S) * _KNOWN_UPDATES
    return StoredChannel(subscribers, UpdateHistory(UpdateEstimate(_KNOWN_UPDATES, watched_s)), private=True)


def _version_delays_s(fleet: MeasuredFleet, until_s: float) -> tuple[Floats, Floats]:
    """Return (subscribers, delays in seconds), two arrays with one element per entry published before ``until_s``.

    The delay is the time from the entry's publication until it is stored in a version of its channel. It is infinite if
    this never happens.
    """
    contents = np.zeros(fleet.setup.channels, dtype=np.int64)
    delays_s = np.full(int(np.searchsorted(fleet.published_s, until_s)), np.inf)
    for entry, number in enumerate(fleet.published[: len(delays_s)].tolist()):
        contents[number] += 1
        versioned_s = fleet.versioned_s.get((fleet.ids[number], int(contents[number])), np.inf)
        delays_s[entry] = versioned_s - fleet.published_s[entry]
    return fleet.simulated_channels.subscribers[fleet.published[: len(delays_s)]].astype(np.float64), delays_s
