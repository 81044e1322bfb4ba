"""Delivery as a page: who waits, and messages that were given up."""

import asyncio

from aiohttp import web

from service.console import delivery, figures
from service.console.figures import growth
from service.console.pulse import FINE_S
from service.console.site import CLOCK, PULSE, STORE, render
from service.console.wire import place


async def page(request: web.Request) -> web.Response:
    """Show who waits, and what was given up."""
    store, before = request.app[STORE], place(request)
    waits, letters = await asyncio.gather(delivery.waiting(store), delivery.letters(store, before))
    now_s = request.app[CLOCK].wall_s()
    recent = [sample for sample in request.app[PULSE].samples if sample.at_s > now_s - FINE_S]
    grown = growth(recent[0].counts, recent[-1].counts) if recent else {}
    return render(
        request,
        "delivery.html",
        waiting=waits,
        letters=letters,
        first=not before,
        messages=figures.messages(grown),
        delays=figures.delays(grown, figures.DELIVERY),
    )


async def requeue(request: web.Request) -> web.Response:
    """Queue what was given up once more."""
    if not await request.app[STORE].dead_letters.requeue(request.match_info["letter"]):
        raise web.HTTPNotFound(text="That message is not there any more, or nobody wants what it told.")
    raise web.HTTPSeeOther("/delivery")


async def drop(request: web.Request) -> web.Response:
    """Forget a message that was given up."""
    if not await request.app[STORE].dead_letters.drop(request.match_info["letter"]):
        raise web.HTTPNotFound(text="That message is not there any more.")
    raise web.HTTPSeeOther("/delivery")
