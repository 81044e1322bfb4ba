"""The directory: a query and how it was answered, matrices that have grown, and what workers keep in memory."""

import asyncio
from contextlib import suppress

from aiohttp import web

from service.console.discovery import DirectoryMetrics, SearchResult, directories, matrices, metrics, search
from service.console.failures import in_plain_words
from service.console.matrix_svg import matrix_svg
from service.console.site import SETTINGS, STORE, render
from service.errors import CoronetError, NoSuchThing, StoreUnavailable

_LONGEST_QUERY = 400
_DRAWN = 50


async def page(request: web.Request) -> web.Response:
    """Show the directory; with a query, what people would find by it, and how."""
    store, query = request.app[STORE], request.query.get("q", "").strip()[:_LONGEST_QUERY]
    found: SearchResult | None = None
    error, status = "", 200
    if query:
        try:
            found = await search(store, request.app[SETTINGS], query)
        except StoreUnavailable:
            raise
        except CoronetError as wrong:
            error, status = in_plain_words(wrong), 422
    grown, kept = await asyncio.gather(matrices(store), directories(store))
    good: DirectoryMetrics | None = None
    if "measure" in request.query:
        with suppress(NoSuchThing):  # it was forgotten since the page was made: then the list shows that
            good = await metrics(store, request.query["measure"])
    return render(
        request,
        "directory.html",
        status,
        query=query,
        found=found,
        matrices=grown.items,
        drawn=[(each, matrix_svg(each)) for each in grown.items[:_DRAWN]],
        kept=kept.items,
        good=good,
        error=error,
    )
