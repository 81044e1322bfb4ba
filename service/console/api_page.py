"""What programs can do, to read; Swagger UI, to try it out, is fetched only by who asks for it."""

from functools import cache

from aiohttp import web

from service.console import api
from service.console.openapi import document
from service.console.reference import Reference, reference
from service.console.site import render


async def page(request: web.Request) -> web.Response:
    """Show what programs can do."""
    return render(request, "api.html", reference=_reference(), prefix=api.PREFIX)


@cache
def _reference() -> Reference:
    return reference(document(api.PREFIX, api.OPERATIONS))
