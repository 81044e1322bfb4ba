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
from typing import Final
from urllib.parse import quote

from aiohttp import hdrs, web

from service.console.app_keys import CSRF, PRINCIPAL, SETTINGS, STORE, local_path
from service.console.auth.cookies import FORM_COOKIE, SESSION_COOKIE, set_cookie
from service.console.auth.csrf import SAFE_METHODS, check_csrf, csrf_token
from service.console.auth.permissions import Permission, Principal
from service.console.route_rules import Handler, OpenAccess, rules_of
from service.store.console.accounts import Role

API_PREFIX: Final = "/api/"


_ADMIN_TOKEN_PRINCIPAL = Principal("", Role.ADMIN, key="console_admin_token")


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
        await check_csrf(request)
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
