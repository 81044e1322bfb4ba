"""The People pages and their API operations: search, limits, suspension and deletion.

People are listed in order of id. A search finds the people whose address contains a given text.
"""

import asyncio
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from service.console.api.operations import CURSOR, LIMIT, Operations, Parameter
from service.console.app_keys import STORE
from service.console.auth.permissions import admin_access, read_access, write_access
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.pagination import INVALID_CURSOR, read_limit
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
MAX_VALUE: Final = 100_000
_NO_SUCH_PERSON: Final = "There is no such person. They may have been deleted."


operation = OPERATIONS = Operations()


class PeoplePage(msgspec.Struct, frozen=True):
    """One page of the list of people, ordered by id.

    ``next`` is the cursor for the next page, or "" on the last page.
    """

    items: tuple[Person, ...]
    next: str


class SetPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a person: ``suspended``, and the maximum number of subscriptions (null for the default)."""

    suspended: bool
    most_subscriptions: Annotated[int, msgspec.Meta(ge=0, le=MAX_VALUE)] | None = None


@operation(
    "GET",
    "/people",
    read_access("people"),
    422,
    query=(Parameter("q", "query", "Only people whose address contains this text."), CURSOR, LIMIT),
)
async def get_people(request: web.Request) -> PeoplePage:
    """List people in order of id."""
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
    """List the most recent messages to a person: when they were queued, sent and received, or why they failed."""
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


async def page(request: web.Request) -> web.Response:
    """Show the list of people."""
    return render(
        request, "people.html", people=await get_people(request), total=await request.app[STORE].users.count()
    )


async def person_page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one person. ``error`` is the message to show if a change failed."""
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
    """Show the form that asks for confirmation before a person is deleted."""
    return render(request, "person_delete.html", person=await get_person(request))


forget = redirect_after(delete_person, "/people?forgotten=1")


async def _find(store: Store, part: str, cursor: str, count: int) -> tuple[list[UserId], str]:
    """Return (ids, cursor): one page of people whose address contains ``part``, and the cursor for the next page.

    - ``part``: the text to search for, ignoring case. If it is empty, it matches everybody.
    - ``cursor``: the cursor from the previous page, or "" for the first page. It is the last id that was examined.
    - ``count``: the maximum number of people on the page.

    The page is ordered by id. On the first page, however, a person whose address is exactly ``part`` comes first.

    At most ``_MAX_SCANNED`` people are examined for each page. A page can therefore be shorter than ``count`` even if
    more pages follow. The returned cursor is "" on the last page.
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
