"""Durable intake of received messages.

A message is stored in the inbound log (:mod:`service.store.delivery.inbound_log`) before any bot answers it, unless the
store is unavailable. Therefore no stored message is lost if a process fails. A message is stored under the same key by
every session that receives it. If several processes of an account receive the same message, exactly one of them answers
it.

Messages that arrived while no bot was connected are stored first; see :mod:`bots.inbound.catch_up`.

Messages wait in a queue until they are stored. The length of the queue is limited per user, per site and in total, so
that no single server can fill it with messages from invented users.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from bots.dialogue.bot_services import BotServices
from bots.inbound import catch_up
from bots.inbound.catch_up import CatchUp
from bots.sessions.adhoc_session import AdhocSessions
from bots.sessions.chat_session import ChatSessions
from bots.sessions.message_encryption import decode_command, encode_message
from bots.xmpp import deduplication, stanzas
from bots.xmpp.events import MessageReceived
from bots.xmpp.interface import XmppSessionLost
from service.asyncio_tasks import retry_while_unavailable, run_until_one_ends
from service.errors import StoreUnavailable
from service.model import UserId
from service.net.sites_and_networks import site_of_jid
from service.store.client.keys import user_id
from service.store.coordination.bot_messages import BotNotice
from service.store.delivery.inbound_log import MAX_UNANSWERED, InboundMessage

_MAX_QUEUED: Final = 10_000
_MAX_QUEUED_PER_SITE: Final = 5_000
"""Maximum number of queued messages from the users of one site (registrable domain), so that no server fills the queue
with invented JIDs (guarantee I7)."""


class IntakeQueue:
    """A queue of received messages that are waiting to be stored.

    Its length is limited in total, per user, and per site. A site is the registrable domain of the users' server.
    """

    def __init__(self) -> None:
        """Create an empty queue."""
        self._messages: deque[tuple[MessageReceived, str]] = deque()
        """Each message with the site of its sender."""
        self._counts: Counter[str] = Counter()
        """How many messages are queued per bare JID and per site; the key of a site begins with "site "."""

    def __len__(self) -> int:
        """Return the number of queued messages."""
        return len(self._messages)

    def put(self, message: MessageReceived) -> None:
        """Append a message; drop it if a limit is reached."""
        jid, site = message.jid, f"site {site_of_jid(message.jid)}"
        is_full = self._counts[jid] >= MAX_UNANSWERED or self._counts[site] >= _MAX_QUEUED_PER_SITE
        if not is_full and len(self._messages) < _MAX_QUEUED:
            self._messages.append((message, site))
            self._counts.update((jid, site))

    def take(self, limit: int) -> list[MessageReceived]:
        """Remove and return the oldest messages, at most ``limit``."""
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self._counts.subtract(key for message, site in taken for key in (message.jid, site))
        self._counts = +self._counts
        return [message for message, _ in taken]


BATCH_SIZE: Final = 500
"""Maximum number of messages that are stored together."""
_SWEEP_INTERVAL_S: Final = 10.0
_RETRY_S: Final = 0.5
_log = structlog.get_logger()


class Intake:
    """Stores the messages that one bot receives, and passes them to the sessions of their senders.

    :meth:`run` does the work. The methods that handle events only record what has to be done, and never wait.
    """

    def __init__(self, services: BotServices, chat_sessions: ChatSessions, adhoc_sessions: AdhocSessions) -> None:
        """Create the intake of the bot with these ``services``.

        Messages and ad-hoc commands from users whom this bot serves are passed to ``chat_sessions`` and
        ``adhoc_sessions``. When another user sends a message or command, the bot that serves that user is notified.
        """
        self._inbound_log = services.store.inbound_log
        self._bot_messages = services.store.bot_messages
        self._xmpp = services.xmpp
        self._assigned_users = services.assigned_users
        self._clock = services.clock
        self._vault = services.vault
        self._chat_sessions = chat_sessions
        self._adhoc_sessions = adhoc_sessions
        self._catch_up = CatchUp(self._inbound_log, self._xmpp, self._clock, self.store_archived)
        self._queue = IntakeQueue()
        self._has_work = asyncio.Event()
        self._store_lock = asyncio.Lock()
        """Held while messages are stored, so that they are stored in the order in which they were sent."""
        self._is_sweep_due = asyncio.Event()
        self._is_sweep_due.set()

    async def run(self) -> None:
        """Store received messages, and pass those from this bot's users to their sessions, until cancelled.

        Also send the responses that other bots have queued in the store for this bot's XMPP session.
        """
        await run_until_one_ends(
            self._store_messages(), self._follow_notices(), self._sweep(), self._send_for_other_bots()
        )

    def on_session_started(self) -> None:
        """Request that the account's message archive be read before new messages are stored.

        A component has no archive, so its new messages are stored at once.
        """
        self._catch_up.on_session_started()
        self._has_work.set()

    def on_message(self, message: MessageReceived) -> None:
        """Queue a message to be stored. Ignore private messages from room occupants: the room client handles them."""
        if message.is_private:
            return
        if deduplication.is_too_old(message, self._clock.wall_s()):
            _log.info("message ignored, too old", jid=message.jid)
            return
        self._queue.put(message)
        self._has_work.set()

    def on_partitions_gained(self) -> None:
        """Request that the unanswered messages of newly assigned users be read from the store and answered."""
        self._is_sweep_due.set()

    async def store_archived(self, pages: AsyncIterator[Sequence[MessageReceived]]) -> int:
        """Store the messages on pages of the archive; return how many of them were new.

        Messages that arrive in the meantime are stored afterwards. Raises StoreUnavailable if the store does not
        respond. Exceptions that are raised by iterating over ``pages`` are propagated.
        """
        now_s, new_count = self._clock.wall_s(), 0
        async with self._store_lock:
            async for page in pages:
                new_count += await self._store(
                    [each for each in page if not (each.is_private or deduplication.is_too_old(each, now_s))]
                )
        return new_count

    # Storing received messages.

    async def _store_messages(self) -> None:
        """Store queued messages until cancelled. If the archive must be read, do that first.

        While Redis is unavailable, messages are answered without being stored.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(catch_up.CHECKPOINT_INTERVAL_S):
                    await self._has_work.wait()
            self._has_work.clear()
            if self._catch_up.is_due:
                await self._catch_up.run()
            while self._queue and not self._catch_up.is_due:
                async with self._store_lock:
                    messages = self._queue.take(BATCH_SIZE)
                    try:
                        await self._store(messages)
                    except StoreUnavailable as error:
                        _log.warning("storing messages failed", error=str(error), messages=len(messages))
                        for message in messages:
                            if self._assigned_users.includes(user_id(message.jid)):
                                self._chat_sessions.on_message(message)
            await self._catch_up.write_checkpoint(is_idle=not self._queue and not self._store_lock.locked())

    async def _store(self, messages: Sequence[MessageReceived]) -> int:
        """Store messages, send receipts for the new ones, and pass them to the bots that serve their senders.

        Return how many messages were new.
        """
        address, now_s = self._xmpp.address, self._clock.wall_s()
        is_new = await self._inbound_log.add(
            [
                InboundMessage(
                    each.jid,
                    each.dedup_key,
                    encode_message(each, self._vault),
                    address,
                    deduplication.duplicates_since_s(each, now_s),
                )
                for each in messages
            ]
        )
        new = [each for each, each_is_new in zip(messages, is_new, strict=True) if each_is_new]
        for each in new:
            if each.wants_receipt:
                self._xmpp.send_unconfirmed(stanzas.receipt(address, each.sender, each.id))
            if each.wants_marker:
                self._xmpp.send_unconfirmed(stanzas.displayed_marker(address, each.sender, each.id, each.thread))
        assigned = await self._pass_unanswered(dict.fromkeys(user_id(each.jid) for each in messages))
        others = {user_id(each.jid) for each in new}.difference(assigned)
        await self._bot_messages.notify([BotNotice(uid) for uid in others])
        return len(new)

    async def _pass_unanswered(self, user_ids: Collection[UserId]) -> list[UserId]:
        """Select the users in ``user_ids`` whom this bot serves, and pass their unanswered messages to their sessions.

        Return the ids of the selected users.
        """
        assigned = await self._assigned_users.select(user_ids)
        self._chat_sessions.on_stored_messages(await self._inbound_log.read_unanswered(assigned))
        return assigned

    # Messages in the store.

    async def _follow_notices(self) -> None:
        """Handle the messages and ad-hoc commands that this bot's users have sent, but other bots have received."""
        after_id = await retry_while_unavailable(self._bot_messages.newest_notice_id)
        while True:
            after_id = await retry_while_unavailable(partial(self._handle_notices, after_id))

    async def _handle_notices(self, after_id: str) -> str:
        """Handle the notices that other bots have sent after the notice ``after_id``; return the id of the last one.

        A notice states that another bot has received a message or an ad-hoc command from a user.
        """
        notices = await self._bot_messages.read_notices(after_id)
        assigned = await self._pass_unanswered({each.uid for each in notices.values()})
        own = {ident: each for ident, each in notices.items() if each.uid in assigned}
        for each in own.values():
            if each.adhoc_command:
                command = decode_command(each.adhoc_command, self._vault)
                self._adhoc_sessions.on_command(msgspec.structs.replace(command, receiver=each.session))
        # Apart from the caller's retries, which would execute the commands again.
        await retry_while_unavailable(partial(self._bot_messages.remove_notices, list(own)))
        return next(reversed(notices), after_id)

    async def _sweep(self) -> None:
        """Handle all unanswered messages of assigned users, periodically and whenever users are newly assigned."""

        async def pass_all() -> None:
            await self._pass_unanswered(await self._inbound_log.unanswered_users())

        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_INTERVAL_S):
                    await self._is_sweep_due.wait()
            self._is_sweep_due.clear()
            await retry_while_unavailable(pass_all)

    async def _send_for_other_bots(self) -> None:
        """Send the responses that other bots have queued in the store for this bot's XMPP session, until cancelled.

        A client sends its request to one session and expects the response from the same session. If another bot
        handles the request, it queues the response for the session that received the request.
        """
        while True:
            try:
                await self._xmpp.connected.wait()
                session_jid = self._xmpp.session_jid
                stanzas_by_id = await self._bot_messages.read_stanzas(session_jid)
                if stanzas_by_id:
                    await self._xmpp.send(list(stanzas_by_id.values()))
                    await self._bot_messages.remove_stanzas(session_jid, list(stanzas_by_id))
            except (StoreUnavailable, XmppSessionLost):
                await asyncio.sleep(_RETRY_S)
