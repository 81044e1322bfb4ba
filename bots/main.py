"""`coronet bot`: the program around :mod:`bots.posts`."""

import asyncio
import contextlib
import signal

import structlog

from bots.posts import Post, post
from bots.tasks import together
from service.clock import SystemClock
from service.errors import StoreUnavailable
from service.net.health import serve_health
from service.settings import Settings
from service.store import Store, open_store

_RETRY_S = 1.0
_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT; wait for Redis and XMPP as long as they are away."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await together(_serve(settings), stop.wait())


async def _serve(settings: Settings) -> None:
    store = open_store(settings)
    try:
        ours = post(settings, store, SystemClock())
        health = await serve_health(
            settings.metrics_bind, settings.metrics_port, lambda: _ready(store, ours), settings=settings
        )
        try:
            metrics_url = f"{health.url}/metrics"
            await together(store.identity.run(), _work(settings, store, ours, metrics_url))
        finally:
            await health.close()
    finally:
        await store.close()


async def _work(settings: Settings, store: Store, ours: Post, metrics_url: str) -> None:
    await _wait_for(store)
    await together(ours.keep(), _upkeep(store, settings.maintenance_interval_s, metrics_url))


async def _ready(store: Store, ours: Post) -> None:
    """Return if we can serve, or stand by. Raises StoreUnavailable or LinkLost."""
    await store.ping()
    ours.ready()


async def _wait_for(store: Store) -> None:
    """Return once the store answers, and may be used."""
    said = ""
    while True:
        try:
            return await store.ping()
        except StoreUnavailable as error:
            if str(error) != said:
                said = str(error)
                _log.warning("waiting for the store", reason=said)
            await asyncio.sleep(_RETRY_S)


async def _upkeep(store: Store, every_s: float, metrics_url: str) -> None:
    """Replay the intents to subscribe or unsubscribe that a crash left behind; and tell where our metrics are."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            await store.subscriptions.heal()
            await store.forgetting.heal()
            await store.bots.announce(metrics_url)
        await asyncio.sleep(every_s)
