"""Periodic maintenance by each bot process: completes what a crash interrupted, and queues announcements."""

import asyncio
import contextlib
import time

from service.errors import StoreUnavailable
from service.settings import Settings
from service.store import Store


async def maintain(store: Store, settings: Settings, metrics_url: str) -> None:
    """Complete interrupted changes, queue announcements, and store the URL of the metrics, until cancelled.

    The changes are subscriptions, unsubscriptions and erasures of users that a crash of a process interrupted.
    """
    while True:
        with contextlib.suppress(StoreUnavailable):
            await store.subscription_intents.replay()
            await store.erasure.resume()
            await store.announcements.dispatch(time.time(), settings.maintenance_interval_s)
            await store.bot_endpoints.announce(metrics_url)
        await asyncio.sleep(settings.maintenance_interval_s)
