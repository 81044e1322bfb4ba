"""People: found, bounded, suspended and forgotten, and rehearsals of their commands; as pages and in the API.

People are listed in the order of their ids and found by a part of their address. A rehearsal says what the bot would
answer to a person's commands, without doing or sending anything.
"""

import asyncio
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from service.console.audit_middleware import DETAIL
from service.console.auth.roles import act, look, rule
from service.console.channel_cache import FOREIGN_CURSOR
from service.console.error_responses import in_plain_words, shown_on, status_of
from service.console.openapi import CURSOR, LIMIT, Operations, Parameter
from service.console.pages.delivery import Deliveries, deliveries
from service.console.rendering import SETTINGS, STORE, form_of, limit, render
from service.errors import CoronetError, NotFound, StoreUnavailable, UserError
from service.model import UserId
from service.store import Store
from service.store.client.keys import user_id
from service.store.delivery.dry_runs import CommandPreview
from service.store.people.people import Person

DAY_S: Final = 86_400

_PAGE: Final = 50
_LOOKED_AT_ONCE: Final = 500
_LOOKED_AT_MOST: Final = 20_000
_ID_CHARS: Final = 16
_MOST: Final = 100_000
_MOST_SUBSCRIPTIONS: Final = 1_000_000
_MOST_COMMANDS: Final = 10
_LONGEST_COMMAND: Final = 2_000

_Command = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_COMMAND)]

operation = OPERATIONS = Operations()


class PeoplePage(msgspec.Struct, frozen=True):
    """Some people by id; ``next`` is the cursor of who follows, "" at the end."""

    items: tuple[Person, ...]
    next: str


class SetPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a person is suspended, and how many subscriptions they may have (null: what the settings say)."""

    suspended: bool
    most_subscriptions: Annotated[int, msgspec.Meta(ge=0, le=_MOST)] | None = None


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how many people an invitation is good, and for how many days."""

    uses: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 1
    days: Annotated[float, msgspec.Meta(ge=0.01, le=3650)] = 14.0


class Invited(msgspec.Struct, frozen=True):
    """A code, which is shown this once: ``invite CODE`` is what to send to the bot."""

    code: str


