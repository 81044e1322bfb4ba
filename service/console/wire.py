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


def place(request: web.Request, given: str | None = None) -> str:
    """Return where in a log to go on, by the cursor if no place is given; "" from its newest entry.

    Raises :class:`UserError` for what is no place.
    """
    found = request.query.get("cursor", "") if given is None else given
    if (found or given is not None) and not _PLACE.fullmatch(found):
        raise UserError("This is no place in a log that the console gave out. Start again without it.")
    return found
