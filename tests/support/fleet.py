"""A fleet of Corona node protocols in virtual time: a lossy network, a store, publishers and faults, from one seed.

It implements what surrounds the protocol in a worker: leases, inboxes, polls and the store's two scripts. Until
``calm_s``, messages are lost, repeated and delayed, ring views lag, nodes join and crash, and some are cut off; after
that, all messages arrive within ``PROMPT_S``.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from service.corona import events, messages
from service.corona.fleet_policy import ChannelBounds, FleetObjective, FleetPolicy
from service.corona.protocol import NodeProtocol
from service.corona.update_rates import UpdateHistory
from service.model import ChannelId, Delta, NodeId, NodeInfo, Notice, Validators
from service.overlay.ring import RingView, balanced_id

POLICY = FleetPolicy(poll_interval_s=6.0, max_polls_per_hour=3600.0, maintenance_interval_s=4.0)
TICK_S = 1.0
PROMPT_S = 0.05
LATE_S = 5.0
NOTICES_PER_POLL = 0.1
FLEET_AHEAD_S = 1e6
"""Offset of the fleet's clock from the nodes' clocks."""

UNWATCHED = UpdateHistory(since_s=FLEET_AHEAD_S)


@dataclass
class StoredChannel:
    """The state of one channel in the store and at its publisher. Contents are increasing numbers."""

    subscribers: int
    published: int = 0
    epoch: int = 0
    versions: list[int] = field(default_factory=lambda: [0])
    notices: set[int] = field(default_factory=set)
    """The versions with a notice; their content is that of the previous version."""
    updates: UpdateHistory = UNWATCHED
    site: str = ""
    polls_s: list[float] = field(default_factory=list)

    @property
    def version(self) -> int:
        return len(self.versions) - 1


class Worker:
    """A simulated worker around one protocol, which executes the protocol's effects."""

    def __init__(self, fleet: "Fleet", node_id: NodeId) -> None:
        self.fleet = fleet
        self.node_id = node_id
        self.alive = True
        self.protocol = NodeProtocol(node_id, POLICY)
        self.owned: set[ChannelId] = set()
        self.instructions: dict[ChannelId, events.StartPolling] = {}
        self.known: dict[ChannelId, int] = {}
        self._fetched: dict[ChannelId, int] = {}
        self._planned_s: dict[ChannelId, float] = {}
        self._polled_s: dict[ChannelId, float] = {}
        self._under_way: set[object] = set()

    def handle(self, event: events.Event) -> None:
        if self.alive:
            for effect in self.protocol.handle([event], self.fleet.now_s, self.fleet.now_s + FLEET_AHEAD_S):
                self._perform(effect)

    def tick(self) -> None:
        if self.alive:
            self.handle(events.Tick())
            self.fleet.after(TICK_S, self.tick)

    def _perform(self, effect: events.Effect) -> None:  # noqa: C901 - one arm per effect
        match effect:
            case events.Send(node, message):
                self.fleet.send(self.node_id, node, message)
            case events.StartPolling():
                self._start(effect)
            case events.LoadObjective():
                self._request_once("aims", self.fleet.load_objective)
            case events.StopPolling(channel):
                self.instructions.pop(channel, None)
                self.known.pop(channel, None)
                self._planned_s.pop(channel, None)
            case events.UpdateBase(channel, announcement):
                if announcement is not None and channel in self.known:
                    self.known[channel] = max(self.known[channel], announcement.version)
                    self._report_change(channel)
                elif self.fleet.store_answers():
                    self.fleet.after(PROMPT_S, lambda: self._refresh(channel))
            case events.ReleaseOwnership(channel):
                self.owned.remove(channel)
            case events.TakeOwnership(channel):
                self.owned.add(channel)
                self._request_once(channel, lambda: self.fleet.take_ownership(channel))
            case events.ListOwnedChannels(requested_s):
                self._request_once("registry", lambda: self.fleet.walk(requested_s))
            case events.Publish():
                self.fleet.request(self, lambda: self.fleet.publish(effect))

    def _start(self, instruction: events.StartPolling) -> None:
        self.instructions[instruction.channel] = instruction
        self._plan(instruction.channel)

    def _request_once(self, what: object, question: Callable[[], events.Event]) -> None:
        if what not in self._under_way:
            self._under_way.add(what)
            self.fleet.request(self, question, lambda: self._under_way.discard(what))

    def _load(self, channel: ChannelId) -> None:
        self.known[channel] = self.fleet.channels[channel].version

    def _plan(self, channel: ChannelId) -> None:
        instruction, now_s = self.instructions[channel], self.fleet.now_s
        after_s = max(now_s, self._polled_s.get(channel, now_s)) + FLEET_AHEAD_S
        due_s = instruction.schedule.next_poll_s(instruction.rank, after_s) - FLEET_AHEAD_S
        if due_s != self._planned_s.get(channel):
            self._planned_s[channel] = due_s
            self.fleet.after(due_s - now_s, lambda: self._poll(channel, due_s))

    def _poll(self, channel: ChannelId, due_s: float) -> None:
        if not self.alive or self._planned_s.get(channel) != due_s:
            return
        self._polled_s[channel] = due_s
        self._plan(channel)
        if channel not in self.known:
            if not self.fleet.store_answers():
                return
            self._load(channel)
        stored = self.fleet.channels[channel]
        stored.polls_s.append(self.fleet.now_s)
        self._fetched[channel] = stored.published
        self._report_notice(channel)
        self._report_change(channel)

    def _refresh(self, channel: ChannelId) -> None:
        self._load(channel)
        self._report_change(channel)

    def _report_notice(self, channel: ChannelId) -> None:
        """Occasionally publish a notice about the channel."""
        if self.fleet.random.random() < NOTICES_PER_POLL:
            delta = Delta(channel, self.known[channel], 0, self.fleet.now_s, (), notice=Notice("dead"))
            self.handle(events.CandidateFound(messages.Candidate(delta, Validators(), b"")))

    def _report_change(self, channel: ChannelId) -> None:
        base, fetched = self.known[channel], self._fetched.get(channel, 0)
        if fetched > self.fleet.channels[channel].versions[base]:
            delta = Delta(channel, base, 0, self.fleet.now_s, ())
            found = messages.Candidate(delta, Validators(), str(fetched).encode())
            self.handle(events.CandidateFound(found))


