"""The program ``coronet console``: the web application with its routes and middleware, and the server that runs it."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog
from aiohttp import hdrs, web

from service.console import atom_feeds, websub_callback
from service.console.api.openapi_document import get_openapi
from service.console.api.operation_registry import OPERATIONS, PREFIX
from service.console.api.operations import File
from service.console.app_keys import (
    CHANNEL_CACHE,
    CHANNEL_SEARCH,
    METRICS,
    OPML_PARSER_CLIENT,
    PASSWORDS,
    SETTINGS,
    STORE,
    TEMPLATES,
)
from service.console.auth import login
from service.console.auth.authorization import authorize
from service.console.auth.first_account import create_setup_link
from service.console.auth.passwords import Passwords
from service.console.auth.permissions import Permission
from service.console.auth.security_headers import add_security_headers
from service.console.middleware.audit_recorder import audit
from service.console.middleware.error_responses import handle_errors
from service.console.middleware.idempotency_keys import make_idempotent
from service.console.middleware.request_metrics import measure_duration, request_class
from service.console.opml_importer import run_importer
from service.console.page_rendering import load_templates
from service.console.queries.channel_cache import ChannelCache
from service.console.queries.channel_search import ChannelSearch
from service.console.queries.metrics_scraper import MetricsScraper
from service.console.queries.overdue_channels import default_poll_interval_s
from service.console.resources.channels import opml
from service.console.resources.fleet.overview import render_update
from service.console.route_rules import (
    LARGEST_BODY_BYTES,
    ROUTE_RULES,
    Handler,
    OpenAccess,
    RouteRules,
    limit_body_size,
)
from service.console.routes import list_routes
from service.console.static_files import serve_static_file
from service.errors import StoreUnavailable
from service.feeds.sandbox.parser_client import OpmlParserClient
from service.host_process import HostedProgram, HostProcess, NotReady
from service.net.health_endpoints import ReadinessCheck, health_routes
from service.net.http_server import serve_http
from service.settings import Settings
from service.store import Store

_STORE_RETRY_INTERVAL_S = 2.0
_SHUTDOWN_GRACE_S = 3.0
_LARGER_BODIES: Mapping[Handler, int] = {
    websub_callback.receive: websub_callback.LARGEST_PUSH_BYTES,
    opml.upload: opml.LARGEST_FORM_BYTES,
    **{each.handler: each.body.largest_bytes or 0 for each in OPERATIONS if isinstance(each.body, File)},
}
_WITHOUT_STORE = {serve_static_file, get_openapi, *(each.handler for each in OPERATIONS if each.without_store)}

log = structlog.get_logger(__name__)


def make_app(settings: Settings, store: Store, check_ready: ReadinessCheck | None = None) -> web.Application:
    """Return the console's application for ``store``, which must be open; the caller closes it.

    ``check_ready`` is the check that ``/readyz`` makes; None means that the console is ready while Redis responds.
    """
    app = web.Application(middlewares=[measure_duration, handle_errors, limit_body_size, authorize])
    app[SETTINGS] = settings
    app[STORE] = store
    app[CHANNEL_CACHE] = ChannelCache(store, default_poll_interval_s(settings))
    app[CHANNEL_SEARCH] = ChannelSearch(app[CHANNEL_CACHE])
    app[METRICS] = MetricsScraper(store, settings.metrics_token.get_secret_value())
    app[OPML_PARSER_CLIENT] = OpmlParserClient()
    app[TEMPLATES] = load_templates(settings.console_base_path)
    app[PASSWORDS] = Passwords()
    app[atom_feeds.FEED_LIMITS] = atom_feeds.FeedLimits()
    app[websub_callback.PUSH_READER] = websub_callback.PushReader()
    _add_routes(app, health_routes(check_ready or store.ping, settings))
    app.on_response_prepare.append(add_security_headers)
    app.cleanup_ctx.append(run_importer)
    app.on_startup.append(_start)
    app.on_shutdown.append(_stop)
    return app


def _add_routes(app: web.Application, health: Sequence[web.RouteDef]) -> None:
    """Add all routes and the access rules of their handlers. All paths begin with the setting ``console_base_path``.

    ``health`` are the routes of the health endpoints, which are public.
    """
    base_path = app[SETTINGS].console_base_path
    operations = ((each.permission, web.route(each.method, PREFIX + each.path, each.handler)) for each in OPERATIONS)
    pages = ((access, route) for access, found in list_routes().items() for route in found)
    rules: dict[Handler, RouteRules] = {login.redirect_to_overview: RouteRules(OpenAccess.PUBLIC, "page")}
    for access, route in [*((OpenAccess.PUBLIC, route) for route in health), *pages, *operations]:
        handler = route.handler
        kind = request_class(route.path)
        without_store = kind == "health" or handler in _WITHOUT_STORE
        rule = RouteRules(access, kind, _LARGER_BODIES.get(handler, LARGEST_BODY_BYTES), without_store)
        if isinstance(access, Permission) and route.method != hdrs.METH_GET and not without_store:
            handler = handler if access.scope.endswith(":read") else audit(handler)
            if kind == "api" and route.method == hdrs.METH_POST:
                handler = make_idempotent(handler)
        rules[handler] = rule
        app.add_routes([web.RouteDef(route.method, base_path + route.path, handler, route.kwargs)])
    if base_path:
        app.add_routes([*health, *(web.get(path, login.redirect_to_overview) for path in ("/", base_path))])
    app[ROUTE_RULES] = rules


async def _start(app: web.Application) -> None:
    app[METRICS].start(lambda: render_update(app))
    app[CHANNEL_CACHE].start()


async def _stop(app: web.Application) -> None:
    await app[METRICS].close()
    await app[CHANNEL_CACHE].close()


class ConsoleProgram(HostedProgram):
    """The console as a program that can share a process with other programs.

    While Redis is unavailable, every page responds with status 503.
    """

    name = "console"
    needs_health_server = False

    def __init__(self, settings: Settings, store: Store) -> None:
        """Create a console, which starts to listen when :meth:`run` is called."""
        super().__init__(settings, store)
        self._is_listening = False

    def check_ready(self) -> None:
        """Raise :class:`NotReady` until the console accepts connections."""
        if not self._is_listening:
            raise NotReady("The console does not listen yet.")

    async def run(self, process: HostProcess) -> None:
        """Serve requests until cancelled, then finish the requests in progress.

        Raises :class:`OperationalError` if the address is in use.
        """
        settings, store = self._settings, self._store
        app = make_app(settings, store, process.check_ready)
        async with serve_http(
            app,
            settings.console_bind,
            settings.console_port,
            trusted_proxies=settings.trusted_proxies,
            shutdown_s=_SHUTDOWN_GRACE_S,
        ) as server:
            self._is_listening = True
            url = settings.console_public_url or server.url + settings.console_base_path
            log.info("console ready", url=url)
            await _show_setup_link(store, url)
            await asyncio.Event().wait()


async def _show_setup_link(store: Store, url: str) -> None:
    """Print the link for creating the first account as soon as Redis replies.

    ``url`` is the console's address. Nothing is printed if an account exists.
    """
    logged_error = ""
    while True:
        try:
            link = await create_setup_link(store, url)
        except StoreUnavailable as error:
            if str(error) != logged_error:
                logged_error = str(error)
                log.warning("store unavailable, will retry", error=logged_error)
            await asyncio.sleep(_STORE_RETRY_INTERVAL_S)
            continue
        if link is not None:
            print(f"Create the console's first account (this link works once): {link}", flush=True)  # noqa: T201 - for people
        return
