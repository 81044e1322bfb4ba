"""Error responses: exceptions become error pages for browsers, or RFC 9457 problem documents for API clients."""

import http
import secrets
from collections.abc import Mapping

import msgspec
import structlog
from aiohttp import hdrs, web

from service.console.app_keys import local_path
from service.console.page_rendering import render
from service.console.route_rules import API_PREFIX, Handler, rules_of
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
    """The reason why a request failed (RFC 9457). ``code`` is for programs, and ``detail`` is for people."""

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

_KINDS_WITH_SECRET_PATHS = ("feed", "hook")
_TITLES = {
    403: "Not allowed",
    404: "Not found",
    413: "Request too large",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal error",
    502: "Publisher error",
    503: "Service unavailable",
}

_DETAILS = {
    404: "There is no such page, or it has been removed.",
    405: "This address does not support that request method.",
    413: "The request is larger than the console accepts.",
}

_STORE_UNAVAILABLE = (
    "The database is unavailable. No data is lost, and this page works again as soon as the database is back. "
    "Check that Redis is running and that redis_url is correct; the log has details."
)


def status_of(error: CoronetError) -> int:
    """Return the HTTP status of the response to ``error``.

    The status is looked up for the error's class, then for its base classes. If none of them has a status, it is 500.
    """
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def make_problem(status: int, detail: str, code: str = "") -> Problem:
    """Return the problem document for an HTTP status. ``code`` defaults to the status's name, such as ``not-found``."""
    phrase = http.HTTPStatus(status).phrase
    code = code or phrase.lower().replace(" ", "-")
    return Problem(f"urn:coronet:problem:{code}", _TITLES.get(status, phrase), status, detail, code)


def public_message(error: CoronetError) -> str:
    """Return the message for ``error`` to put into a response, without secrets (guarantee I10).

    People who are not logged in also receive responses. Therefore the message for :class:`StoreUnavailable` leaves out
    the address of Redis, which is only logged.
    """
    if isinstance(error, StoreUnavailable) and not isinstance(error, StoreIdentityMismatch):
        log.warning("store unavailable", error=str(error))
        return _STORE_UNAVAILABLE
    return str(error)


@web.middleware
async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert every exception that a handler raises into an error response.

    An unexpected exception is logged with a reference, which is also shown in the response.
    """
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < http.HTTPStatus.BAD_REQUEST:
            raise
        # aiohttp's default text is "404: Not Found".
        text = error.text if error.text and not error.text.startswith(f"{error.status}:") else ""
        detail = text or _DETAILS.get(error.status, error.reason)
        return _error_response(request, make_problem(error.status, detail), error.headers)
    except CoronetError as error:
        return _error_response(request, make_problem(status_of(error), public_message(error), error.code))
    except Exception as error:
        if is_client_fault(request, error):
            raise
        reference = secrets.token_hex(4)
        kind = rules_of(request).kind
        path = kind if kind in _KINDS_WITH_SECRET_PATHS else request.path
        log.exception("request failed", method=request.method, path=path, reference=reference)
        return _error_response(request, make_problem(500, f"The log has the details under reference {reference}."))


def _error_response(request: web.Request, problem: Problem, headers: Mapping[str, str] | None = None) -> web.Response:
    if local_path(request).startswith(API_PREFIX):
        body = msgspec.json.encode(problem)
        response = web.Response(status=problem.status, body=body, content_type="application/problem+json")
    elif "HX-Request" in request.headers:
        # An htmx fragment cannot show an error page, so the whole page is reloaded.
        response = web.Response(status=problem.status, headers={"HX-Refresh": "true"})
    else:
        retries = problem.status == http.HTTPStatus.SERVICE_UNAVAILABLE and request.method == hdrs.METH_GET
        response = render(request, "problem.html", problem.status, problem=problem, retries=retries)
        if retries:
            response.headers["Refresh"] = "5"
    for name in (hdrs.WWW_AUTHENTICATE, hdrs.ALLOW, hdrs.RETRY_AFTER):
        if headers is not None and name in headers:
            response.headers[name] = headers[name]
    return response
