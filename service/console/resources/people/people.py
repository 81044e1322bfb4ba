"""The pages of people and their API operations: search, limits, suspension, deletion, and dry runs of commands.

People are listed in the order of their ids and found by a part of their address. A dry run shows how the bot would
answer a person's commands, without executing or sending anything.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from service.console.audit_entries import AUDIT_DETAIL
from service.console.auth.roles import admin_access, read_access, write_access
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.openapi import CURSOR, LIMIT, Operations, Parameter
from service.console.pagination import INVALID_CURSOR, read_limit
from service.console.rendering import STORE, render
from service.console.resources.delivery.delivery_status import Deliveries, read_deliveries
from service.errors import NotFound, UserError
from service.model import UserId
from service.store import Store
from service.store.client.keys import user_id
from service.store.people.user_administration import Person

DAY_S: Final = 86_400

_BATCH_SIZE: Final = 500
_MAX_SCANNED: Final = 20_000
_ID_CHARS: Final = 16
_MAX_VALUE: Final = 100_000
_MAX_COMMANDS: Final = 10
_MAX_COMMAND_CHARS: Final = 2_000
_NO_SUCH_PERSON: Final = "There is no such person. They may have been deleted."

_Command = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_COMMAND_CHARS)]

operation = OPERATIONS = Operations()


class PeoplePage(msgspec.Struct, frozen=True):
    """One page of the list of people, ordered by id.

    ``next`` is the cursor of the next page; "" means that this is the last page.
    """

    items: tuple[Person, ...]
    next: str


class SetPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a person is suspended, and their maximum number of subscriptions (null for the default)."""

    suspended: bool
    most_subscriptions: Annotated[int, msgspec.Meta(ge=0, le=_MAX_VALUE)] | None = None


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An invitation: how many people can use it, and for how many days it is valid."""

    uses: Annotated[int, msgspec.Meta(ge=1, le=_MAX_VALUE)] = 1
    days: Annotated[float, msgspec.Meta(ge=0.01, le=3650)] = 14.0


class InvitationCode(msgspec.Struct, frozen=True):
    """The code of a new invitation, which is shown only once. People send ``invite CODE`` to the bot."""

    code: str


class Commands(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The commands of a dry run, in order.

    A command can be the answer to a question that the bot asks after the previous command.
    """

    commands: Annotated[tuple[_Command, ...], msgspec.Meta(min_length=1, max_length=_MAX_COMMANDS)]


class DryRunLine(msgspec.Struct, frozen=True):
    """A command of a dry run with the bot's replies.

    ``would`` are sentences that say what the command would change.
    """

    command: str
    replies: tuple[str, ...]
    would: tuple[str, ...]


class CommandDryRun(msgspec.Struct, frozen=True):
    """The replies to the commands of a dry run.

    Every command is answered from the current data; the effects of earlier commands are not visible to it.
    """

    lines: tuple[DryRunLine, ...]


@operation("POST", "/people/{user}/rehearsal", write_access("people"), 404)
async def rehearse(request: web.Request, body: Commands) -> CommandDryRun:
    """Dry-run commands as a person: get the bot's replies and their effects without executing anything."""
    request[AUDIT_DETAIL] = f"{len(body.commands)} commands"
    previews = await request.app[STORE].bot_requests.dry_run((await get_person(request)).jid, body.commands)
    return CommandDryRun(tuple(DryRunLine(each.command, each.replies, each.effects) for each in previews))


@operation(
    "GET",
    "/people",
    read_access("people"),
    422,
    query=(Parameter("q", "query", "Only people whose address contains this text."), CURSOR, LIMIT),
)
async def get_people(request: web.Request) -> PeoplePage:
    """List people by id."""
    store, part, cursor = request.app[STORE], request.query.get("q", ""), request.query.get("cursor", "")
    if cursor and len(cursor) != _ID_CHARS:
        raise UserError(INVALID_CURSOR)
    uids, next_cursor = await _find(store, part, cursor, read_limit(request))
    people = await store.people.get_many(uids)
    return PeoplePage(tuple(each for each in people if each is not None), next_cursor)


@operation("GET", "/people/{user}", read_access("people"), 404)
async def get_person(request: web.Request) -> Person:
    """Get one person with their subscriptions, limits and queued notifications."""
    uid = request.match_info["user"]
    person = await request.app[STORE].people.get(uid) if len(uid) == _ID_CHARS else None
    if person is None:
        raise NotFound(_NO_SUCH_PERSON)
    return person


@operation("GET", "/people/{user}/deliveries", read_access("people"), 404)
async def get_deliveries(request: web.Request) -> Deliveries:
    """List a person's last messages: when they were queued, sent and received, or why they failed."""
    return await read_deliveries(request.app[STORE], (await get_person(request)).id)


