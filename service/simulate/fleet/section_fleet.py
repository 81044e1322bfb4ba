"""A simulated section of a large fleet of production nodes, whose messages and requests to the store are counted.

If a fleet has too many channels to simulate, only a *section* is simulated: the channels and nodes whose ids begin with
the same bits. The other nodes are not simulated, but the section's nodes know their ids. They therefore poll the
section's channels as they would in the whole fleet.
"""

# A channel's polling set consists of the nodes whose ids are nearest by XOR. Therefore the section's channels are owned
# and polled by its own nodes. Only summaries of channels are exchanged with nodes outside the section; their summaries
# contain no channels. The scale, the factor that the polls of all channels share, hardly changes without the other
# channels, because budget and demand decrease in the same proportion.

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from service.corona import events, messages
from service.corona.fleet_policy import CONFIRMATION_WAIT_INTERVALS, FleetPolicy
from service.corona.optimizer.node_allocation import aggregate_base
from service.model import Change, ChannelId, Delta, Entry, NodeId, NodeInfo, Validators
from service.overlay.ring import BITS, balanced_id, from_hex
from service.simulate.corona.fleet import SimulatedNetwork
from service.simulate.corona.protocol_fleet import (
    LossyNetwork,
    ProtocolFleet,
    ProtocolNode,
    StoredChannel,
)
from service.tick_interval import tick_interval_s

URGENT = messages.Candidate | messages.Rejection | messages.ChannelAdded | messages.ChannelRemoved
"""Messages that always go through inboxes, as in workers."""
FLEET_AHEAD_S = 1.7e9
"""The fleet time (Unix seconds of the store's clock) at the start of a simulation."""
_READ_S = 0.05
_CHECK_INTERVAL_S = 0.5
_ENTRY = Entry(
    key="https://blog.example/2026/11/an-entry-of-usual-length",
    title="A title of usual length, as most entries have one",
    link="https://blog.example/2026/11/an-entry-of-usual-length",
    summary="All about one thing that has happened today. " * 13,
)
_BASELINE = b"1".rjust(1_500, b"0")
"""The data that a worker stores to detect new entries in later polls. They are as large as for a feed with twenty
entries. The simulated store reads them as a number."""


@dataclass
class Traffic:
    """Messages from the simulated nodes to nodes of other workers, and requests to the store.

    ``counts`` contains these counts:

    - ``inbox_messages`` is the number of messages sent through inboxes in Redis.
    - ``inbox_bytes`` is the total size of the messages sent through inboxes.
    - ``peer_requests`` is the number of requests from worker to worker, which carry all other messages. Messages sent
      at the same time between the same two workers share a request. Confirmations wait for a request of others.
    - ``ownerships`` is the number of requests to the store for the ownership of a channel.
    - ``versions`` is the number of requests to store new content of a channel.
    """

    messages: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Maps the name of each message class to the number of messages."""
    message_bytes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Maps the name of each message class to the total size of its messages in bytes."""
    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def plus(self, other: "Traffic", factor: float = 1.0) -> "Traffic":
        """Return the sum of this traffic and ``factor`` times ``other``."""
        total = Traffic()
        for traffic, times in ((self, 1.0), (other, factor)):
            for name in ("messages", "message_bytes", "counts"):
                sums: defaultdict[str, float] = getattr(total, name)
                for kind, number in getattr(traffic, name).items():
                    sums[kind] += times * number
        return total


