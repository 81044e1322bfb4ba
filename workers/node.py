"""One life of one node, from joining the ring to losing the lease: the shell around ``service.corona.protocol``.

What happens becomes an event for the protocol. What the protocol asks for is carried out, in batches, by ``polling``
(as a member) and ``owning`` (as an owner). Effects lost to a failing store are asked for again by the protocol's soft
state. Its periodic phases are run by apscheduler: late runs are coalesced and never overlap, so a phase that takes
longer than its interval runs less often.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import random
from typing import Any, Self

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from service.clash.load_policy import LoadLimits
from service.clock import Clock
from service.corona.events import (
    Effect,
    Event,
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
from service.corona.messages import decode, encode
from service.corona.poll_explanation import PollExplanation
from service.corona.protocol import NodeProtocol
from service.errors import (
    CellsUnavailable,
    HostBlocked,
    LeaseLost,
    LimitReached,
    PublisherError,
    StoreIdentityMismatch,
    StoreUnavailable,
)
from service.model import ChannelId, NodeId, NodeInfo
from service.observability.metrics import MATRIX_CELLS, OWNED_CHANNELS, POLL_BUDGET
from service.overlay.id_space import BITS, from_hex
from service.overlay.ring import RingView
from service.settings import Settings
from service.store import Store
from service.store.coordination.fleet_policy import BoundsSnapshot
from service.store.coordination.requests import InboxMessage
from workers.key_group_balancer import KeyGroupBalancer
from workers.lookup_directories import LookupDirectories
from workers.ownership.directory_registration import DirectoryRegistrar
from workers.ownership.fanout import FanOut
from workers.ownership.owner import ChannelOwner
from workers.peers.exchange import ContentExchange
from workers.polling.poller import Poller
from workers.polling.scheduler import PollScheduler
from workers.polling.websub import RENEWAL_INTERVAL_S, HubSubscriber
from workers.tasks import BackgroundTasks


class PeriodicTasks:
    """Coroutine functions run every so many seconds while this context is open."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )

    def every(self, interval_s: float, phase: Callable[[], Awaitable[None]], share: float = 1.0) -> None:
        """Run ``phase`` every ``interval_s``, at first after this share of it.

        What it raises is its own bug: it is logged.
        """

        async def uncancelled() -> None:
            # The end of the program is no failure of a phase, which the scheduler would log.
            with contextlib.suppress(asyncio.CancelledError):
                await phase()

        first = datetime.now(UTC) + timedelta(seconds=interval_s * share)
        self._scheduler.add_job(
            uncancelled, "interval", seconds=interval_s, next_run_time=first, name=phase.__qualname__
        )

    def __enter__(self) -> Self:
        """Start the clockwork, in the running event loop."""
        self._scheduler.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it; phases under way are cancelled with the loop's other tasks."""
        self._scheduler.shutdown(wait=False)


_TICKS_PER_MAINTENANCE = 4
_BEATS_PER_LEASE = 4
_UNREADABLE_S = 1.0
_PACES_AT_ONCE = 1_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WorkerContext:
    """What all nodes of a worker process share."""

    store: Store
    settings: Settings
    clock: Clock
    poller: Poller
    hubs: HubSubscriber
    peers: ContentExchange


Answer = Callable[["Node", InboxMessage], Coroutine[Any, Any, None]]


