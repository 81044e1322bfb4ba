"""Answers what the console asks: what somebody would be told. Nothing is done, and nothing is sent."""

import asyncio

import structlog

from bots.delivery.notification_text import render_notification
from bots.dialogue.dispatcher import answer
from bots.dialogue.request_handler import BotServices, DryRun
from bots.i18n.translator import SOURCE_LANGUAGE, get_translator
from bots.replies.base import QuestionReply
from bots.sessions.chat_session import reply_text
from service.errors import CoronetError, StoreUnavailable, to_fault
from service.model import Change, Channel, Delta, Entry
from service.store.coordination.requests import ErrorReply
from service.store.delivery.dry_runs import (
    BotReply,
    CommandPreview,
    DryRunReply,
    DryRunRequest,
    MessagePreviewReply,
    MessagePreviewRequest,
)
from service.store.delivery.dry_runs import BotRequest as Asked

_RETRY_S = 1.0
_WITHIN_S = 11.0
_AT_ONCE = 2

_log = structlog.get_logger()


class DryRunService:
    """Waits for questions and answers as ``services`` would; :meth:`run` drives it."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._store = services.store

    async def run(self) -> None:
        """Answer until cancelled, a few questions at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            try:
                question = await self._store.dry_runs.next_request()
                if question is not None:
                    await self._store.dry_runs.reply(question, await self._answer(question))
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)

    async def _answer(self, question: Asked) -> BotReply:
        """Return the answer. A bug in one stays that question's."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                match question.body:
                    case DryRunRequest(jid, said):
                        return DryRunReply(await self._rehearsed(jid, said))
                    case MessagePreviewRequest(channel, entry):
                        return MessagePreviewReply(self._drafted(channel, entry))
        except CoronetError as error:
            return ErrorReply(to_fault(error))
        except TimeoutError:
            return ErrorReply(to_fault(CoronetError(f"The bot was not done within {_WITHIN_S:g} s. Try again.")))
        except Exception:  # noqa: BLE001 - whatever it is, the next question has nothing to do with it
            _log.exception("a rehearsal failed")
            return ErrorReply(to_fault(CoronetError("The bot failed at that; its log says more.")))

    async def _rehearsed(self, jid: str, said: tuple[str, ...]) -> tuple[CommandPreview, ...]:
        """Return what a person would be answered to these commands, each by what there is now."""
        known, asked, lines = await self._store.users.get(jid), None, []
        for text in said:
            if known.suspended:
                lines.append(CommandPreview(text, (), ("Say nothing: they are suspended.",)))
                continue
            dry_run = DryRun(self._services, jid, known.most_subscriptions)
            reply = await answer(dry_run, text, asked)
            words = reply_text(known, reply)
            lines.append(
                CommandPreview(
                    text, (words, *reply.further_texts(known.user_settings.effective_language)), tuple(dry_run.effects)
                )
            )
            asked = reply if isinstance(reply, QuestionReply) else None
        return tuple(lines)

    def _drafted(self, channel: Channel, entry: Entry) -> str:
        """Return the message that would tell of a channel's entry."""
        change = Change("addition", entry, 1 if channel.kind == "page" else 0)
        delta = Delta(channel.id, channel.version, channel.version + 1, self._services.clock.wall_s(), (change,))
        return render_notification([channel], [delta], {}, {}, get_translator(SOURCE_LANGUAGE))
