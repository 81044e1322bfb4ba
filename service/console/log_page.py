"""The page Log: what was done, when, by whom."""

from aiohttp import web

from service.console.site import STORE, render
from service.console.wire import place

_SHOWN = 50


async def page(request: web.Request) -> web.Response:
    """Show deeds, newest first, a page at a time."""
    cursor = place(request)
    deeds, following = await request.app[STORE].audit.page(cursor, _SHOWN)
    return render(request, "log.html", deeds=deeds, first=not cursor, following=following)
