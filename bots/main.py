"""The program ``coronet bot``: it opens the store, serves health checks and runs one :mod:`bots.process`."""

import asyncio
import contextlib

import structlog

from bots.process import Process, create_process
from bots.tasks import run_until_one_ends
from service.clock import SystemClock
from service.errors import StoreUnavailable
from service.net.health_endpoints import serve_health
from service.settings import Settings
from service.shutdown import run_until_stopped
from service.store import Store, open_store

_RETRY_S = 1.0
_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. If Redis or the XMPP server is unavailable, retry until it is available."""
    await run_until_stopped(_serve(settings))


async def _serve(settings: Settings) -> None:
    store = open_store(settings)
    try:
        process = create_process(settings, store, SystemClock())

        async def check_ready() -> None:
            await store.ping()
            process.check_ready()

        health = await serve_health(settings.metrics_bind, settings.metrics_port, check_ready, settings=settings)
        try:
            work = _run_and_maintain(store, process, settings.maintenance_interval_s, f"{health.url}/metrics")
            await run_until_one_ends(store.identity.run(), work)
        finally:
            await health.close()
    finally:
        await store.close()


async def _run_and_maintain(store: Store, process: Process, maintenance_interval_s: float, metrics_url: str) -> None:
    """Wait for the store, then run the process and the periodic maintenance.

    The maintenance runs every ``maintenance_interval_s`` seconds and announces ``metrics_url`` in the store.
    """
    last_warning = ""
    while True:
        try:
            await store.ping()
            break
        except StoreUnavailable as error:
            if str(error) != last_warning:
                last_warning = str(error)
                _log.warning("store unavailable, will retry", reason=last_warning)
            await asyncio.sleep(_RETRY_S)
    await run_until_one_ends(process.run(), _maintain(store, maintenance_interval_s, metrics_url))


async def _maintain(store: Store, interval_s: float, metrics_url: str) -> None:
    """Complete interrupted changes and announce the URL of the metrics in the store, every ``interval_s`` seconds.

    The changes are subscriptions, unsubscriptions and erasures of users that a crash of a process interrupted.
    """
    while True:
        with contextlib.suppress(StoreUnavailable):
            await store.subscriptions.replay_intents()
            await store.erasure.resume()
            await store.bot_endpoints.announce(metrics_url)
        await asyncio.sleep(interval_s)
