"""Password links: one-time links with which the holder of an account chooses a password."""

from aiohttp import web

from service.console.app_keys import PASSWORDS, SETTINGS, STORE
from service.console.auth.csrf import own_origin
from service.console.auth.login import read_account_fields
from service.console.auth.passwords import MIN_PASSWORD_CHARS, check_password
from service.console.forms import redisplay_on_error
from service.console.middleware.audit_recorder import record_action
from service.console.page_rendering import render

_INVITATION_INVALID = "This link has been used or has expired. An admin can create a new one under Settings."


async def join_form(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show the form in which the holder of an invited account sets a password.

    After a failed attempt, the page shows the message ``error`` and has the HTTP status ``status``.
    """
    token = (await read_account_fields(request))["token"]
    name = await _invited_account(request, token)
    return render(request, "join.html", status, token=token, name=name, error=error, min_chars=MIN_PASSWORD_CHARS)


@redisplay_on_error(join_form)
async def join(request: web.Request) -> web.Response:
    """Set the password that an invited account's holder has chosen."""
    fields = await read_account_fields(request)
    check_password(fields["password"], fields["again"])
    name = await _invited_account(request, fields["token"])
    password_hash = await request.app[PASSWORDS].hash(fields["password"])
    if not await request.app[STORE].accounts.set_password(fields["token"], name, password_hash):
        raise web.HTTPForbidden(text=_INVITATION_INVALID)
    await record_action(request, name, "Choose a password with an invitation link.")
    raise web.HTTPSeeOther("/login?ready=1")


def make_password_link(request: web.Request, token: str) -> str:
    """Return the URL of the form in which the holder of ``token`` sets a password."""
    settings = request.app[SETTINGS]
    base_url = settings.console_public_url or own_origin(request) + settings.console_base_path
    return f"{base_url.rstrip('/')}/join?token={token}"


async def _invited_account(request: web.Request, token: str) -> str:
    name = await request.app[STORE].accounts.account_of_link(token)
    if name is None:
        raise web.HTTPForbidden(text=_INVITATION_INVALID)
    return name
