"""The About page, with the versions of Coronet and its dependencies, and the health of Redis and all processes.

The module also contains the API operation with which an admin accepts a store that has lost data or belongs to another
fleet. Use of such a store is blocked until an admin accepts it.
"""

import asyncio
import platform
import time
from importlib.metadata import version
from typing import Final

from aiohttp import web

from service.console.api.operations import ActionResult, Operations
from service.console.app_keys import METRICS, PRINCIPAL, STORE
from service.console.auth.permissions import admin_access
from service.console.middleware.audit_recorder import record_action
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


operation = OPERATIONS = Operations()


@operation("POST", "/store/accept", admin_access("fleet"), without_store=True)
async def accept_store(request: web.Request) -> ActionResult:
    """Accept the store as it is, although it has lost data or belongs to another fleet."""
    principal = request[PRINCIPAL]
    await request.app[STORE].identity.accept()
    await record_action(request, principal.name, "Accept the store as it is.", principal.key)
    return ActionResult("The store has been accepted. All programs continue with its data within a few seconds.")
