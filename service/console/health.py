"""Liveness, readiness and metrics over HTTP: the same three answers from every process.

``/livez`` says that the event loop turns, ``/readyz`` that the process can do its work (503 and
the reason when it cannot; the reason phrase is the error's code), ``/metrics`` what it counted, in the Prometheus text
format.
"""

import socket
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from ipaddress import ip_address
from platform import python_version

import prometheus_client
from aiohttp import web
from prometheus_client import exposition

from service.errors import CoronetError
from service.metrics import VERSIONS

Ready = Callable[[], Awaitable[None]]
"""Returns when the process can do its work; raises a :class:`CoronetError` that says why not."""


def health_routes(ready: Ready) -> list[web.RouteDef]:
    """Return the three routes, to be added to an application."""
    VERSIONS.info({"coronet": version("coronet"), "python": python_version(), "redis_client": version("redis")})

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def readyz(_: web.Request) -> web.Response:
        try:
            await ready()
        except CoronetError as error:
            return web.Response(status=503, reason=error.code, text=f"{error}\n")
        return web.Response(text="ready\n")

    async def metrics(_: web.Request) -> web.Response:
        body = prometheus_client.generate_latest()
        return web.Response(body=body, headers={"Content-Type": exposition.CONTENT_TYPE_PLAIN_0_0_4})

    return [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)]


class HealthServer:
    """A running health server; ``url`` has no path and names the port that was taken."""

    def __init__(self, runner: web.AppRunner, url: str) -> None:
        self._runner = runner
        self.url = url

    async def close(self) -> None:
        """Stop listening and end the connections."""
        await self._runner.cleanup()


def listening_url(runner: web.AppRunner) -> str:
    """Return ``http://host:port`` of a runner's first site, as another machine can use it.

    The port is the one really taken; a site on every address is named by this machine's host name.
    """
    host, port = runner.addresses[0][:2]
    if ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_health(bind: str, port: int, ready: Ready, more: Iterable[web.RouteDef] = ()) -> HealthServer:
    """Serve ``/livez``, ``/readyz`` and ``/metrics`` on ``bind:port``, and ``more``; port 0 takes a free one.

    Raises ``OSError`` when the address cannot be taken.
    """
    app = web.Application()
    app.add_routes([*health_routes(ready), *more])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, bind, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return HealthServer(runner, listening_url(runner))
