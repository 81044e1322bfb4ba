"""Rules of routes: who may use a handler, its class of requests in the metrics, and its limit on bodies.

The middleware :func:`limit_body_size` enforces the limit on the size of request bodies.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiohttp import web

from service.console.auth.permissions import Permission

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

API_PREFIX: Final = "/api/"
"""The beginning of the paths of all versions of the API."""
LARGEST_BODY_BYTES: Final = 64 * 1024
"""The limit on request bodies of handlers without a limit of their own."""


class OpenAccess(Enum):
    """Access without an account."""

    PUBLIC = "public"
    """The handler needs no authentication."""
    WEBHOOK = "webhook"
    """The handler is called by other services and authenticates them itself, without cookies."""


@dataclass(frozen=True)
class RouteRules:
    """Who may use the handler of a route, and how its requests are treated.

    - ``access`` is the permission that the handler requires, or its access without an account. None means that nobody
      may use the handler.
    - ``kind`` is the class of the handler's requests in the metrics.
    - ``largest_bytes`` is the maximum size of a request body.
    - ``without_store`` is true if the handler also works while programs refuse to use the store
      (``StoreIdentityMismatch``).
    """

    access: Permission | OpenAccess | None
    kind: str
    largest_bytes: int = LARGEST_BODY_BYTES
    without_store: bool = False


ROUTE_RULES: Final = web.AppKey("route rules", Mapping[Handler, RouteRules])
_CLOSED: Final = RouteRules(None, "other")


def rules_of(request: web.Request) -> RouteRules:
    """Return the rules of the request's route."""
    return request.app[ROUTE_RULES].get(request.match_info.handler, _CLOSED)


@web.middleware
async def limit_body_size(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request body that exceeds the limit of the request's handler.

    The ``Content-Length`` header is checked first. Without it, the body is refused while it is read.
    """
    largest_bytes = rules_of(request).largest_bytes
    if (request.content_length or 0) > largest_bytes:
        raise web.HTTPRequestEntityTooLarge(largest_bytes, request.content_length or 0)
    # The public way is request.clone(), which would lose the files of a multipart form.
    request._client_max_size = largest_bytes  # noqa: SLF001 - see above
    return await handler(request)
