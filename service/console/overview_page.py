"""The overview, live: a page, and a stream of what changes on it, the same for all who watch."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.attention import Overview
from service.console.figures import Sample
from service.console.overview import overview, series
from service.console.site import CLOCK, PULSE, ROSTER, SETTINGS, STORE, TEMPLATES, render

_STREAM_LASTS_S: Final = 600.0
"""Then a browser comes again by itself, and is let in if it still may."""
_EVERY_MS: Final = 3_000


async def page(request: web.Request) -> web.Response:
    """Show the fleet in numbers and what needs attention."""
    return render(request, "overview.html", fleet=await _fleet(request.app))


async def stream(request: web.Request) -> web.StreamResponse:
    """Send the charts' points, and then the live part of the overview each time that it was looked at."""
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    pulse = request.app[PULSE]
    await response.write(f"retry: {_EVERY_MS}\n".encode() + _points(pulse.samples, await _fleet(request.app)))
    try:
        async with asyncio.timeout(_STREAM_LASTS_S):
            async for shown in pulse.watch():
                await response.write(shown)
    except (TimeoutError, ConnectionResetError):
        pass
    return response


async def shown(app: web.Application) -> bytes:
    """Return what those who watch are sent now."""
    fleet = await _fleet(app)
    text = app[TEMPLATES].get_template("overview_live.html").render(fleet=fleet)
    return _event("live", text) + _points(app[PULSE].samples[-2:], fleet)


def _points(samples: Sequence[Sample], fleet: Overview) -> bytes:
    return _event("points", msgspec.json.encode(series(samples, fleet.budget_polls_per_minute)).decode())


def _event(name: str, data: str) -> bytes:
    lines = "\n".join(f"data: {line}" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n\n".encode()


async def _fleet(app: web.Application) -> Overview:
    return await overview(app[STORE], app[SETTINGS], app[ROSTER], app[PULSE].samples, app[CLOCK].wall_s())
