"""A fleet of nodes that run the production protocol on a virtual clock.

The network, the leases and the store are simulated in memory. The module simulates what a worker process provides
around :class:`~service.corona.node_protocol.NodeProtocol`: timers, encoded messages, polls, and the store's answers. A
:class:`FleetNetwork` decides which messages are lost, repeated or delayed.

These classes are used by the experiment (``protocol_experiment``), and by property tests that simulate fleets with
random seeds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from service.corona import events, messages
from service.corona.fleet_policy import ChannelBounds, FleetPolicy
from service.corona.node_protocol import NodeProtocol
from service.corona.update_rates import UpdateHistory
from service.model import Change, ChannelId, Delta, Entry, NodeId, NodeInfo, Validators
from service.overlay.ring import RingView, owned_prefixes
from service.simulate.corona.fleet import SimulatedNetwork, VirtualClock

TICKS_PER_MAINTENANCE = 4
"""Number of times that a node's timer fires per maintenance interval, as in workers."""


class FleetNetwork(Protocol):
    """The connections of nodes to each other and to the store. Times are in simulated seconds."""

    def message_delays_s(self, sender: NodeId, receiver: NodeId, now_s: float) -> Sequence[float]:
        """Return the delays in seconds after which copies of a message arrive, one delay per copy.

        The result is empty if the message is lost, and contains several delays if the network repeats the message.
        """

    def reaches_store(self, node: NodeId, now_s: float) -> bool:
        """Return whether the next message between ``node`` and the store arrives.

        The message is a request to the store or its answer.
        """

    def delay_s(self, now_s: float) -> float:
        """Return the delay in seconds of a message to or from the store.

        Such a message is a request, an answer, or the notice that the ring has changed.
        """


class LossyNetwork:
    """A network with random delays. It loses messages between nodes, but answers every request to the store."""

    def __init__(self, messages: SimulatedNetwork, store: SimulatedNetwork) -> None:
        """Create a network that takes delays and losses from two simulated networks.

        - ``messages`` determines the delays and losses of messages between nodes.
        - ``store`` determines only the delays of messages to and from the store.
        """
        self._messages, self._store = messages, store

    def message_delays_s(self, sender: NodeId, receiver: NodeId, now_s: float) -> Sequence[float]:  # noqa: ARG002 - the same for all
        """Return a sequence that contains the delay of a message in seconds; it is empty if the message is lost."""
        delay_s = self._messages.delay_s()
        return () if delay_s is None else (delay_s,)

    def reaches_store(self, node: NodeId, now_s: float) -> bool:  # noqa: ARG002 - the same for all
        """Return True, because no message to or from the store is lost."""
        return True

    def delay_s(self, now_s: float) -> float:  # noqa: ARG002 - the same at all times
        """Return the delay in seconds of a message to or from the store.

        Such a message is a request, an answer, or the notice that the ring has changed.
        """
        return self._store.delay_s() or 0.0


@dataclass
class StoredChannel:
    """The state of one channel in the store and at its publisher.

    A feed's content is simulated by a counter, which the publisher increments with each new entry.

    - ``published`` is the current value of the publisher's counter.
    - ``versions`` contains the value of the counter in each stored version of the content.
    - ``epoch`` counts how many times a node has taken ownership of the channel.
    - ``private`` tells whether the channel is exempt from the limit on polls of public channels.
    - ``site`` is the web site whose request budget the channel shares; it is empty if there is none.
    """

    subscribers: int
    updates: UpdateHistory
    private: bool = False
    site: str = ""
    published: int = 0
    epoch: int = 0
    versions: list[int] = field(default_factory=lambda: [0])
    notices: set[int] = field(default_factory=set)
    """The sequence numbers of versions that only notify subscribers, and have the content of the previous version."""

    @property
    def version(self) -> int:
        """The sequence number of the newest stored version."""
        return len(self.versions) - 1


