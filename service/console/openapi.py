"""The API's document (OpenAPI 3.1), made from the very types that check requests and build answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Literal

import msgspec

from service.console.access import Need
from service.console.failures import Problem
from service.console.guard import Handler
from service.console.wire import MOST_ITEMS

_ALWAYS_POSSIBLE = (401, 403, 500, 503)
_OF_REPEATS = (409, 422)
_REFERENCE = "#/components/schemas/{name}"


@dataclass(frozen=True)
class Parameter:
    """A value in the path or query."""

    name: str
    place: Literal["path", "query", "header"]
    meaning: str
    type: Literal["string", "integer"] = "string"


CURSOR = Parameter("cursor", "query", "Where to go on: `next` of the page before.")
LIMIT = Parameter("limit", "query", f"How many items at most, 1 to {MOST_ITEMS}.", type="integer")

_REPEATABLE = Parameter(
    "Idempotency-Key", "header", "Chosen by you: with the same key, the same request is carried out once within a day."
)

BODY = (400, 413, 415, 422)
"""The problems that a body can have."""


@dataclass(frozen=True)
class File:
    """A body that is no JSON."""

    media_type: str


Body = type[msgspec.Struct] | File


@dataclass(frozen=True)
class Operation:
    """One thing the API can do. The handler's docstring is its summary; ``answers`` maps status to type."""

    method: str
    path: str
    need: Need
    handler: Handler
    answers: Mapping[int, Body | None]
    body: Body | None = None
    parameters: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = ()


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
    responses = {
        str(status): {"description": HTTPStatus(status).phrase, **_content(kind, "application/json")}
        for status, kind in operation.answers.items()
    }
    of_repeats = _OF_REPEATS if operation.method == "POST" else ()
    for status in sorted({*operation.problems, *_ALWAYS_POSSIBLE, *of_repeats}):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            **_content(Problem, "application/problem+json"),
        }
    described: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "tags": [operation.need.scope.partition(":")[0] or "access"],
        "summary": (operation.handler.__doc__ or "").strip(),
        "description": f"Needs the role {operation.need.role}; of API keys, the scope {operation.need.scope}.",
        "responses": responses,
    }
    parameters = (*operation.parameters, *((_REPEATABLE,) if operation.method == "POST" else ()))
    if parameters:
        described["parameters"] = [_parameter(parameter) for parameter in parameters]
    if operation.body is not None:
        described["requestBody"] = {"required": True, **_content(operation.body, "application/json")}
    return described


def _content(kind: Body | None, media_type: str) -> dict[str, Any]:
    if kind is None:
        return {}
    if isinstance(kind, File):
        return {"content": {kind.media_type: {"schema": {"type": "string"}}}}
    return {"content": {media_type: {"schema": {"$ref": _REFERENCE.format(name=kind.__name__)}}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.meaning,
        "required": parameter.place == "path",
        "schema": {"type": parameter.type},
    }
