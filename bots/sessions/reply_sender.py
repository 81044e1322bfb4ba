"""Sender of the replies to commands.

A reply to a stored message is stored before it is sent. The message is removed when the server has received the reply.
A process that takes over from a failed process therefore sends the same reply under the same message id (guarantee I8).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from bots.cluster.assigned_users import AssignedUsers
from bots.xmpp.interface import XmppSender, XmppSessionLost
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.delivery.inbound_log import EntryId, InboundLog
from service.tasks import cancel_and_wait

CLOSE_TIMEOUT_S: Final = 2.0
_MAX_PARALLEL: Final = 200
_RETRY_S: Final = 0.5


class ReplySender:
    """Sends the replies of one bot process."""

    def __init__(self, inbound_log: InboundLog, xmpp: XmppSender, assigned_users: AssignedUsers) -> None:
        """Create a sender that sends replies through ``xmpp``.

        Replies from another address than that of ``xmpp`` are queued in the store for the process with that address.
        Replies to messages in ``inbound_log`` are sent only to ``assigned_users``.
        """
        self._inbound_log = inbound_log
        self._xmpp = xmpp
        self._assigned_users = assigned_users
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MAX_PARALLEL)

    async def send(self, uid: UserId, entry_id: EntryId, address: str, stanzas: Sequence[str]) -> None:
        """Send the stanzas of a reply from ``address``, the bot's address to which the user has written.

        ``entry_id`` is the id of the user's message in the inbound log, or "" if it is not stored. The method returns
        when the server has received the reply and it cannot be sent again, or when the user is assigned to another
        process.
        """
        while True:
            await self._xmpp.connected.wait()
            if entry_id and not self._assigned_users.includes(uid):
                return
            if entry_id and not self._assigned_users.is_lease_valid():
                await asyncio.sleep(_RETRY_S)
                continue
            task = asyncio.create_task(self._deliver(uid, entry_id, address, stanzas))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            with contextlib.suppress(XmppSessionLost):
                await asyncio.shield(task)
                return

    async def close(self) -> None:
        """Wait until the server has received the replies that are being sent, for at most ``CLOSE_TIMEOUT_S``.

        Without this wait, another process would send them a second time.
        """
        if self._sending:
            await asyncio.wait(self._sending, timeout=CLOSE_TIMEOUT_S)
        await cancel_and_wait(*self._sending)

    async def _deliver(self, uid: UserId, entry_id: EntryId, address: str, stanzas: Sequence[str]) -> None:
        """Store a reply, send it, and remove the user's message from the inbound log. Raises XmppSessionLost."""
        if entry_id:
            with contextlib.suppress(StoreUnavailable):  # after a failure now, the command is executed again
                await self._inbound_log.record_reply(uid, entry_id, stanzas)
        if address == self._xmpp.address:
            async with self._slots:
                await self._xmpp.send(stanzas)
        else:
            await self._retry(lambda: self._inbound_log.queue_stanzas(address, stanzas))
        if entry_id:
            await self._retry(lambda: self._inbound_log.remove_answered([(uid, entry_id)]))

    async def _retry(self, write: Callable[[], Awaitable[None]]) -> None:
        """Repeat a write to the store until it succeeds. Without the write, the reply would be lost or sent twice."""
        while True:
            try:
                return await write()
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
