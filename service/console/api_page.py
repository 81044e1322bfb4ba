"""The API's document to read and to try out, by Swagger UI."""

from aiohttp import web

from service.console.site import render


async def page(request: web.Request) -> web.Response:
    """Show what programs can do."""
    return render(request, "api.html")
