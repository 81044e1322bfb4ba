"""Lets the console preview how the bot would reply to commands, and how it would render a notification.

The commands are not executed, and nothing is sent to users.
"""

import asyncio

import structlog

from bots.delivery.notification_text import render_notification
from bots.dialogue.bot_services import BotServices
from bots.dialogue.dispatcher import answer
from bots.dialogue.dry_run import DryRun
from bots.i18n.translator import SOURCE_LANGUAGE, get_translator
from bots.sessions.chat_session import greeted_text
from service.asyncio_tasks import retry_while_unavailable
from service.errors import CoronetError, to_fault
from service.model import Change, Delta
from service.store.coordination.bot_requests import (
    BotReply,
    BotRequest,
    CommandPreview,
    DryRunReply,
    DryRunRequest,
    MessagePreviewReply,
    MessagePreviewRequest,
)
from service.store.coordination.worker_requests import ErrorReply

_TIMEOUT_S = 11.0
_MAX_PARALLEL = 2

_log = structlog.get_logger()


class ConsolePreviewService:
    """Creates the previews that the console requests: of the bot's replies to commands, and of notifications.

    The requests arrive through queues in the store. The commands are not executed.
    """

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._store = services.store

    async def run(self) -> None:
        """Process requests from the console until cancelled, a few of them at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_MAX_PARALLEL):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            await retry_while_unavailable(self._serve_next)

    async def _serve_next(self) -> None:
        request = await self._store.bot_requests.next_request()
        if request is not None:
            await self._store.bot_requests.reply(request, await self._answer(request))

    async def _answer(self, request: BotRequest) -> BotReply:
        """Return the reply to a request from the console.

        In case of an error or time-out, the reply reports it. An unexpected exception is also logged.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                match request.body:
                    case DryRunRequest(jid, commands):
                        return DryRunReply(await self._preview_commands(jid, commands))
                    case MessagePreviewRequest(channel, entry):
                        change, version = Change("addition", entry, 1 if channel.kind == "page" else 0), channel.version
                        delta = Delta(channel.id, version, version + 1, self._services.clock.wall_s(), (change,))
                        translator = get_translator(SOURCE_LANGUAGE)
                        return MessagePreviewReply(render_notification([channel], [delta], {}, {}, translator))
        except CoronetError as error:
            return ErrorReply(to_fault(error))
        except TimeoutError:
            return ErrorReply(to_fault(CoronetError(f"The bot did not reply within {_TIMEOUT_S:g} s. Try again.")))
        except Exception:  # noqa: BLE001 - a bug affects only this request
            _log.exception("preview of bot commands in the console failed")
            return ErrorReply(to_fault(CoronetError("The bot failed; see its log.")))

    async def _preview_commands(self, jid: str, commands: tuple[str, ...]) -> tuple[CommandPreview, ...]:
        """Return how the bot would reply to commands from the user ``jid``, and what the commands would change.

        Each preview is based on the current state of the store, without the changes that the previous commands would
        make.
        """
        user, pending_question, previews = await self._store.users.get(jid), None, []
        for command in commands:
            if user.suspended:
                previews.append(CommandPreview(command, (), ("No reply, because the user is suspended.",)))
                continue
            language = user.user_settings.effective_language
            dry_run = DryRun(self._services, jid, language, user.most_subscriptions)
            is_admitted = await self._services.access.has_access(jid)
            reply = await answer(dry_run, command, pending_question, is_admitted=is_admitted)
            texts = (greeted_text(user, reply), *reply.further_texts)
            previews.append(CommandPreview(command, texts, tuple(dry_run.effects)))
            pending_question = reply if reply.options else None
        return tuple(previews)
