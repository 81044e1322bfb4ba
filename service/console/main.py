"""The console as a program: it serves until it is told to stop, whether or not Redis is there."""

import asyncio
import signal

import structlog
from aiohttp import web

from service.clock import SystemClock
from service.console.app import make_app
from service.console.health import listening_url
from service.console.login import setup_link
from service.errors import StoreUnavailable
from service.settings import Settings
from service.store import Store
from service.store.link import Link

_ASK_AGAIN_AFTER_S = 2.0
_REQUESTS_MAY_END_WITHIN_S = 3.0

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Serve on ``console_bind:console_port`` until SIGTERM or SIGINT. Raises ``OSError`` if the address is taken.

    While Redis is away every page says so with status 503, and works again when it is back.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    store = Store(Link(settings))
    runner = web.AppRunner(
        make_app(settings, store, SystemClock()), access_log=None, shutdown_timeout=_REQUESTS_MAY_END_WITHIN_S
    )
    try:
        await runner.setup()
        await web.TCPSite(runner, settings.console_bind, settings.console_port).start()
        url = settings.console_public_url or listening_url(runner)
        log.info("console ready", url=url)
        async with asyncio.TaskGroup() as tasks:
            greeting = tasks.create_task(_show_setup_link(store, url))
            await stop.wait()
            greeting.cancel()
    finally:
        await runner.cleanup()
        await store.close()


async def _show_setup_link(store: Store, url: str) -> None:
    """Say how to make the first account, as soon as Redis answers; nothing if there is one."""
    while True:
        try:
            link = await setup_link(store, url)
        except StoreUnavailable as error:
            log.warning("waiting for the store", error=str(error))
            await asyncio.sleep(_ASK_AGAIN_AFTER_S)
            continue
        if link is not None:
            print(f"Make the first console account here, once: {link}", flush=True)  # noqa: T201 - meant for a person
        return
