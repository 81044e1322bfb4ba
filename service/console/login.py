"""Setup of the first account, login and logout."""

import re
from typing import Final
from urllib.parse import urlsplit

import structlog
from aiohttp import hdrs, web

from service.console.audited import record
from service.console.guard import SESSION_COOKIE, set_cookie
from service.console.passwords import LONGEST, SHORTEST, Passwords
from service.console.site import CLOCK, STORE, render
from service.store import Store
from service.store.accounts import Account
from service.store.sessions import SESSION_TTL_S

PASSWORDS: Final = web.AppKey("passwords", Passwords)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_LINK_IS_SPENT = (
    "This setup link is used up or too old. If there is an account by now, log in with it. "
    "If there is none, restart Coronet: it prints a fresh link."
)
_NAME_SHOWN = 100
_BROWSER_KEPT = 200
_TOO_OFTEN = "Too many logins from here or on this account. Wait a minute, then try again."

log = structlog.get_logger(__name__)


async def setup_link(store: Store, base_url: str) -> str | None:
    """Return a fresh one-time link that makes the first account, or None when there is one.

    Raises :class:`StoreUnavailable`.
    """
    if await store.accounts.exist():
        return None
    return f"{base_url.rstrip('/')}/setup?token={await store.accounts.new_setup_token()}"


async def setup_form(request: web.Request) -> web.Response:
    """Ask for the first account's name and password."""
    token = request.query.get("token", "")
    if not await request.app[STORE].accounts.setup_token_valid(token):
        raise web.HTTPForbidden(text=_LINK_IS_SPENT)
    return render(request, "setup.html", token=token, name="", error="", shortest=SHORTEST)


async def setup(request: web.Request) -> web.Response:
    """Make the first account."""
    form = await request.post()
    token, name, password = (str(form.get(field, "")) for field in ("token", "name", "password"))
    accounts = request.app[STORE].accounts
    if not await accounts.setup_token_valid(token):
        raise web.HTTPForbidden(text=_LINK_IS_SPENT)
    error = _unfit(name, password, str(form.get("again", "")))
    if error:
        return render(request, "setup.html", 422, token=token, name=name, error=error, shortest=SHORTEST)
    account = Account(await request.app[PASSWORDS].hash(password), request.app[CLOCK].wall_s())
    if not await accounts.create_first(token, name, account):
        raise web.HTTPForbidden(text=_LINK_IS_SPENT)
    await record(request, name, "Make the first account.")
    raise web.HTTPSeeOther("/login?ready=1")


def _unfit(name: str, password: str, again: str) -> str:
    """Return why this name and password cannot be taken, or ''."""
    if not _NAME.fullmatch(name):
        return (
            "A name has 1 to 32 small letters, digits, dots, dashes or underscores, and starts with a letter or digit."
        )
    if len(password) < SHORTEST:
        return f"The password needs at least {SHORTEST} characters."
    if len(password) > LONGEST:
        return f"The password can have at most {LONGEST} characters."
    if password != again:
        return "The two passwords differ."
    return ""


async def login_form(request: web.Request) -> web.Response:
    """Ask who it is."""
    target = _inside(request.query.get("next", ""))
    return await _form(request, 200, target=target, name="", error="", ready="ready" in request.query)


async def login(request: web.Request) -> web.Response:
    """Open a session for who knows the password."""
    form = await request.post()
    name, password, target = (str(form.get(field, "")) for field in ("name", "password", "next"))
    accounts = request.app[STORE].accounts
    allowed = [await accounts.attempt(f"address {request.remote}"), await accounts.attempt(f"account {name}")]
    if not all(allowed):
        return await _form(request, 429, target=_inside(target), name=name, error=_TOO_OFTEN, ready=False)
    account = await accounts.get(name)
    stored = account.password_hash if account else ""
    if not await request.app[PASSWORDS].verify(password[: LONGEST + 1], stored) or account is None:
        log.warning("login refused", name=name[:_NAME_SHOWN], address=request.remote)
        error = "The name or the password is wrong."
        return await _form(request, 401, target=_inside(target), name=name, error=error, ready=False)
    await record(request, name, "Log in.")
    return await logged_in(request, name, account, _inside(target))


async def logged_in(request: web.Request, name: str, account: Account, target: str) -> web.Response:
    """Return what opens a session of this account and leads on."""
    browser = request.headers.get(hdrs.USER_AGENT, "")[:_BROWSER_KEPT]
    token = await request.app[STORE].sessions.open(name, account, request.remote or "", browser)
    response = web.Response(status=303, headers={"Location": target})
    set_cookie(request, response, SESSION_COOKIE, token, SESSION_TTL_S)
    return response


async def logout(request: web.Request) -> web.Response:
    """End this session."""
    await request.app[STORE].sessions.close(request.cookies.get(SESSION_COOKIE, ""))
    response = web.Response(status=303, headers={"Location": "/login"})
    response.del_cookie(SESSION_COOKIE, path="/")
    return response


async def _form(request: web.Request, status: int, *, target: str, name: str, error: str, ready: bool) -> web.Response:
    exist = await request.app[STORE].accounts.exist()
    return render(request, "login.html", status, target=target, name=name, error=error, ready=ready, exist=exist)


def _inside(target: str) -> str:
    """Return where to go after login: only ever a path of ours."""
    parts = urlsplit(target)
    ours = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if ours and target.isprintable() else "/"
