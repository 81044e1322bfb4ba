"""The program ``coronet bot``: runs a bot process (:mod:`bots.cluster.process`) and periodic maintenance."""

from bots.cluster.process import create_process
from bots.maintenance import maintain
from service.asyncio_tasks import retry_while_unavailable, run_until_one_ends
from service.clock import SystemClock
from service.host_process import HostedProgram, HostProcess
from service.settings import Settings
from service.store import Store


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
