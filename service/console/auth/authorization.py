"""Middleware that checks, for each request, the route's rules, the sender's rights and the CSRF token.

``app[ROUTE_RULES]`` states who may use each handler. Nobody may use a handler without rules.

Browsers authenticate with a session cookie, API clients with an API key. A change made with a cookie must also have an
``Origin`` of this console and the cookie's CSRF token. Browsers never send an API key on their own, so requests with a
key need neither.
"""

import secrets

from aiohttp import web

from service.console.app_keys import CSRF, PRINCIPAL, STORE
from service.console.auth.authentication import (
    FORM_COOKIE,
    SESSION_COOKIE,
    authenticate,
    has_api_key,
    require_login,
    set_cookie,
)
from service.console.auth.csrf import SAFE_METHODS, check_csrf, csrf_token
from service.console.auth.permissions import Permission, Principal
from service.console.route_rules import Handler, OpenAccess, rules_of


@web.middleware
async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Pass an authorized request to its handler; otherwise redirect to the login form, or raise HTTP 401 or 403.

    Raises :class:`service.errors.StoreIdentityMismatch` if the handler needs the store, but use of the store is blocked
    because it may belong to another fleet.
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
        uses_key = has_api_key(request)
        principal = await authenticate(request)
        if principal is None:
            return require_login(request)
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


def _check_permission(principal: Principal, required: Permission | None) -> None:
    if required is None:
        raise web.HTTPForbidden(text="This route declares no permission, so nobody may use it.")
    if not principal.role.covers(required.role):
        raise web.HTTPForbidden(
            text=f"This requires the role “{required.role}”; your role is “{principal.role}”. An admin can change it."
        )
    if not principal.has_scope(required.scope):
        raise web.HTTPForbidden(text=f"This API key lacks the required scope “{required.scope}”.")
