"""The OpenAPI document as a response, and the page with the API reference."""

from functools import cache
from typing import Any

from aiohttp import web
from markupsafe import Markup

from service.console.api.openapi_document import build_document
from service.console.api.operation_registry import OPERATIONS, PREFIX
from service.console.api.operations import json_response
from service.console.app_keys import SETTINGS
from service.console.page_rendering import load_templates, render


async def get_openapi(request: web.Request) -> web.Response:
    """Return the OpenAPI document of the JSON API."""
    return json_response(_document(request.app[SETTINGS].console_base_path))


async def api_page(request: web.Request) -> web.Response:
    """Show the API reference. Swagger UI is loaded only on demand."""
    response = render(request, "api.html", prefix=PREFIX, reference=_reference())
    response.enable_compression()  # it repeats nothing from the request, so its length reveals no secret (BREACH)
    return response


@cache
def _reference() -> Markup:
    areas: dict[str, list[tuple[str, str, Any]]] = {}
    for path, methods in _document("")["paths"].items():
        for method, description in methods.items():
            areas.setdefault(description["tags"][0], []).append((path, method, description))
    template = load_templates().get_template("api_reference.html")
    return Markup(template.render(areas=areas, types=_document("")["components"]["schemas"]))  # noqa: S704 - escaped


@cache
def _document(base_path: str) -> dict[str, Any]:
    return build_document(base_path + PREFIX, OPERATIONS)
