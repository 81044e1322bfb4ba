"""Sender of the replies to messages from people.

A reply to a stored message is noted in the store before it is sent, and the message is removed once the server has the
reply. So whoever takes over from a failed process sends the same reply under the same id.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from bots.cluster.assigned_users import AssignedUsers
from bots.tasks import cancel_and_wait
from bots.xmpp.interface import XmppSender, XmppSessionLost
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.delivery.inbound_log import EntryId, InboundLog

FINISH_WITHIN_S: Final = 2.0
_MOST_AT_ONCE: Final = 200
_RETRY_S: Final = 0.5


class ReplySender:
    """Sends the replies of one bot."""

    def __init__(self, heard: InboundLog, link: XmppSender, assigned_users: AssignedUsers) -> None:
        """Write to ``link`` what is sent from its address; the store passes on what another bot has to write.

        Replies to stored messages are sent only to people whom ``assigned_users`` has.
        """
        self._heard = heard
        self._link = link
        self._assigned_users = assigned_users
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def send(self, uid: UserId, place: EntryId, address: str, stanzas: Sequence[str]) -> None:
        """Answer a message to ``address`` with these stanzas; its place in the store is "" if it is not stored.

        Returns when the server has the reply and nobody will send it again, or when it is another bot's to send.
        """
        while True:
            await self._link.connected.wait()
            if place and not self._assigned_users.includes(uid):
                return
            if place and not self._assigned_users.is_lease_valid():
                await asyncio.sleep(_RETRY_S)
                continue
            task = asyncio.create_task(self._deliver(uid, place, address, stanzas))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            with contextlib.suppress(XmppSessionLost):
                await asyncio.shield(task)
                return

    async def close(self) -> None:
        """Let the replies under way finish, for at most ``FINISH_WITHIN_S``: they would be sent twice otherwise."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=FINISH_WITHIN_S)
        await cancel_and_wait(*self._sending)

    async def _deliver(self, uid: UserId, place: EntryId, address: str, stanzas: Sequence[str]) -> None:
        """Note, write and complete a reply. Raises XmppSessionLost."""
        if place:
            with contextlib.suppress(StoreUnavailable):  # whoever takes over now executes the command once more
                await self._heard.record_reply(uid, place, stanzas)
        if address == self._link.address:
            async with self._slots:
                await self._link.send(stanzas)
        else:
            await self._surely(lambda: self._heard.queue_stanzas(address, stanzas))
        if place:
            await self._surely(lambda: self._heard.remove_answered([(uid, place)]))

    async def _surely(self, write: Callable[[], Awaitable[None]]) -> None:
        """Repeat a write until the store takes it: the reply would be lost, or sent twice, otherwise."""
        while True:
            try:
                return await write()
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