class Node:
    """A node that has joined the ring as ``me``. ``answer`` answers a request that was sent to it."""

    def __init__(
        self, me: NodeInfo, parts: WorkerContext, answer: Callable[["Node", InboxMessage], Coroutine[Any, Any, None]]
    ) -> None:
        self.me = me
        self._parts = parts
        self._store = store = parts.store
        self._clock = parts.clock
        self._protocol = NodeProtocol(me.id, parts.settings.policy())
        self.ring = RingView(-1, ())
        """Who is there, as far as this node knows."""
        self._read_to = "0"
        """How far our inbox is read."""
        self._bounds = BoundsSnapshot()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks = tasks = BackgroundTasks()
        self._beating = asyncio.Lock()
        least_subscribers, interval_s = parts.settings.public_from_subscribers, parts.settings.maintenance_interval_s
        self.contents = parts.peers.contents
        self.polling = PollScheduler(
            me.id,
            store,
            parts.poller,
            clock=parts.clock,
            on_event=self._happened,
            on_hubs_found=parts.hubs.on_hubs_found,
            tasks=tasks,
        )
        self.owning = ChannelOwner(
            me.id,
            store,
            clock=parts.clock,
            happened=self._happened,
            tasks=tasks,
            contents=self.contents,
            fan_out=FanOut(store, least_subscribers),
            naming=DirectoryRegistrar(store, parts.clock, least_subscribers),
        )
        keyspace_limits = LoadLimits(parts.settings.keyspace_capacity)
        self._keeper = KeyGroupBalancer(me.id, store, keyspace_limits, interval_s=interval_s, tasks=tasks)
        self.directories = LookupDirectories(me.id, store.channel_directory, self._send_shares, random)
        self._at_letter: dict[str, Callable[[InboxMessage], Coroutine[Any, Any, None]]] = {
            "ask": lambda letter: answer(self, letter),
            "push": lambda letter: self._take_in(letter.payload.decode()),
            "share": lambda letter: self.directories.received(letter.payload),
        }
        """What is done with letters, each in a task of its own; all others are the protocol's messages."""
        self._at_effect: dict[type[Effect], Callable[[Any], None]] = {
            StartPolling: self.polling.start_polling,
            StopPolling: lambda effect: self.polling.stop_polling(effect.channel),
            ReleaseOwnership: lambda effect: self.owning.disown(effect.channel),
            Publish: lambda effect: tasks.start(self.owning.publish(effect)),
            ListOwnedChannels: lambda effect: tasks.start(self.owning.list_owned(effect)),
            LoadObjective: lambda _: tasks.start(self._read_aims()),
        }
        """What is done for single effects; those of the other kinds are carried out together."""

    async def live(self) -> None:
        """Poll, own and answer requests until the lease is lost. Raises :class:`LeaseLost` then."""
        settings = self._parts.settings
        interval_s = settings.maintenance_interval_s
        try:
            # Before any channel is ours, so that none is polled against an admin's word.
            await self._read_aims()
            await self._beat()
            self._tasks.start(self._vital(self._read_inbox))
            self._tasks.start(self._vital(self.polling.run))
            with PeriodicTasks() as phases:
                # Nodes of one process begin together: what they do together holds up the polls of all.
                share = from_hex(self.me.id) / (1 << BITS)
                phases.every(settings.lease_ttl_s / _BEATS_PER_LEASE, self._beat, share)
                phases.every(interval_s / _TICKS_PER_MAINTENANCE, self._tick, share)
                phases.every(interval_s, lambda: self._keeper.keep(self.polling.fleet_s()), share)
                phases.every(interval_s, self._keep_directory, share)
                phases.every(interval_s, self.directories.keep_up, share)
                phases.every(interval_s, self._note_paces, share)
                phases.every(RENEWAL_INTERVAL_S, lambda: self._parts.hubs.renew(self.ring, self.me.id))
                await self._lost
        finally:
            await self._tasks.cancel()

    def why(self, cid: ChannelId) -> PollExplanation | None:
        """Return why a channel of ours is polled as it is; None if it is not ours, or not settled yet."""
        return self._protocol.explain(cid, self.polling.fleet_s())

    def hubs_named(self, cid: ChannelId, hubs: Sequence[str], topic: str) -> None:
        """Follow, in the background, what a channel's document names."""
        self._tasks.start(self._parts.hubs.on_hubs_found(cid, hubs, topic))

    async def _vital(self, work: Callable[[], Awaitable[None]]) -> None:
        """End this life with the bug that ends this work: a node that is deaf or idle must not keep its channels."""
        try:
            await work()
        except Exception as bug:  # noqa: BLE001 - raised again by live()
            self._end(bug)

    def _end(self, why: Exception) -> None:
        if not self._lost.done():
            self._lost.set_exception(why)

    async def _beat(self) -> None:
        """Renew the lease, and learn the fleet's time and the ring."""
        async with self._beating:
            asked_s = self._clock.monotonic_s()
            try:
                beat = await self._store.ring.heartbeat(self.me, self._parts.settings.lease_ttl_s, self.ring.version)
                await self._store.node_inboxes.delete(beat.expired)
            except StoreIdentityMismatch as error:  # what this node knows is not of the data that is there now
                self._end(LeaseLost(str(error)))
                return
            except StoreUnavailable as error:
                log.warning("heartbeat failed", node=self.me.id[:8], error=str(error))
                return
            except LeaseLost as error:
                self._end(error)
                return
            at_s = (asked_s + self._clock.monotonic_s()) / 2
            self.polling.set_fleet_time(beat.time_s, at_s)
            self._parts.peers.set_fleet_time(beat.time_s, at_s)
            if beat.ring is not None:
                await self._ring_changed(beat.ring)

    async def _ring_changed(self, ring: RingView) -> None:
        self.ring = ring
        log.info("ring changed", node=self.me.id[:8], version=ring.version, nodes=len(ring.nodes))
        for part in (self.owning, self._keeper, self.directories, self._parts.peers):
            part.ring_changed(ring)
        await self._happened(RingChanged(ring))

    async def _tick(self) -> None:
        await self._happened(Tick())
        await self.polling.health.record()
        with contextlib.suppress(StoreUnavailable):  # once for many letters; their number is bounded meanwhile
            await self._store.node_inboxes.trim(self.me.id, self._read_to)
        self.owning.retry_fan_outs()

    async def _note_paces(self) -> None:
        """Note how often channels are polled where that has changed; all at once would hold up the polls."""
        OWNED_CHANNELS.clear()
        for nodes, channels in self._protocol.plans.count_by_set_size().items():
            OWNED_CHANNELS.labels(str(nodes)).set(channels)
        changed = self._protocol.plans.changed_gaps(_PACES_AT_ONCE)
        try:
            await self._store.poll_rate_history.record(changed)
        except StoreUnavailable as error:
            log.warning("paces were not noted", channels=len(changed), error=str(error))
        else:
            self._protocol.plans.record_gaps(changed)

    async def _keep_directory(self) -> None:
        """Do what the matrices' cells that we asked wish for; what is lost here, they wish for again."""
        for about, directory in (("channel", self._store.channel_directory), ("entry", self._store.entry_directory)):
            try:
                await directory.maintain()
                grown = await directory.matrix_sizes()
                MATRIX_CELLS.labels(about).set(sum(size.partitions * size.replicas for size in grown.values()))
            except (StoreUnavailable, CellsUnavailable) as error:
                log.warning("upkeep of the directory was interrupted", error=str(error))

    async def _read_inbox(self) -> None:
        while True:
            try:
                letters, self._read_to = await self._store.node_inboxes.read(self.me.id, self._read_to)
            except StoreUnavailable as error:
                log.warning("inbox unreadable", node=self.me.id[:8], error=str(error))
                await asyncio.sleep(_UNREADABLE_S)
                continue
            received: list[Event] = []
            for letter in letters:
                if handler := self._at_letter.get(letter.kind):
                    self._tasks.start(handler(letter))
                elif (envelope := decode(letter.payload)) is not None:
                    received.append(MessageReceived(envelope.sender, envelope.message))
            if received:
                await self._happened(*received)

    async def _send_shares(self, letters: Sequence[tuple[NodeId, bytes]]) -> None:
        await self._store.node_inboxes.send(
            [(node, InboxMessage("share", self.me.id, payload)) for node, payload in letters]
        )

    async def _take_in(self, cid: ChannelId) -> None:
        try:
            await self.polling.process_pushes(cid)
        except (PublisherError, LimitReached, HostBlocked, StoreUnavailable) as error:
            log.info("what was pushed is left to the next poll", channel=cid[:8], why=str(error))

    async def _read_aims(self) -> None:
        try:
            aims, rates, self._bounds, blocked = await asyncio.gather(
                self._store.fleet_policy.get(),
                self._store.request_budgets.site_rates(),
                self._store.poll_bounds.load(self._bounds),
                self._store.blocked_hosts.all(),
            )
        except StoreUnavailable as error:
            log.warning("aims unreadable", error=str(error))
            return
        self._parts.poller.set_blocked_hosts(blocked)
        aims = aims or self._parts.settings.policy().objective
        POLL_BUDGET.set(aims.budget_polls_per_minute or 0)
        await self._happened(ObjectiveLoaded(aims, rates, self._bounds.of))

    async def _happened(self, *events: Event) -> None:
        """Tell the protocol, and carry out what it asks for."""
        now_s, fleet_s = self._clock.monotonic_s(), self.polling.fleet_s()
        effects = self._protocol.handle(events, now_s, fleet_s)
        for effect in effects:
            if handler := self._at_effect.get(type(effect)):
                handler(effect)
        if adopted := [effect.channel for effect in effects if isinstance(effect, TakeOwnership)]:
            self._tasks.start(self.owning.adopt(adopted))
        try:
            # Our own part first: what cannot be sent now is repeated anyway.
            await self.polling.update_bases([effect for effect in effects if isinstance(effect, UpdateBase)])
            sends = [(send.node, encode(self.me.id, send.message)) for send in effects if isinstance(send, Send)]
            await self._store.node_inboxes.send(
                [(node, InboxMessage("peer", self.me.id, sent)) for node, sent in sends]
            )
        except StoreUnavailable as error:
            log.warning("effects lost", node=self.me.id[:8], of=type(events[0]).__name__, error=str(error))
