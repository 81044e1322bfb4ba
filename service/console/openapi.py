"""Operations of the JSON API, and their OpenAPI 3.1 document.

A handler is declared with :class:`Operations`, which takes everything else from its signature: a second parameter is
the request's body, the returned value is the response. Its docstring is the operation's summary.
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

from service.console.auth.middleware import Handler
from service.console.auth.roles import Need
from service.console.error_responses import Problem
from service.console.rendering import MOST_ITEMS, answer, body

_ALWAYS_POSSIBLE: Final = (401, 403, 500, 503)
_OF_BODIES: Final = (400, 413, 415, 422)
_OF_REPEATS: Final = (409, 422)
_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"

_Function = TypeVar("_Function", bound=Callable[..., Awaitable[object]])


@dataclass(frozen=True)
class Parameter:
    """A value in the path, the query or a header."""

    name: str
    place: Literal["path", "query", "header"]
    meaning: str
    type: Literal["string", "integer"] = "string"


CURSOR: Final = Parameter("cursor", "query", "Where to go on: `next` of the page before.")
LIMIT: Final = Parameter("limit", "query", f"How many items at most, 1 to {MOST_ITEMS}.", type="integer")

_REPEATABLE: Final = Parameter(
    "Idempotency-Key", "header", "Chosen by you: with the same key, the same request is carried out once within a day."
)
_IN_PATHS: Final = {
    "cid": "A channel's id: 40 hexadecimal digits.",
    "host": "A publisher's host, as in a URL.",
    "node": "A node's id.",
    "worker": "A worker's name, as its nodes have it.",
    "label": "A key group's label, like `01*`.",
    "user": "A person's id: 16 characters.",
    "letter": "A dead letter's id.",
    "name": "An account's name.",
    "session": "A session's id.",
    "key": "An API key's id.",
}


@dataclass(frozen=True)
class File:
    """A body that is no JSON."""

    media_type: str


Body = type[msgspec.Struct] | File


@dataclass(frozen=True)
class Operation:
    """One operation. ``answers`` maps a status to the type of the response, None for an empty one."""

    method: str
    path: str
    need: Need
    handler: Handler
    answers: Mapping[int, Body | None]
    body: Body | None
    parameters: tuple[Parameter, ...]
    problems: tuple[int, ...]
    without_store: bool
    largest_bytes: int | None


class Operations(list[Operation]):
    """The operations of one module, in the order of their declarations."""

    def __call__(
        self,
        method: str,
        path: str,
        need: Need,
        *problems: int,
        query: Sequence[Parameter] = (),
        answers: Mapping[int, Body | None] | None = None,
        file: File | None = None,
        status: int = 200,
        host_meaning: str = "",
        without_store: bool = False,
        largest_bytes: int | None = None,
    ) -> Callable[[_Function], _Function]:
        """Declare the decorated function as an operation that may answer with ``problems``.

        ``answers`` is for functions that return responses, ``file`` for those that read the body themselves.
        """
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        meanings = {**_IN_PATHS, "host": host_meaning or _IN_PATHS["host"]}
        parameters = (*(Parameter(name, "path", meanings[name]) for name in names), *query)

        def declare(function: _Function) -> _Function:
            signature = inspect.signature(function)
            _, *others = signature.parameters.values()
            kind = others[0].annotation if others else None
            returned = signature.return_annotation

            @wraps(function)
            async def handler(request: web.Request) -> web.StreamResponse:
                value = await (function(request, await body(request, kind)) if kind else function(request))
                if isinstance(value, web.StreamResponse):
                    return value
                return web.Response(status=HTTPStatus.NO_CONTENT) if value is None else answer(value, status)

            self.append(
                Operation(
                    method,
                    path,
                    need,
                    handler,
                    answers or ({status: returned} if returned else {204: None}),
                    kind or file,
                    parameters,
                    (*problems, *(_OF_BODIES if kind else ())),
                    without_store,
                    largest_bytes,
                )
            )
            return function

        return declare


def document(prefix: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document of these operations, whose paths stand below ``prefix``."""
    types: list[type[msgspec.Struct]] = [Problem]
    for operation in operations:
        types += [kind for kind in (*operation.answers.values(), operation.body) if isinstance(kind, type)]
    _, components = msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Coronet", "version": version("coronet"), "description": "What the console can do."},
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
                    "description": "As in the pages; changes also need Origin and X-CSRF-Token.",
                },
            },
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    is_post = operation.method == "POST"
    problems = sorted({*operation.problems, *_ALWAYS_POSSIBLE, *(_OF_REPEATS if is_post else ())})
    kinds = [(status, kind, _JSON) for status, kind in operation.answers.items()]
    kinds += [(status, Problem, "application/problem+json") for status in problems]
    described: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "tags": [operation.need.scope.partition(":")[0] or "access"],
        "summary": (operation.handler.__doc__ or "").strip(),
        "description": f"Needs the role {operation.need.role}; of API keys, the scope {operation.need.scope}.",
        "responses": {
            str(status): {"description": HTTPStatus(status).phrase, **_content(kind, media_type)}
            for status, kind, media_type in kinds
        },
    }
    if parameters := (*operation.parameters, *((_REPEATABLE,) if is_post else ())):
        described["parameters"] = [
            {
                "name": each.name,
                "in": each.place,
                "description": each.meaning,
                "required": each.place == "path",
                "schema": {"type": each.type},
            }
            for each in parameters
        ]
    if operation.body is not None:
        described["requestBody"] = {"required": True, **_content(operation.body, _JSON)}
    return described


def _content(kind: Body | None, media_type: str) -> dict[str, Any]:
    if kind is None:
        return {}
    if isinstance(kind, File):
        return {"content": {kind.media_type: {"schema": {"type": "string"}}}}
    return {"content": {media_type: {"schema": {"$ref": _REFERENCE.format(name=kind.__name__)}}}}
