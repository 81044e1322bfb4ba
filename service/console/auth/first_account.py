"""The first account: the one-time setup link that the console prints when it starts, and the page behind this link."""

import time

from aiohttp import web

from service.console.app_keys import PASSWORDS, STORE
from service.console.auth.account_rules import check_name
from service.console.auth.login import read_account_fields
from service.console.auth.passwords import MIN_PASSWORD_CHARS, check_password
from service.console.forms import redisplay_on_error
from service.console.middleware.audit_recorder import record_action
from service.console.page_rendering import render
from service.store import Store
from service.store.console.accounts import Account

_SETUP_LINK_INVALID = (
    "This setup link has been used or has expired. If an account exists, log in. "
    "If there is none yet, restart Coronet to get a new link."
)


async def create_setup_link(store: Store, base_url: str) -> str | None:
    """Return a new one-time link for creating the first account; None if an account exists.

    ``base_url`` is the console's URL. Raises :class:`StoreUnavailable` if Redis does not respond.
    """
    if await store.accounts.all():
        return None
    return f"{base_url.rstrip('/')}/setup?token={await store.accounts.new_setup_token()}"


async def setup_form(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show the form for the first account's name and password.

    After a failed attempt, the page shows the message ``error`` and has the HTTP status ``status``.
    """
    fields = await read_account_fields(request)
    if not await request.app[STORE].accounts.is_setup_token_valid(fields["token"]):
        raise web.HTTPForbidden(text=_SETUP_LINK_INVALID)
    return render(request, "setup.html", status, fields=fields, error=error, min_chars=MIN_PASSWORD_CHARS)


@redisplay_on_error(setup_form)
async def setup(request: web.Request) -> web.Response:
    """Create the first account."""
    fields, accounts = await read_account_fields(request), request.app[STORE].accounts
    token, name = fields["token"], fields["name"]
    if not await accounts.is_setup_token_valid(token):
        raise web.HTTPForbidden(text=_SETUP_LINK_INVALID)
    check_name(name)
    check_password(fields["password"], fields["again"])
    account = Account(await request.app[PASSWORDS].hash(fields["password"]), time.time())
    if not await accounts.create_first(token, name, account):
        raise web.HTTPForbidden(text=_SETUP_LINK_INVALID)
    await record_action(request, name, "Create the first account.")
    raise web.HTTPSeeOther("/login?ready=1")
