"""The program ``coronet bot``: runs a bot process (:mod:`bots.cluster.process`) and periodic maintenance.

The maintenance completes changes that a crash interrupted, and queues announcements.
"""

import asyncio
import contextlib
import time

from bots.cluster.process import create_process
from service.asyncio_tasks import retry_while_unavailable, run_until_one_ends
from service.clock import SystemClock
from service.errors import StoreUnavailable
from service.host_process import HostedProgram, HostProcess
from service.settings import Settings
from service.store import Store


async def maintain(store: Store, settings: Settings, metrics_url: str) -> None:
    """Complete interrupted changes, queue announcements, and publish the metrics URL, periodically until cancelled.

    A change is interrupted if a process crashes during a subscription, an unsubscription, or the erasure of a user's
    data. ``metrics_url`` is the URL at which this process offers its metrics. It is published in the store, and
    withdrawn at the end.
    """
    try:
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store.subscription_intents.replay()
                await store.erasure.resume()
                await store.announcements.dispatch(time.time(), settings.maintenance_interval_s)
                await store.bot_endpoints.announce(metrics_url)
            await asyncio.sleep(settings.maintenance_interval_s)
    finally:
        with contextlib.suppress(StoreUnavailable):
            await store.bot_endpoints.withdraw(metrics_url)


class BotProgram(HostedProgram):
    """The bot as a program that can run in the same process as other programs."""

    name = "bot"

    def __init__(self, settings: Settings, store: Store) -> None:
        """Create a bot that is not connected yet; :meth:`run` connects it to the XMPP server."""
        super().__init__(settings, store)
        self._process = create_process(settings, store, SystemClock())

    def check_ready(self) -> None:
        """Raise XmppSessionLost if the bot is not ready to serve users yet; see :meth:`HostedProgram.check_ready`."""
        self._process.check_ready()

    async def run(self, process: HostProcess) -> None:
        """Wait for the store, then run the bot and the maintenance.

        While Redis or the XMPP server is unavailable, keep retrying.
        """
        await retry_while_unavailable(self._store.ping, logs_reason=True)
        await run_until_one_ends(self._process.run(), maintain(self._store, self._settings, process.metrics_url))
