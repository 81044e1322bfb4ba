"""Authentication: determines who sent a request, from a session cookie, an API key or the console's admin token.

The module also defines the names, attributes and path of the console's cookies.
"""

import hashlib
import hmac
import time
from typing import Final
from urllib.parse import quote

from aiohttp import hdrs, web

from service.console.app_keys import SETTINGS, STORE, local_path
from service.console.auth.permissions import Principal
from service.console.route_rules import API_PREFIX
from service.net.http_server import client_of
from service.store.console.accounts import Role

SESSION_COOKIE: Final = "coronet_session"
FORM_COOKIE: Final = "coronet_form"
"""Carries the CSRF secret of forms before login, when there is no session cookie."""


def is_https(request: web.Request) -> bool:
    """Return whether the client uses HTTPS to reach this console or the reverse proxy in front of it."""
    return client_of(request).is_secure or request.app[SETTINGS].console_public_url.startswith("https://")


def set_cookie(request: web.Request, response: web.Response, name: str, value: str, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read (HttpOnly) and that cross-site requests do not carry (SameSite)."""
    path = cookie_path(request)
    response.set_cookie(
        name, value, max_age=max_age_s, path=path, httponly=True, samesite="Strict", secure=is_https(request)
    )


def cookie_path(request: web.Request) -> str:
    """Return the path for this console's cookies, so that other applications on the same host do not receive them."""
    return f"{request.app[SETTINGS].console_base_path}/"


_ADMIN_TOKEN_PRINCIPAL = Principal("", Role.ADMIN, key="console_admin_token")


def has_api_key(request: web.Request) -> bool:
    """Return whether the request is for the API and has an ``Authorization`` header.

    The session cookie of such a request is ignored.
    """
    return hdrs.AUTHORIZATION in request.headers and local_path(request).startswith(API_PREFIX)


async def authenticate(request: web.Request) -> Principal | None:
    """Return the sender of a request; None if the request does not prove who sent it.

    An API request with an ``Authorization`` header is authenticated by the API key or admin token in this header. Any
    other request is authenticated by its session cookie.
    """
    if has_api_key(request):
        return await _principal_of_key(request)
    found = await request.app[STORE].sessions.find(request.cookies.get(SESSION_COOKIE, ""))
    return Principal(found[0], found[1].role, zone=found[1].zone) if found else None


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


def require_login(request: web.Request) -> web.Response:
    """Refuse a request whose sender is not logged in.

    For a page, raises HTTPSeeOther, which redirects to the login form. For the API, raises HTTPUnauthorized. For a
    request by htmx, returns a response with status 401 that makes the browser reload the page.
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
