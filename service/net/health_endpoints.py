"""HTTP endpoints for liveness, readiness and metrics, which every process serves.

- ``/livez`` responds if the event loop runs.
- ``/readyz`` responds with 200 if the process can do its work, otherwise with 503 and the reason.
- ``/metrics`` returns the metrics, in OpenMetrics or the Prometheus text format (default). Only clients in
  ``metrics_networks`` or with the ``metrics_token`` can read it.

Anyone may read ``/livez`` and ``/readyz``. Their responses therefore contain no addresses.
"""

# With the status 503, the error's code is the reason phrase. The format of the metrics depends on the ``Accept``
# header.

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from platform import python_version

import structlog
from aiohttp import hdrs, web
from prometheus_client import REGISTRY, exposition

from service.errors import CoronetError, StoreUnavailable
from service.net.client_address import is_in_networks
from service.net.http_server import HttpServer, client_of, serve_http
from service.observability.metrics import VERSIONS
from service.settings import Settings

log = structlog.get_logger(__name__)

ReadinessCheck = Callable[[], Awaitable[None]]
"""A function that raises a :class:`CoronetError` with the reason if the process cannot do its work."""


def health_routes(ready: ReadinessCheck, settings: Settings) -> list[web.RouteDef]:
    """Return the routes ``/livez``, ``/readyz`` and ``/metrics``, for the application of an :class:`HttpServer`.

    ``ready`` must raise a :class:`CoronetError` while the process cannot do its work. ``settings`` determine which
    clients may read the metrics.
    """
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
        encode, content_type = exposition.choose_encoder(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=encode(REGISTRY), headers={hdrs.CONTENT_TYPE: content_type})

    return [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)]


@asynccontextmanager
async def serve_health(
    bind: str, port: int, ready: ReadinessCheck, more: Iterable[web.RouteDef] = (), *, settings: Settings | None = None
) -> AsyncIterator[HttpServer]:
    """Serve ``/livez``, ``/readyz``, ``/metrics`` and the routes ``more`` on ``bind:port`` until the context ends.

    - If ``port`` is 0, any free port is used.
    - ``ready`` must raise a :class:`CoronetError` while the process cannot do its work.
    - ``settings`` are used for the metrics and proxy settings only.

    Raises :class:`OperationalError` if the address cannot be bound.
    """
    settings = settings or Settings()
    app = web.Application()
    app.add_routes([*health_routes(ready, settings), *more])
    app.on_response_prepare.append(_hide_versions)
    async with serve_http(app, bind, port, trusted_proxies=settings.trusted_proxies) as server:
        yield server


async def _hide_versions(_: web.Request, response: web.StreamResponse) -> None:
    response.headers[hdrs.SERVER] = "coronet"


def _public_reason(error: CoronetError) -> str:
    """Return the text of ``error``, which states why the process is not ready. The address of Redis is left out."""
    if type(error) is StoreUnavailable:
        log.warning("readiness check failed", error=str(error))
        return "Redis does not answer."
    return str(error)


def _may_read_metrics(request: web.Request, settings: Settings) -> bool:
    client = client_of(request)
    if is_in_networks(client.address, settings.metrics_networks) and not client.has_forwarding_header:
        return True
    scheme, _, sent = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    token = settings.metrics_token.get_secret_value()
    return bool(token) and scheme.lower() == "bearer" and hmac.compare_digest(sent.encode(), token.encode())
