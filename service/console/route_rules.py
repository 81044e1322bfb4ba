"""Rules for routes: who may use a handler, how its requests are classified in the metrics, and how large a body may be.

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
    """Kinds of access that do not require an account."""

    PUBLIC = "public"
    """The handler needs no authentication."""
    WEBHOOK = "webhook"
    """The handler is called by other services and authenticates them itself, without cookies."""


@dataclass(frozen=True)
class RouteRules:
    """Who may use the handler of a route, and how its requests are treated.

    - ``access``: the permission that the handler requires, or the kind of access without an account. None means that
      nobody may use the handler.
    - ``kind``: the class under which the metrics count the handler's requests.
    - ``largest_bytes``: the maximum size of a request body.
    - ``without_store``: whether the handler also works while the console refuses to use the store because the store has
      lost data or belongs to another fleet (``StoreIdentityMismatch``).
    """

    access: Permission | OpenAccess | None
    kind: str
    largest_bytes: int = LARGEST_BODY_BYTES
    without_store: bool = False


ROUTE_RULES: Final = web.AppKey("route rules", Mapping[Handler, RouteRules])
_CLOSED: Final = RouteRules(None, "other")


def rules_of(request: web.Request) -> RouteRules:
    """Return the rules for the handler that the request is routed to.

    For a handler without rules, return rules that let nobody use it.
    """
    return request.app[ROUTE_RULES].get(request.match_info.handler, _CLOSED)


@web.middleware
async def limit_body_size(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request whose body is larger than its handler allows.

    The ``Content-Length`` header is checked first. If the header is missing, the size is checked while the body is
    read.
    """
    largest_bytes = rules_of(request).largest_bytes
    if (request.content_length or 0) > largest_bytes:
        raise web.HTTPRequestEntityTooLarge(largest_bytes, request.content_length or 0)
    # The public way is request.clone(), which would lose the files of a multipart form.
    request._client_max_size = largest_bytes  # noqa: SLF001 - see above
    return await handler(request)
