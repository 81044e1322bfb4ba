"""Setup of the first account, login and logout."""

import math
from typing import Final
from urllib.parse import urlsplit

import structlog
from aiohttp import hdrs, web

from service.console.audit_middleware import record
from service.console.auth.accounts import (
    LONGEST,
    SHORTEST,
    Passwords,
    check_name,
    check_password,
    set_password,
    set_zone,
)
from service.console.auth.middleware import SESSION_COOKIE, own_origin, set_cookie
from service.console.error_responses import shown_on
from service.console.rendering import CLOCK, SETTINGS, STORE, VISITOR, render
from service.errors import LimitReached, UserError
from service.net.http_server import client_of
from service.store import Store
from service.store.console.accounts import BROWSER_TTL_S, SESSION_TTL_S, Account, digest
from service.users.quiet_hours import find_time_zones

PASSWORDS: Final = web.AppKey("passwords", Passwords)

_LINK_IS_SPENT = (
    "This setup link is used up or too old. If there is an account by now, log in with it. "
    "If there is none, restart Coronet: it prints a fresh link."
)
_INVITATION_IS_SPENT = "This link is used up or too old. An admin can make another one on the page Settings."
_NAME_SHOWN = 100
_BROWSER_KEPT = 200
_TOO_OFTEN = (
    "Too many logins from here or on this account. Try again in {wait}, or use a browser that has logged in to it."
)

log = structlog.get_logger(__name__)


async def setup_link(store: Store, base_url: str) -> str | None:
    """Return a fresh one-time link that makes the first account, or None when there is one.

    Raises :class:`StoreUnavailable`.
    """
    if await store.accounts.any_exist():
        return None
    return f"{base_url.rstrip('/')}/setup?token={await store.accounts.new_setup_token()}"


