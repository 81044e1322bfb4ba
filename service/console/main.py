"""`coronet console`: serves until it is told to stop, whether or not Redis is there."""

import asyncio

import structlog

from service.clock import SystemClock
from service.console.app import make_app
from service.console.login import setup_link
from service.errors import StoreUnavailable
from service.net.http_server import serve_http
from service.settings import Settings
from service.shutdown import until_stopped
from service.store import Store, open_store

_ASK_AGAIN_AFTER_S = 2.0
_REQUESTS_MAY_END_WITHIN_S = 3.0

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Serve on ``console_bind:console_port`` until SIGTERM or SIGINT. Raises ``OSError`` if the address is taken.

    While Redis is away every page says so with status 503, and works again when it is back.
    """
    await until_stopped(serve(settings))


async def serve(settings: Settings) -> None:
    """Serve until cancelled, then let the requests that are under way end."""
    store = open_store(settings)
    app = make_app(settings, store, SystemClock())
    try:
        async with serve_http(
            app,
            settings.console_bind,
            settings.console_port,
            trusted_proxies=settings.trusted_proxies,
            shutdown_s=_REQUESTS_MAY_END_WITHIN_S,
        ) as server:
            url = settings.console_public_url or server.url
            log.info("console ready", url=url)
            async with asyncio.TaskGroup() as group:
                group.create_task(store.identity.run())
                group.create_task(_show_setup_link(store, url))
    finally:
        await store.close()


async def _show_setup_link(store: Store, url: str) -> None:
    """Say how to make the first account, as soon as Redis answers; nothing if there is one."""
    said = ""
    while True:
        try:
            link = await setup_link(store, url)
        except StoreUnavailable as error:
            if str(error) != said:
                said = str(error)
                log.warning("waiting for the store", error=said)
            await asyncio.sleep(_ASK_AGAIN_AFTER_S)
            continue
        if link is not None:
            print(f"Make the console's first account here; the link works once: {link}", flush=True)  # noqa: T201 - for people
        return
