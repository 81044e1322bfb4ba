"""Dry runs of a person's commands: what the bot would answer and change, without executing or sending anything."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import STORE
from service.console.auth.permissions import write_access
from service.console.forms import read_form, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.resources.people.people import get_person
from service.errors import UserError
from service.feeds.credentials import mask_credentials

operation = OPERATIONS = Operations()

_MAX_COMMANDS: Final = 10
_MAX_COMMAND_CHARS: Final = 2_000
_Command = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_COMMAND_CHARS)]


class Commands(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The commands of a dry run, in order.

    A command can be the answer to a question that the bot asks after the previous command.
    """

    commands: Annotated[tuple[_Command, ...], msgspec.Meta(min_length=1, max_length=_MAX_COMMANDS)]


class DryRunLine(msgspec.Struct, frozen=True):
    """One command of a dry run, and the bot's replies to it.

    ``would`` contains sentences that say what the command would change.
    """

    command: str
    replies: tuple[str, ...]
    would: tuple[str, ...]


class CommandDryRun(msgspec.Struct, frozen=True):
    """The result of a dry run: each command with the bot's replies.

    A dry run changes nothing, so no command sees the effects of earlier ones.
    """

    lines: tuple[DryRunLine, ...]


@operation("POST", "/people/{user}/rehearsal", write_access("people"), 404)
async def rehearse(request: web.Request, body: Commands) -> CommandDryRun:
    """Dry-run commands as a person: get the bot's replies and the changes that the commands would make.

    Logins in commands are not tried; they are left out.
    """
    request[AUDIT_DETAIL] = f"{len(body.commands)} commands"
    commands = tuple(map(mask_credentials, body.commands))
    previews = await request.app[STORE].bot_requests.dry_run((await get_person(request)).jid, commands)
    return CommandDryRun(tuple(DryRunLine(each.command, each.replies, each.effects) for each in previews))


async def _dry_run_page(
    request: web.Request, status: int = 200, *, error: str = "", lines: Sequence[DryRunLine] = ()
) -> web.Response:
    commands = [line.command for line in lines] or [mask_credentials(each) for each in await _earlier_commands(request)]
    person = await get_person(request)
    return render(request, "person_dry_run.html", status, person=person, lines=lines, commands=commands, error=error)


@redisplay_on_error(_dry_run_page)
async def dry_run(request: web.Request) -> web.Response:
    """Dry-run a command as a person and show the bot's reply."""
    before = await _earlier_commands(request)
    text = (await read_form(request)).get("command", "")[:_MAX_COMMAND_CHARS]
    if not text:
        raise UserError("Enter a command as for the bot, for example “list”, “why #1” or a URL.")
    if len(before) >= _MAX_COMMANDS:
        raise UserError(f"A dry run has at most {_MAX_COMMANDS} commands. Start a new one.")
    return await _dry_run_page(request, lines=(await rehearse(request, Commands((*before, text)))).lines)


async def _earlier_commands(request: web.Request) -> list[str]:
    return [str(text)[:_MAX_COMMAND_CHARS] for text in (await request.post()).getall("before", [])]
