"""What the bot would say: to a person who writes commands, and of a channel's newest entry. Nothing is done or sent."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console import people
from service.console.access import act, look
from service.console.audited import DETAIL
from service.console.catalogue import existing
from service.console.failures import in_plain_words, status_of
from service.console.openapi import BODY, Operation, Parameter
from service.console.site import STORE, render
from service.console.wire import answer, body
from service.errors import CoronetError, StoreUnavailable, UserError
from service.model import UserId
from service.store.rehearsals import Line

_MOST_COMMANDS: Final = 10
_LONGEST_COMMAND: Final = 2_000

_Command = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_COMMAND)]


class Commands(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person would write, one command after the other: so that a question can be answered."""

    commands: Annotated[tuple[_Command, ...], msgspec.Meta(min_length=1, max_length=_MOST_COMMANDS)]


class Rehearsal(msgspec.Struct, frozen=True):
    """What would come of it, command by command; each is answered by what there is now."""

    lines: tuple[Line, ...]


class Message(msgspec.Struct, frozen=True):
    """What the bot would tell subscribers, in English; "" if there is nothing to tell."""

    text: str


async def rehearse(request: web.Request) -> web.Response:
    """Tell what a person would be answered to commands, and what these would do; nothing is done."""
    uid, wanted = request.match_info["user"], await body(request, Commands)
    request[DETAIL] = f"{len(wanted.commands)} commands"
    return answer(Rehearsal(await _lines(request, uid, wanted.commands)))


async def get_channel_message(request: web.Request) -> web.Response:
    """Tell what subscribers would be told if a channel's newest entry were news."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    latest = await request.app[STORE].channels.latest(channel.id, 1)
    return answer(Message(await request.app[STORE].rehearsals.draft(channel, latest)))


async def page(request: web.Request) -> web.Response:
    """Show what a person would be answered to a command; nothing is done."""
    uid, form = request.match_info["user"], await request.post()
    said = [str(text)[:_LONGEST_COMMAND] for text in form.getall("before", [])]
    text = str(form.get("command", "")).strip()[:_LONGEST_COMMAND]
    request[DETAIL] = f"{len(said) + 1} commands"
    person = await people.person(request.app[STORE], uid)
    lines: tuple[Line, ...] = ()
    status, error = 200, ""
    try:
        if not text:
            raise UserError("Write a command, as one would to the bot: “list”, “why #1”, or an address.")
        if len(said) >= _MOST_COMMANDS:
            raise UserError(f"After {_MOST_COMMANDS} commands, start anew.")
        lines = await _lines(request, uid, (*said, text))
    except StoreUnavailable:
        raise
    except CoronetError as failed:
        status, error = status_of(failed), in_plain_words(failed)
    return render(
        request,
        "person_rehearsal.html",
        status,
        person=person,
        lines=lines,
        said=[line.command for line in lines] or said,
        error=error,
    )


async def _lines(request: web.Request, uid: UserId, commands: tuple[str, ...]) -> tuple[Line, ...]:
    person = await people.person(request.app[STORE], uid)
    return await request.app[STORE].rehearsals.rehearse(person.jid, commands)


_USER: Final = Parameter("user", "path", "A person's id: 16 characters.")
_CID: Final = Parameter("cid", "path", "A channel's id: 40 hexadecimal digits.")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "POST",
        "/people/{user}/rehearsal",
        act("people"),
        rehearse,
        {200: Rehearsal},
        body=Commands,
        parameters=(_USER,),
        problems=(404, *BODY),
    ),
    Operation(
        "GET",
        "/channels/{cid}/message",
        look("channels"),
        get_channel_message,
        {200: Message},
        parameters=(_CID,),
        problems=(404,),
    ),
)
