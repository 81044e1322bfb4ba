"""People as pages: found, bounded, suspended, forgotten; what they follow and were told."""

import asyncio
from typing import Final
from urllib.parse import quote

from aiohttp import web

from service.console import people
from service.console.audited import DETAIL
from service.console.deliveries import deliveries
from service.console.site import SETTINGS, STORE, render
from service.errors import UserError
from service.store.people import Person

_MOST_SUBSCRIPTIONS: Final = 1_000_000


async def page(request: web.Request) -> web.Response:
    """List people."""
    query, cursor = request.query.get("q", "")[:200], request.query.get("cursor", "")
    found = await people.people(request.app[STORE], query, cursor)
    return render(
        request,
        "people.html",
        query=query,
        found=found,
        first=not cursor,
        total=await request.app[STORE].users.count(),
        forgotten="forgotten" in request.query,
    )


async def one(request: web.Request) -> web.Response:
    """Show one person."""
    return await _one(request)


async def change(request: web.Request) -> web.Response:
    """Suspend a person or not, and bound their subscriptions or not."""
    store, uid, form = request.app[STORE], request.match_info["user"], await request.post()
    before = await people.person(store, uid)
    text = str(form.get("most_subscriptions", "")).strip()[:10]
    suspended = {"suspend": True, "resume": False}.get(str(form.get("action", "")), before.suspended)
    try:
        most = before.most_subscriptions if "most_subscriptions" not in form else _most(text)
    except UserError as error:
        return await _one(request, 422, error=str(error))
    request[DETAIL] = f"suspended: {suspended}, most subscriptions: {most}"
    await people.change(store, uid, suspended=suspended, most_subscriptions=most)
    raise web.HTTPSeeOther(f"/people/{quote(uid)}")


async def forget_form(request: web.Request) -> web.Response:
    """Say what forgetting somebody would do, and ask."""
    return render(request, "person_forget.html", person=await _person(request))


async def forget(request: web.Request) -> web.Response:
    """End all that a person has and delete what is known of them."""
    await people.forget(request.app[STORE], request.match_info["user"])
    raise web.HTTPSeeOther("/people?forgotten=1")


def _most(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) > _MOST_SUBSCRIPTIONS:
        raise UserError("Subscriptions at most are a whole number, or nothing for what the settings say.")
    return int(text)


async def _person(request: web.Request) -> Person:
    return await people.person(request.app[STORE], request.match_info["user"])


async def _one(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    store, person = request.app[STORE], await _person(request)
    subscriptions, log, (habits,) = await asyncio.gather(
        store.subscriptions.of_user(person.jid), deliveries(store, person.id), store.users.habits([person.id])
    )
    cids = [subscription.channel for subscription in subscriptions]
    channels = dict(zip(cids, await store.channels.many(cids), strict=True))
    return render(
        request,
        "person.html",
        status,
        person=person,
        subscriptions=subscriptions,
        channels=channels,
        messages=log.items,
        habits=habits,
        usual_most=request.app[SETTINGS].max_subscriptions_per_user,
        error=error,
    )