class Commands(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person would write, one command after the other: so that a question can be answered."""

    commands: Annotated[tuple[_Command, ...], msgspec.Meta(min_length=1, max_length=_MOST_COMMANDS)]


class Rehearsal(msgspec.Struct, frozen=True):
    """What would come of it, command by command; each is answered by what there is now."""

    lines: tuple[CommandPreview, ...]


@operation("POST", "/people/{user}/rehearsal", act("people"), 404)
async def rehearse(request: web.Request, wanted: Commands) -> Rehearsal:
    """Tell what a person would be answered to commands, and what these would do; nothing is done."""
    request[DETAIL] = f"{len(wanted.commands)} commands"
    person = await get_person(request)
    return Rehearsal(await request.app[STORE].dry_runs.dry_run(person.jid, wanted.commands))


@operation(
    "GET",
    "/people",
    look("people"),
    422,
    query=(Parameter("q", "query", "Only people whose address holds this text."), CURSOR, LIMIT),
)
async def get_people(request: web.Request) -> PeoplePage:
    """People by id, a page at a time."""
    return await _find(request.app[STORE], request.query.get("q", ""), _cursor(request), limit(request, _PAGE))


@operation("GET", "/people/{user}", look("people"), 404)
async def get_person(request: web.Request) -> Person:
    """One person: what they have, and what they have not been told."""
    uid = request.match_info["user"]
    found = await request.app[STORE].people.get(uid) if len(uid) == _ID_CHARS else None
    if found is None:
        raise _nobody()
    return found


@operation("GET", "/people/{user}/deliveries", look("people"), 404)
async def get_deliveries(request: web.Request) -> Deliveries:
    """What became of a person's last messages: when they were queued, sent and received, or why they were not."""
    return await deliveries(request.app[STORE], (await get_person(request)).id)


@operation("PUT", "/people/{user}", act("people"), 404)
async def put_person(request: web.Request, wanted: SetPerson) -> Person:
    """Suspend a person or not, and bound their subscriptions or not."""
    request[DETAIL] = msgspec.json.encode(wanted).decode()
    return await _change(request, suspended=wanted.suspended, most_subscriptions=wanted.most_subscriptions)


@operation("DELETE", "/people/{user}", rule("people"), 404)
async def delete_person(request: web.Request) -> None:
    """Forget a person: end all that they have, and delete what is known of them."""
    uid = request.match_info["user"]
    if len(uid) != _ID_CHARS or not await request.app[STORE].people.erase(uid):
        raise _nobody()


@operation("POST", "/invitations", act("people"))
async def invite(request: web.Request, wanted: Invitation) -> Invited:
    """Make an invitation, for a bot with the setting who_may_use=invited: whoever gets the code sends it to the bot."""
    return Invited(await request.app[STORE].invitations.create(wanted.uses, wanted.days * DAY_S))


async def page(request: web.Request) -> web.Response:
    """List people."""
    query = request.query.get("q", "")[:200]
    return render(
        request,
        "people.html",
        query=query,
        found=await _find(request.app[STORE], query, _cursor(request), _PAGE),
        first=not _cursor(request),
        total=await request.app[STORE].users.count(),
        forgotten="forgotten" in request.query,
    )


async def one(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one person."""
    store, person = request.app[STORE], await get_person(request)
    subscriptions, log, (user_settings,) = await asyncio.gather(
        store.subscriptions.of_user(person.jid), deliveries(store, person.id), store.users.user_settings([person.id])
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
        usual_most=request.app[SETTINGS].max_subscriptions_per_user,
        error=error,
    )


@shown_on(one)
async def change(request: web.Request) -> web.Response:
    """Suspend a person or not, and bound their subscriptions or not."""
    before, form = await get_person(request), await form_of(request)
    suspended = {"suspend": True, "resume": False}.get(form.get("action", ""), before.suspended)
    text = form.get("most_subscriptions")
    most = before.most_subscriptions if text is None else _most(text[:10])
    request[DETAIL] = f"suspended: {suspended}, most subscriptions: {most}"
    await _change(request, suspended=suspended, most_subscriptions=most)
    raise web.HTTPSeeOther(f"/people/{quote(before.id)}")


async def forget_form(request: web.Request) -> web.Response:
    """Say what forgetting somebody would do, and ask."""
    return render(request, "person_forget.html", person=await get_person(request))


async def forget(request: web.Request) -> web.Response:
    """End all that a person has and delete what is known of them."""
    await delete_person(request)
    raise web.HTTPSeeOther("/people?forgotten=1")


async def rehearsal_page(request: web.Request) -> web.Response:
    """Show what a person would be answered to a command; nothing is done."""
    form, person = await request.post(), await get_person(request)
    before = [str(text)[:_LONGEST_COMMAND] for text in form.getall("before", [])]
    text = str(form.get("command", "")).strip()[:_LONGEST_COMMAND]
    request[DETAIL] = f"{len(before) + 1} commands"
    lines: tuple[CommandPreview, ...] = ()
    status, error = 200, ""
    try:
        if not text:
            raise UserError("Write a command, as one would to the bot: “list”, “why #1”, or an address.")
        if len(before) >= _MOST_COMMANDS:
            raise UserError(f"After {_MOST_COMMANDS} commands, start anew.")
        lines = await request.app[STORE].dry_runs.dry_run(person.jid, (*before, text))
    except StoreUnavailable:
        raise
    except CoronetError as failed:
        status, error = status_of(failed), in_plain_words(failed)
    said = [line.command for line in lines] or before
    return render(request, "person_rehearsal.html", status, person=person, lines=lines, said=said, error=error)


async def _find(store: Store, part: str, cursor: str, count: int) -> PeoplePage:
    """Return the next people whose address holds ``part`` (any case; "" finds all), one's whole address first.

    Reads at most ``_LOOKED_AT_MOST``, so that a page can be short and still have a next one.
    """
    wanted = part.casefold().strip()
    exact = user_id(wanted)
    found = [exact] if wanted and not cursor and await store.people.get(exact) is not None else []
    ids = [uid for uid in await store.people.ids() if uid > cursor]
    last = ""
    for start in range(0, min(len(ids), _LOOKED_AT_MOST), _LOOKED_AT_ONCE):
        some = ids[start : start + _LOOKED_AT_ONCE]
        jids = await store.people.jids(some) if wanted else [""] * len(some)
        for uid, jid in zip(some, jids, strict=True):
            if len(found) == count:
                return PeoplePage(await _known(store, found), last)
            last = uid
            if wanted in jid.casefold() and uid != exact:
                found.append(uid)
    return PeoplePage(await _known(store, found), last if len(ids) > _LOOKED_AT_MOST else "")


async def _known(store: Store, uids: list[UserId]) -> tuple[Person, ...]:
    return tuple(each for each in await store.people.get_many(uids) if each is not None)


async def _change(request: web.Request, *, suspended: bool, most_subscriptions: int | None) -> Person:
    """Suspend a person or not, and bound their subscriptions or not. Raises :class:`NotFound`."""
    before, people = await get_person(request), request.app[STORE].people
    if before.most_subscriptions != most_subscriptions:
        await people.set_max_subscriptions(before.id, most_subscriptions)
    if before.suspended != suspended:
        await people.set_suspended(before.id, suspended=suspended)
    return await get_person(request)


def _most(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) > _MOST_SUBSCRIPTIONS:
        raise UserError("Subscriptions at most are a whole number, or nothing for what the settings say.")
    return int(text)


def _cursor(request: web.Request) -> str:
    """Return the id after which a page begins, "" for the first. Raises :class:`UserError`."""
    cursor = request.query.get("cursor", "")
    if cursor and len(cursor) != _ID_CHARS:
        raise UserError(FOREIGN_CURSOR)
    return cursor


def _nobody() -> NotFound:
    return NotFound("There is no such person. They may have been forgotten.")
