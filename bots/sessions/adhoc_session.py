"""Ad-hoc commands (XEP-0050): forms instead of talk, over the same dialogues.

An errand is one run of one command; its steps may come minutes apart. At most so many are remembered, of each person
and of all, the oldest are forgotten first, and whoever comes back to a forgotten one is told so (``session-expired``).
A step is answered by whoever serves the person, at once or not at all, as their software waits.
Forms are opened no more often than commands are given, and each command that a form stands for is charged.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine
from typing import Final

import msgspec
import structlog
from cachetools import TTLCache

from bots.access import COMMAND_LIMITS, FORM_LIMITS, Access, CommandRefused
from bots.cluster.assigned_users import AssignedUsers
from bots.commands import parser as commands
from bots.dialogue.dispatcher import answer
from bots.dialogue.request_handler import BotServices, RequestHandler
from bots.i18n.translator import Translator, get_translator
from bots.replies.base import FailureReply, QuestionReply, Reply
from bots.replies.conversation import AccessDenied, RequestFailed, TooManyCommands, internal_error_text
from bots.sessions import forms
from bots.tasks import cancel_and_wait
from bots.xmpp import adhoc, service_discovery, stanzas
from bots.xmpp.adhoc import Form
from bots.xmpp.events import AdhocCommandReceived
from bots.xmpp.interface import XmppSender
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store import Store
from service.store.client.keys import user_id
from service.store.delivery.inbound_log import BotNotice

ERRAND_STANDS_S: Final = 600.0
MOST_ERRANDS: Final = 2_000
MOST_ERRANDS_OF_ONE: Final = 5
MOST_AT_WORK: Final = 1_000
"""Steps under way; more are refused until some are done."""
MOST_AT_WORK_OF_ONE: Final = 5
_MOST_LINES: Final = 300
_ACTIONS: Final = ("execute", "next", "complete")
_log = structlog.get_logger()


class _Errand(msgspec.Struct):
    """One run of a command: the form that was shown last, and the question that it asks."""

    form: Form
    asked: QuestionReply | None


class AdhocSessions:
    """Takes what people's software orders; :meth:`hear` never waits."""

    def __init__(
        self,
        store: Store,
        link: XmppSender,
        services: BotServices,
        *,
        access: Access,
        assigned_users: AssignedUsers,
        clock: Clock,
    ) -> None:
        """Answer through ``link`` what ``services`` has done, for those whom ``assigned_users`` has."""
        self._access = access
        self._assigned_users = assigned_users
        self._store = store
        self._link = link
        self._services = services
        self._errands: TTLCache[tuple[str, str, str], _Errand]
        """By JID, command and session."""
        self._errands = TTLCache(MOST_ERRANDS, ERRAND_STANDS_S, clock.monotonic_s)
        self._at_work: dict[asyncio.Task[None], str] = {}
        """For whom each task works, by JID."""

    def hear(self, ordered: AdhocCommandReceived) -> None:
        """Begin an errand, or go on with one."""
        if ordered.jid in self._link.rooms:  # nobody in a room acts for it behind its back
            self._refuse(ordered, "auth", "forbidden")
            return
        at_work_of_one = sum(jid == ordered.jid for jid in self._at_work.values())
        if len(self._at_work) >= MOST_AT_WORK or at_work_of_one >= MOST_AT_WORK_OF_ONE:
            self._refuse(ordered, "wait", "resource-constraint")
        else:
            self._begin_task(ordered.jid, self._serve(ordered))

    async def close(self) -> None:
        """Stop answering."""
        await cancel_and_wait(*tuple(self._at_work))

    def _begin_task(self, jid: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._at_work[task] = jid
        task.add_done_callback(self._at_work.pop)

    async def _serve(self, ordered: AdhocCommandReceived) -> None:
        """Answer one step; a bug in it is logged and stays that person's."""
        speaker = get_translator(ordered.language)
        try:
            if not ordered.receiver and await self._is_passed_on(ordered):
                return
            chosen = (await self._store.users.get(ordered.jid)).user_settings.language
            speaker = get_translator(chosen or ordered.language)
            await self._step(ordered, speaker)
        except StoreUnavailable as error:
            self._complete(ordered, ordered.session, RequestFailed(error, "").text(speaker.language), wrong=True)
        except Exception:  # noqa: BLE001 - whatever it is, it concerns this person's errand only
            _log.exception("an ad-hoc command failed", jid=ordered.jid, node=ordered.node)
            self._complete(ordered, ordered.session, internal_error_text(speaker), wrong=True)

    async def _is_passed_on(self, ordered: AdhocCommandReceived) -> bool:
        """Whether another bot serves this person, and has the step now; without Redis we do."""
        uid = user_id(ordered.jid)
        try:
            await self._store.inbound_log.record_arrival(ordered.jid, self._link.address)
            if await self._assigned_users.select([uid]):
                return False
            await self._store.inbound_log.notify(
                [BotNotice(uid, msgspec.msgpack.encode(ordered), self._link.session_jid)]
            )
        except StoreUnavailable:
            _log.info("an order is answered by whoever got it", user=uid)
            return False
        return True

    async def _step(self, ordered: AdhocCommandReceived, speaker: Translator) -> None:
        if ordered.node not in commands.VERBS:
            self._refuse(ordered, "cancel", "item-not-found")
        elif not ordered.session and ordered.action != "cancel":
            await self._begin(ordered, speaker)
        elif (errand := self._errands.pop(_key(ordered, ordered.session), None)) is None:
            self._refuse(ordered, "cancel", "not-allowed", "session-expired")
        elif ordered.action == "cancel":
            self._answer(ordered, adhoc.canceled_response(ordered.node, ordered.session))
        elif ordered.action not in _ACTIONS:
            self._errands[_key(ordered, ordered.session)] = errand
            self._refuse(ordered, "modify", "bad-request", "bad-action")
        else:
            await self._go_on(ordered, errand, speaker)

    async def _begin(self, ordered: AdhocCommandReceived, speaker: Translator) -> None:
        refused = await self._refused_form(ordered.jid)
        if refused is not None:
            self._complete(ordered, secrets.token_hex(8), refused.text(speaker.language), wrong=True)
            return
        form = await forms.opening(ordered.node, speaker, RequestHandler(self._services, ordered.jid))
        errand = _Errand(form, None)
        if form.fields:
            self._keep(ordered, secrets.token_hex(8), errand)
        else:
            await self._go_on(ordered, errand, speaker)

    async def _refused_form(self, jid: str) -> Reply | None:
        """Return why somebody is shown no form; None if they are."""
        known = await self._access.count_command(jid, FORM_LIMITS)
        if isinstance(known, CommandRefused):
            return known.reply
        return None if await self._access.has_access(jid) else AccessDenied()

    async def _go_on(self, ordered: AdhocCommandReceived, errand: _Errand, speaker: Translator) -> None:
        """Carry out what was filled in, and answer with how it went, the question that it raised, or what is wrong."""
        session = ordered.session or secrets.token_hex(8)
        if errand.asked is None:
            said = forms.lines(ordered.node, ordered.values)[:_MOST_LINES]
        else:
            said = [forms.answer(errand.asked, ordered.values)]
        replies = await self._replies(ordered.jid, said, errand.asked)
        words = "\n".join(
            said for reply in replies for said in (reply.text(speaker.language), *reply.further_texts(speaker.language))
        )
        last = replies[-1]
        wrong = any(isinstance(reply, FailureReply) for reply in replies)
        done = len(replies) - 1 if isinstance(last, TooManyCommands) else 0  # what is left can be tried again
        if isinstance(last, QuestionReply):
            form = forms.question(last, words, speaker)
            self._keep(ordered, session, _Errand(form, last))
        elif wrong and errand.asked is None and errand.form.fields:
            form = forms.again(errand.form, forms.left(ordered.node, ordered.values, done), words)
            self._keep(ordered, session, _Errand(form, None), words)
        else:
            self._complete(ordered, session, words, wrong=wrong)

    async def _replies(self, jid: str, said: list[str], asked: QuestionReply | None) -> list[Reply]:
        """Return the reply to each line, as far as the person may give so many commands now."""
        replies: list[Reply] = []
        for line in said:
            known = await self._access.count_command(jid, COMMAND_LIMITS)
            if isinstance(known, CommandRefused):
                return [*replies, known.reply]
            replies.append(await answer(RequestHandler(self._services, jid, known.most_subscriptions), line, asked))
        return replies

    def _keep(self, ordered: AdhocCommandReceived, session: str, errand: _Errand, note: str = "") -> None:
        own = [key for key in self._errands if key[0] == ordered.jid]
        for old in own[: 1 - MOST_ERRANDS_OF_ONE]:
            self._errands.pop(old, None)
        self._errands[_key(ordered, session)] = errand
        self._answer(ordered, adhoc.form_response(ordered.node, session, errand.form, note))

    def _complete(self, ordered: AdhocCommandReceived, session: str, words: str, *, wrong: bool = False) -> None:
        self._answer(ordered, adhoc.completed_response(ordered.node, session, words, wrong=wrong))

    def _answer(self, ordered: AdhocCommandReceived, payload: str) -> None:
        self._write(ordered, stanzas.iq_result(self._address(ordered), ordered.sender, ordered.id, payload))

    def _refuse(self, ordered: AdhocCommandReceived, kind: str, condition: str, detail: str = "") -> None:
        told = f"<{detail} xmlns='{service_discovery.NS_COMMANDS}'/>" if detail else ""
        error = (kind, condition)
        self._write(ordered, stanzas.iq_error(self._address(ordered), ordered.sender, ordered.id, error, told))

    def _address(self, ordered: AdhocCommandReceived) -> str:
        return stanzas.bare_jid(ordered.receiver) if ordered.receiver else self._link.address

    def _write(self, ordered: AdhocCommandReceived, stanza: str) -> None:
        if ordered.receiver in ("", self._link.session_jid):
            self._link.send_unconfirmed(stanza)
        else:
            self._begin_task("", self._pass_back(ordered.receiver, stanza))

    async def _pass_back(self, voice: str, stanza: str) -> None:
        with contextlib.suppress(StoreUnavailable):  # their software asks again
            await self._store.inbound_log.queue_stanzas(voice, [stanza])


def _key(ordered: AdhocCommandReceived, session: str) -> tuple[str, str, str]:
    return ordered.jid, ordered.node, session
