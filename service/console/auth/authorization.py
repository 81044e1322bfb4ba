"""Authorization middleware: authentication, permissions and CSRF checks; also the security headers of every response.

``app[ROUTE_RULES]`` states who may use each handler. A handler without rules is refused to everybody.

Browsers authenticate with a session cookie, API clients with an API key. A change made with a cookie must also have an
``Origin`` of this console and the cookie's CSRF token. Browsers never send an API key by themselves, so requests with a
key need neither.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import quote, urljoin

from aiohttp import hdrs, web

from service.console.auth.permissions import Permission, Principal
from service.console.rendering import CSRF, PRINCIPAL, SETTINGS, STORE, local_path
from service.net.http_server import client_of
from service.store.console.accounts import Role

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LARGEST_BODY_BYTES: Final = 64 * 1024


class OpenAccess(Enum):
    """Access without an account."""

    PUBLIC = "public"
    """The handler needs no authentication."""
    WEBHOOK = "webhook"
    """The handler is called by other services and authenticates them itself, without cookies."""


@dataclass(frozen=True)
class RouteRules:
    """Who may use the handler of a route, and how its requests are treated.

    ``access`` is None if nobody may use the handler. ``kind`` is the class of requests in the metrics. The request body
    has at most ``largest_bytes``. ``without_store`` states that the handler also works while the store is refused
    (``StoreIdentityMismatch``).
    """

    access: Permission | OpenAccess | None
    kind: str
    largest_bytes: int = LARGEST_BODY_BYTES
    without_store: bool = False


ROUTE_RULES: Final = web.AppKey("route rules", Mapping[Handler, RouteRules])

API_PREFIX: Final = "/api/"
SESSION_COOKIE: Final = "coronet_session"
FORM_COOKIE: Final = "coronet_form"
"""Carries the CSRF secret of forms before login, when there is no session cookie."""
CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "X-CSRF-Token"

_POLICY: Final = "Content-Security-Policy"
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
    "img-src 'self' data:; "  # the stylesheet's icons are data: images
    "base-uri 'none'; frame-ancestors 'none'"
)

_HEADERS: Final = {
    hdrs.SERVER: "coronet",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # "no-referrer" would make browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

SAFE_METHODS = {hdrs.METH_GET, hdrs.METH_HEAD}
_CLOSED: Final = RouteRules(None, "other")
_ADMIN_TOKEN_PRINCIPAL = Principal("", Role.ADMIN, key="console_admin_token")


def csrf_token(cookie: str) -> str:
    """Return the CSRF token for the session cookie with the value ``cookie``.

    Nobody can compute the token without the cookie.
    """
    return hmac.new(cookie.encode(), b"coronet csrf", hashlib.sha256).hexdigest()


def is_https(request: web.Request) -> bool:
    """Return whether the client uses HTTPS to reach this console, or to reach the reverse proxy in front of it."""
    return client_of(request).is_secure or request.app[SETTINGS].console_public_url.startswith("https://")


def set_cookie(request: web.Request, response: web.Response, name: str, value: str, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read (HttpOnly) and that cross-site requests do not carry (SameSite)."""
    path = cookie_path(request)
    response.set_cookie(
        name, value, max_age=max_age_s, path=path, httponly=True, samesite="Strict", secure=is_https(request)
    )


def cookie_path(request: web.Request) -> str:
    """Return the path of this console's cookies, so that other applications of the same host do not get them."""
    return f"{request.app[SETTINGS].console_base_path}/"


def rules_of(request: web.Request) -> RouteRules:
    """Return the rules of the request's route."""
    return request.app[ROUTE_RULES].get(request.match_info.handler, _CLOSED)


