"""The metric of request durations, recorded separately for each class of requests."""

import time
from collections.abc import Mapping

from aiohttp import web

from service.console import websub_callback
from service.console.api.operation_registry import PREFIX
from service.console.route_rules import Handler, rules_of
from service.observability.metrics import CONSOLE_REQUESTS

_CLASSES: Mapping[str, str] = {
    f"{PREFIX}/": "api",
    "/static/": "static",
    websub_callback.PATH: "hook",
    **dict.fromkeys(("/feeds/", "/channels/{cid:"), "feed"),
    **dict.fromkeys(("/livez", "/readyz", "/metrics"), "health"),
}
"""The class of a request in the metrics, by the beginning of its path. Requests with any other path have the class
``page``."""


def request_class(path: str) -> str:
    """Return the class of a request, such as ``api`` or ``page``, from the path of its route."""
    return next((name for start, name in _CLASSES.items() if path.startswith(start)), "page")


@web.middleware
async def measure_duration(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Record the duration of each request in the metric of its class; streams and WebSockets are not recorded."""
    started_s = time.monotonic()
    response: web.StreamResponse | None = None
    try:
        response = await handler(request)
        return response
    finally:
        if response is None or isinstance(response, web.Response):
            CONSOLE_REQUESTS.labels(rules_of(request).kind).observe(time.monotonic() - started_s)
