"""Text sessions: commands are executed one at a time for each user, and in parallel for different users.

:mod:`bots.dialogue.dispatcher` executes each command, and :mod:`bots.sessions.reply_sender` sends the reply.

New users are greeted. If deliveries to a user were suspended because messages bounced, the bot resumes deliveries when
the user writes again. The bot then also greets the user, and sends a summary of the withheld items.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog
from cachetools import LRUCache, TTLCache

from bots.command_rate_limits import CommandRefused, RefusalNotices, message_limits
from bots.delivery.bounce_backoff import resume_reachable_user
from bots.dialogue.bot_services import BotServices
from bots.dialogue.dispatcher import answer
from bots.dialogue.reply import CommandOutcome, Reply
from bots.dialogue.request_handler import RequestHandler
from bots.i18n.translator import get_translator, supported_language
from bots.replies.error_texts import error_text
from bots.replies.formatting import MAX_MESSAGE_BYTES, clip
from bots.replies.greetings_and_refusals import INTERNAL_ERROR, WELCOME, WELCOME_BACK, quote_nick
from bots.sessions.loop_protection import LoopProtection
from bots.sessions.message_encryption import decode_message
from bots.sessions.reply_sender import ReplySender
from bots.xmpp import stanzas
from bots.xmpp.events import MessageReceived
from bots.xmpp.message_ids import new_message_id, reply_id
from service.asyncio_tasks import cancel_and_wait
from service.errors import StoreUnavailable
from service.store.client.keys import user_id
from service.store.delivery.inbound_log import EntryId, UnansweredMessage
from service.store.people.users import UserState


async def record_activity(services: BotServices, known: UserState, tag: str) -> UserState:
    """Record in the store that a user who may use the bot has written; return the user's state for the reply.

    - ``known``: the user's stored state.
    - ``tag``: the language tag of the user's client (RFC 5646).

    A new user is marked as welcomed. If the user was unreachable, deliveries are resumed. The returned state still
    shows a new user as not welcomed, and a returning user as unreachable, so that the caller can choose the greeting.
    If the client's language has changed, the returned state contains the new language.
    """
    jid, store = known.jid, services.store
    if not known.welcomed:
        await store.users.mark_welcomed(jid)
        await store.home_addresses.keep(jid)
    if known.unreachable:
        await resume_reachable_user(store, jid)
    client_language = supported_language(tag)
    if client_language in ("", known.user_settings.client_language):
        return known
    await store.users.set_client_language(jid, client_language)
    services.delivery.on_settings_changed(jid)
    user_settings = msgspec.structs.replace(known.user_settings, client_language=client_language)
    return msgspec.structs.replace(known, user_settings=user_settings)


def greeted_text(user: UserState, reply: Reply) -> str:
    """Return the text of a reply, with a greeting before it for new and returning users.

    ``user`` is the state of the user before the command was received.
    """
    translator = get_translator(user.user_settings.effective_language)
    text = reply.text
    if user.unreachable:
        text = f"{translator.gettext(WELCOME_BACK)}\n\n{text}"
    elif not user.welcomed and text != (welcome := translator.gettext(WELCOME)):
        text = f"{welcome}\n\n{text}"
    return clip(text, MAX_MESSAGE_BYTES)


QUESTION_LIFETIME_S: Final = 600.0
"""Seconds after which a question expires, so that a late "yes" has no effect."""

_MAX_QUEUED = 100
_MAX_QUEUED_PER_OCCUPANT = 20
"""Maximum number of queued messages from one occupant of a room; all occupants share the queue of the room."""
_MAX_UNSTORED_SESSIONS = 10_000
"""While there are this many sessions, a message that is not stored in the inbound log cannot open another session."""
_MAX_CACHED_USERS = 10_000
_NO_ENTRY = (0, 0)
_log = structlog.get_logger()


class _Session:
    """The queued messages of one session, and the task that answers them.

    Each message is queued together with its entry in the inbound log, the stored list of unanswered messages. When
    the message is answered, the entry is removed from the log. If the message is not in the log, the id of the entry
    is "".
    """

    def __init__(self) -> None:
        self.queue: deque[tuple[MessageReceived, UnansweredMessage]] = deque(maxlen=_MAX_QUEUED)
        self.language = ""
        self.task: asyncio.Task[None]


class ChatSessions:
    """The text sessions of one bot process.

    The key of a session is usually the bare JID of a user or room. For private messages from an occupant of a room, it
    is the occupant's full JID.
    """

    def __init__(
        self, services: BotServices, replies: ReplySender, on_invitation: Callable[[MessageReceived, EntryId], None]
    ) -> None:
        """Create the sessions; commands are executed with ``services``, and replies are sent through ``replies``.

        Each invitation to a room is passed to ``on_invitation`` with its id in the inbound log, or "" if it is not
        stored there.
        """
        self._services = services
        self._xmpp = services.xmpp
        self._assigned_users = services.assigned_users
        self._replies = replies
        self._on_invitation = on_invitation
        self._sessions: dict[str, _Session] = {}
        self._last_entry_ids: LRUCache[str, tuple[int, int]] = LRUCache(_MAX_CACHED_USERS)
        """Maps each session to the sort key of the newest stored message that was queued for it."""
        self._pending_questions: TTLCache[str, Reply] = TTLCache(
            _MAX_CACHED_USERS, QUESTION_LIFETIME_S, services.clock.monotonic_s
        )
        """Maps each session to the question that the user has not answered yet."""
        self._loop_protection = LoopProtection(services.clock)
        self._refusal_notices = RefusalNotices()

    def on_message(self, message: MessageReceived) -> None:
        """Queue a message that is not stored in the inbound log.

        If the session's queue is full, its oldest message is dropped. The occupants of a room share one queue; if an
        occupant already has many messages in the queue, the occupant's new message is dropped.
        """
        if message.invitation is not None:
            self._on_invitation(message, "")
            return
        key = message.jid if message.jid not in self._xmpp.rooms or message.is_groupchat else message.sender
        queue = self._sessions[key].queue if message.is_groupchat and key in self._sessions else ()
        if sum(queued.occupant_id == message.occupant_id for queued, _ in queue) >= _MAX_QUEUED_PER_OCCUPANT:
            return
        if key not in self._sessions and len(self._sessions) >= _MAX_UNSTORED_SESSIONS:
            return  # an attacker can send private messages from any number of nicks
        self._queue(key, message, UnansweredMessage(user_id(message.jid), "", b"", self._xmpp.address, ()))

    def on_stored_messages(self, unanswered: Sequence[UnansweredMessage]) -> None:
        """Queue messages from the inbound log in order, except those that have been queued before."""
        for each in unanswered:
            message = decode_message(each.payload, self._services.vault)
            latest, entry_id = self._last_entry_ids.get(message.jid, _NO_ENTRY), _sort_key(each.entry_id)
            if entry_id > latest:
                self._last_entry_ids[message.jid] = entry_id
                if message.invitation is not None:
                    self._on_invitation(message, each.entry_id)
                else:
                    self._queue(message.jid, message, each)

    async def wait_for_released_users(self) -> None:
        """Wait until no command is being executed for users who are no longer assigned to this process."""
        tasks = [each.task for key, each in self._sessions.items() if not self._assigned_users.includes(user_id(key))]
        if tasks:
            await asyncio.wait(tasks)

    def _queue(self, key: str, message: MessageReceived, entry: UnansweredMessage) -> None:
        if key not in self._sessions:
            session = self._sessions[key] = _Session()
            session.task = asyncio.create_task(self._serve(key, session))
        self._sessions[key].queue.append((message, entry))

    async def close(self) -> None:
        """Cancel all sessions, including commands in progress."""
        await cancel_and_wait(*[each.task for each in self._sessions.values()])

    async def _serve(self, key: str, session: _Session) -> None:
        try:
            while session.queue:
                message, entry = session.queue.popleft()
                if entry.entry_id and not self._assigned_users.includes(entry.uid):
                    self._last_entry_ids.pop(key, None)
                    continue
                if entry.entry_id and message.jid in self._xmpp.rooms:
                    entry = msgspec.structs.replace(entry, reply=())  # sent privately to a process that failed
                elif not entry.reply:  # a stored reply is sent again, and the command is not executed again (I8)
                    reply = await self._answer(key, session, message)
                    entry = msgspec.structs.replace(entry, reply=_reply_stanzas(message, entry, reply))
                await self._replies.send(entry)
        finally:
            del self._sessions[key]

    async def _answer(self, key: str, session: _Session, message: MessageReceived) -> Reply:
        """Execute the command in a message, and return the reply; its text is "" if the bot should not reply.

        An unexpected exception is logged, and the reply says that there was an internal error.
        """
        translator = get_translator(session.language or message.language)
        try:
            limits = message_limits(message)
            permission = await self._services.rate_limiter.count_command(message.jid, limits, message.occupant_user_id)
            if isinstance(permission, CommandRefused):
                return Reply(self._refusal_notices.text(key, permission, translator))
            self._refusal_notices.on_permitted(key, limits)
            user = msgspec.structs.replace(permission.user, welcomed=True)  # nobody without access is greeted
            if permission.is_admitted:
                # The language of a room is that of its owners and admins, not of the latest sender.
                user = await record_activity(
                    self._services, permission.user, message.language if message.can_manage else ""
                )
            language = session.language = user.user_settings.effective_language
            show_composing = None if message.is_groupchat else partial(self._show_composing, message.sender)
            reply = await answer(
                RequestHandler(
                    self._services,
                    message.jid,
                    language,
                    user.most_subscriptions,
                    show_composing,
                    room_nick=message.bot_nick,
                ),
                message.text,
                self._pending_questions.pop(key, None),
                is_admitted=permission.is_admitted,
                reply_to_id=message.reply_to_id,
                is_reaction=message.is_reaction,
                can_manage=message.can_manage,
            )
        except StoreUnavailable as error:
            return self._protect_from_loops(
                key, session, message, Reply(error_text(error, "", translator), CommandOutcome.DENIED)
            )
        except Exception:  # noqa: BLE001 - a bug affects only this command
            _log.exception("chat command failed", jid=message.jid)
            failure = Reply(translator.gettext(INTERNAL_ERROR), CommandOutcome.DENIED)
            return self._protect_from_loops(key, session, message, failure)
        reply = self._protect_from_loops(key, session, message, reply)
        if reply.options:
            self._pending_questions[key] = reply
        return msgspec.structs.replace(reply, text=greeted_text(user, reply)) if reply.text else reply

    def _protect_from_loops(self, key: str, session: _Session, message: MessageReceived, reply: Reply) -> Reply:
        """Return ``reply``, or a reply without text if the sender seems to be a program that replies to everything.

        A reply without text is not sent. It is returned after several consecutive messages that are not commands, or
        are not permitted. The last reply before this can be a notice that the bot stops replying.
        """
        return self._loop_protection.filter_reply(key, message.occupant_id, reply, get_translator(session.language))

    def _show_composing(self, user_jid: str) -> None:
        self._xmpp.send_unconfirmed(stanzas.composing(self._xmpp.address, user_jid))


def _reply_stanzas(message: MessageReceived, entry: UnansweredMessage, reply: Reply) -> tuple[str, ...]:
    """Return the stanzas that contain the reply to a message; none if the reply has no text.

    ``entry`` is the message's entry in the inbound log. In a room, the reply begins with the nick of the occupant who
    sent the message.
    """
    if not reply.text:
        return ()
    text = f"{quote_nick(message.resource)}: {reply.text}" if message.is_groupchat else reply.text
    render = stanzas.shared_file if reply.is_file else stanzas.body
    result = []
    for count, content in enumerate([stanzas.body(text), *map(render, reply.further_texts)]):
        message_id = reply_id(entry.uid, entry.entry_id, count) if entry.entry_id else new_message_id(entry.uid)
        if message.is_groupchat:
            stanza = stanzas.message(entry.address, message.jid, message_id, content, kind="groupchat")
        else:
            extensions = stanzas.RECEIPT_REQUEST + stanzas.CHAT_ACTIVE
            stanza = stanzas.message(entry.address, message.sender, message_id, content + extensions, message.thread)
        result.append(stanza)
    return tuple(result)


def _sort_key(entry_id: EntryId) -> tuple[int, int]:
    at_ms, _, serial = entry_id.partition("-")
    return int(at_ms), int(serial)
