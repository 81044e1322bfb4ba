"""A part of a large fleet of production node protocols on a virtual clock, with counts of what its nodes send.

All nodes of the fleet are on the ring, send summaries and solve for the fleet's scale. If the fleet has too many
channels to simulate all of them, only the channels of a *section* of the id space are simulated: those whose ids begin
with the same bits. The nodes whose ids begin with these bits are the *measured* nodes. A channel's polling set are the
nodes nearest to it by XOR, so the nodes of a section own and poll its channels, just as if all channels were there.
What crosses the border of a section are summaries, which all nodes send. Only messages of measured nodes are counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from service.corona import events, messages
from service.corona.fleet_policy import FleetPolicy
from service.model import Change, ChannelId, Delta, Entry, NodeId, Validators
from service.overlay.ring import balanced_id
from service.simulate.corona.fleet import SimulatedNetwork
from service.simulate.corona.protocol_fleet import TICKS_PER_MAINTENANCE, ProtocolFleet, ProtocolNode, StoredChannel

HEARTBEATS_PER_LEASE = 4
"""The same as in workers."""
FLEET_AHEAD_S = 1.7e9
"""The fleet time at the start of a simulation."""
_READ_S = 0.05
_CHECK_INTERVAL_S = 0.5
_ENTRY = Entry(
    key="https://blog.example/2026/11/an-entry-of-usual-length",
    title="A title of usual length, as most entries have one",
    link="https://blog.example/2026/11/an-entry-of-usual-length",
    summary="All about one thing that has happened today. " * 13,
)
_BASELINE = b"1".rjust(1_500, b"0")
"""As long as the state of entry detection of a feed with twenty entries; the simulated store reads it as a number."""


@dataclass
class Traffic:
    """What the measured nodes have sent to nodes and asked of the store, by kind of message or request."""

    messages: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    message_bytes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    batches: float = 0.0
    """Messages that a node sends to another at the same time count as one batch."""
    requests: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: "Traffic", factor: float = 1.0) -> None:
        """Add ``factor`` times another traffic to this one."""
        for own, others in (
            (self.messages, other.messages),
            (self.message_bytes, other.message_bytes),
            (self.requests, other.requests),
        ):
            for kind, number in others.items():
                own[kind] += factor * number
        self.batches += factor * other.batches


class SectionFleet(ProtocolFleet):
    """The simulation of a fleet of which only ``channels``, those of one section of the id space, are simulated.

    ``section`` are the first binary digits of the ids of the measured nodes. Nodes read the ring with their
    heartbeats, four in each lease of ``lease_s`` seconds. Polls find nothing, except where :meth:`publish_entry` says
    so, and are not simulated.
    """

    def __init__(
        self,
        channels: dict[ChannelId, StoredChannel],
        policy: FleetPolicy,
        rng: np.random.Generator,
        *,
        section: str,
        lease_s: float,
    ) -> None:
        tick_s = policy.maintenance_interval_s / TICKS_PER_MAINTENANCE
        super().__init__(channels, policy, _Network(rng), tick_s=tick_s, prompt_s=_READ_S, fleet_ahead_s=FLEET_AHEAD_S)
        self.traffic = Traffic()
        self._section = section
        self._lease_s = lease_s
        self._rng = rng
        self._measured: dict[NodeId, bool] = {}
        self._reading_ring: set[NodeId] = set()
        self._batch_s, self._receivers = -1.0, set[tuple[NodeId, NodeId]]()

    @property
    def measured(self) -> list[ProtocolNode]:
        """The living nodes of the section."""
        return [node for node in self.alive if self.is_measured(node.node_id)]

    def is_measured(self, node: NodeId) -> bool:
        """Return whether a node's id is in the section."""
        if node not in self._measured:
            self._measured[node] = f"{int(node, 16):0160b}".startswith(self._section)
        return self._measured[node]

    def join(self, count: int = 1) -> None:
        """Add ``count`` nodes with balanced ids to the ring at once; each ticks at its own time."""
        ids = [node.id for node in self.view.nodes]
        for _ in range(count):
            ids.append(balanced_id(ids))
        self.add_nodes([(node, float(self._rng.random()) * self.tick_s) for node in ids[len(ids) - count :]])

    def kill(self, nodes: Iterable[ProtocolNode]) -> None:
        """Stop nodes that have just renewed their leases."""
        for node in nodes:
            self.fail(node, self._lease_s)

    def publish_entry(self, channel: ChannelId) -> None:
        """Have a random member of the channel's polling set find one new entry."""
        members = [node for node in self._members(channel) if node.alive]
        node = members[int(self._rng.integers(len(members)))]
        delta = Delta(channel, self.channels[channel].version, 0, self.fleet_s, (Change("addition", _ENTRY),))
        validators = Validators('"33a64df551425fcc55e4d42a148795d9f25f89d4"', "Mon, 23 Nov 2026 15:40:00 GMT")
        node.handle(events.CandidateFound(messages.Candidate(delta, validators, _BASELINE)))

    def traffic_of(self, seconds: float) -> Traffic:
        """Let ``seconds`` pass; return the measured nodes' traffic meanwhile."""
        self.traffic = Traffic()
        self.run_until(self.now_s + seconds)
        return self.traffic

    def seconds_until_whole(self, within_s: float) -> float | None:
        """Let time pass until all polling sets are whole; return how long that took, None if longer than ``within_s``.

        A polling set is whole if the nodes nearest to the channel, and those only, poll it by its owner's schedule.
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
        """Return False: polls that find nothing change nothing."""
        return False

    def announce_ring(self, node: ProtocolNode) -> None:
        """Have a node read the ring with its next heartbeat, once however often the ring changes until then."""
        if node.node_id not in self._reading_ring:
            self._reading_ring.add(node.node_id)
            self.after(float(self._rng.random()) * self._lease_s / HEARTBEATS_PER_LEASE, partial(self.show_ring, node))

    def show_ring(self, node: ProtocolNode) -> None:
        """Pass the present ring to a node."""
        self._reading_ring.discard(node.node_id)
        if self.is_measured(node.node_id):
            self.traffic.requests["ring"] += 1
        super().show_ring(node)

    def send(self, sender: NodeId, receiver: NodeId, message: messages.Message) -> None:
        """Send an encoded message, and count it if its sender is a measured node."""
        before = self.bytes_sent
        super().send(sender, receiver, message)
        if not self.is_measured(sender):
            return
        kind = type(message).__name__
        self.traffic.messages[kind] += 1
        self.traffic.message_bytes[kind] += self.bytes_sent - before
        if self._batch_s != self.now_s:
            self._batch_s, self._receivers = self.now_s, set()
        if (sender, receiver) not in self._receivers:
            self._receivers.add((sender, receiver))
            self.traffic.batches += 1

    def take_ownership(self, channel: ChannelId) -> events.Event:
        """Count the request, and return the store's answer."""
        self.traffic.requests["ownership"] += 1
        return super().take_ownership(channel)

    def publish(self, asked: events.Publish) -> events.Event:
        """Count the request, and return the store's answer."""
        self.traffic.requests["version"] += 1
        return super().publish(asked)

    def _members(self, channel: ChannelId) -> list[ProtocolNode]:
        """Return the nodes that should poll a channel according to its owner; none if it has no living owner."""
        owner = self.nodes[self.view.owner(channel) or ""]
        instruction = owner.instructions.get(channel)
        if instruction is None or not owner.alive:
            return []
        return [self.nodes[node] for node in self.view.nearest(channel, instruction.schedule.size)]

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


class _Network:
    """A network without faults; its methods ignore between whom a message passes, and when."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._delays = SimulatedNetwork(0.0, rng)

    def message_delays_s(self, sender: NodeId, receiver: NodeId, now_s: float) -> Sequence[float]:  # noqa: ARG002 - no faults
        return (self.delay_s(now_s),)

    def reaches_store(self, node: NodeId, now_s: float) -> bool:  # noqa: ARG002 - no faults
        return True

    def delay_s(self, now_s: float) -> float:  # noqa: ARG002 - no faults
        return self._delays.delay_s() or 0.0
