"""What runs here: versions, and whether everything answers."""

import asyncio
import platform
import time
from importlib.metadata import version
from typing import Final

from aiohttp import web

from service.console.site import PULSE, ROSTER, SETTINGS, STORE, render

_SHOWN: Final = ("coronet", "aiohttp", "jinja2", "msgspec", "numpy", "redis", "slixmpp")
_VENDORED: Final = (("htmx", "4.0.1"), ("Pico CSS", "2.1.1"), ("uPlot", "1.6.32"))
_BEGAN_S: Final = time.monotonic()


async def page(request: web.Request) -> web.Response:
    """Show versions and health."""
    store = request.app[STORE]
    began_s = time.monotonic()
    await store.ping()
    answered_s = time.monotonic() - began_s
    nodes, bots = await asyncio.gather(store.ring.view(), store.bots.metrics_urls())
    return render(
        request,
        "about.html",
        versions=[(name, version(name)) for name in _SHOWN] + [("Python", platform.python_version()), *_VENDORED],
        answered_s=answered_s,
        nodes=len(nodes),
        bots=len(bots),
        processes=len(request.app[PULSE].loads),
        channels=len(request.app[ROSTER].rows),
        settings=request.app[SETTINGS],
        running_s=time.monotonic() - _BEGAN_S,
    )
