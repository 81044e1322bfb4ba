"""The console put together: routes, which of them are public, and what surrounds every request."""

from aiohttp import hdrs, web

from service.clock import Clock
from service.console import api, channels, login, nodes, overview
from service.console.failures import failures
from service.console.guard import PUBLIC, Handler, guard
from service.console.headers import add_security_headers
from service.console.health import health_routes
from service.console.login import PASSWORDS
from service.console.passwords import Passwords
from service.console.site import CLOCK, SETTINGS, STATIC, STORE, TEMPLATES, templates
from service.settings import Settings
from service.store import Store

LARGEST_BODY_BYTES = 64 * 1024

_ASSETS = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}


async def asset(request: web.Request) -> web.FileResponse:
    """Send one of our own files."""
    path = _ASSETS.get(request.match_info["path"])
    if path is None:
        raise web.HTTPNotFound
    return web.FileResponse(path, headers={hdrs.CACHE_CONTROL: "public, no-cache"})


@web.middleware
async def body_cap(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request that announces too large a body, before anything of it is read."""
    if (request.content_length or 0) > LARGEST_BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(LARGEST_BODY_BYTES, request.content_length or 0)
    return await handler(request)


def make_app(settings: Settings, store: Store, clock: Clock) -> web.Application:
    """Return the console over a store, which it neither opens nor closes."""
    app = web.Application(middlewares=[failures, body_cap, guard], client_max_size=LARGEST_BODY_BYTES)
    app[SETTINGS] = settings
    app[STORE] = store
    app[CLOCK] = clock
    app[TEMPLATES] = templates()
    app[PASSWORDS] = Passwords()
    public = [
        *health_routes(store.ping),
        web.get("/static/{path:.+}", asset),
        web.get("/login", login.login_form),
        web.post("/login", login.login),
        web.get("/setup", login.setup_form),
        web.post("/setup", login.setup),
        web.get(f"{api.PREFIX}/openapi.json", api.get_openapi),
    ]
    app[PUBLIC] = frozenset(route.handler for route in public)
    app.add_routes([*public, *_closed(), *api.routes()])
    app.on_response_prepare.append(add_security_headers)
    return app


def _closed() -> list[web.RouteDef]:
    return [
        web.get("/", overview.page),
        web.get("/channels", channels.page),
        web.post("/channels", channels.add),
        web.get("/channels/add", channels.add_form),
        web.get("/channels/{cid}", channels.one),
        web.post("/channels/{cid}/poll", channels.poll),
        web.post("/channels/{cid}/listed", channels.set_listed),
        web.get("/channels/{cid}/remove", channels.remove_form),
        web.post("/channels/{cid}/remove", channels.remove),
        web.get("/nodes", nodes.page),
        web.post("/logout", login.logout),
    ]
