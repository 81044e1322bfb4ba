"""Every error becomes words: a page for people, an RFC 9457 problem for programs."""

import http
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps

import msgspec
import structlog
from aiohttp import hdrs, web

from service.console.auth.middleware import API_PREFIX, Handler
from service.console.rendering import render
from service.errors import (
    CoronetError,
    LimitReached,
    NotFound,
    NotSubscribed,
    OperationalError,
    PermissionDenied,
    PublisherError,
    StoreIdentityMismatch,
    StoreUnavailable,
    UserError,
)
from service.net.http_server import is_client_fault

log = structlog.get_logger(__name__)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong with a request (RFC 9457). ``code`` is for programs, ``detail`` for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str


_STATUS: dict[type[CoronetError], int] = {
    NotSubscribed: 404,
    NotFound: 404,
    LimitReached: 429,
    PermissionDenied: 403,
    UserError: 422,
    PublisherError: 502,
    OperationalError: 503,
}

_TITLES = {
    403: "Not allowed",
    404: "Nothing here",
    413: "Too much at once",
    422: "That cannot be done",
    429: "Too many tries",
    500: "A mistake of ours",
    502: "The publisher failed",
    503: "Not now",
}

_DETAILS = {
    404: "There is no such page, or it was removed.",
    405: "This page cannot be asked for in that way.",
    413: "The request is larger than the console takes.",
}

_STORE_IS_AWAY = (
    "The store cannot be reached. Nothing is lost, and this page works again when it is back. "
    "Check that Redis runs and that redis_url is right; the log says more."
)


def status_of(error: CoronetError) -> int:
    """Return the HTTP status that fits an error."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def problem(status: int, detail: str, code: str = "") -> Problem:
    """Return a problem; ``code`` is made from the status if the error has none of its own."""
    phrase = http.HTTPStatus(status).phrase
    code = code or phrase.lower().replace(" ", "-")
    return Problem(f"urn:coronet:problem:{code}", _TITLES.get(status, phrase), status, detail, code)


def in_plain_words(error: CoronetError) -> str:
    """Return what a page says about an error; strangers read it too, so how Redis is reached stays in the log."""
    if isinstance(error, StoreUnavailable) and not isinstance(error, StoreIdentityMismatch):
        log.warning("the store cannot be reached", error=str(error))
        return _STORE_IS_AWAY
    return str(error)


def shown_on(page: Callable[..., Awaitable[web.StreamResponse]]) -> Callable[[Handler], Handler]:
    """Return a decorator for handlers of forms: after an error of ours, the form's ``page`` is shown again with it.

    The page takes the request, the status and ``error``. That the store is unavailable is left to the middleware.
    """

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except StoreUnavailable:
                raise
            except CoronetError as error:
                return await page(request, status_of(error), error=in_plain_words(error))

        return handle

    return decorate


@web.middleware
async def failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors with words; a bug gets a reference that is also in the log."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < http.HTTPStatus.BAD_REQUEST:
            raise
        said = error.text if error.text and not error.text.startswith(f"{error.status}:") else ""
        return _answer(request, problem(error.status, said or _DETAILS.get(error.status, error.reason)), error.headers)
    except CoronetError as error:
        return _answer(request, problem(status_of(error), in_plain_words(error), error.code))
    except Exception as error:
        if is_client_fault(request, error):
            raise
        reference = secrets.token_hex(4)
        log.exception("request failed", method=request.method, path=request.path, reference=reference)
        return _answer(request, problem(500, f"It is in the log under the reference {reference}."))


def _answer(request: web.Request, trouble: Problem, headers: Mapping[str, str] | None = None) -> web.Response:
    if request.path.startswith(API_PREFIX):
        body = msgspec.json.encode(trouble)
        response = web.Response(status=trouble.status, body=body, content_type="application/problem+json")
    elif "HX-Request" in request.headers:
        # A live part cannot show an error page; the whole page can.
        response = web.Response(status=trouble.status, headers={"HX-Refresh": "true"})
    else:
        tries_again = trouble.status == http.HTTPStatus.SERVICE_UNAVAILABLE and request.method == hdrs.METH_GET
        response = render(request, "problem.html", trouble.status, problem=trouble, tries_again=tries_again)
        if tries_again:
            response.headers["Refresh"] = "5"
    for name in (hdrs.WWW_AUTHENTICATE, hdrs.ALLOW, hdrs.RETRY_AFTER):
        if headers is not None and name in headers:
            response.headers[name] = headers[name]
    return response
