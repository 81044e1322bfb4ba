"""The OpenAPI 3.1 document of the JSON API, and the page with the API reference.

The description of a schema is the docstring of its class, without references to modules.
"""

import re
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec
from aiohttp import web
from markupsafe import Markup

from service.console.api.operation_registry import OPERATIONS, PREFIX
from service.console.api.operations import Body, File, Operation, Parameter, json_response
from service.console.app_keys import SETTINGS
from service.console.middleware.error_responses import Problem
from service.console.page_rendering import load_templates, render

_COMMON_PROBLEMS: Final = (401, 403, 500, 503)
_IDEMPOTENCY_PROBLEMS: Final = (409, 422)
_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_CODE_REFERENCE: Final = re.compile(r"\s*\((?:see )?(?::\w+:`[^`]+`|``(?:[a-z_]+\.)+\w+``)\)")
"""Matches a reference in parentheses to a module or to something in a module. Such references are removed, because
readers of the document cannot follow them."""
_IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "header",
    "A unique key of your choice. A request repeated with the same key within a day is executed only once.",
)


def build_document(prefix: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of ``operations``, which are served below the path ``prefix``."""
    types: list[type[msgspec.Struct]] = [Problem]
    for operation in operations:
        types += [kind for kind in (*operation.responses.values(), operation.body) if isinstance(kind, type)]
    _, components = msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=_REFERENCE)
    for schema in components.values():
        if "description" in schema:
            schema["description"] = _CODE_REFERENCE.sub("", schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Coronet", "version": version("coronet"), "description": "The admin API of Coronet."},
        "servers": [{"url": prefix}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "coronet_session",
                    "description": "The console's login session; changes also require Origin and X-CSRF-Token.",
                },
            },
        },
    }


def _describe(operation: Operation) -> dict[str, Any]:
    is_post = operation.method == "POST"
    scope = f" API keys need the scope {operation.permission.scope}." if operation.permission.scope else ""
    problems = sorted({*operation.problems, *_COMMON_PROBLEMS, *(_IDEMPOTENCY_PROBLEMS if is_post else ())})
    kinds = [(status, kind, _JSON) for status, kind in operation.responses.items()]
    kinds += [(status, Problem, "application/problem+json") for status in problems]
    description: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "tags": [operation.permission.scope.partition(":")[0] or "access"],
        "summary": (operation.handler.__doc__ or "").strip(),
        "description": f"Requires the role {operation.permission.role}.{scope}",
        "responses": {
            str(status): {"description": HTTPStatus(status).phrase, **_content(kind, media_type)}
            for status, kind, media_type in kinds
        },
    }
    if parameters := (*operation.parameters, *((_IDEMPOTENCY_KEY,) if is_post else ())):
        description["parameters"] = [
            {
                "name": each.name,
                "in": each.place,
                "description": each.description,
                "required": each.place == "path",
                "schema": {"type": each.type},
            }
            for each in parameters
        ]
    if operation.body is not None:
        description["requestBody"] = {"required": True, **_content(operation.body, _JSON)}
    return description


def _content(kind: Body | None, media_type: str) -> dict[str, Any]:
    if kind is None:
        return {}
    if isinstance(kind, File):
        return {"content": {kind.media_type: {"schema": {"type": "string"}}}}
    return {"content": {media_type: {"schema": {"$ref": _REFERENCE.format(name=kind.__name__)}}}}


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
