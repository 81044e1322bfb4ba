"""The program ``coronet bot``: runs a bot process (:mod:`bots.cluster.process`) and periodic maintenance.

The maintenance completes what a crash interrupted, and queues announcements.
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


class BotProgram(HostedProgram):
    """The bot as a program that can share its process with other programs."""

    name = "bot"

    def __init__(self, settings: Settings, store: Store) -> None:
        """Create a bot that connects to the XMPP server in :meth:`run`."""
        super().__init__(settings, store)
        self._process = create_process(settings, store, SystemClock())

    def check_ready(self) -> None:
        """See :meth:`HostedProgram.check_ready`. Raises XmppSessionLost if the bot cannot serve yet."""
        self._process.check_ready()

    async def run(self, process: HostProcess) -> None:
        """Wait for the store, then run the bot and the maintenance.

        If Redis or the XMPP server is unavailable, retry until it is available.
        """
        await retry_while_unavailable(self._store.ping, logs_reason=True)
        await run_until_one_ends(self._process.run(), maintain(self._store, self._settings, process.metrics_url))
