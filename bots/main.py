"""`coronet bot`: wires store, XMPP, dialogue and delivery, and keeps them going.

Of all bots with one JID only the holder of a lease is connected; the others stand by and take over
when it stops renewing. So no message is delivered by two, and no command answered twice.
"""

import asyncio
import contextlib
import secrets
import signal

import structlog

from bots.appearance import Appearance
from bots.asking import Limits
from bots.counter import Counter
from bots.delivery import Delivery
from bots.desk import Desk
from bots.door import Door
from bots.house import House
from bots.importing import Importing
from bots.link import (
    Absent,
    Bounced,
    Event,
    InRoom,
    Invited,
    LinkLost,
    Ordered,
    Receipt,
    RoomRefused,
    Said,
    SaidInRoom,
    Seen,
    Started,
)
from bots.nodes import Nodes
from bots.publishing import Publishing
from bots.rooms import Rooms
from bots.tasks import together
from bots.uploads import Uploads
from bots.xmpp import Connection
from service.clock import Clock, SystemClock
from service.console.health import serve_health
from service.errors import StoreUnavailable
from service.net.uploads import Uploads as Files
from service.settings import Settings
from service.store import Store, connect

RENEW_EVERY_S = 1.0
_RETRY_S = 1.0
_log = structlog.get_logger()


class Bot:
    """A bot while it holds the lease: one XMPP connection, one desk, one delivery."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        """Wire the parts; nothing runs before :meth:`run`."""
        limits = Limits(
            subscriptions=settings.max_subscriptions_per_user,
            new_urls_per_hour=settings.max_new_urls_per_hour,
            commands_per_minute=settings.max_commands_per_minute,
            watches=settings.max_watches_per_user,
            public_from_subscribers=settings.public_from_subscribers,
        )
        self.connection = Connection(settings, self._on_event)
        self._delivery = Delivery(store, self.connection, clock, settings.messages_per_s_per_user)
        door = Door(store.invites, settings.who_may_use, settings.allowed_users, self.connection.rooms)
        self._importing = Importing(store, self.connection, clock, limits)
        house = House(
            store,
            self._delivery,
            limits,
            door=door,
            importing=self._importing,
            uploads=Uploads(self.connection, _files(settings)),
            pubsub_service=settings.pubsub_service,
        )
        self._desk = Desk(store, self.connection, house, clock, limits)
        self._counter = Counter(store, self.connection, house, clock, limits)
        self._appearance = Appearance(self.connection)
        self._nodes = _nodes(settings, store, self.connection, clock) if settings.pubsub_service else None
        self._rooms = Rooms(
            store, self.connection, self._desk, delivery=self._delivery, house=house, door=door, clock=clock
        )

    async def run(self) -> None:
        """Serve until cancelled; then finish what is under way, in order."""
        try:
            await self._rooms.load()
            keeping = [self._rooms.run(), self._appearance.run()]
            if self._nodes is not None:
                keeping.append(self._nodes.run())
            await together(self.connection.run(), self._delivery.run(), *keeping, self._importing.run())
        finally:
            await self._desk.close()
            await self._counter.close()

    def _on_event(self, event: Event) -> None:  # noqa: C901 - one arm per event
        match event:
            case Said() if event.jid in self.connection.rooms:
                self._rooms.whispered(event)
            case Said():
                self._desk.hear(event)
            case Ordered():
                self._counter.hear(event)
            case Receipt() if event.jid not in self.connection.rooms:  # a room's receipt is what it gives back
                self._delivery.receipt(event)
            case Bounced():
                self._delivery.bounced(event)
                self._rooms.bounced(event)
            case Seen() | Absent():
                self._delivery.presence(event)
            case SaidInRoom():
                self._rooms.heard(event)
            case Invited():
                self._rooms.invited(event)
            case InRoom() | RoomRefused():
                self._rooms.moved(event)
            case Started():
                self._delivery.started()
                self._rooms.started()
                self._appearance.started()


def _files(settings: Settings) -> Files:
    return Files(own_url=settings.upload_url, own_host=settings.xmpp_host, allow_private=settings.allow_private)


def _nodes(settings: Settings, store: Store, link: Connection, clock: Clock) -> Nodes:
    service = settings.pubsub_service
    return Nodes(
        store,
        Publishing(store, link, service, settings.public_from_subscribers),
        clock,
        service=service,
        every_s=settings.maintenance_interval_s,
        lease_ttl_s=settings.lease_ttl_s,
    )


async def run(settings: Settings) -> None:
    """Run a bot until SIGTERM or SIGINT; wait for Redis and XMPP as long as they are away."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await together(_serve(settings), stop.wait())


async def _serve(settings: Settings) -> None:
    store = await _connected(settings)
    post = _Post(settings, store)
    health = await serve_health(settings.metrics_bind, settings.metrics_port, post.ready)
    try:
        metrics_url = f"{health.url}/metrics"
        await together(post.keep(), _upkeep(store, settings.maintenance_interval_s, metrics_url))
    finally:
        await health.close()
        await store.close()


class _Post:
    """The one place of a bot with this JID: stand by for it, hold it, leave it."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._name = f"bot:{settings.xmpp_jid}"
        self._holder = secrets.token_hex(8)
        self._bot: Bot | None = None

    async def ready(self) -> None:
        """Return if we can serve, or stand by. Raises StoreUnavailable or LinkLost."""
        await self._store.ping()
        if self._bot is not None and not self._bot.connection.up.is_set():
            raise LinkLost(
                "There is no session with the XMPP server. Is it running, and are the xmpp_* settings right?"
            )

    async def keep(self) -> None:
        """Serve whenever the lease is ours."""
        try:
            while True:
                if await self._held():
                    await self._serve()
                await asyncio.sleep(RENEW_EVERY_S)
        finally:
            with contextlib.suppress(StoreUnavailable):
                await self._store.leases.release(self._name, self._holder)

    async def _held(self) -> bool | None:
        """Take or renew the lease; None if Redis is away: then nobody else can take it either."""
        try:
            epoch = await self._store.leases.hold(self._name, self._holder, self._settings.lease_ttl_s)
        except StoreUnavailable as error:
            _log.warning("lease not renewed", reason=str(error))
            return None
        return epoch is not None

    async def _serve(self) -> None:
        _log.info("serving", jid=self._settings.xmpp_jid)
        self._bot = Bot(self._settings, self._store, SystemClock())
        try:
            await together(self._bot.run(), self._hold())
        finally:
            self._bot = None

    async def _hold(self) -> None:
        """Renew the lease; return when somebody else has it."""
        held: bool | None = True
        while held is not False:
            await asyncio.sleep(RENEW_EVERY_S)
            held = await self._held()
        _log.warning("another bot holds the lease now; standing by", jid=self._settings.xmpp_jid)


async def _connected(settings: Settings) -> Store:
    while True:
        try:
            return await connect(settings)
        except StoreUnavailable as error:
            _log.warning("waiting for the store", reason=str(error))
            await asyncio.sleep(_RETRY_S)


async def _upkeep(store: Store, every_s: float, metrics_url: str) -> None:
    """Replay the intents to subscribe or unsubscribe that a crash left behind; and tell where our metrics are."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            await store.subscriptions.heal()
            await store.forgetting.heal()
            await store.bots.announce(metrics_url)
        await asyncio.sleep(every_s)
