"""Liveness, readiness and metrics over HTTP: the same three answers from every process.

``/livez`` says that the event loop turns, ``/readyz`` that the process can do its work (503 and
the reason when it cannot; the reason phrase is the error's code), ``/metrics`` what it counted, in the Prometheus text
format, to clients from ``metrics_networks`` or with the ``metrics_token``. Anybody may read the other two, so they name
no address.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from platform import python_version

import prometheus_client
import structlog
from aiohttp import hdrs, web
from prometheus_client import exposition

from service.errors import CoronetError, StoreUnavailable
from service.net.client_address import is_in_networks
from service.net.http_server import HttpServer, client_of
from service.observability.metrics import VERSIONS
from service.settings import Settings

log = structlog.get_logger(__name__)

ReadinessCheck = Callable[[], Awaitable[None]]
"""Returns when the process can do its work; raises a :class:`CoronetError` that says why not."""


def health_routes(ready: ReadinessCheck, settings: Settings) -> list[web.RouteDef]:
    """Return the three routes, to be added to an application that an :class:`HttpServer` serves."""
    VERSIONS.info({"coronet": version("coronet"), "python": python_version(), "redis_client": version("redis")})

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def readyz(_: web.Request) -> web.Response:
        try:
            await ready()
        except CoronetError as error:
            return web.Response(status=503, reason=error.code, text=f"{_public_reason(error)}\n")
        return web.Response(text="ready\n")

    async def metrics(request: web.Request) -> web.Response:
        if not _may_read_metrics(request, settings):
            raise web.HTTPForbidden(text="Metrics are for the clients that metrics_networks or metrics_token allow.\n")
        body = prometheus_client.generate_latest()
        return web.Response(body=body, headers={"Content-Type": exposition.CONTENT_TYPE_PLAIN_0_0_4})

    return [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)]


async def serve_health(
    bind: str, port: int, ready: ReadinessCheck, more: Iterable[web.RouteDef] = (), *, settings: Settings | None = None
) -> HttpServer:
    """Serve ``/livez``, ``/readyz`` and ``/metrics`` on ``bind:port``, and ``more``; port 0 takes a free one.

    Of the settings, those of metrics and proxies count. Raises ``OSError`` when the address cannot be taken.
    """
    settings = settings or Settings()
    app = web.Application()
    app.add_routes([*health_routes(ready, settings), *more])
    app.on_response_prepare.append(_hide_versions)
    server = HttpServer(app, trusted_proxies=settings.trusted_proxies)
    await server.start(bind, port)
    return server


async def _hide_versions(_: web.Request, response: web.StreamResponse) -> None:
    response.headers[hdrs.SERVER] = "coronet"


def _public_reason(error: CoronetError) -> str:
    """Return what anybody may read of why a process is not ready: not where Redis is."""
    if type(error) is StoreUnavailable:
        log.warning("not ready: the store cannot be reached", error=str(error))
        return "Redis does not answer."
    return str(error)


def _may_read_metrics(request: web.Request, settings: Settings) -> bool:
    client = client_of(request)
    if is_in_networks(client.address, settings.metrics_networks) and not client.is_through_stranger:
        return True
    scheme, _, sent = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    token = settings.metrics_token.get_secret_value()
    return bool(token) and scheme.lower() == "bearer" and hmac.compare_digest(sent.encode(), token.encode())
