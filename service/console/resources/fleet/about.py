"""The page About, with the versions of Coronet and its dependencies, and the health of Redis and all processes."""

import asyncio
import platform
import time
from importlib.metadata import version
from typing import Final

from aiohttp import web

from service.console.app_keys import METRICS, STORE
from service.console.page_rendering import render

_DISTRIBUTIONS: Final = ("coronet", "aiohttp", "jinja2", "msgspec", "numpy", "redis", "slixmpp")
_VENDORED: Final = (
    ("Converse.js", "14.0.0"),
    ("htmx", "4.0.1"),
    ("Pico CSS", "2.1.1"),
    ("Swagger UI", "5.35.0"),
    ("uPlot", "1.6.32"),
)
_STARTED_S: Final = time.monotonic()


async def page(request: web.Request) -> web.Response:
    """Show versions and health."""
    store = request.app[STORE]
    started_s = time.monotonic()
    await store.ping()
    response_time_s = time.monotonic() - started_s
    nodes, bots = await asyncio.gather(store.ring.nodes(), store.bot_endpoints.metrics_urls())
    versions = [(name, version(name)) for name in _DISTRIBUTIONS]
    return render(
        request,
        "about.html",
        versions=[*versions, ("Python", platform.python_version()), *_VENDORED],
        response_time_s=response_time_s,
        nodes=len(nodes),
        bots=len(bots),
        processes=len(request.app[METRICS].loads),
        uptime_s=time.monotonic() - _STARTED_S,
    )
