"""A fleet of Corona node protocols in virtual time with faults from one seed (``service.simulate.corona``).

Until ``calm_s``, messages are lost, repeated and delayed, ring views lag, nodes join and crash, and some nodes are
partitioned; after that, all messages arrive within ``PROMPT_S``. Every poll is simulated.
"""

from collections.abc import Sequence
from random import Random

from service.corona import events, messages
from service.corona.fleet_policy import FleetObjective, FleetPolicy
from service.corona.update_rates import UpdateHistory
from service.model import ChannelId, Delta, NodeId, Notice, Validators
from service.overlay.ring import balanced_id
from service.simulate.corona.protocol_fleet import ProtocolFleet, ProtocolNode, StoredChannel

POLICY = FleetPolicy(
    poll_interval_s=6.0,
    max_polls_per_hour=3600.0,
    maintenance_interval_s=4.0,
    weekly_rhythm=False,
    polls_per_hour_for_one_subscriber=900.0,
    most_polls_per_node=4.0,
)
"""With this policy, a channel gets 1.5 polls per τ with one subscriber, and 3.4 with five."""

TICK_S = 1.0
PROMPT_S = 0.05
LATE_S = 5.0
NOTICES_PER_POLL = 0.1
FLEET_AHEAD_S = 1e6
"""Offset of the fleet's clock from the nodes' clocks."""

UNWATCHED = UpdateHistory(since_s=FLEET_AHEAD_S)


class StormNetwork:
    """Loses, repeats and delays messages until ``calm_s``, and separates ``partitioned`` nodes from all others."""

    def __init__(self, random: Random, calm_s: float) -> None:
        self.calm_s = calm_s
        self.partitioned: frozenset[NodeId] = frozenset()
        """Nodes that reach only each other and the ring in the store."""
        self._random = random

    def message_delays_s(self, sender: NodeId, receiver: NodeId, now_s: float) -> Sequence[float]:
        if (sender in self.partitioned) != (receiver in self.partitioned):
            return ()
        return [self.delay_s(now_s) for _ in range(self._copies(now_s))]

    def reaches_store(self, node: NodeId, now_s: float) -> bool:
        return node not in self.partitioned and self._copies(now_s) > 0

    def delay_s(self, now_s: float) -> float:
        latest_s = min(LATE_S, self.calm_s - now_s)
        return self._random.uniform(PROMPT_S, max(PROMPT_S, latest_s))

    def _copies(self, now_s: float) -> int:
        return self._random.choice((0, 1, 1, 1, 2)) if now_s < self.calm_s else 1


class Fleet(ProtocolFleet):
    """The simulation of one run; ``polls_s`` has the times of each channel's polls."""

    network: StormNetwork

    def __init__(
        self, seed: int, channels: int, *, calm_s: float = 0.0, objective: FleetObjective = POLICY.objective
    ) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable, not secret
        ids = [f"{self.random.getrandbits(160):040x}" for _ in range(channels)]
        stored = {channel: StoredChannel(subscribers=i % 4, updates=UNWATCHED) for i, channel in enumerate(ids)}
        network = StormNetwork(self.random, calm_s)
        super().__init__(stored, POLICY, network, tick_s=TICK_S, prompt_s=PROMPT_S, fleet_ahead_s=FLEET_AHEAD_S)
        self.objective = objective
        self.polls_s: dict[ChannelId, list[float]] = {channel: [] for channel in ids}

    def join(self) -> None:
        self.add_nodes([(balanced_id([node.id for node in self.view.nodes]), 0.0)])

    def crash(self, node: ProtocolNode) -> None:
        self.fail(node, self.network.delay_s(self.now_s))

    def subscribe(self, channel: ChannelId, subscribers: int) -> None:
        self.channels[channel].subscribers = subscribers
        owner = self.view.owner(channel)
        if subscribers and owner is not None:
            self.send("", owner, messages.ChannelAdded(channel))

    def on_poll(self, channel: ChannelId, node: ProtocolNode) -> None:
        """Record the time of a poll, and occasionally publish a notice about the channel."""
        self.polls_s[channel].append(self.now_s)
        if self.random.random() < NOTICES_PER_POLL:
            delta = Delta(channel, node.known[channel], 0, self.now_s, (), notice=Notice("dead"))
            node.handle(events.CandidateFound(messages.Candidate(delta, Validators(), b"")))
