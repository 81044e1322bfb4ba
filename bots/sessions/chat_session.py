"""Answers people: one command at a time per person, many people in parallel.

Drives :mod:`bots.dialogue.dispatcher` against the store; :mod:`bots.sessions.reply_sender` sends the answers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog
from cachetools import LRUCache, TTLCache

from bots.access import Access, CommandRefused, message_limits
from bots.cluster.assigned_users import AssignedUsers
from bots.dialogue.dispatcher import answer
from bots.dialogue.request_handler import BotServices, RequestHandler
from bots.i18n.translator import get_translator
from bots.replies.base import MAX_MESSAGE_BYTES, QuestionReply, Reply, clip
from bots.replies.conversation import (
    NOT_EXECUTED,
    NOT_UNDERSTOOD,
    RequestFailed,
    SilenceNotice,
    WelcomeReply,
    internal_error_text,
    quote_nick,
    welcome_back_text,
    welcome_text,
)
from bots.replies.subscriptions import ExportFileReply
from bots.sessions.reply_sender import ReplySender
from bots.tasks import cancel_and_wait
from bots.xmpp import stanzas
from bots.xmpp.events import MessageReceived
from bots.xmpp.interface import XmppSender
from bots.xmpp.message_ids import new_message_id, reply_id
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store.client.keys import user_id
from service.store.delivery.inbound_log import EntryId, UnansweredMessage
from service.store.people.users import UserState

QUESTION_STANDS_S: Final = 600.0
"""After this long a question is forgotten, so that a stray "yes" does nothing."""

MOST_MISUNDERSTOOD: Final = 5
"""After so many messages in a row that say nothing to us, we are silent until one does: two bots that answer everything
would otherwise never end."""
SILENT_FOR_S: Final = 600.0
"""Unless nothing was said for so long."""

_MOST_WAITING = 100
_MOST_WAITING_OF_ONE = 20
"""Of one occupant of a room, which all of it share."""
_MOST_SERVED = 10_000
"""People at a time whose messages are not stored."""
_MOST_REMEMBERED = 10_000
_NOWHERE = (0, 0)
_log = structlog.get_logger()


class _Task(msgspec.Struct, frozen=True):
    """A message to ``address``; its place in the store, "" if it is not stored."""

    said: MessageReceived
    place: EntryId = ""
    address: str = ""
    answers: tuple[str, ...] = ()


class _Person:
    """Somebody whose messages are being answered."""

    def __init__(self) -> None:
        self.unread: deque[_Task] = deque(maxlen=_MOST_WAITING)
        self.language = ""
        self.serving: asyncio.Task[None]


class ChatSessions:
    """Takes what people say; :meth:`hear` never waits.

    What it remembers of people is by ``whose``: their JID, or that of the room, or of the occupant who whispers.
    """

    def __init__(
        self,
        link: XmppSender,
        services: BotServices,
        *,
        access: Access,
        replies: ReplySender,
        assigned_users: AssignedUsers,
        clock: Clock,
        invited: Callable[[MessageReceived, EntryId], None],
    ) -> None:
        """Have ``replies`` send what ``services`` has done, to ``assigned_users``; ``link`` says that we are at work.

        Of an invitation ``invited`` is told, and where it stands in the store, "" if it stands nowhere.
        """
        self._invited = invited
        self._access = access
        self._replies = replies
        self._assigned_users = assigned_users
        self._services = services
        self._link = link
        self._serving: dict[str, _Person] = {}
        self._latest: LRUCache[str, tuple[int, int]] = LRUCache(_MOST_REMEMBERED)
        """The place of the latest stored message that was queued, by person."""
        self._asked: TTLCache[str, QuestionReply] = TTLCache(_MOST_REMEMBERED, QUESTION_STANDS_S, clock.monotonic_s)
        """The question that a person was asked last."""
        self._misunderstood: TTLCache[tuple[str, str], int]
        """How many messages in a row were not understood, by person and occupant of a room."""
        self._misunderstood = TTLCache(_MOST_REMEMBERED, SILENT_FOR_S, clock.monotonic_s)
        self._told_too_fast: LRUCache[tuple[str, str], bool] = LRUCache(_MOST_REMEMBERED)
        """The limits that people exceed and were told of."""

    def hear(self, said: MessageReceived) -> None:
        """Queue a message that is not stored; of more than a hundred unread ones the oldest are dropped.

        Of one of many in a room, whose commands stand in one line, the newest are, and sooner.
        """
        if said.invitation is not None:
            self._invited(said, "")
            return
        whose = said.jid if said.jid not in self._link.rooms or said.is_groupchat else said.sender
        waiting = self._serving[whose].unread if said.is_groupchat and whose in self._serving else ()
        if sum(each.said.occupant_id == said.occupant_id for each in waiting) >= _MOST_WAITING_OF_ONE:
            return
        if whose not in self._serving and len(self._serving) >= _MOST_SERVED:
            return  # a room can have any number of nicks whisper to us
        self._queue(whose, _Task(said, address=self._link.address))

    def read(self, unanswered: Sequence[UnansweredMessage]) -> None:
        """Queue stored messages, in order; not again what was queued: it may have been read before it went."""
        for each in unanswered:
            said = msgspec.msgpack.decode(each.payload, type=MessageReceived)
            latest, place = self._latest.get(said.jid, _NOWHERE), _order(each.entry_id)
            if place > latest:
                self._latest[said.jid] = place
                if said.invitation is not None:
                    self._invited(said, each.entry_id)
                else:
                    self._queue(said.jid, _Task(said, each.entry_id, each.address, each.reply))

    async def finished(self) -> None:
        """Return when what was begun is answered, of those whom we have served but do not serve any more."""
        begun = [
            each.serving for whose, each in self._serving.items() if not self._assigned_users.includes(user_id(whose))
        ]
        if begun:
            await asyncio.wait(begun)

    def _queue(self, whose: str, task: _Task) -> None:
        if whose not in self._serving:
            person = self._serving[whose] = _Person()
            person.serving = asyncio.create_task(self._serve(whose, person))
        self._serving[whose].unread.append(task)

    async def close(self) -> None:
        """Stop answering."""
        await cancel_and_wait(*[each.serving for each in self._serving.values()])

    async def _serve(self, whose: str, person: _Person) -> None:
        try:
            while person.unread:
                task = person.unread.popleft()
                if not task.place or self._assigned_users.includes(
                    user_id(whose)
                ):  # else whoever serves them now has read it
                    await self._answer(whose, person, task)
                else:
                    self._latest.pop(whose, None)
        finally:
            del self._serving[whose]

    async def _answer(self, whose: str, person: _Person, task: _Task) -> None:
        """Answer one command, or send the answer that was noted for it."""
        said, answers = task.said, task.answers
        if task.place and said.jid in self._link.rooms:  # whispered in a room to a bot that died: not for all of it
            answers = ()
        elif not answers:
            contents = await self._contents(whose, person, said)
            answers = tuple(self._stanza(task, each, count) for count, each in enumerate(contents))
        await self._replies.send(user_id(said.jid), task.place, task.address, answers)

    async def _contents(self, whose: str, person: _Person, said: MessageReceived) -> list[str]:
        """Return the contents of the messages that answer a command; a bug in it is logged and stays that person's."""
        try:
            limits = message_limits(said)
            known = await self._access.count_command(said.jid, limits, said.occupant_user_id)
            if isinstance(known, CommandRefused):
                return self._refusal(whose, person, said, known)
            for name in limits:
                self._told_too_fast.pop((whose, name), None)
            # A room is spoken to as its owners and admins speak, not as whoever spoke last.
            known = await self._services.greet(known, said.language if said.can_manage else "")
            person.language = known.user_settings.effective_language
            return await self._converse(whose, said, known)
        except StoreUnavailable as error:
            words = RequestFailed(error, "").text(person.language or said.language)
        except Exception:  # noqa: BLE001 - whatever it is, it concerns this person's command only
            _log.exception("a command failed", jid=said.jid)
            words = internal_error_text(get_translator(person.language or said.language))
        return self._first(said, words) if self._count_misunderstood(whose, said) <= MOST_MISUNDERSTOOD else []

    def _refusal(self, whose: str, person: _Person, said: MessageReceived, refused: CommandRefused) -> list[str]:
        """Say once that there are too many commands; say nothing to who is suspended."""
        if not refused.limit or (whose, refused.limit) in self._told_too_fast:
            return []
        self._told_too_fast[whose, refused.limit] = True
        return self._first(said, refused.reply.text(person.language or said.language))

    async def _converse(self, whose: str, said: MessageReceived, known: UserState) -> list[str]:
        def at_work() -> None:
            if not said.is_groupchat:
                self._link.send_unconfirmed(stanzas.composing(self._link.address, said.sender))

        reply = await answer(
            RequestHandler(self._services, said.jid, known.most_subscriptions, at_work),
            said.text,
            self._asked.get(whose),
            reply_to_id=said.reply_to_id,
            is_reaction=said.is_reaction,
            can_manage=said.can_manage,
        )
        self._asked.pop(whose, None)
        if isinstance(reply, NOT_EXECUTED):
            count = self._count_misunderstood(whose, said)
            if count > MOST_MISUNDERSTOOD:
                return []
            if count == MOST_MISUNDERSTOOD and isinstance(reply, NOT_UNDERSTOOD):
                reply = SilenceNotice()
        else:
            self._misunderstood.pop((whose, said.occupant_id), None)
        if isinstance(reply, QuestionReply):
            self._asked[whose] = reply
        written = stanzas.shared_file if isinstance(reply, ExportFileReply) else stanzas.body
        more = map(written, reply.further_texts(known.user_settings.effective_language))
        return [*self._first(said, reply_text(known, reply)), *more]

    def _count_misunderstood(self, whose: str, said: MessageReceived) -> int:
        """Count a message that led to nothing; return how many of them its sender has sent in a row."""
        count: int = self._misunderstood.get((whose, said.occupant_id), 0) + 1
        self._misunderstood[whose, said.occupant_id] = count
        return count

    def _first(self, said: MessageReceived, words: str) -> list[str]:
        """Return the content of the first message of an answer, if it says anything; in a room it names its reader."""
        if not words:
            return []
        named = f"{quote_nick(said.sender.partition('/')[2])}: {words}" if said.is_groupchat else words
        return [stanzas.body(named)]

    def _stanza(self, task: _Task, content: str, count: int) -> str:
        said, uid = task.said, user_id(task.said.jid)
        ident = reply_id(uid, task.place, count) if task.place else new_message_id(uid)
        if said.is_groupchat:
            return stanzas.message(task.address, said.jid, ident, content, kind="groupchat")
        content += stanzas.RECEIPT_REQUEST + stanzas.CHAT_ACTIVE
        return stanzas.message(task.address, said.sender, ident, content, said.thread)


def _order(place: EntryId) -> tuple[int, int]:
    at_ms, _, serial = place.partition("-")
    return int(at_ms), int(serial)


def reply_text(known: UserState, reply: Reply) -> str:
    """Return a reply's text for a person of whom this was known when they wrote; who is new, or back, is greeted."""
    language = known.user_settings.effective_language
    greeting = (
        "" if known.welcomed or isinstance(reply, WelcomeReply) else f"{welcome_text(get_translator(language))}\n\n"
    )
    if known.unreachable:
        greeting = f"{welcome_back_text(get_translator(language))}\n\n"
    return clip(greeting + reply.text(language), MAX_MESSAGE_BYTES)