class SectionFleet(ProtocolFleet):
    """The simulation of one section of a fleet: the ``channels`` and nodes whose ids begin with the same bits.

    - ``section`` contains these leading bits as binary digits, at most four.
    - ``lease_s`` is the duration of a node's lease in seconds. A node renews its lease, and reads the list of nodes, at
      each tick of its timer.
    - ``nodes_per_worker`` is the number of nodes in a worker process. Nodes are assigned to processes at random.

    Polls are not simulated. Instead, :meth:`publish_entry` gives a node the result of a poll.
    """

    def __init__(
        self,
        channels: dict[ChannelId, StoredChannel],
        policy: FleetPolicy,
        rng: np.random.Generator,
        *,
        section: str,
        lease_s: float,
        nodes_per_worker: int = 1,
    ) -> None:
        self.tick_s = tick_s = tick_interval_s(policy.maintenance_interval_s, lease_s)
        delays = SimulatedNetwork(0.0, rng)
        network = LossyNetwork(delays, delays)
        super().__init__(channels, policy, network, tick_s=tick_s, prompt_s=_READ_S, fleet_ahead_s=FLEET_AHEAD_S)
        self._traffic = Traffic()
        self._section = section
        self._lease_s = lease_s
        self._rng = rng
        self._nodes_per_worker = nodes_per_worker
        self._workers: dict[NodeId, int] = {}
        """Maps each node that has ever joined to the index of its worker."""
        self._reading_ring: set[NodeId] = set()
        self._request_s, self._requests = -1.0, set[tuple[int, int]]()
        """The time of the latest requests between workers, and their pairs (sending worker, receiving worker)."""
        self._confirmation_wait_s = CONFIRMATION_WAIT_INTERVALS * policy.maintenance_interval_s
        self._waiting: dict[tuple[int, int], float] = {}
        """The pairs (sending worker, receiving worker) with waiting confirmations, and when these must be sent.

        Only the requests are delayed in the simulation, not the confirmations.
        """

    def join(self, count: int = 1) -> None:
        """Add ``count`` nodes to the fleet at once.

        The new ids are chosen so that the ids of all nodes are evenly spaced. Each new node's timer starts at a random
        time.
        """
        present = [node.id for node in self.view.nodes]
        for _ in range(count):
            present.append(balanced_id(present))
        ids = present[len(present) - count :]
        first = len(self._workers)
        for place, node in zip(self._rng.permutation(count).tolist(), ids, strict=True):
            self._workers[node] = (first + place) // self._nodes_per_worker
        others = [node for node in ids if not self._is_simulated(node)]
        self.change_ring([NodeInfo(node, self.view.version + 1, "", self.now_s) for node in others], ())
        for node in ids:
            if self._is_simulated(node):
                self.after(float(self._rng.random()) * self.tick_s, partial(self._receive_summaries, node))
        self.add_nodes([(node, float(self._rng.random()) * self.tick_s) for node in ids if self._is_simulated(node)])

    def kill(self, ids: Iterable[NodeId]) -> None:
        """Stop the nodes with these ids. The other nodes notice this when the leases end, ``lease_s`` seconds later."""
        for node in ids:
            if node in self.nodes:
                self.fail(self.nodes[node], self._lease_s)
            else:
                self.after(self._lease_s, partial(self.change_ring, (), [node]))

    def publish_entry(self, channel: ChannelId) -> None:
        """Choose a random node that polls ``channel``, and make it find a new entry as if by a poll."""
        members = [node for node in self._members(channel) if node.alive]
        node = members[int(self._rng.integers(len(members)))]
        delta = Delta(channel, self.channels[channel].version, 0, self.fleet_s, (Change("addition", _ENTRY),))
        validators = Validators('"33a64df551425fcc55e4d42a148795d9f25f89d4"', "Mon, 23 Nov 2026 15:40:00 GMT")
        node.handle(events.CandidateFound(messages.Candidate(delta, validators, _BASELINE)))

    def take_traffic(self) -> Traffic:
        """Return the traffic since the last call, or since the start of the simulation."""
        found, self._traffic = self._traffic, Traffic()
        return found

    def seconds_until_whole(self, within_s: float) -> float | None:
        """Simulate until all channels are polled as planned, and return how many seconds this takes.

        The result is None if it takes more than ``within_s`` seconds. A channel is polled as planned if all nodes in
        its polling set (the nodes nearest to it) are alive and follow the schedule made by its owner.
        """
        begin_s, broken = self.now_s, list(self.channels)
        while self.now_s - begin_s <= within_s:
            broken = [channel for channel in broken if not self._is_whole(channel)]
            broken = broken or [channel for channel in self.channels if not self._is_whole(channel)]
            if not broken:
                return self.now_s - begin_s
            self.run_until(self.now_s + _CHECK_INTERVAL_S)
        return None

    def simulates_polls_of(self, channel: ChannelId, node: ProtocolNode) -> bool:  # noqa: ARG002 - none is
        """Return False: no polls are simulated.

        Polls that find nothing have no effect, and :meth:`publish_entry` replaces the polls that find an entry.
        """
        return False

    def announce_ring(self, node: ProtocolNode) -> None:
        """Make ``node`` read the list of all nodes at its next heartbeat.

        If the list changes several times before the heartbeat, the node reads it only once.
        """
        if node.node_id not in self._reading_ring:
            self._reading_ring.add(node.node_id)
            self.after(float(self._rng.random()) * self.tick_s, partial(self.show_ring, node))

    def show_ring(self, node: ProtocolNode) -> None:
        """Pass the current ring to ``node`` immediately."""
        self._reading_ring.discard(node.node_id)
        super().show_ring(node)

    def send(self, sender: NodeId, receiver: NodeId, message: messages.Message) -> None:
        """Encode and send a message, and count it unless both nodes belong to the same worker."""
        before = self.bytes_sent
        super().send(sender, receiver, message)
        workers = self._workers[sender], self._workers[receiver]
        if workers[0] == workers[1]:
            return
        kind = type(message).__name__
        self._traffic.messages[kind] += 1
        self._traffic.message_bytes[kind] += self.bytes_sent - before
        if isinstance(message, URGENT):
            self._traffic.counts["inbox_messages"] += 1
            self._traffic.counts["inbox_bytes"] += self.bytes_sent - before
            return
        if not isinstance(message, messages.CONFIRMATIONS):
            self._count_request(workers)
        elif workers not in self._waiting and not self._has_request_now(workers):
            due_s = self._waiting[workers] = self.now_s + self._confirmation_wait_s
            self.after(self._confirmation_wait_s, partial(self._send_waiting, workers, due_s))

    def _send_waiting(self, workers: tuple[int, int], due_s: float) -> None:
        if self._waiting.get(workers) == due_s:
            self._count_request(workers)

    def _count_request(self, workers: tuple[int, int]) -> None:
        """Count the request that carries a message, unless another message at this time has caused it already."""
        # The request and its response also contain the confirmations that were waiting.
        self._waiting.pop(workers, None)
        self._waiting.pop(workers[::-1], None)
        if not self._has_request_now(workers):
            self._requests.add(workers)
            self._traffic.counts["peer_requests"] += 1

    def _has_request_now(self, workers: tuple[int, int]) -> bool:
        if self._request_s != self.now_s:
            self._request_s, self._requests = self.now_s, set()
        return workers in self._requests

    def take_ownership(self, channel: ChannelId) -> events.Event:
        """Count the request for ownership of ``channel``, and return the store's answer."""
        self._traffic.counts["ownerships"] += 1
        return super().take_ownership(channel)

    def publish(self, effect: events.Publish) -> events.Event:
        """Count the request to store a version, and return the store's answer."""
        self._traffic.counts["versions"] += 1
        return super().publish(effect)

    def _members(self, channel: ChannelId) -> list[ProtocolNode]:
        """Return the simulated nodes that poll ``channel`` according to its owner; empty if the owner is dead."""
        owner = self.nodes[self.view.owner(channel) or ""]
        instruction = owner.instructions.get(channel)
        if instruction is None or not owner.alive:
            return []
        nearest = self.view.nearest(channel, instruction.schedule.size)
        return [self.nodes[node] for node in nearest if self._is_simulated(node)]

    def _is_simulated(self, node: NodeId) -> bool:
        return f"{from_hex(node):0{BITS}b}".startswith(self._section)

    def _receive_summaries(self, node_id: NodeId) -> None:
        """Pass to a node the summaries of channels that it would receive from nodes outside the simulated section.

        This is done immediately, and then at regular intervals while the node is alive.
        """
        node = self.nodes[node_id]
        if node.alive:
            node.handle(*self._outside_summaries(node_id))
            self.after(self.tick_s, partial(self._receive_summaries, node_id))

    def _outside_summaries(self, node_id: NodeId) -> list[events.MessageReceived]:
        counts = Counter(node[0] for node in self.view.ids if not self._is_simulated(node))
        return [
            events.MessageReceived(
                self.view.owner(digit + node_id[1:]) or "",
                messages.Summary(1, messages.Aggregate(count, 0.0, b"", aggregate_base(self.policy.objective.levels))),
            )
            for digit, count in counts.items()
        ]

    def _is_whole(self, channel: ChannelId) -> bool:
        members = self._members(channel)
        if not members:
            return False
        schedule = members[0].instructions[channel].schedule
        return all(
            node.alive
            and (instruction := node.instructions.get(channel)) is not None
            and instruction.schedule == schedule
            for node in members
        )
