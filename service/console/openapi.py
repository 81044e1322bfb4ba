"""Declaration of the JSON API's operations, and the OpenAPI 3.1 document made from them.

:class:`Operations` declares a function as an operation and derives the rest from its signature: a second parameter is
the request body, the return value is the response. The function's name is the operation id, its docstring the summary.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, Literal, TypeVar

import msgspec
from aiohttp import web

from service.console.auth.authorization import Handler
from service.console.auth.permissions import Permission
from service.console.error_responses import Problem
from service.console.pagination import MAX_ITEMS
from service.console.rendering import json_response, read_body

_COMMON_PROBLEMS: Final = (401, 403, 500, 503)
_BODY_PROBLEMS: Final = (400, 413, 415, 422)
_IDEMPOTENCY_PROBLEMS: Final = (409, 422)
_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"

_Function = TypeVar("_Function", bound=Callable[..., Awaitable[object]])


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation in the path, the query or a header."""

    name: str
    place: Literal["path", "query", "header"]
    description: str
    type: Literal["string", "integer"] = "string"


CURSOR: Final = Parameter("cursor", "query", "Where the page begins: the `next` of the previous page.")
LIMIT: Final = Parameter("limit", "query", f"Maximum number of items, 1 to {MAX_ITEMS}.", type="integer")

_IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "header",
    "A unique key of your choice. A request repeated with the same key within a day is executed only once.",
)
_PATH_DESCRIPTIONS: Final = {
    "cid": "Channel id, 40 hexadecimal digits.",
    "host": "Host name of a publisher, as in a URL.",
    "node": "Node id.",
    "worker": "Worker name.",
    "label": "Label of a key group, like `01*`.",
    "user": "Id of a person, 16 characters.",
    "letter": "Dead letter id.",
    "number": "Number of an announcement.",
    "name": "Account name.",
    "session": "Session id.",
    "key": "API key id.",
}


@dataclass(frozen=True)
class File:
    """A request or response body that is not JSON.

    ``largest_bytes`` limits the size of a request body; None means the default limit.
    """

    media_type: str
    largest_bytes: int | None = None


Body = type[msgspec.Struct] | File


class ActionResult(msgspec.Struct, frozen=True):
    """The result of an action; ``done`` says in one sentence what was done."""

    done: str


@dataclass(frozen=True)
class Operation:
    """One operation of the API.

    ``responses`` maps each success status to the type of its body; None means an empty body. ``problems`` are the error
    statuses. ``without_store`` states that the operation also works while programs refuse the store, because it lost
    data or belongs to another fleet.
    """

    method: str
    path: str
    permission: Permission
    handler: Handler
    responses: Mapping[int, Body | None]
    body: Body | None
    parameters: tuple[Parameter, ...]
    problems: tuple[int, ...]
    without_store: bool


class Operations(list[Operation]):
    """The operations of one module, in the order of their declarations."""

    def __call__(
        self,
        method: str,
        path: str,
        permission: Permission,
        *problems: int,
        query: Sequence[Parameter] = (),
        responses: Mapping[int, Body | None] | None = None,
        file: File | None = None,
        status: int = 200,
        host_description: str = "",
        without_store: bool = False,
    ) -> Callable[[_Function], _Function]:
        """Return a decorator that declares a function as an operation of the API.

        ``problems`` are the error statuses with which the operation may fail, and ``query`` are its parameters in the
        URL's query. ``responses`` is for functions that return a response object: it maps statuses to types of bodies.
        ``file`` is for functions that read the request body themselves. ``status`` is the status of a success, and
        ``host_description`` describes the path parameter ``host``. For ``without_store`` see :class:`Operation`.
        """
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        descriptions = {**_PATH_DESCRIPTIONS, "host": host_description or _PATH_DESCRIPTIONS["host"]}
        parameters = (*(Parameter(name, "path", descriptions[name]) for name in names), *query)

        def declare(function: _Function) -> _Function:
            signature = inspect.signature(function)
            _, *others = signature.parameters.values()
            kind = others[0].annotation if others else None
            returned = signature.return_annotation

            @wraps(function)
            async def handler(request: web.Request) -> web.StreamResponse:
                value = await (function(request, await read_body(request, kind)) if kind else function(request))
                if isinstance(value, web.StreamResponse):
                    return value
                return web.Response(status=HTTPStatus.NO_CONTENT) if value is None else json_response(value, status)

            self.append(
                Operation(
                    method,
                    path,
                    permission,
                    handler,
                    responses or ({status: returned} if returned else {204: None}),
                    kind or file,
                    parameters,
                    (*problems, *(_BODY_PROBLEMS if kind else ())),
                    without_store,
                )
            )
            return function

        return declare


def build_document(prefix: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of ``operations``, which are served below the path ``prefix``."""
    types: list[type[msgspec.Struct]] = [Problem]
    for operation in operations:
        types += [kind for kind in (*operation.responses.values(), operation.body) if isinstance(kind, type)]
    _, components = msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=_REFERENCE)
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