@operation("PUT", "/people/{user}", write_access("people"), 404)
async def put_person(request: web.Request, body: SetPerson) -> Person:
    """Suspend or resume a person, and set their maximum number of subscriptions."""
    request[AUDIT_DETAIL] = f"suspended: {body.suspended}, maximum subscriptions: {body.most_subscriptions}"
    before, people = await get_person(request), request.app[STORE].people
    if before.most_subscriptions != body.most_subscriptions:
        await people.set_max_subscriptions(before.id, body.most_subscriptions)
    if before.suspended != body.suspended:
        await people.set_suspended(before.id, suspended=body.suspended)
    return await get_person(request)


@operation("DELETE", "/people/{user}", admin_access("people"), 404)
async def delete_person(request: web.Request) -> None:
    """Delete a person with all their subscriptions and data."""
    if not await request.app[STORE].people.erase((await get_person(request)).id):
        raise NotFound(_NO_SUCH_PERSON)


@operation("POST", "/invitations", write_access("people"))
async def invite(request: web.Request, body: Invitation) -> InvitationCode:
    """Create an invitation to a bot with the setting who_may_use=invited."""
    request[AUDIT_DETAIL] = f"{body.uses} people, {body.days:g} days"
    return InvitationCode(await request.app[STORE].invitations.create(body.uses, body.days * DAY_S))


async def page(request: web.Request) -> web.Response:
    """Show the list of people."""
    return render(
        request, "people.html", people=await get_people(request), total=await request.app[STORE].users.count()
    )


async def person_page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one person. ``error`` is the message of a failed change."""
    store, person = request.app[STORE], await get_person(request)
    subscriptions, log, (user_settings,) = await asyncio.gather(
        store.subscriptions.of_user(person.jid),
        read_deliveries(store, person.id),
        store.users.user_settings([person.id]),
    )
    cids = [subscription.channel for subscription in subscriptions]
    channels = dict(zip(cids, await store.channels.get_many(cids), strict=True))
    return render(
        request,
        "person.html",
        status,
        person=person,
        subscriptions=subscriptions,
        channels=channels,
        messages=log.items,
        user_settings=user_settings,
        error=error,
    )


@redisplay_on_error(person_page)
async def change(request: web.Request) -> web.Response:
    """Suspend or resume a person, or set their maximum number of subscriptions."""
    before, form = await get_person(request), await read_form(request)
    suspended = {"suspend": True, "resume": False}.get(form.get("action", ""), before.suspended)
    fields: dict[str, object] = {"suspended": suspended, "most_subscriptions": before.most_subscriptions}
    if "most_subscriptions" in form:
        fields["most_subscriptions"] = form["most_subscriptions"] or None
    problem = "Enter the maximum as a whole number, or leave it empty for the default."
    await put_person(request, convert_fields(fields, SetPerson, problem))
    raise web.HTTPSeeOther(f"/people/{quote(before.id)}")


async def forget_form(request: web.Request) -> web.Response:
    """Show the confirmation of a person's deletion."""
    return render(request, "person_delete.html", person=await get_person(request))


forget = redirect_after(delete_person, "/people?forgotten=1")


async def _dry_run_page(
    request: web.Request, status: int = 200, *, error: str = "", lines: Sequence[DryRunLine] = ()
) -> web.Response:
    commands = [line.command for line in lines] or await _earlier_commands(request)
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


async def _find(store: Store, part: str, cursor: str, count: int) -> tuple[list[UserId], str]:
    """Return the ids of people whose address contains ``part`` (ignoring case), and the cursor of the following page.

    A ``part`` of "" matches everybody. The page begins after the id ``cursor`` and has at most ``count`` people. A
    person whose address is exactly ``part`` comes first. At most ``_MAX_SCANNED`` people are read, so a page can be
    shorter although there is a next page.
    """
    text = part.casefold().strip()
    exact = user_id(text)
    found = [exact] if text and not cursor and await store.people.get(exact) is not None else []
    ids = [uid for uid in await store.people.ids() if uid > cursor]
    last = ""
    for start in range(0, min(len(ids), _MAX_SCANNED), _BATCH_SIZE):
        batch = ids[start : start + _BATCH_SIZE]
        jids = await store.people.jids(batch) if text else [""] * len(batch)
        for uid, jid in zip(batch, jids, strict=True):
            if len(found) == count:
                return found, last
            last = uid
            if text in jid.casefold() and uid != exact:
                found.append(uid)
    return found, last if len(ids) > _MAX_SCANNED else ""
