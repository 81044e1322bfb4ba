"""Sessions of ad-hoc commands (XEP-0050): forms that are executed by the same dialogues as text commands.

A session is one execution of one command; its steps may be minutes apart. The number of sessions is limited, per user
and in total. The oldest sessions are dropped first; if a client continues a dropped session, it gets the error
``session-expired``. Each step is executed by the process to which the user is assigned. Steps are not stored, because
the client waits for the response. There is a separate rate limit on opening forms. Each command that a form executes
counts towards the rate limit on text commands.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine
from typing import Final

import msgspec
import structlog
from cachetools import TTLCache

from bots.command_rate_limits import COMMAND_LIMITS, FORM_LIMITS, CommandPermission, CommandRefused
from bots.commands.verb_synonyms import VERBS
from bots.dialogue.bot_services import BotServices
from bots.dialogue.dispatcher import answer
from bots.dialogue.reply import CommandOutcome, Reply, failure
from bots.dialogue.request_handler import RequestHandler
from bots.i18n.translator import Translator, get_translator
from bots.replies.error_texts import error_text
from bots.replies.greetings_and_refusals import INTERNAL_ERROR, access_denied_text
from bots.sessions import adhoc_forms
from bots.sessions.message_encryption import encode_command
from bots.xmpp import adhoc_stanzas, service_discovery, stanzas
from bots.xmpp.adhoc_stanzas import Form
from bots.xmpp.events import AdhocCommandReceived
from service.asyncio_tasks import cancel_and_wait
from service.errors import StoreUnavailable
from service.store.client.keys import user_id
from service.store.coordination.bot_messages import BotNotice

SESSION_LIFETIME_S: Final = 600.0
MAX_SESSIONS: Final = 2_000
MAX_SESSIONS_PER_USER: Final = 5
MAX_TASKS: Final = 1_000
"""Maximum number of steps that are executed at the same time. Further steps are answered with an error."""
MAX_TASKS_PER_USER: Final = 5
_MAX_COMMANDS_PER_FORM: Final = 300
_ACTIONS: Final = ("execute", "next", "complete")
_log = structlog.get_logger()


class _Session(msgspec.Struct):
    """The state of a session: the form that was last sent to the user, and the question that the form asks.

    ``pending_question`` is the reply that asked the question. It is None if the form asks for the arguments of the
    command instead.
    """

    form: Form
    pending_question: Reply | None


class AdhocSessions:
    """The ad-hoc command sessions of one bot process.

    In a session, a user fills in forms to execute a command (XEP-0050).
    """

    def __init__(self, services: BotServices) -> None:
        """Create the sessions; their commands are executed with ``services``."""
        self._services = services
        self._store = services.store
        self._xmpp = services.xmpp
        self._rate_limiter = services.rate_limiter
        self._sessions: TTLCache[tuple[str, str, str], _Session]
        """The sessions; their keys are (bare JID, command, session id)."""
        self._sessions = TTLCache(MAX_SESSIONS, SESSION_LIFETIME_S, services.clock.monotonic_s)
        self._tasks: dict[asyncio.Task[None], str] = {}
        """Maps each task to the bare JID of its user."""

    def on_command(self, command: AdhocCommandReceived) -> None:
        """Start a task that begins a session, or executes the next step of a session."""
        if command.jid in self._xmpp.rooms:  # no occupant may act for the room in private
            self._refuse(command, "auth", "forbidden")
            return
        user_task_count = sum(jid == command.jid for jid in self._tasks.values())
        if len(self._tasks) >= MAX_TASKS or user_task_count >= MAX_TASKS_PER_USER:
            self._refuse(command, "wait", "resource-constraint")
        else:
            self._begin_task(command.jid, self._serve(command))

    async def close(self) -> None:
        """Cancel all steps in progress."""
        await cancel_and_wait(*tuple(self._tasks))

    def _begin_task(self, jid: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = jid
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, command: AdhocCommandReceived) -> None:
        """Execute one step; log an unexpected exception instead of raising it."""
        translator = get_translator(command.language)
        try:
            if not command.receiver and await self._forward_to_assigned(command):
                return
            language = (await self._store.users.get(command.jid)).user_settings.language
            translator = get_translator(language or command.language)
            await self._step(command, translator)
        except StoreUnavailable as error:
            self._complete(command, command.session, error_text(error, "", translator), is_failed=True)
        except Exception:  # noqa: BLE001 - a bug affects only this step
            _log.exception("ad-hoc command failed", jid=command.jid, node=command.node)
            self._complete(command, command.session, translator.gettext(INTERNAL_ERROR), is_failed=True)

    async def _forward_to_assigned(self, command: AdhocCommandReceived) -> bool:
        """Forward a step to the process to which the user is assigned, and return True.

        Do nothing and return False if this process must execute the step itself, because the user is assigned to it or
        the store is unavailable.
        """
        uid = user_id(command.jid)
        try:
            await self._store.home_addresses.record_arrival(command.jid, self._xmpp.address)
            if await self._services.assigned_users.select([uid]):
                return False
            await self._store.bot_messages.notify(
                [BotNotice(uid, encode_command(command, self._services.vault), self._xmpp.session_jid)]
            )
        except StoreUnavailable:
            _log.info("ad-hoc command forwarding failed", user=uid, reason="store unavailable")
            return False
        return True

    async def _step(self, command: AdhocCommandReceived, translator: Translator) -> None:
        if command.node not in VERBS:
            self._refuse(command, "cancel", "item-not-found")
        elif not command.session and command.action != "cancel":
            await self._begin(command, translator)
        elif (state := self._sessions.pop(_key(command, command.session), None)) is None:
            self._refuse(command, "cancel", "not-allowed", "session-expired")
        elif command.action == "cancel":
            self._respond(command, adhoc_stanzas.response(command.node, command.session, "canceled"))
        elif command.action not in _ACTIONS:
            self._sessions[_key(command, command.session)] = state
            self._refuse(command, "modify", "bad-request", "bad-action")
        else:
            await self._continue(command, state, translator)

    async def _begin(self, command: AdhocCommandReceived, translator: Translator) -> None:
        permission = await self._rate_limiter.count_command(command.jid, FORM_LIMITS)
        refusal = permission.text(translator) if isinstance(permission, CommandRefused) else ""
        if isinstance(permission, CommandPermission) and not permission.is_admitted:
            settings = self._services.settings
            refusal = access_denied_text(settings.who_may_use, settings.contact_addresses, translator)
        if refusal:
            self._complete(command, secrets.token_hex(8), refusal, is_failed=True)
            return
        form = await adhoc_forms.command_form(command.node, translator, RequestHandler(self._services, command.jid))
        state = _Session(form, None)
        if form.fields:
            self._store_session(command, secrets.token_hex(8), state)
        else:
            await self._continue(command, state, translator)

    async def _continue(self, command: AdhocCommandReceived, state: _Session, translator: Translator) -> None:
        """Execute the submitted form; send the result, or a question, or the form again with an error message.

        If the user exceeds the rate limit, the remaining commands of the form are not executed. If the form asks for
        the arguments of a command, it is sent again, so that the user can submit the remaining commands later.
        """
        session = command.session or secrets.token_hex(8)
        if state.pending_question is None:
            lines = adhoc_forms.form_to_commands(command.node, command.values)[:_MAX_COMMANDS_PER_FORM]
        else:
            lines = [adhoc_forms.form_to_answer(state.pending_question, command.values)]
        replies: list[Reply] = []
        for line in lines:
            permission = await self._rate_limiter.count_command(command.jid, COMMAND_LIMITS)
            if isinstance(permission, CommandRefused):
                replies.append(failure(permission.text(translator)))
                break
            most = permission.user.most_subscriptions
            requests = RequestHandler(self._services, command.jid, translator.language, most)
            replies.append(await answer(requests, line, state.pending_question, is_admitted=permission.is_admitted))
        is_failed = any(reply.outcome is not CommandOutcome.DONE for reply in replies)
        text = "\n".join(part for reply in replies for part in (reply.text, *reply.further_texts))
        last = replies[-1]
        if last.options:
            self._store_session(command, session, _Session(adhoc_forms.question_form(last, text, translator), last))
        elif is_failed and state.pending_question is None and state.form.fields:
            done = {index for index, reply in enumerate(replies) if reply.outcome is CommandOutcome.DONE}
            values = adhoc_forms.remaining_values(command.node, command.values, done)
            self._store_session(
                command, session, _Session(adhoc_forms.repeated_form(state.form, values, text), None), text
            )
        else:
            self._complete(command, session, text, is_failed=is_failed)

    def _store_session(self, command: AdhocCommandReceived, session: str, state: _Session, note: str = "") -> None:
        session_keys = [key for key in self._sessions if key[0] == command.jid]
        for old in session_keys[: 1 - MAX_SESSIONS_PER_USER]:
            self._sessions.pop(old, None)
        self._sessions[_key(command, session)] = state
        self._respond(
            command,
            adhoc_stanzas.response(command.node, session, "executing", form=state.form, note=note, is_failed=True),
        )

    def _complete(self, command: AdhocCommandReceived, session: str, text: str, *, is_failed: bool = False) -> None:
        self._respond(
            command, adhoc_stanzas.response(command.node, session, "completed", note=text, is_failed=is_failed)
        )

    def _refuse(self, command: AdhocCommandReceived, kind: str, condition: str, detail: str = "") -> None:
        details = f"<{detail} xmlns='{service_discovery.NS_COMMANDS}'/>" if detail else ""
        self._respond(command, stanzas.error(kind, condition, details), "error")

    def _respond(self, command: AdhocCommandReceived, payload: str, kind: str = "result") -> None:
        """Respond to a request through the XMPP session in which the request was received."""
        address = stanzas.bare_jid(command.receiver) or self._xmpp.address
        stanza = stanzas.iq(address, command.sender, command.id, kind, payload)
        if command.receiver in ("", self._xmpp.session_jid):
            self._xmpp.send_unconfirmed(stanza)
        else:
            self._begin_task("", self._send_by_receiver(command.receiver, stanza))

    async def _send_by_receiver(self, session_jid: str, stanza: str) -> None:
        with contextlib.suppress(StoreUnavailable):  # the client repeats the request
            await self._store.bot_messages.queue_stanzas(session_jid, [stanza])


def _key(command: AdhocCommandReceived, session: str) -> tuple[str, str, str]:
    return command.jid, command.node, session