class ProtocolNode:
    """A simulated worker that passes events to the production protocol and carries out the resulting effects."""

    def __init__(self, fleet: "ProtocolFleet", node_id: NodeId, policy: FleetPolicy) -> None:
        self.fleet = fleet
        self.node_id = node_id
        self.alive = True
        self.protocol = NodeProtocol(node_id, policy)
        self.view = RingView(0, ())
        """The ring as this node last received it."""
        self.owned: set[ChannelId] = set()
        self.instructions: dict[ChannelId, events.StartPolling] = {}
        self.known: dict[ChannelId, int] = {}
        """For each channel, the version with which the results of its polls are compared."""
        self._fetched: dict[ChannelId, int] = {}
        self._planned_s: dict[ChannelId, float] = {}
        self._polled_s: dict[ChannelId, float] = {}
        self._under_way: set[object] = set()

    def handle(self, *occurred: events.Event) -> None:
        """Pass events to the protocol in one call, and carry out the resulting effects.

        A dead node does nothing.
        """
        if self.alive:
            for event in occurred:
                if isinstance(event, events.RingChanged):
                    self.view = event.view
            effects = self.protocol.handle(occurred, self.fleet.now_s, self.fleet.fleet_s)
            for effect in effects:
                self._perform(effect)
            self._take_ownership([effect.channel for effect in effects if isinstance(effect, events.TakeOwnership)])

    def tick(self) -> None:
        """Pass a timer event to the protocol now, and again every ``tick_s`` seconds while the node is alive."""
        if self.alive:
            self.handle(events.Tick())
            self.fleet.after(self.fleet.tick_s, self.tick)

    def plan_poll(self, channel: ChannelId) -> None:
        """Schedule the node's next poll of a channel.

        Nothing happens if the fleet does not simulate this poll as an event.
        """
        if not self.fleet.simulates_polls_of(channel, self):
            return
        instruction, now_s = self.instructions[channel], self.fleet.now_s
        ahead_s = self.fleet.fleet_s - now_s
        after_s = max(now_s, self._polled_s.get(channel, now_s)) + ahead_s
        due_s = instruction.schedule.next_poll_s(instruction.rank, after_s) - ahead_s
        if due_s != self._planned_s.get(channel):
            self._planned_s[channel] = due_s
            self.fleet.after(due_s - now_s, partial(self._poll, channel, due_s))

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Send(node, message):
                self.fleet.send(self.node_id, node, message)
            case events.StartPolling(channel):
                self.instructions[channel] = effect
                self.fleet.on_instruction(self, channel, effect)
                self.plan_poll(channel)
            case events.LoadObjective():
                self._request_once("objective", self.fleet.load_objective)
            case events.StopPolling(channel):
                self.instructions.pop(channel, None)
                self.known.pop(channel, None)
                self._planned_s.pop(channel, None)
                self.fleet.on_instruction(self, channel, None)
            case events.UpdateBase(channel, announcement):
                self._update_base(channel, announcement)
            case events.ReleaseOwnership(channel):
                self.owned.remove(channel)
            case events.ListOwnedChannels(requested_s):
                self._request_once("registry", partial(self.fleet.list_owned, self, requested_s))
            case events.Publish():
                self.fleet.request(self, lambda: [self.fleet.publish(effect)])

    def _update_base(self, channel: ChannelId, announcement: messages.VersionAnnouncement | None) -> None:
        if announcement is not None and channel in self.known:
            self.known[channel] = max(self.known[channel], announcement.version)
            self._report_change(channel)
        elif self.fleet.network.reaches_store(self.node_id, self.fleet.now_s):
            self.fleet.after(self.fleet.prompt_s, partial(self._refresh, channel))

    def _request_once(self, what: object, request: Callable[[], events.Event]) -> None:
        if what not in self._under_way:
            self._under_way.add(what)
            self.fleet.request(self, lambda: [request()], partial(self._under_way.discard, what))

    def _take_ownership(self, channels: Sequence[ChannelId]) -> None:
        """Take ownership of ``channels`` with one request to the store, as workers do.

        A channel is skipped while an earlier request for it is still unanswered.
        """
        self.owned.update(channels)
        wanted = [channel for channel in channels if channel not in self._under_way]
        if wanted:
            self._under_way.update(wanted)
            self.fleet.request(
                self,
                lambda: [self.fleet.take_ownership(channel) for channel in wanted],
                partial(self._under_way.difference_update, wanted),
            )

    def _poll(self, channel: ChannelId, due_s: float) -> None:
        if not self.alive or self._planned_s.get(channel) != due_s:
            return
        del self._planned_s[channel]
        if not self.fleet.simulates_polls_of(channel, self):
            return
        self._polled_s[channel] = due_s
        self.plan_poll(channel)
        if channel not in self.known:
            if not self.fleet.network.reaches_store(self.node_id, self.fleet.now_s):
                return
            self.known[channel] = self.fleet.channels[channel].version
        self._fetched[channel] = self.fleet.channels[channel].published
        self.fleet.on_poll(channel, self)
        self._report_change(channel)

    def _refresh(self, channel: ChannelId) -> None:
        self.known[channel] = self.fleet.channels[channel].version
        self._report_change(channel)

    def _report_change(self, channel: ChannelId) -> None:
        base, fetched = self.known[channel], self._fetched.get(channel, 0)
        if fetched > self.fleet.channels[channel].versions[base]:
            entry = Entry(key=str(fetched))
            delta = Delta(channel, base, 0, self.fleet.now_s, (Change("addition", entry),))
            self.handle(events.CandidateFound(messages.Candidate(delta, Validators(), str(fetched).encode())))


