"""Declaration of the JSON API's operations, with the decoding of their request bodies and the encoding of responses.

:class:`Operations` declares a function as an operation and derives the rest from the function. A second parameter is
the request body, and the return value is the response. The function's name is the operation id, and its docstring is
the summary.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from typing import Final, Literal, TypeVar

import msgspec
from aiohttp import web

from service.console.auth.permissions import Permission
from service.console.pagination import MAX_ITEMS
from service.console.route_rules import Handler
from service.errors import UserError

_BODY_PROBLEMS: Final = (400, 413, 415, 422)

_Function = TypeVar("_Function", bound=Callable[..., Awaitable[object]])


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation: a part of the path, a field of the URL's query, or a header."""

    name: str
    place: Literal["path", "query", "header"]
    description: str
    type: Literal["string", "integer"] = "string"


CURSOR: Final = Parameter("cursor", "query", "Where the page begins: the `next` of the previous page.")
LIMIT: Final = Parameter("limit", "query", f"Maximum number of items, 1 to {MAX_ITEMS}.", type="integer")

_PATH_DESCRIPTIONS: Final = {
    "cid": "Channel id, 40 hexadecimal digits.",
    "host": "Host name of a publisher, as in a URL.",
    "node": "Node id.",
    "worker": "Worker name.",
    "label": "Label of a key group, like `01*`.",
    "user": "Id of a person, 16 characters.",
    "letter": "Dead letter id.",
    "number": "Number of an announcement.",
    "import_id": "Id of an import.",
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
    """The result of an action; ``done`` states in one sentence what was done."""

    done: str


@dataclass(frozen=True)
class Operation:
    """One operation of the API.

    - ``responses`` maps each success status to the type of the response body; None means an empty body.
    - ``body`` is the type of the request body; None means that there is none.
    - ``problems`` are the error statuses that the operation may return.
    - ``without_store`` is true if the operation must work even while use of the store is blocked, because the store has
      lost data or belongs to another fleet.
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
    """The operations of one module, in the order in which they are declared."""

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

        - ``problems`` are the error statuses with which the operation may fail.
        - ``query`` are the operation's parameters in the URL's query.
        - ``responses`` maps success statuses to types of response bodies. It is needed only for functions that return
          a response object.
        - ``file`` is the type of a request body that is not JSON. The function reads such a body itself.
        - ``status`` is the HTTP status in case of success.
        - ``host_description`` describes the path parameter ``host``.
        - ``without_store`` is explained in :class:`Operation`.
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


_Body = TypeVar("_Body")


def json_response(value: object, status: int = HTTPStatus.OK) -> web.Response:
    """Return a response with ``value`` encoded as JSON by msgspec."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


async def read_body(request: web.Request, kind: type[_Body]) -> _Body:
    """Return the request's JSON body, decoded as an object of the type ``kind``.

    Raises :class:`UserError` if the body does not match the type, HTTP 400 if it is not JSON, and HTTP 415 for another
    media type.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Send the body as application/json.")
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.ValidationError as error:
        raise UserError(f"The body is invalid: {error}") from error
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"The body is not valid JSON: {error}") from error
