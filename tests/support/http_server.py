"""A small HTTP server on the loopback address, for tests whose publisher is a function."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from service.embedded.ports import LOOPBACK


@asynccontextmanager
async def serving_locally(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Answer GET requests of all paths with one segment by ``handler``; yield the server's URL, without a path."""
    app = web.Application()
    app.router.add_get("/{path}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        yield f"http://{LOOPBACK}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
