"""JSON in and out: bodies of requests that fit a type, answers, and pages of lists."""

import re
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

import msgspec
from aiohttp import web

from service.errors import UserError

MOST_ITEMS: Final = 200
"""Of one page of a list."""

_PLACE = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)
_Body = TypeVar("_Body")


def answer(value: object, status: int = HTTPStatus.OK) -> web.Response:
    """Return a value as JSON."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


async def body(request: web.Request, kind: type[_Body]) -> _Body:
    """Return what was sent. Raises :class:`UserError` for what is of no such kind, and HTTP errors for no JSON."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Send the body as application/json.")
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.ValidationError as error:
        raise UserError(f"The body does not fit: {error}") from error
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"The body is not JSON: {error}") from error


def limit(request: web.Request, usual: int) -> int:
    """Return how many items are wanted at most. Raises :class:`UserError` for what is no such number."""
    try:
        wanted: int = msgspec.convert(
            request.query.get("limit", str(usual)), Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)], strict=False
        )
    except msgspec.ValidationError as error:
        raise UserError(f"limit: {error}") from error
    return wanted


def place(request: web.Request) -> str:
    """Return where in a log to go on; "" from its newest entry. Raises :class:`UserError` for what is no place."""
    cursor = request.query.get("cursor", "")
    if cursor and not _PLACE.fullmatch(cursor):
        raise UserError("This cursor is not one the console gave out. Start again without it.")
    return cursor