@web.middleware
async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Pass an authorized request to its handler; otherwise redirect to the login form, or raise HTTP 401 or 403.

    Raises :class:`service.errors.StoreIdentityMismatch` while the store is refused because it may belong to another
    fleet, unless the handler works without the store.
    """
    rules = rules_of(request)
    access = rules.access
    if not rules.without_store:
        request.app[STORE].identity.check()
    if access is OpenAccess.WEBHOOK:
        return await handler(request)
    uses_key = False
    if access is OpenAccess.PUBLIC:
        cookie = request.cookies.get(FORM_COOKIE) or secrets.token_urlsafe(32)
    else:
        cookie = request.cookies.get(SESSION_COOKIE, "")
        uses_key = hdrs.AUTHORIZATION in request.headers and local_path(request).startswith(API_PREFIX)
        if uses_key:
            principal = await _principal_of_key(request)
        elif found := await request.app[STORE].sessions.find(cookie):
            principal = Principal(found[0], found[1].role, zone=found[1].zone)
        else:
            principal = None
        if principal is None:
            return _require_login(request)
        request[PRINCIPAL] = principal
    request[CSRF] = csrf_token(cookie)
    if request.method not in SAFE_METHODS and not uses_key:
        await _check_csrf(request)
    if access is not OpenAccess.PUBLIC and request.match_info.http_exception is None:
        _check_permission(request[PRINCIPAL], access)
    response = await handler(request)
    if access is OpenAccess.PUBLIC and isinstance(response, web.Response) and response.content_type == "text/html":
        set_cookie(request, response, FORM_COOKIE, cookie, max_age_s=3600)
    return response


async def _principal_of_key(request: web.Request) -> Principal | None:
    scheme, _, token = request.headers[hdrs.AUTHORIZATION].partition(" ")
    if scheme.lower() != "bearer":
        return None
    admin_token = request.app[SETTINGS].console_admin_token.get_secret_value()
    # Digests have equal lengths, so that the comparison does not reveal the token's length.
    sent, expected = (hashlib.sha256(each.encode()).digest() for each in (token, admin_token))
    if hmac.compare_digest(sent, expected) and admin_token:
        return _ADMIN_TOKEN_PRINCIPAL
    found = await request.app[STORE].api_keys.find(token, time.time())
    if found is None:
        return None
    key, account = found
    return Principal(key.account, account.role, key.name, frozenset(key.scopes), account.zone)


def _check_permission(principal: Principal, required: Permission | None) -> None:
    if required is None:
        raise web.HTTPForbidden(text="This route declares no permission, so nobody may use it.")
    if not principal.role.covers(required.role):
        raise web.HTTPForbidden(
            text=f"This requires the role “{required.role}”; your role is “{principal.role}”. An admin can change it."
        )
    if not principal.has_scope(required.scope):
        raise web.HTTPForbidden(text=f"This API key lacks the required scope “{required.scope}”.")


def _require_login(request: web.Request) -> web.Response:
    """Refuse a request without login.

    A page request is redirected to the login form. Requests of the API and of htmx get the status 401.
    """
    if local_path(request).startswith(API_PREFIX):
        raise web.HTTPUnauthorized(
            text="Log in, or send an API key as “Authorization: Bearer …”.",
            headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="coronet"'},
        )
    if "HX-Request" in request.headers:
        return web.Response(status=401, headers={"HX-Refresh": "true"})
    path = request.path_qs.removeprefix(request.app[SETTINGS].console_base_path)
    return_to = f"?next={quote(path)}" if request.method == hdrs.METH_GET and path != "/" else ""
    raise web.HTTPSeeOther(f"/login{return_to}")


async def _check_csrf(request: web.Request) -> None:
    check_origin(request)
    token = request.headers.get(CSRF_HEADER)
    if token is None:
        try:
            token = str((await request.post()).get(CSRF_FIELD, ""))
        except (ValueError, LookupError) as error:  # a malformed body, or an unknown charset
            raise web.HTTPBadRequest(text="The form could not be read because it is malformed.") from error
    if not hmac.compare_digest(token.encode(), request[CSRF].encode()):
        raise web.HTTPForbidden(text="This form has expired. Go back, reload the page, and submit it again.")


def check_origin(request: web.Request) -> None:
    """Raise HTTPForbidden unless a page of this console has sent the request, according to its ``Origin``.

    Pages have the origin (scheme and host) that the client has requested, or that of the setting
    ``console_public_url``.
    """
    public_origin = urljoin(request.app[SETTINGS].console_public_url, "/").rstrip("/")
    if request.headers.get(hdrs.ORIGIN, "") not in {own_origin(request), public_origin or None}:
        raise web.HTTPForbidden(text="The request was not sent from this console's own pages.")


def own_origin(request: web.Request) -> str:
    """Return the origin (scheme and host) under which the client has requested this console."""
    return f"{'https' if client_of(request).is_secure else 'http'}://{request.host}"


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to a response; aiohttp calls this for every response (``on_response_prepare``).

    Also prefix a ``Location`` that is a path with ``console_base_path``, which handlers leave out.
    """
    location = response.headers.get(hdrs.LOCATION, "")
    if location.startswith("/"):
        response.headers[hdrs.LOCATION] = f"{request.app[SETTINGS].console_base_path}{location}"
    policy = response.headers.get(_POLICY, _CONTENT_SECURITY_POLICY)
    response.headers.update(_HEADERS)
    response.headers[_POLICY] = policy
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    if is_https(request):
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
