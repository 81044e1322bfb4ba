"""The JSON API: all operations, which are its routes and its document; and the page that describes it."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from aiohttp import web

from service.console import (
    account_settings,
    adding,
    channel_page,
    channels,
    delivery,
    directory,
    fleet,
    hosts,
    opml,
    overview,
    people,
    policy,
)
from service.console.openapi import Operation, document
from service.console.site import answer, render

PREFIX: Final = "/api/v1"

OPERATIONS: Final[Sequence[Operation]] = (
    *adding.OPERATIONS,
    *channels.OPERATIONS,
    *hosts.OPERATIONS,
    *channel_page.OPERATIONS,
    *opml.OPERATIONS,
    *policy.OPERATIONS,
    *fleet.OPERATIONS,
    *people.OPERATIONS,
    *delivery.OPERATIONS,
    *account_settings.OPERATIONS,
    *overview.OPERATIONS,
    *directory.OPERATIONS,
)


def routes() -> list[web.RouteDef]:
    """Return the API's closed routes."""
    return [web.route(each.method, PREFIX + each.path, each.handler) for each in OPERATIONS]


async def get_openapi(_: web.Request) -> web.Response:
    """This document."""
    return answer(_document())


async def page(request: web.Request) -> web.Response:
    """Show what programs can do; Swagger UI, to try it out, is loaded only on demand."""
    areas: dict[str, list[tuple[str, str, Any]]] = {}
    for path, methods in _document()["paths"].items():
        for method, described in methods.items():
            areas.setdefault(described["tags"][0], []).append((path, method, described))
    return render(request, "api.html", prefix=PREFIX, areas=areas, types=_document()["components"]["schemas"])


@cache
def _document() -> dict[str, Any]:
    return document(PREFIX, OPERATIONS)
