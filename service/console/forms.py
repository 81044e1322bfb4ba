"""HTML forms: reading their fields, and responding with a redirect after a change, or with the form after an error."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import hdrs, web

from service.console.auth.csrf import CSRF_FIELD
from service.console.middleware.error_responses import public_message, status_of
from service.console.route_rules import Handler
from service.errors import CoronetError, StoreUnavailable, UserError

_Kind = TypeVar("_Kind")
_Page = Callable[..., Awaitable[web.StreamResponse]]


async def read_form(request: web.Request) -> dict[str, str]:
    """Return the fields of the posted form, or of the URL's query if the request is not a POST.

    White space around values is removed, and the CSRF token is left out. If a field is repeated, its last value counts.
    """
    fields = await request.post() if request.method == hdrs.METH_POST else request.query
    return {name: str(value).strip() for name, value in fields.items() if name != CSRF_FIELD}


def convert_fields(fields: Mapping[str, object], kind: type[_Kind], problem: str) -> _Kind:
    """Convert the fields of a form or a URL's query to an object of the type ``kind``.

    Raises :class:`UserError` if a field is missing or invalid. The error's message is ``problem``, in which ``{}`` is
    replaced with msgspec's description of the mistake.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(problem.format(error)) from error


def redisplay_on_error(page: _Page) -> Callable[[Handler], Handler]:
    """Return a decorator for form handlers: if a handler raises a :class:`CoronetError`, the form is shown again.

    ``page`` shows the form. It is called with the request, the status, and the error's message as ``error``.
    HTTPNotFound and HTTPConflict are treated like a CoronetError; :class:`StoreUnavailable` is passed on.
    """

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except StoreUnavailable:
                raise
            except CoronetError as error:
                return await page(request, status_of(error), error=public_message(error))
            except (web.HTTPNotFound, web.HTTPConflict) as error:
                return await page(request, error.status, error=error.text)

        return handle

    return decorate


def redirect_after(
    operation: Callable[..., Awaitable[object]], target: str, page: _Page | None = None, problem: str = "{}"
) -> Handler:
    """Return a form handler that executes an API operation and then redirects to ``target``.

    - ``operation`` is the API operation. If it has a request body, the body consists of the form's non-empty fields.
    - ``target`` is a path with placeholders for path parameters of the request, for example ``/channels/{cid}``.
    - ``page`` shows the form again after an error (see :func:`redisplay_on_error`). If it is None, errors are passed
      on.
    - ``problem`` is the message for invalid fields (see :func:`convert_fields`).
    """
    bodies = [each.annotation for each in inspect.signature(operation).parameters.values()][1:]

    @wraps(operation)
    async def handle(request: web.Request) -> web.StreamResponse:
        fields = {name: text for name, text in (await read_form(request)).items() if text}
        await operation(request, *(convert_fields(fields, kind, problem) for kind in bodies))
        raise web.HTTPSeeOther(target.format_map({name: quote(text) for name, text in request.match_info.items()}))

    return redisplay_on_error(page)(handle) if page else handle
