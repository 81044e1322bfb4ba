"""`coronet console`: the application with its routes and middleware, and the program that serves it.

It serves until it is told to stop, whether or not Redis is there.
"""

import asyncio
from collections.abc import Mapping

import structlog
from aiohttp import web

from service.clock import Clock, SystemClock
from service.console import websub_callback
from service.console.audit_middleware import audited, repeated
from service.console.auth import login
from service.console.auth.accounts import Passwords
from service.console.auth.login import PASSWORDS, setup_link
from service.console.auth.middleware import HOOKS, NEEDS, PUBLIC, WITHOUT_STORE, Handler, add_security_headers, guard
from service.console.auth.roles import Need
from service.console.channel_cache import Finder, Roster
from service.console.error_responses import failures
from service.console.metrics_sampler import Pulse
from service.console.pages import opml
from service.console.pages.overview import shown, usual_interval_s
from service.console.rendering import (
    CLOCK,
    FINDER,
    OPML_READER,
    PULSE,
    ROSTER,
    SETTINGS,
    STORE,
    TEMPLATES,
    asset,
    templates,
)
from service.console.routes import OPERATIONS, PREFIX, get_openapi, pages
from service.errors import StoreUnavailable
from service.feeds.sandbox.opml_reader import OpmlReader
from service.net.health import health_routes
from service.net.http_server import serve_http
from service.settings import Settings
from service.shutdown import run_until_stopped
from service.store import Store, open_store

LARGEST_BODY_BYTES = 64 * 1024
_ASK_AGAIN_AFTER_S = 2.0
_REQUESTS_MAY_END_WITHIN_S = 3.0
_LARGER_BYTES: Mapping[Handler, int] = {
    websub_callback.receive: websub_callback.LARGEST_PUSH_BYTES,
    opml.upload: opml.LARGEST_FORM_BYTES,
    **{each.handler: each.largest_bytes for each in OPERATIONS if each.largest_bytes},
}

log = structlog.get_logger(__name__)


@web.middleware
async def body_cap(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse too large a body: before anything of it is read if it says how large it is, else when it is."""
    largest_bytes = _LARGER_BYTES.get(request.match_info.handler, LARGEST_BODY_BYTES)
    if (request.content_length or 0) > largest_bytes:
        raise web.HTTPRequestEntityTooLarge(largest_bytes, request.content_length or 0)
    # A clone, the public way to do it, would leave behind the files that a form brings.
    request._client_max_size = largest_bytes  # noqa: SLF001 - see above
    return await handler(request)


def make_app(settings: Settings, store: Store, clock: Clock) -> web.Application:
    """Return the console over a store, which it neither opens nor closes."""
    around = [failures, body_cap, guard, repeated, audited]
    app = web.Application(middlewares=around, client_max_size=LARGEST_BODY_BYTES)
    app[SETTINGS] = settings
    app[STORE] = store
    app[CLOCK] = clock
    app[ROSTER] = Roster(store, usual_interval_s(settings))
    app[FINDER] = Finder(app[ROSTER])
    app[PULSE] = Pulse(store, clock, settings.metrics_token.get_secret_value())
    app[OPML_READER] = OpmlReader()
    app[TEMPLATES] = templates()
    app[PASSWORDS] = Passwords()
    health = health_routes(store.ping, settings)
    app[websub_callback.ARRIVING] = websub_callback.ArrivingPushes()
    public = [
        *health,
        web.get("/static/{path:.+}", asset),
        web.get("/login", login.login_form),
        web.post("/login", login.login),
        web.get("/setup", login.setup_form),
        web.post("/setup", login.setup),
        web.get("/join", login.join_form),
        web.post("/join", login.join),
        web.get(f"{PREFIX}/openapi.json", get_openapi),
    ]
    hooks = [
        web.get(websub_callback.PATH, websub_callback.verify, allow_head=False),
        web.post(websub_callback.PATH, websub_callback.receive),
    ]
    app[PUBLIC] = frozenset(route.handler for route in public)
    app[HOOKS] = frozenset(route.handler for route in hooks)
    without_store = (each.handler for each in OPERATIONS if each.without_store)
    app[WITHOUT_STORE] = frozenset([*(route.handler for route in health), asset, get_openapi, *without_store])
    closed = pages()
    app[NEEDS] = {
        **{route.handler: Need(role) for role, routes in closed.items() for route in routes},
        **{each.handler: each.need for each in OPERATIONS},
    }
    app.add_routes([*public, *hooks, *(route for routes in closed.values() for route in routes)])
    app.add_routes([web.route(each.method, PREFIX + each.path, each.handler) for each in OPERATIONS])
    app.on_response_prepare.append(add_security_headers)
    app.on_startup.append(_begin)
    app.on_shutdown.append(_end)
    return app


async def _begin(app: web.Application) -> None:
    app[PULSE].start(lambda: shown(app))
    app[ROSTER].start()


async def _end(app: web.Application) -> None:
    await app[PULSE].close()
    await app[ROSTER].close()


async def run(settings: Settings) -> None:
    """Serve on ``console_bind:console_port`` until SIGTERM or SIGINT. Raises ``OSError`` if the address is taken.

    While Redis is away every page says so with status 503, and works again when it is back.
    """
    await run_until_stopped(serve(settings))


async def serve(settings: Settings) -> None:
    """Serve until cancelled, then let the requests that are under way end."""
    store = open_store(settings)
    app = make_app(settings, store, SystemClock())
    try:
        async with serve_http(
            app,
            settings.console_bind,
            settings.console_port,
            trusted_proxies=settings.trusted_proxies,
            shutdown_s=_REQUESTS_MAY_END_WITHIN_S,
        ) as server:
            url = settings.console_public_url or server.url
            log.info("console ready", url=url)
            async with asyncio.TaskGroup() as group:
                group.create_task(store.identity.run())
                group.create_task(_show_setup_link(store, url))
    finally:
        await store.close()


async def _show_setup_link(store: Store, url: str) -> None:
    """Say how to make the first account, as soon as Redis answers; nothing if there is one."""
    said = ""
    while True:
        try:
            link = await setup_link(store, url)
        except StoreUnavailable as error:
            if str(error) != said:
                said = str(error)
                log.warning("waiting for the store", error=said)
            await asyncio.sleep(_ASK_AGAIN_AFTER_S)
            continue
        if link is not None:
            print(f"Make the console's first account here; the link works once: {link}", flush=True)  # noqa: T201 - for people
        return