class ProtocolFleet(VirtualClock):
    """The simulation of one fleet; :meth:`run_until` advances the simulated time.

    To measure a run, subclasses override :meth:`simulates_polls_of`, :meth:`on_poll` and :meth:`on_instruction`.
    """

    def __init__(
        self,
        channels: dict[ChannelId, StoredChannel],
        policy: FleetPolicy,
        network: FleetNetwork,
        *,
        tick_s: float,
        prompt_s: float,
        fleet_ahead_s: float = 0.0,
    ) -> None:
        """Create a fleet without nodes.

        - ``tick_s`` is the time between two timer events of a node.
        - ``prompt_s`` is the time that a node takes to read a channel's newest version from the store.
        - ``fleet_ahead_s`` is how far the store's clock is ahead of the nodes' clocks. Schedules use the store's clock.
        """
        super().__init__()
        self.channels, self.policy, self.network = channels, policy, network
        self.tick_s, self.prompt_s = tick_s, prompt_s
        self.objective = policy.objective
        self.site_rates: dict[str, float] = {}
        """Requests per second by site, as set by an admin."""
        self.bounds: dict[ChannelId, ChannelBounds] = {}
        """Bounds of single channels, as set by an admin."""
        self.view = RingView(0, ())
        self.nodes: dict[NodeId, ProtocolNode] = {}
        """All nodes that ever joined, by id; a later node with the same id replaces a dead one."""
        self.messages_sent = self.bytes_sent = 0
        self._fleet_ahead_s = fleet_ahead_s
        self._by_prefix: dict[str, list[ChannelId]] = {}
        for channel in channels:
            self._by_prefix.setdefault(channel[:2], []).append(channel)

    @property
    def fleet_s(self) -> float:
        """The current fleet time: the time of the store's clock, in seconds."""
        return self.now_s + self._fleet_ahead_s

    @property
    def alive(self) -> list[ProtocolNode]:
        """The nodes that are alive, in the order in which they joined."""
        return [node for node in self.nodes.values() if node.alive]

    def simulates_polls_of(self, channel: ChannelId, node: ProtocolNode) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the next poll of ``channel`` by ``node`` is simulated as an event; here always True.

        A subclass may return False for polls that find nothing, and compute their number from the channel's schedule
        instead.
        """
        return True

    def on_poll(self, channel: ChannelId, node: ProtocolNode) -> None:
        """Called after a simulated poll of ``channel`` by ``node``. Does nothing here; subclasses override it."""

    def on_instruction(self, node: ProtocolNode, channel: ChannelId, instruction: events.StartPolling | None) -> None:
        """Called when ``node`` begins to poll ``channel`` according to ``instruction``.

        If ``instruction`` is None, the node stops polling the channel. Does nothing here; subclasses override it.
        """

    def add_nodes(self, nodes: Iterable[tuple[NodeId, float]]) -> None:
        """Add several nodes to the fleet at once.

        ``nodes`` contains pairs (id, seconds until the node's first timer event).
        """
        infos = []
        for node_id, first_tick_s in nodes:
            node = self.nodes[node_id] = ProtocolNode(self, node_id, self.policy)
            infos.append(NodeInfo(node_id, self.view.version + 1, "", self.now_s))
            self.after(first_tick_s, node.tick)
        self.change_ring(infos, [])

    def fail(self, node: ProtocolNode, lease_s: float) -> None:
        """Stop a node. The other nodes notice the failure when the node's lease ends, ``lease_s`` seconds from now."""
        node.alive = False
        for channel in list(node.instructions):
            self.on_instruction(node, channel, None)
        self.after(lease_s, partial(self.change_ring, (), [node.node_id]))

    def send(self, sender: NodeId, receiver: NodeId, message: messages.Message) -> None:
        """Encode ``message`` and deliver it to ``receiver``.

        The network decides how many copies arrive, and when.
        """
        raw = messages.encode(sender, message)
        self.messages_sent += 1
        self.bytes_sent += len(raw)
        for delay_s in self.network.message_delays_s(sender, receiver, self.now_s):
            self.after(delay_s, partial(self._deliver, receiver, raw))

    def request(
        self, node: ProtocolNode, request: Callable[[], Sequence[events.Event]], done: Callable[[], None] = lambda: None
    ) -> None:
        """Send a request from ``node`` to the store, and pass the answer to the node as events.

        The request or the answer may get lost.

        - ``request`` is called when the request reaches the store, and returns the events that make up the answer.
        - ``done`` is called when the answer arrives, or at the time when a lost answer would have arrived.
        """
        is_received, is_answered = (self.network.reaches_store(node.node_id, self.now_s) for _ in range(2))

        def reach_store() -> None:
            answer = request() if is_received else ()
            self.after(self.network.delay_s(self.now_s), lambda: reach_node(answer))

        def reach_node(answer: Sequence[events.Event]) -> None:
            done()
            if answer and is_answered:
                node.handle(*answer)

        self.after(self.network.delay_s(self.now_s), reach_store)

    def load_objective(self) -> events.Event:
        """Return the objective and the limits set by admins, as the store's answer to the effect ``LoadObjective``."""
        return events.ObjectiveLoaded(self.objective, self.site_rates, dict(self.bounds))

    def take_ownership(self, channel: ChannelId) -> events.Event:
        """Record that a node takes ownership of ``channel``; return the channel's state, as the store's answer.

        Each call increments the channel's ``epoch``, which counts how many times ownership has been taken.
        """
        stored = self.channels[channel]
        stored.epoch += 1
        return events.OwnershipTaken(
            channel,
            stored.epoch,
            stored.version,
            private=stored.private,
            updates=stored.updates,
            site=stored.site,
        )

    def publish(self, effect: events.Publish) -> events.Event:
        """Store a change, which a poll has found, as the channel's next version; return the store's answer.

        ``effect`` contains the change. The store refuses it in two cases:

        - ``effect.epoch`` is not current, because a node has since taken ownership of the channel.
        - The change is not based on the channel's current version.
        """
        candidate, epoch = effect.candidate, effect.epoch
        stored = self.channels[candidate.channel]
        if (epoch, candidate.base_version) != (stored.epoch, stored.version):
            return events.PublishRefused(candidate.channel, epoch)
        if candidate.delta.notice:
            stored.versions.append(stored.versions[-1])
            stored.notices.add(stored.version)
        else:
            stored.versions.append(int(candidate.memory))
        stored.updates = effect.updates
        return events.VersionPublished(candidate.channel, stored.version)

    def change_ring(self, joined: Sequence[NodeInfo], left: Sequence[NodeId]) -> None:
        """Add nodes to the ring and remove others, and announce the new ring to all living nodes."""
        self.view = self.view.with_changes(self.view.version + 1, joined, left)
        for node in self.alive:
            self.announce_ring(node)

    def announce_ring(self, node: ProtocolNode) -> None:
        """Arrange for ``node`` to receive the current ring after the network's delay.

        This method is called for each living node when the ring has changed.
        """
        self.after(self.network.delay_s(self.now_s), partial(self.show_ring, node))

    def show_ring(self, node: ProtocolNode) -> None:
        """Pass the current ring to ``node`` immediately."""
        node.handle(events.RingChanged(self.view))

    def list_owned(self, node: ProtocolNode, requested_s: float) -> events.Event:
        """Return the channels that ``node`` owns, as the answer to the effect ``ListOwnedChannels``.

        Ownership is determined by the latest ring that this node has received. ``requested_s``, the time of the
        request, is copied to the answer.
        """
        listed = (
            events.ListedChannel(channel, self.channels[channel].subscribers)
            for prefix in owned_prefixes(node.view, node.node_id)
            for channel in self._by_prefix.get(prefix, ())
        )
        return events.ChannelsListed(requested_s, tuple(listed))

    def _deliver(self, receiver: NodeId, raw: bytes) -> None:
        envelope = messages.decode(raw)
        if envelope is not None and receiver in self.nodes:
            self.nodes[receiver].handle(events.MessageReceived(envelope.sender, envelope.message))