async def setup_form(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Ask for the first account's name and password."""
    given = await _given(request)
    token = given["token"]
    if not await request.app[STORE].accounts.is_setup_token_valid(token):
        raise web.HTTPForbidden(text=_LINK_IS_SPENT)
    return render(request, "setup.html", status, token=token, name=given["name"], error=error, shortest=SHORTEST)


@shown_on(setup_form)
async def setup(request: web.Request) -> web.Response:
    """Make the first account."""
    given, accounts = await _given(request), request.app[STORE].accounts
    token, name = given["token"], given["name"]
    if not await accounts.is_setup_token_valid(token):
        raise web.HTTPForbidden(text=_LINK_IS_SPENT)
    check_name(name)
    check_password(given["password"], given["again"])
    account = Account(await request.app[PASSWORDS].hash(given["password"]), request.app[CLOCK].wall_s())
    if not await accounts.create_first(token, name, account):
        raise web.HTTPForbidden(text=_LINK_IS_SPENT)
    await record(request, name, "Make the first account.")
    raise web.HTTPSeeOther("/login?ready=1")


async def join_form(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Ask who was invited for a password."""
    token = (await _given(request))["token"]
    name = await _invited(request, token)
    return render(request, "join.html", status, token=token, name=name, error=error, shortest=SHORTEST)


@shown_on(join_form)
async def join(request: web.Request) -> web.Response:
    """Take the password that an invited account's holder has chosen."""
    given = await _given(request)
    check_password(given["password"], given["again"])
    name = await _invited(request, given["token"])
    password_hash = await request.app[PASSWORDS].hash(given["password"])
    if not await request.app[STORE].accounts.set_password(given["token"], name, password_hash):
        raise web.HTTPForbidden(text=_INVITATION_IS_SPENT)
    await record(request, name, "Choose a password by a link.")
    raise web.HTTPSeeOther("/login?ready=1")


async def _given(request: web.Request) -> dict[str, str]:
    """Return the fields of a form, or else of the query, as they were typed; "" for those that are missing."""
    given = await request.post() if request.method == hdrs.METH_POST else request.query
    return {name: str(given.get(name, "")) for name in ("token", "name", "password", "again", "next", "zone")}


def link_to(request: web.Request, token: str) -> str:
    """Return the link that leads to choosing a password."""
    here = request.app[SETTINGS].console_public_url or own_origin(request)
    return f"{here.rstrip('/')}/join?token={token}"


async def _invited(request: web.Request, token: str) -> str:
    name = await request.app[STORE].accounts.account_of_link(token)
    if name is None:
        raise web.HTTPForbidden(text=_INVITATION_IS_SPENT)
    return name


async def login_form(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Ask who it is."""
    given, exist = await _given(request), await request.app[STORE].accounts.any_exist()
    target, ready = _inside(given["next"]), "ready" in request.query
    return render(
        request, "login.html", status, target=target, name=given["name"], error=error, ready=ready, exist=exist
    )


@shown_on(login_form)
async def login(request: web.Request) -> web.Response:
    """Open a session for who knows the password."""
    given = await _given(request)
    name, browsers_zone = given["name"], given["zone"]
    account = await _proved(request, name, given["password"])
    if account is None:
        return await login_form(request, 401, error="The name or the password is wrong.")
    if not account.zone and find_time_zones(browsers_zone) == (browsers_zone,):
        await set_zone(request.app[STORE], name, browsers_zone)
    await record(request, name, "Log in.")
    return await logged_in(request, name, account, _inside(given["next"]))


async def new_password(request: web.Request, present: str, wanted: str, again: str) -> Account:
    """Change the visitor's own password. Raises :class:`UserError` if one of them will not do."""
    name = request[VISITOR].name
    check_password(wanted, again)
    if await _proved(request, name, present) is None:
        raise UserError("The present password is wrong.")
    return await set_password(request.app[STORE], name, await request.app[PASSWORDS].hash(wanted))


async def _proved(request: web.Request, name: str, password: str) -> Account | None:
    """Return the account if it is its password. Takes as long for an account that there is not.

    Raises :class:`LimitReached` when it was tried too often from there, or on that account, or by everybody.
    """
    account, limits = await request.app[STORE].accounts.get(name), request.app[STORE].login_limits
    browser, address = request.cookies.get(browser_cookie(name), ""), client_of(request).address
    if account is None or not await limits.is_known_browser(name, account, browser):
        browser = ""
    wait_s = await limits.count_attempt(name, address, browser)
    if wait_s:
        minutes = math.ceil(wait_s / 60)
        raise LimitReached(_TOO_OFTEN, wait="a minute" if minutes == 1 else f"{minutes} minutes")
    stored = account.password_hash if account else ""
    if await request.app[PASSWORDS].verify(password[: LONGEST + 1], stored, is_known=bool(browser)):
        return account
    log.warning("login refused", name=name[:_NAME_SHOWN], address=address)
    return None


async def logged_in(request: web.Request, name: str, account: Account, target: str) -> web.Response:
    """Return what opens a session of this account and leads on."""
    browser = request.headers.get(hdrs.USER_AGENT, "")[:_BROWSER_KEPT]
    store, cookie = request.app[STORE], browser_cookie(name)
    token = await store.sessions.open(name, account, client_of(request).address, browser)
    known_by = await store.login_limits.remember_browser(name, account, request.cookies.get(cookie, ""))
    response = web.Response(status=303, headers={"Location": target})
    set_cookie(request, response, SESSION_COOKIE, token, SESSION_TTL_S)
    set_cookie(request, response, cookie, known_by, BROWSER_TTL_S)
    return response


def browser_cookie(name: str) -> str:
    """Return the name of the cookie by which a browser is known that has logged in to this account."""
    return f"coronet_browser_{digest(name)[:16]}"


async def logout(request: web.Request) -> web.Response:
    """End this session."""
    await request.app[STORE].sessions.close(request.cookies.get(SESSION_COOKIE, ""))
    response = web.Response(status=303, headers={"Location": "/login"})
    response.del_cookie(SESSION_COOKIE, path="/")
    return response


def _inside(target: str) -> str:
    """Return where to go after login: only ever a path of ours."""
    parts = urlsplit(target)
    ours = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if ours and target.isprintable() else "/"
