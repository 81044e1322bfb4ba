"""The middleware that authorises requests, and the security headers of every response.

Every route is closed unless ``app[PUBLIC]`` or ``app[HOOKS]`` names its handler.

A closed route opens only to who has what ``app[NEEDS]`` says of its handler; to nobody, where that says nothing.
A browser proves itself with a session cookie, a program, of the API alone, with an API key. Every change made
with a cookie must also come from our own pages (``Origin``) and carry the CSRF token of that cookie; a key is
never sent by a browser on its own and needs neither.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote, urljoin

from aiohttp import hdrs, web

from service.console.auth.roles import Need, Visitor
from service.console.rendering import CLOCK, CSRF, SETTINGS, STORE, VISITOR
from service.net.http_server import client_of
from service.store.console.accounts import Role

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PUBLIC: Final = web.AppKey("public", frozenset[Handler])
"""The handlers that anybody may reach."""

HOOKS: Final = web.AppKey("hooks", frozenset[Handler])
"""The handlers that other programs come to, and that tell good from bad themselves: no cookie speaks for these."""

WITHOUT_STORE: Final = web.AppKey("without store", frozenset[Handler])
"""The handlers that do their work although the store is refused."""

NEEDS: Final = web.AppKey("needs", Mapping[Handler, Need])
"""What somebody must be allowed to reach any other handler."""

API_PREFIX: Final = "/api/"
SESSION_COOKIE: Final = "coronet_session"
FORM_COOKIE: Final = "coronet_form"
"""Stands in for the session on forms of people who are not logged in yet."""
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

CHANGES_NOTHING = {hdrs.METH_GET, hdrs.METH_HEAD}
_TOKEN_HOLDER = Visitor("", Role.ADMIN, key="console_admin_token")


def csrf_token(cookie: str) -> str:
    """Return the CSRF token that belongs to a cookie; who cannot read the cookie cannot make it."""
    return hmac.new(cookie.encode(), b"coronet csrf", hashlib.sha256).hexdigest()


def behind_tls(request: web.Request) -> bool:
    """Return whether the visitor's browser reached us over https."""
    return client_of(request).is_secure or request.app[SETTINGS].console_public_url.startswith("https://")


def set_cookie(request: web.Request, response: web.Response, name: str, value: str, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read and other sites cannot cause to be sent."""
    response.set_cookie(
        name, value, max_age=max_age_s, path="/", httponly=True, samesite="Strict", secure=behind_tls(request)
    )


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let a request through to its handler, or turn it away. Raises StoreIdentityMismatch."""
    if request.match_info.handler not in request.app[WITHOUT_STORE]:
        request.app[STORE].identity.check()
    if request.match_info.handler in request.app[HOOKS]:
        return await handler(request)
    by_key = False
    if request.match_info.handler in request.app[PUBLIC]:
        cookie = request.cookies.get(FORM_COOKIE) or secrets.token_urlsafe(32)
    else:
        cookie = request.cookies.get(SESSION_COOKIE, "")
        by_key = hdrs.AUTHORIZATION in request.headers and request.path.startswith(API_PREFIX)
        visitor = await (_key_holder(request) if by_key else _logged_in(request, cookie))
        if visitor is None:
            return _turned_away(request)
        request[VISITOR] = visitor
    request[CSRF] = csrf_token(cookie)
    if request.method not in CHANGES_NOTHING and not by_key:
        await _must_come_from_our_pages(request)
    if VISITOR in request and request.match_info.http_exception is None:
        _must_be_allowed(request)
    response = await handler(request)
    if VISITOR not in request and isinstance(response, web.Response) and response.content_type == "text/html":
        set_cookie(request, response, FORM_COOKIE, cookie, max_age_s=3600)
    return response


async def _logged_in(request: web.Request, cookie: str) -> Visitor | None:
    found = await request.app[STORE].sessions.find(cookie)
    return Visitor(found[0], found[1].role, zone=found[1].zone) if found else None


async def _key_holder(request: web.Request) -> Visitor | None:
    scheme, _, token = request.headers[hdrs.AUTHORIZATION].partition(" ")
    if scheme.lower() != "bearer":
        return None
    ours = request.app[SETTINGS].console_admin_token.get_secret_value()
    same = hmac.compare_digest(hashlib.sha256(token.encode()).digest(), hashlib.sha256(ours.encode()).digest())
    if same and ours:
        return _TOKEN_HOLDER
    found = await request.app[STORE].api_keys.find(token, request.app[CLOCK].wall_s())
    if found is None:
        return None
    key, account = found
    return Visitor(key.account, account.role, key.name, frozenset(key.scopes), account.zone)


def _must_be_allowed(request: web.Request) -> None:
    visitor, need = request[VISITOR], request.app[NEEDS].get(request.match_info.handler)
    if need is None:
        raise web.HTTPForbidden(text="Nobody may do this: it is not said who.")
    if not visitor.role.covers(need.role):
        raise web.HTTPForbidden(
            text=f"This needs the role “{need.role}”, and you are “{visitor.role}”. An admin can change that."
        )
    if not visitor.reaches(need.scope):
        raise web.HTTPForbidden(text=f"This needs an API key with the scope “{need.scope}”. This one has not got it.")


def _turned_away(request: web.Request) -> web.Response:
    if request.path.startswith(API_PREFIX):
        raise web.HTTPUnauthorized(
            text="Send an API key as “Authorization: Bearer …”, or log in.",
            headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="coronet"'},
        )
    if "HX-Request" in request.headers:
        return web.Response(status=401, headers={"HX-Refresh": "true"})
    back = f"?next={quote(request.path_qs)}" if request.method == hdrs.METH_GET and request.path != "/" else ""
    raise web.HTTPSeeOther(f"/login{back}")


async def _must_come_from_our_pages(request: web.Request) -> None:
    if request.headers.get(hdrs.ORIGIN) not in our_origins(request):
        raise web.HTTPForbidden(text="The request did not come from this console's own pages.")
    token = request.headers.get(CSRF_HEADER)
    if token is None:
        try:
            token = str((await request.post()).get(CSRF_FIELD, ""))
        except (ValueError, LookupError) as error:  # what the form, or its name of a character set, cannot be read by
            raise web.HTTPBadRequest(text="The form cannot be read: it is malformed.") from error
    if not hmac.compare_digest(token.encode(), request[CSRF].encode()):
        raise web.HTTPForbidden(text="The form was too old. Go back, reload the page, and send it again.")


def our_origins(request: web.Request) -> set[str]:
    """Return the origins that this console's own pages have."""
    public = request.app[SETTINGS].console_public_url
    here = own_origin(request)
    return {here, urljoin(public, "/").rstrip("/")} if public else {here}


def own_origin(request: web.Request) -> str:
    """Return the origin at which the visitor's browser reached us."""
    return f"{'https' if client_of(request).is_secure else 'http'}://{request.host}"


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Complete a response's headers; to be called for every response when it is prepared."""
    policy = response.headers.get(_POLICY, _CONTENT_SECURITY_POLICY)
    response.headers.update(_HEADERS)
    response.headers[_POLICY] = policy
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    if behind_tls(request):
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
