"""`coronet bot`: the program around :mod:`bots.process`."""

import asyncio
import contextlib

import structlog

from bots.process import Process, create
from bots.tasks import run_until_one_ends
from service.clock import SystemClock
from service.errors import StoreUnavailable
from service.net.health import serve_health
from service.settings import Settings
from service.shutdown import run_until_stopped
from service.store import Store, open_store

_RETRY_S = 1.0
_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT; wait for Redis and XMPP as long as they are away."""
    await run_until_stopped(_serve(settings))


async def _serve(settings: Settings) -> None:
    store = open_store(settings)
    try:
        process = create(settings, store, SystemClock())

        async def ready() -> None:
            await store.ping()
            process.ready()

        health = await serve_health(settings.metrics_bind, settings.metrics_port, ready, settings=settings)
        try:
            work = _work(store, process, settings.maintenance_interval_s, f"{health.url}/metrics")
            await run_until_one_ends(store.identity.run(), work)
        finally:
            await health.close()
    finally:
        await store.close()


async def _work(store: Store, process: Process, upkeep_every_s: float, metrics_url: str) -> None:
    warned = ""
    while True:
        try:
            await store.ping()
            break
        except StoreUnavailable as error:
            if str(error) != warned:
                warned = str(error)
                _log.warning("waiting for the store", reason=warned)
            await asyncio.sleep(_RETRY_S)
    await run_until_one_ends(process.run(), _upkeep(store, upkeep_every_s, metrics_url))


async def _upkeep(store: Store, every_s: float, metrics_url: str) -> None:
    """Replay the intents to subscribe or unsubscribe that a crash left behind; and tell where our metrics are."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            await store.subscriptions.replay_intents()
            await store.erasure.resume()
            await store.bot_endpoints.announce(metrics_url)
        await asyncio.sleep(every_s)
