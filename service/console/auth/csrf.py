"""CSRF protection: the tokens that forms contain, and the check of a request's Origin and token."""

import hashlib
import hmac
from typing import Final
from urllib.parse import urljoin

from aiohttp import hdrs, web

from service.console.app_keys import CSRF, SETTINGS
from service.net.http_server import client_of

CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "X-CSRF-Token"
SAFE_METHODS = {hdrs.METH_GET, hdrs.METH_HEAD}


def csrf_token(cookie: str) -> str:
    """Return the CSRF token for the session cookie with the value ``cookie``.

    Nobody can compute the token without the cookie.
    """
    return hmac.new(cookie.encode(), b"coronet csrf", hashlib.sha256).hexdigest()


async def check_csrf(request: web.Request) -> None:
    """Raise HTTPForbidden unless the request has this console's ``Origin`` and the CSRF token of its session cookie.

    Raises HTTPBadRequest if the form is malformed.
    """
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
    """Raise HTTPForbidden unless the header ``Origin`` shows that a page of this console has sent the request.

    An origin is a scheme and host. Two origins are permitted: the one that the client used to reach this console, and
    the one in the setting ``console_public_url``.
    """
    public_origin = urljoin(request.app[SETTINGS].console_public_url, "/").rstrip("/")
    if request.headers.get(hdrs.ORIGIN, "") not in {own_origin(request), public_origin or None}:
        raise web.HTTPForbidden(text="The request was not sent from this console's own pages.")


def own_origin(request: web.Request) -> str:
    """Return the origin (scheme and host) that the client used to reach this console."""
    return f"{'https' if client_of(request).is_secure else 'http'}://{request.host}"
