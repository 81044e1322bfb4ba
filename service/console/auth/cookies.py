"""Cookies of the console: their names, attributes and path."""

from typing import Final

from aiohttp import web

from service.console.app_keys import SETTINGS
from service.net.http_server import client_of

SESSION_COOKIE: Final = "coronet_session"
FORM_COOKIE: Final = "coronet_form"
"""Carries the CSRF secret of forms before login, when there is no session cookie."""


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
