"""Console's importer of OPML files: carries out the imports that admins have started at any console.

A console has a lease on each import that it carries out. If it is killed, another one continues when the lease ends.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from aiohttp import web

from service.asyncio_tasks import BackgroundTasks, run_until_one_ends
from service.console.app_keys import STORE
from service.errors import StoreUnavailable
from service.feeds.canonical_urls import channel_id
from service.feeds.opml_writer import OpmlSubscription
from service.opml_import_runner import ImportRunner
from service.store import Store
from service.store.subscriptions.opml_imports import IMPORT_LEASE_S

_CHECK_INTERVAL_S: Final = 2.0


async def run_importer(app: web.Application) -> AsyncIterator[None]:
    """Carry out imports while the application runs (for ``Application.cleanup_ctx``)."""
    tasks = BackgroundTasks()
    tasks.start(_run_imports(app[STORE], tasks))
    yield
    await tasks.cancel()


async def _run_imports(store: Store, tasks: BackgroundTasks) -> None:
    runner = ImportRunner(store, store.console_imports)
    while True:
        with contextlib.suppress(StoreUnavailable):
            while (ident := await store.console_imports.claim()) is not None:
                tasks.start(_run_import(store, runner, ident))
        await asyncio.sleep(_CHECK_INTERVAL_S)


async def _run_import(store: Store, runner: ImportRunner, ident: str) -> None:
    await run_until_one_ends(runner.run(ident, partial(_add, store, runner)), _renew_lease(store, ident))
    await store.console_imports.end(ident)


async def _renew_lease(store: Store, ident: str) -> None:
    while True:
        await asyncio.sleep(IMPORT_LEASE_S / 3)
        await store.console_imports.renew(ident)


async def _add(store: Store, runner: ImportRunner, feed: OpmlSubscription) -> bool:
    """List the channel for a feed, so that it is polled even without subscribers; return whether it was not listed."""
    channel = await store.channels.resolve(channel_id(feed.url))
    if channel is None or channel.dormant:
        await store.channels.set_listed(await runner.find_or_create_channel(feed), listed=True)
    elif channel.listed:
        return False
    else:
        await store.channels.set_listed(channel.id, listed=True)
    return True
