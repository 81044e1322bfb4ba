"""Sender of the replies to commands.

A message from a user is stored until it is answered. Its reply is stored before the reply is sent, and the message is
removed once the server has received the reply. Therefore a process that takes over from a failed process sends the same
reply with the same message id (guarantee I8).
"""

import asyncio
import contextlib
from typing import Final

from bots.cluster.partitions import AssignedUsers
from bots.xmpp.interface import XmppSender, XmppSessionLost
from service.asyncio_tasks import cancel_and_wait, retry_while_unavailable
from service.errors import StoreUnavailable
from service.store.coordination.bot_messages import BotMessages
from service.store.delivery.inbound_log import InboundLog, UnansweredMessage

CLOSE_TIMEOUT_S: Final = 2.0
_MAX_PARALLEL: Final = 200
_RETRY_S: Final = 0.5


class ReplySender:
    """Sends the replies of one bot process."""

    def __init__(
        self, inbound_log: InboundLog, bot_messages: BotMessages, xmpp: XmppSender, assigned_users: AssignedUsers
    ) -> None:
        """Create a sender that sends replies through ``xmpp``.

        A reply that must come from another address of the bot is queued in ``bot_messages`` for the process that serves
        this address. Replies to messages in ``inbound_log`` are sent only to ``assigned_users``.
        """
        self._inbound_log = inbound_log
        self._bot_messages = bot_messages
        self._xmpp = xmpp
        self._assigned_users = assigned_users
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MAX_PARALLEL)

    async def send(self, message: UnansweredMessage) -> None:
        """Send the reply in ``message``; return when the server has received it and no process can send it again.

        - The reply is sent from the address of the bot to which the user has written. If another process serves this
          address, the reply is only queued for that process.
        - If the user's message is stored in the inbound log and the user is now assigned to another process, the
          reply is not sent. ``message.entry_id`` is "" if the message is not stored there.
        """
        while True:
            await self._xmpp.connected.wait()
            if message.entry_id and not self._assigned_users.includes(message.uid):
                return
            if message.entry_id and not self._assigned_users.is_lease_valid():
                await asyncio.sleep(_RETRY_S)
                continue
            task = asyncio.create_task(self._deliver(message))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            with contextlib.suppress(XmppSessionLost):
                await asyncio.shield(task)
                return

    async def close(self) -> None:
        """Wait until the server has received the replies that are being sent, for at most ``CLOSE_TIMEOUT_S`` seconds.

        Without this wait, another process would send these replies a second time.
        """
        if self._sending:
            await asyncio.wait(self._sending, timeout=CLOSE_TIMEOUT_S)
        await cancel_and_wait(*self._sending)

    async def _deliver(self, message: UnansweredMessage) -> None:
        """Store a reply, send it, and remove the user's message from the inbound log.

        A reply that must come from another address of the bot is queued in the store for the process that serves this
        address. Queuing the reply and removing the message are retried until they succeed; otherwise the reply could be
        lost or sent twice. Raises XmppSessionLost if the session ends before the server has received the reply.
        """
        log, pair = self._inbound_log, (message.uid, message.entry_id)
        if message.entry_id:
            with contextlib.suppress(StoreUnavailable):  # after a failure now, the command is executed again
                await log.record_reply(*pair, message.reply)
        if message.address == self._xmpp.address:
            async with self._slots:
                await self._xmpp.send(message.reply)
        else:
            await retry_while_unavailable(lambda: self._bot_messages.queue_stanzas(message.address, message.reply))
        if message.entry_id:
            await retry_while_unavailable(lambda: log.remove_answered([pair]))