class Fleet:
    """The simulation of one run; ``run_until`` advances its time."""

    def __init__(
        self, seed: int, channels: int, *, calm_s: float = 0.0, objective: FleetObjective = POLICY.objective
    ) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable, not secret
        self.now_s = 0.0
        self.calm_s = calm_s
        self.objective = objective
        self.site_rates: dict[str, float] = {}
        """Requests per second by site, as set by an admin."""
        self.bounds: dict[ChannelId, ChannelBounds] = {}
        """Bounds of single channels, as set by an admin."""
        self.partitioned: frozenset[NodeId] = frozenset()
        """Nodes that reach only each other and the ring in the store."""
        self.channels = {self._random_id(): StoredChannel(subscribers=i % 4) for i in range(channels)}
        self.view = RingView(0, ())
        self.workers: dict[NodeId, Worker] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.alive]

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._numbers), act))

    def run_until(self, end_s: float) -> None:
        while self._due and self._due[0][0] <= end_s:
            self.now_s, _, act = heapq.heappop(self._due)
            act()
        self.now_s = end_s

    def join(self) -> Worker:
        node_id = balanced_id([node.id for node in self.view.nodes])
        worker = self.workers[node_id] = Worker(self, node_id)
        self._set_ring([*self.view.nodes, NodeInfo(node_id, self.view.version + 1, "", self.now_s)])
        self.after(0.0, worker.tick)
        return worker

    def crash(self, worker: Worker) -> None:
        """Stop a worker; it leaves the ring when its lease expires."""
        worker.alive = False
        self.after(self._delay_s(), lambda: self._expire(worker.node_id))

    def subscribe(self, channel: ChannelId, subscribers: int) -> None:
        self.channels[channel].subscribers = subscribers
        owner = self.view.owner(channel)
        if subscribers and owner is not None:
            self.send("", owner, messages.ChannelAdded(channel))

    def send(self, sender: NodeId, receiver: NodeId, message: messages.Message) -> None:
        """Send a message; before ``calm_s`` it may be lost, repeated or delayed."""
        if (sender in self.partitioned) != (receiver in self.partitioned):
            return
        raw = messages.encode(sender, message)
        for _ in range(self._copies()):
            self.after(self._delay_s(), lambda: self._deliver(receiver, raw))

    def request(
        self, worker: Worker, question: Callable[[], events.Event], done: Callable[[], None] = lambda: None
    ) -> None:
        """Have the store do something and answer; either may get lost."""
        reachable = worker.node_id not in self.partitioned
        asked, answered = reachable and self.store_answers(), reachable and self.store_answers()

        def reach_store() -> None:
            answer = question() if asked else None
            self.after(self._delay_s(), lambda: reach_worker(answer))

        def reach_worker(answer: events.Event | None) -> None:
            done()
            if answer is not None and answered:
                worker.handle(answer)

        self.after(self._delay_s(), reach_store)

    def store_answers(self) -> bool:
        return self._copies() > 0

    def load_objective(self) -> events.Event:
        return events.ObjectiveLoaded(self.objective, self.site_rates, dict(self.bounds))

    def take_ownership(self, channel: ChannelId) -> events.Event:
        stored = self.channels[channel]
        stored.epoch += 1
        return events.OwnershipTaken(channel, stored.epoch, stored.version, updates=stored.updates, site=stored.site)

    def publish(self, asked: events.Publish) -> events.Event:
        candidate, epoch = asked.candidate, asked.epoch
        stored = self.channels[candidate.channel]
        if (epoch, candidate.base_version) != (stored.epoch, stored.version):
            return events.PublishRefused(candidate.channel)
        if candidate.delta.notice:
            stored.versions.append(stored.versions[-1])
            stored.notices.add(stored.version)
        else:
            stored.versions.append(int(candidate.memory))
        stored.updates = asked.updates
        return events.VersionPublished(candidate.channel, stored.version)

    def walk(self, requested_s: float) -> events.Event:
        listed = (events.ListedChannel(channel, stored.subscribers) for channel, stored in self.channels.items())
        return events.ChannelsListed(requested_s, tuple(listed))

    def _deliver(self, receiver: NodeId, raw: bytes) -> None:
        envelope = messages.decode(raw)
        assert envelope is not None
        if receiver in self.workers:
            self.workers[receiver].handle(events.MessageReceived(envelope.sender, envelope.message))

    def _expire(self, node: NodeId) -> None:
        self._set_ring([info for info in self.view.nodes if info.id != node])

    def _set_ring(self, nodes: list[NodeInfo]) -> None:
        self.view = RingView(self.view.version + 1, tuple(sorted(nodes, key=lambda info: info.id)))
        for worker in self.workers.values():
            self.after(self._delay_s(), partial(self._show_ring, worker))

    def _show_ring(self, worker: Worker) -> None:
        worker.handle(events.RingChanged(self.view))

    def _copies(self) -> int:
        return self.random.choice((0, 1, 1, 1, 2)) if self.now_s < self.calm_s else 1

    def _delay_s(self) -> float:
        latest_s = min(LATE_S, self.calm_s - self.now_s)
        return self.random.uniform(PROMPT_S, max(PROMPT_S, latest_s))

    def _random_id(self) -> ChannelId:
        return f"{self.random.getrandbits(160):040x}"
