"""One life of one node: from joining the ring to losing the lease. Drives ``service.corona.protocol``.

A trivial shell: what happens becomes an event for the protocol, what the protocol asks for is
carried out, in batches, by ``polling`` (as a member) and ``owning`` (as an owner). Effects lost to a
failing store are asked for again by the protocol's soft state.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from random import random

import structlog

from service.clash.policy import Limits
from service.clock import Clock
from service.corona.events import (
    Adopt,
    AimsRead,
    Disown,
    Effect,
    Event,
    ListOwned,
    Publish,
    ReadAims,
    Received,
    Refresh,
    RingChanged,
    Send,
    StartPolling,
    StopPolling,
    Tick,
)
from service.corona.messages import decode, encode
from service.corona.post import gathered
from service.corona.protocol import NodeProtocol
from service.corona.reasons import Reason
from service.errors import (
    CellsLost,
    HostBlocked,
    LeaseLost,
    LimitReached,
    PublisherError,
    StoreRefused,
    StoreUnavailable,
)
from service.metrics import BUDGET, MATRIX_CELLS, OWNED
from service.model import ChannelId, NodeId, NodeInfo
from service.overlay.ids import BITS, from_hex
from service.overlay.ring import RingView
from service.settings import Settings
from service.store import Store
from service.store.bounds import AllBounds
from service.store.cells import pair_key
from service.store.directory import LIMITS
from service.store.inbox import Letter
from workers.directory import Directories
from workers.fanout import FanOut
from workers.keeper import Keeper
from workers.listing import Listing
from workers.naming import Naming
from workers.owning import Owning
from workers.peers.main import Peers
from workers.poller import Poller
from workers.polling import Polling
from workers.scheduling import Phases
from workers.tasks import Tasks
from workers.websub import UPKEEP_S, Hubs
from workers.witness import Witness

_TICKS_PER_MAINTENANCE = 4
_BEATS_PER_LEASE = 4
_UNREADABLE_S = 1.0
_PACES_AT_ONCE = 1_000

log = structlog.get_logger(__name__)


class Node:
    """A node that has joined the ring as ``me``."""

    def __init__(
        self,
        me: NodeInfo,
        store: Store,
        poller: Poller,
        hubs: Hubs,
        settings: Settings,
        *,
        clock: Clock,
        witness: Witness,
        peers: Peers,
        mates: set[Polling],
    ) -> None:
        self.me = me
        self._store = store
        self._poller = poller
        self._hubs = hubs
        self._settings = settings
        self._clock = clock
        self._policy = settings.policy()
        self._protocol = NodeProtocol(me.id, self._policy)
        self._ring = RingView(-1, ())
        self._read_to = "0"
        """How far our inbox is read."""
        self._bounds = AllBounds()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks()
        self._witness = witness
        self._peers = peers
        self.contents = peers.contents
        self._beating = asyncio.Lock()
        self._mates = mates
        self.polling = Polling(
            me.id,
            store,
            poller,
            clock=clock,
            happened=self._happened,
            hubs_named=hubs.noticed,
            tasks=self._tasks,
            mates=mates,
        )
        self.owning = Owning(
            me.id,
            store,
            clock=clock,
            happened=self._happened,
            tasks=self._tasks,
            contents=self.contents,
            fan_out=FanOut(store, settings.public_from_subscribers),
            naming=Naming(store, clock, settings.public_from_subscribers),
        )
        self._keeper = Keeper(
            me.id,
            store,
            Limits(settings.keyspace_capacity),
            interval_s=settings.maintenance_interval_s,
            tasks=self._tasks,
        )
        listing = Listing(store.cells.carry_out, lambda pair: pair_key(f"channel {pair}"), LIMITS, random)
        self.directories = Directories(me.id, listing, self._send_shares, random)

    async def live(self, answer: Callable[["Node", Letter], Awaitable[None]]) -> None:
        """Poll, own and answer requests until the lease is lost. Raises :class:`LeaseLost` then."""
        self._mates.add(self.polling)
        try:
            # Before any channel is ours, so that none is polled against an admin's word.
            await self._read_aims()
            await self._beat()
            self._tasks.start(self._vital(lambda: self._read_inbox(answer)))
            self._tasks.start(self._vital(self.polling.keep_agenda))
            with Phases() as phases, self._witness.waking(lambda: self._tasks.start(self._beat())):
                # Nodes of one process begin together: what they do together holds up the polls of all.
                share = from_hex(self.me.id) / (1 << BITS)
                phases.every(self._settings.lease_ttl_s / _BEATS_PER_LEASE, self._beat, share)
                phases.every(self._settings.maintenance_interval_s / _TICKS_PER_MAINTENANCE, self._tick, share)
                phases.every(self._settings.maintenance_interval_s, self._keep_key_groups, share)
                phases.every(self._settings.maintenance_interval_s, self._keep_directory, share)
                phases.every(self._settings.maintenance_interval_s, self.directories.keep_up, share)
                phases.every(self._settings.maintenance_interval_s, self._note_paces, share)
                phases.every(UPKEEP_S, self._keep_up_hubs)
                await self._lost
        finally:
            self._mates.discard(self.polling)
            await self._tasks.cancel()

    @property
    def ring(self) -> RingView:
        """Who is there, as far as this node knows."""
        return self._ring

    def why(self, cid: ChannelId) -> Reason | None:
        """Return why a channel of ours is polled as it is; None if it is not ours, or not settled yet."""
        return self._protocol.why(cid, self.polling.fleet_s())

    def hubs_named(self, cid: ChannelId, hubs: Sequence[str], topic: str) -> None:
        """Follow, in the background, what a channel's document names."""
        self._tasks.start(self._hubs.noticed(cid, hubs, topic))

    async def _vital(self, work: Callable[[], Awaitable[None]]) -> None:
        """End this life with the bug that ends this work: a node that is deaf or idle must not keep its channels."""
        try:
            await work()
        except Exception as bug:  # noqa: BLE001 - raised again by live()
            if not self._lost.done():
                self._lost.set_exception(bug)

    async def _beat(self) -> None:
        async with self._beating:
            await self._renew_lease()

    async def _renew_lease(self) -> None:
        asked_s = self._clock.monotonic_s()
        try:
            beat = await self._store.ring.beat(self.me, self._settings.lease_ttl_s, self._ring.version)
            await self._store.inboxes.discard(beat.expired)
        except StoreRefused as error:  # what this node knows is not of the data that is there now
            if not self._lost.done():
                self._lost.set_exception(LeaseLost(str(error)))
            return
        except StoreUnavailable as error:
            log.warning("heartbeat failed", node=self.me.id[:8], error=str(error))
            return
        except LeaseLost as error:
            if not self._lost.done():
                self._lost.set_exception(error)
            return
        at_s = (asked_s + self._clock.monotonic_s()) / 2
        self.polling.set_fleet_time(beat.time_s, at_s)
        self._peers.set_fleet_time(beat.time_s, at_s)
        if beat.ring is not None:
            self._ring = beat.ring
            log.info("ring changed", node=self.me.id[:8], version=beat.ring.version, nodes=len(beat.ring.nodes))
            self._witness.look(beat.ring)
            self.owning.ring_changed(beat.ring)
            self._keeper.ring_changed(beat.ring)
            self.directories.ring_changed(beat.ring)
            self._peers.ring_changed(beat.ring)
            await self._happened(RingChanged(beat.ring))

    async def _tick(self) -> None:
        await self._happened(Tick())
        await self.polling.record()
        await self._drop_read()
        self.owning.retry_fan_outs()

    async def _keep_key_groups(self) -> None:
        await self._keeper.keep(self.polling.fleet_s())

    async def _note_paces(self) -> None:
        """Note how often channels are polled where that has changed; all at once would hold up the polls."""
        OWNED.clear()
        for nodes, channels in self._protocol.owned().items():
            OWNED.labels(str(nodes)).set(channels)
        changed = self._protocol.paces_to_note(_PACES_AT_ONCE)
        try:
            await self._store.paces.note(changed)
        except StoreUnavailable as error:
            log.warning("paces were not noted", channels=len(changed), error=str(error))
        else:
            self._protocol.paces_noted(changed)

    async def _keep_directory(self) -> None:
        """Do what the matrices' cells that we asked wish for; what is lost here, they wish for again."""
        for about, directory in (("channel", self._store.names), ("entry", self._store.entries)):
            try:
                await directory.keep_up()
                grown = await directory.matrices()
                MATRIX_CELLS.labels(about).set(sum(size.partitions * size.replicas for size in grown.values()))
            except (StoreUnavailable, CellsLost) as error:
                log.warning("upkeep of the directory was interrupted", error=str(error))

    async def _drop_read(self) -> None:
        # Once for many letters; their number is bounded meanwhile.
        with contextlib.suppress(StoreUnavailable):
            await self._store.inboxes.drop_read(self.me.id, self._read_to)

    async def _keep_up_hubs(self) -> None:
        await self._hubs.keep_up(self._ring, self.me.id)

    async def _read_inbox(self, answer: Callable[["Node", Letter], Awaitable[None]]) -> None:
        while True:
            try:
                letters, self._read_to = await self._store.inboxes.read(self.me.id, self._read_to)
            except StoreUnavailable as error:
                log.warning("inbox unreadable", node=self.me.id[:8], error=str(error))
                await asyncio.sleep(_UNREADABLE_S)
                continue
            received: list[Event] = []
            for letter in letters:
                if letter.kind == "ask":
                    self._tasks.start(_run(answer(self, letter)))
                elif letter.kind == "push":
                    self._tasks.start(self._take_in(letter.payload.decode()))
                elif letter.kind == "share":
                    self._tasks.start(self.directories.received(letter.payload))
                elif (envelope := decode(letter.payload)) is not None:
                    received.append(Received(envelope.sender, envelope.message))
            if received:
                await self._happened(*received)

    async def _send_shares(self, letters: Sequence[tuple[NodeId, bytes]]) -> None:
        await self._store.inboxes.send([(node, Letter("share", self.me.id, payload)) for node, payload in letters])

    async def _take_in(self, cid: ChannelId) -> None:
        try:
            await self.polling.take_in(cid)
        except (PublisherError, LimitReached, HostBlocked, StoreUnavailable) as error:
            log.info("what was pushed is left to the next poll", channel=cid[:8], why=str(error))

    async def _read_aims(self) -> None:
        try:
            aims, rates, self._bounds, blocked = await asyncio.gather(
                self._store.policy.get(),
                self._store.hosts.rates(),
                self._store.bounds.all(self._bounds),
                self._store.blocks.all(),
            )
        except StoreUnavailable as error:
            log.warning("aims unreadable", error=str(error))
            return
        self._poller.block(blocked)
        aims = aims or self._policy.aims
        BUDGET.set(aims.budget_polls_per_minute or 0)
        await self._happened(AimsRead(aims, rates, self._bounds.of))

    async def _happened(self, *events: Event) -> None:
        now_s, fleet_s = self._clock.monotonic_s(), self.polling.fleet_s()
        effects = [effect for event in events for effect in self._protocol.handle(event, now_s, fleet_s)]
        try:
            await self._carry_out(effects)
        except StoreUnavailable as error:
            log.warning("effects lost", node=self.me.id[:8], of=type(events[0]).__name__, error=str(error))

    async def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartPolling():
                    self.polling.start(effect)
                case StopPolling(channel=cid):
                    self.polling.stop(cid)
                case Disown(channel=cid):
                    self.owning.disown(cid)
                case Publish():
                    self._tasks.start(self.owning.publish(effect))
                case ListOwned():
                    self._tasks.start(self.owning.list_owned(effect))
                case ReadAims():
                    self._tasks.start(self._read_aims())
        adopted = [effect.channel for effect in effects if isinstance(effect, Adopt)]
        if adopted:
            self._tasks.start(self.owning.adopt(adopted))
        # Our own part first: what cannot be sent now is repeated anyway.
        await self.polling.refresh([effect for effect in effects if isinstance(effect, Refresh)])
        await self._send([effect for effect in effects if isinstance(effect, Send)])

    async def _send(self, sends: Sequence[Send]) -> None:
        letters = [
            (send.node, Letter("peer", self.me.id, encode(self.me.id, send.message))) for send in gathered(sends)
        ]
        await self._store.inboxes.send(letters)


async def _run(work: Awaitable[None]) -> None:
    await work
