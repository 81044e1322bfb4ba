"""Runs one node until it loses its lease, and connects the polling protocol to I/O and timers.

Messages, timers and results are passed to the protocol (:mod:`service.corona.node_protocol`) as events; it returns
effects. The poll scheduler and the channel owner execute the effects in batches. If effects are lost because the store
is unavailable, the protocol repeats them.

Tasks that run every few seconds start at the ticks of a timer that the whole process shares, or when the protocol's
maintenance begins. If a run takes longer than its interval, the next run is delayed. apscheduler runs the tasks that
are due every few minutes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC
from random import Random
from typing import Any

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from service.asyncio_tasks import BackgroundTasks, run_logged
from service.clash.split_merge_policy import LoadLimits
from service.clock import FleetClock
from service.corona.events import (
    Effect,
    Event,
    LimitObserved,
    ListOwnedChannels,
    LoadObjective,
    MessageReceived,
    ObjectiveLoaded,
    Publish,
    ReleaseOwnership,
    RingChanged,
    Send,
    StartPolling,
    StopPolling,
    TakeOwnership,
    Tick,
    UpdateBase,
)
from service.corona.messages import CONFIRMATIONS, URGENT, PollingLimit, decode, encode
from service.corona.node_protocol import NodeProtocol
from service.corona.polling_limits import LimitReason
from service.discovery.partial_lookup.node_shares import DirectoryMessage, ShareUpdate, encode_message
from service.errors import LeaseLost, StoreUnavailable
from service.model import ChannelId, NodeId, NodeInfo
from service.observability.metrics import MATRIX_CELLS, NODES, OWNED_CHANNELS, PLANNED_CHANNELS, POLL_BUDGET, GaugeShare
from service.overlay.ring import BITS, RingView, from_hex
from service.settings import Settings
from service.store import Store
from service.store.coordination.poll_bounds_store import BoundsSnapshot
from service.store.coordination.worker_inboxes import InboxMessage
from service.store.directory.matrix_balancer import MatrixBalancer
from service.store.directory.matrix_directory import MatrixNameReader
from service.tick_timer import TickTimer
from workers.in_memory_directories import InMemoryDirectories
from workers.key_group_balancer import KeyGroupBalancer
from workers.ownership.channel_ownership import ChannelOwner
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.fanout import FanOut, choose_helpers
from workers.ownership.full_texts import ArticleReader
from workers.peers.peer_endpoint import PeerEndpoint
from workers.polling.politeness import Politeness
from workers.polling.poll_scheduler import PollScheduler
from workers.polling.poller import Poller
from workers.polling.websub_subscriber import RENEWAL_INTERVAL_S, HubSubscriber
from workers.ring_membership import renew_lease

_RETRY_S = 1.0
_RATES_PER_WRITE = 1_000
_MATRIX_UPKEEP_INTERVAL_S = 3.0
"""Interval at which the matrices of the directory are adapted to their load, which can rise within seconds."""

log = structlog.get_logger(__name__)

# apscheduler would log jobs that are cancelled at the end of the program as failures.
logging.getLogger("apscheduler.executors.default").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
)


@dataclass(frozen=True)
class WorkerContext:
    """The objects that all nodes of a worker process share."""

    store: Store
    settings: Settings
    clock: FleetClock
    politeness: Politeness
    poller: Poller
    hubs: HubSubscriber
    peers: PeerEndpoint
    timer: TickTimer
    read_article: ArticleReader


_PeriodicFunction = Callable[[], Coroutine[Any, Any, object]]

RequestHandler = Callable[["Node", InboxMessage], Coroutine[Any, Any, None]]
"""Handles a request that a bot or the console sent to a node."""


class Node:
    """A member of the ring (the list of live nodes), which polls channels and owns some of them.

    A worker process runs one or more nodes.

    - ``info``: the id and address with which the node has joined the ring.
    - ``handle_request``: handles the requests that bots and the console send to the node.
    """

    def __init__(self, info: NodeInfo, context: WorkerContext, handle_request: RequestHandler) -> None:
        self.info = info
        self._context = context
        self._store = store = context.store
        self.clock = context.clock
        self.protocol = NodeProtocol(info.id, context.settings.policy())
        self._by_level = GaugeShare(OWNED_CHANNELS)
        self._by_constraint = GaugeShare(PLANNED_CHANNELS)
        self._by_network = GaugeShare(NODES)
        self._counted_revision = -1
        """The revision of the plans that the gauges show."""
        self.ring = RingView(-1, ())
        """The ring as this node last read it."""
        self._inbox_cursor = self._trimmed_cursor = "0"
        self._bounds = BoundsSnapshot()
        self._fraction = from_hex(info.id) / (1 << BITS)
        """The position of this node in the id space, from 0 to 1."""
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting_maintenance: list[asyncio.Future[None]] = []
        """The futures that are resolved when the protocol's next maintenance begins."""
        self._tasks = tasks = BackgroundTasks()
        settings = context.settings
        least_subscribers, interval_s = settings.public_from_subscribers, settings.maintenance_interval_s
        self.contents = context.peers.contents
        self.polling = PollScheduler(
            info.id,
            store,
            context.poller,
            clock=context.clock,
            on_events=self._on_events,
            on_hubs_found=self.on_hubs_found,
            tasks=tasks,
        )
        fan_out = FanOut(store, least_subscribers, self._invite_helpers)
        self.owner = ChannelOwner(
            info.id,
            store,
            clock=context.clock,
            on_events=self._on_events,
            tasks=tasks,
            contents=self.contents,
            fan_out=fan_out,
            registrar=DirectoryRegistrar(store, context.clock, least_subscribers),
            read_article=context.read_article,
        )
        load_limits = LoadLimits(settings.keyspace_capacity)
        self._balancer = KeyGroupBalancer(info.id, store, load_limits, interval_s=interval_s, tasks=tasks)
        self.directories = InMemoryDirectories(
            info.id,
            MatrixNameReader(store.channel_directory, store.channels),
            store.directory_announcements,
            self._send_directory_messages,
            random=Random(),  # noqa: S311 - spreads entries
            interval_s=interval_s,
        )
        self._matrix_balancers = {
            "channel": MatrixBalancer(store.channel_directory, store.redis_node_loads),
            "entry": MatrixBalancer(store.entry_directory, store.redis_node_loads),
        }
        self._message_handlers: dict[str, Callable[[InboxMessage], Coroutine[Any, Any, None]]] = {
            "ask": lambda message: handle_request(self, message),
            "push": lambda message: self.polling.pushes.process(_channel_of(message)),
            "share": lambda message: self.directories.on_message(message.payload),
            "fanout": lambda message: fan_out.help(_channel_of(message)),
        }
        """The handlers of inbox messages by kind, each run in a task of its own; other kinds belong to the protocol."""
        self._effect_handlers: dict[type[Effect], Callable[[Any], None]] = {
            StartPolling: self.polling.start_polling,
            StopPolling: lambda effect: self.polling.stop_polling(effect.channel),
            ReleaseOwnership: lambda effect: self.owner.release(effect.channel),
            Publish: lambda effect: tasks.start(self.owner.publish(effect)),
            ListOwnedChannels: lambda effect: tasks.start(self.owner.registry.list_owned(effect)),
            LoadObjective: lambda _: self._on_maintenance(),
        }
        """The handlers of effects that are carried out one by one; effects of other types are carried out together."""

    async def run(self) -> None:
        """Run the node until its lease is lost, then raise :class:`LeaseLost`.

        The node polls channels and handles requests. For the channels that it owns, it also stores new versions and
        delivers them to subscribers.
        """
        scheduler = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None})
        try:
            # Before this node owns any channel, so that an admin's bounds and blocks apply to all polls.
            await run_logged(self._load_objective())
            await run_logged(self._send_heartbeat())
            self._tasks.start(self._end_on_error(self._read_inbox))
            self._tasks.start(self._end_on_error(self.polling.run))
            at_ticks: tuple[tuple[_PeriodicFunction, float], ...] = (
                (self._send_heartbeat, 0.0),
                (self._tick, 0.0),
                (self._maintain_matrices, _MATRIX_UPKEEP_INTERVAL_S),
            )
            for function, every_s in at_ticks:
                self._tasks.start(self._repeat_at_ticks(function, every_s))
            at_maintenance: tuple[_PeriodicFunction, ...] = (
                lambda: self._balancer.balance(self.clock.wall_s()),
                lambda: self.directories.maintain(self.clock.wall_s()),
                self._record_poll_rates,
            )
            for function in at_maintenance:
                self._tasks.start(self._repeat_at_maintenance(function))
            scheduler.add_job(self._renew_hub_subscriptions, "interval", seconds=RENEWAL_INTERVAL_S)
            scheduler.start()
            with self._context.peers.messages.receive(self.info.id, self._process_messages):
                await self._ended
        finally:
            if scheduler.running:
                scheduler.shutdown(wait=False)
            self._by_level.set({})
            self._by_constraint.set({})
            self._by_network.set({})
            await self._tasks.cancel()

    def on_hubs_found(self, channel_id: ChannelId, hubs: Sequence[str], topic: str) -> None:
        """Start subscribing, in the background, to a channel at the WebSub hubs that the channel's document names.

        ``topic`` is the URL that the document states as its own.
        """
        self._tasks.start(self._context.hubs.on_hubs_found(channel_id, hubs, topic))

    def on_credential_replaced(self, channel_id: ChannelId) -> None:
        """Poll a channel as often as usual again, because a document was fetched with its new credential."""
        self._tasks.start(self._on_events(LimitObserved(PollingLimit(channel_id, LimitReason.FAILURE, 0))))

    async def _repeat_at_ticks(self, function: _PeriodicFunction, interval_s: float) -> None:
        """Call ``function`` about every ``interval_s`` seconds, at ticks of the process timer; 0.0 means every tick."""
        timer = self._context.timer
        # If all nodes of a process ran the same task at once, polls would be delayed.
        delay_s = self._fraction * timer.interval_s if self._context.settings.nodes_per_worker > 1 else 0.0
        while True:
            await timer.sleep(interval_s)
            if delay_s:
                await asyncio.sleep(delay_s)
            await run_logged(function())

    async def _repeat_at_maintenance(self, function: _PeriodicFunction) -> None:
        """Call ``function`` whenever the protocol's maintenance begins.

        The messages of both then share requests to other workers, and their commands share round trips to Redis.
        """
        while True:
            due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaiting_maintenance.append(due)
            await due
            await run_logged(function())

    def _on_maintenance(self) -> None:
        """Load the objective, and wake up the other tasks that run once in each maintenance interval."""
        self._tasks.start(self._load_objective())
        awaiting, self._awaiting_maintenance = self._awaiting_maintenance, []
        for due in awaiting:
            if not due.done():  # else its task was cancelled
                due.set_result(None)

    async def _end_on_error(self, function: Callable[[], Awaitable[None]]) -> None:
        """Call ``function``, and end the node if the function fails."""
        # A node that cannot receive messages or poll must not keep its channels.
        try:
            await function()
        except Exception as error:  # noqa: BLE001 - raised again by run()
            self._end(error)

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _send_heartbeat(self) -> None:
        """Renew this node's lease, and read the current ring and the time of the shared clock."""
        ttl_s = self._context.settings.lease_ttl_s
        try:
            ring = await renew_lease(self._store, self.clock, self.info, ttl_s, self.ring.version)
        except LeaseLost as error:
            self._end(error)
            return
        self.polling.on_clock_set()
        self._by_network.set({"down" if self.polling.health.is_offline else "up": 1})
        if ring is not None:
            await self._on_ring_changed(ring)

    async def _on_ring_changed(self, ring: RingView) -> None:
        self.ring = ring
        log.info("ring changed", node=self.info.id[:8], version=ring.version, nodes=len(ring.nodes))
        for part in (self.owner.registry, self._balancer, self.directories, self._context.peers):
            part.on_ring_changed(ring)
        await self._on_events(RingChanged(ring))

    async def _tick(self) -> None:
        await self._on_events(Tick(), *await self.polling.health.record())
        self.owner.retry_fan_outs()
        if (cursor := self._inbox_cursor) != self._trimmed_cursor:  # not after each message; the inbox is bounded
            await self._store.node_inboxes.trim(self.info.id, cursor)
            self._trimmed_cursor = cursor

    async def _record_poll_rates(self) -> None:
        """Store the poll rates of channels whose rates have changed, up to a limit per call."""
        # The number is limited, so that polls are not delayed.
        plans, fleet_s = self.protocol.plans, self.clock.wall_s()
        if plans.revision != self._counted_revision:
            self._counted_revision = plans.revision
            self._by_level.set({str(level): count for level, count in plans.count_by_level().items()})
            self._by_constraint.set({each.value: count for each, count in plans.count_by_constraint(fleet_s).items()})
        if changed := plans.find_changed_gaps(_RATES_PER_WRITE):
            await self._store.poll_rate_history.record(changed)
            plans.record_gaps(changed)

    async def _maintain_matrices(self) -> None:
        """Resize the matrices of the search directory according to their load, and restore lost parts of them.

        A matrix stores the names with one attribute-value pair, in several cells. It is maintained by the node that
        is nearest to the hash of the pair.
        """
        is_own, balancers = self.directories.is_coordinator, self._matrix_balancers
        await asyncio.gather(*(run_logged(balancer.maintain(is_own)) for balancer in balancers.values()))
        for about, balancer in balancers.items():
            MATRIX_CELLS.labels(about).set(balancer.cell_count)

    async def _renew_hub_subscriptions(self) -> None:
        await run_logged(self._context.hubs.renew(self.ring, self.info.id))

    async def _read_inbox(self) -> None:
        while True:
            try:
                messages, self._inbox_cursor = await self._store.node_inboxes.read(self.info.id, self._inbox_cursor)
            except StoreUnavailable as error:
                log.warning("reading node inbox failed", node=self.info.id[:8], error=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            await self._process_messages(messages)

    async def _process_messages(self, messages: Sequence[InboxMessage]) -> None:
        events: list[Event] = []
        for message in messages:
            if handler := self._message_handlers.get(message.kind):
                self._tasks.start(handler(message))
            elif (envelope := decode(message.payload)) is not None:
                events.append(MessageReceived(envelope.sender, envelope.message))
        if events:
            await self._on_events(*events)

    async def _send_directory_messages(self, messages: Sequence[tuple[NodeId, DirectoryMessage]]) -> None:
        rest: list[tuple[NodeId, InboxMessage]] = []
        for node, parts in messages:
            message = InboxMessage("share", self.info.id, encode_message(parts))
            can_wait = all(isinstance(part, ShareUpdate) and part.is_confirmation for part in parts)
            rest += self._context.peers.messages.post([(node, message)], can_wait=can_wait)
        await self._store.node_inboxes.send(rest)

    async def _invite_helpers(self, channel_id: ChannelId, count: int) -> None:
        """Ask up to ``count`` other workers to help with queueing a channel's new entries for its subscribers."""
        message = InboxMessage("fanout", self.info.id, channel_id.encode())
        helpers = choose_helpers(self.ring, channel_id, self.info, count)
        await self._store.node_inboxes.send([(node_id, message) for node_id in helpers])

    async def _load_objective(self) -> None:
        """Load the admins' rules for polling; apply the blocked hosts, and pass the other rules to the protocol.

        The other rules are the objective (the common goal for the polls of all channels), the request rates of sites,
        and bounds on the polling intervals of single channels.
        """
        objective, rates, self._bounds, blocked_hosts = await asyncio.gather(
            self._store.fleet_policy.get(),
            self._store.request_budgets.site_rates(),
            self._store.poll_bounds.load(self._bounds),
            self._store.blocked_hosts.all(),
        )
        self._context.politeness.set_blocked_hosts(blocked_hosts)
        objective = objective or self._context.settings.policy().objective
        POLL_BUDGET.set((objective.budget_polls_per_minute or 0) / 60)
        await self._on_events(ObjectiveLoaded(objective, rates, self._bounds.by_channel))

    async def _on_events(self, *events: Event) -> None:
        """Pass events to the polling protocol, and execute the effects (actions) that it returns."""
        now_s, fleet_s = self.clock.monotonic_s(), self.clock.wall_s()
        effects = self.protocol.handle(events, now_s, fleet_s)
        # Before anything is awaited, so that messages are sent in the order of the effects.
        inbox_messages = self._post([effect for effect in effects if isinstance(effect, Send)])
        for effect in effects:
            if handler := self._effect_handlers.get(type(effect)):
                handler(effect)
        if taken := [effect.channel for effect in effects if isinstance(effect, TakeOwnership)]:
            self._tasks.start(self.owner.take_ownership(taken))
        try:
            # This node's own part first: messages that cannot be sent now are repeated anyway.
            if updates := [effect for effect in effects if isinstance(effect, UpdateBase)]:
                await self.polling.update_bases(updates)
            if inbox_messages:
                await self._store.node_inboxes.send(inbox_messages)
        except StoreUnavailable as error:
            log.warning(
                "protocol effects lost, will retry",
                node=self.info.id[:8],
                event_type=type(events[0]).__name__,
                error=str(error),
            )

    def _post(self, sends: Sequence[Send]) -> list[tuple[NodeId, InboxMessage]]:
        """Send the protocol's messages in the background, directly to other nodes.

        Return the messages that cannot be sent in this way; the caller must put them into inboxes in Redis.
        """
        soft: list[tuple[NodeId, InboxMessage]] = []
        urgent: list[tuple[NodeId, InboxMessage]] = []
        confirmations: list[tuple[NodeId, InboxMessage]] = []
        for send in sends:
            message = InboxMessage("peer", self.info.id, encode(self.info.id, send.message))
            if isinstance(send.message, URGENT):
                urgent.append((send.node, message))
            elif isinstance(send.message, CONFIRMATIONS):
                confirmations.append((send.node, message))
            else:
                soft.append((send.node, message))
        post = self._context.peers.messages.post
        return post(urgent, is_urgent=True) + post(soft) + post(confirmations, can_wait=True)


def _channel_of(message: InboxMessage) -> ChannelId:
    """Return the channel id in the payload of ``message``, or an id that no channel has if the payload is malformed."""
    return message.payload.decode(errors="replace")
