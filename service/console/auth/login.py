"""Login and logout: the pages, the password check, the limit on attempts, and changing one's own password."""

import math
from urllib.parse import urlsplit

import structlog
from aiohttp import hdrs, web

from service.console.app_keys import PASSWORDS, PRINCIPAL, STORE
from service.console.auth.account_rules import set_password, set_zone
from service.console.auth.authentication import SESSION_COOKIE, cookie_path, set_cookie
from service.console.auth.passwords import MAX_PASSWORD_CHARS, check_password
from service.console.forms import redisplay_on_error
from service.console.middleware.audit_recorder import record_action
from service.console.page_rendering import render
from service.errors import LimitReached, UserError
from service.net.http_server import client_of
from service.store.console.accounts import Account, digest
from service.store.console.login_limits import BROWSER_TTL_S
from service.store.console.sessions import SESSION_TTL_S
from service.users.time_zones import find_time_zones

_MAX_LOGGED_NAME_CHARS = 100
_MAX_USER_AGENT_CHARS = 200
_TOO_MANY_ATTEMPTS = (
    "Too many login attempts from your network or for this account. Try again in {wait}, "
    "or use a browser that has logged in to this account before."
)

log = structlog.get_logger(__name__)


async def read_account_fields(request: web.Request) -> dict[str, str]:
    """Return the fields of a form about an account, such as ``name`` and ``password``.

    The fields are read from the posted form, or from the URL's query if the request is not a POST. Values keep leading
    and trailing white space. A missing field is "".
    """
    values = await request.post() if request.method == hdrs.METH_POST else request.query
    return {name: str(values.get(name, "")) for name in ("token", "name", "password", "again", "next", "zone")}


async def login_form(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show the login form.

    After a failed attempt, the page shows the message ``error`` and has the HTTP status ``status``.
    """
    fields, exist = await read_account_fields(request), bool(await request.app[STORE].accounts.all())
    return render(
        request, "login.html", status, target=_local_path(fields["next"]), name=fields["name"], exist=exist, error=error
    )


@redisplay_on_error(login_form)
async def login(request: web.Request) -> web.Response:
    """Check the name and password and open a session."""
    fields = await read_account_fields(request)
    name, browser_zone = fields["name"], fields["zone"]
    account = await _authenticate(request, name, fields["password"])
    if account is None:
        return await login_form(request, 401, error="Wrong name or password.")
    if not account.zone and find_time_zones(browser_zone) == (browser_zone,):
        await set_zone(request.app[STORE], name, browser_zone)
    await record_action(request, name, "Log in.")
    return await open_session(request, name, account, _local_path(fields["next"]))


async def change_password(request: web.Request, present: str, new: str, repeated: str) -> Account:
    """Change the password of the logged-in account from ``present`` to ``new``; return the changed account.

    ``repeated`` is the new password, typed a second time. Raises :class:`UserError` if ``present`` is wrong or ``new``
    is not acceptable.
    """
    name = request[PRINCIPAL].name
    check_password(new, repeated)
    if await _authenticate(request, name, present) is None:
        raise UserError("The current password is wrong.")
    return await set_password(request.app[STORE], name, await request.app[PASSWORDS].hash(new))


async def _authenticate(request: web.Request, name: str, password: str) -> Account | None:
    """Return the account called ``name`` if ``password`` is its password, else None.

    The duration of the check does not reveal whether the account exists. Raises :class:`LimitReached` if there have
    been too many attempts from the client's network or for the account, or if too many hashes are queued.
    """
    account, limits = await request.app[STORE].accounts.get(name), request.app[STORE].login_limits
    browser, address = request.cookies.get(browser_cookie_name(name), ""), client_of(request).address
    if account is None or not await limits.is_known_browser(name, account, browser):
        browser = ""
    wait_s = await limits.count_attempt(name, address, browser)
    if wait_s:
        minutes = math.ceil(wait_s / 60)
        raise LimitReached(_TOO_MANY_ATTEMPTS, wait="a minute" if minutes == 1 else f"{minutes} minutes")
    stored = account.password_hash if account else ""
    if await request.app[PASSWORDS].verify(password[: MAX_PASSWORD_CHARS + 1], stored, is_known=bool(browser)):
        return account
    log.warning("login refused", name=name[:_MAX_LOGGED_NAME_CHARS], address=address)
    return None


async def open_session(request: web.Request, name: str, account: Account, target: str) -> web.Response:
    """Open a session for ``account``, whose name is ``name``; return a redirect to the path ``target``.

    The response sets the session's cookies.
    """
    browser = request.headers.get(hdrs.USER_AGENT, "")[:_MAX_USER_AGENT_CHARS]
    store, cookie = request.app[STORE], browser_cookie_name(name)
    token = await store.sessions.open(name, account, client_of(request).address, browser)
    browser_token = await store.login_limits.remember_browser(name, account, request.cookies.get(cookie, ""))
    response = web.Response(status=303, headers={"Location": target})
    set_cookie(request, response, SESSION_COOKIE, token, SESSION_TTL_S)
    set_cookie(request, response, cookie, browser_token, BROWSER_TTL_S)
    return response


def browser_cookie_name(name: str) -> str:
    """Return the name of the cookie which proves that a browser has logged in to the account called ``name`` before."""
    return f"coronet_browser_{digest(name)[:16]}"


async def logout(request: web.Request) -> web.Response:
    """End the session and show the login form."""
    await request.app[STORE].sessions.close(request.cookies.get(SESSION_COOKIE, ""))
    response = web.Response(status=303, headers={"Location": "/login"})
    response.del_cookie(SESSION_COOKIE, path=cookie_path(request))
    return response


def _local_path(target: str) -> str:
    """Return ``target`` if it is a path on this console, else "/"; prevents redirects to other sites after login."""
    parts = urlsplit(target)
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if is_local and target.isprintable() else "/"


async def redirect_to_overview(_: web.Request) -> web.Response:
    """Redirect requests for the root, or for the base path without its trailing slash, to the overview."""
    raise web.HTTPSeeOther("/")
