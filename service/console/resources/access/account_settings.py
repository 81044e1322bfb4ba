"""The Settings page, and the API operations for one's own account: time zone and password."""

from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import PRINCIPAL, STORE, time_zone
from service.console.auth import account_rules
from service.console.auth.login import change_password, open_session
from service.console.auth.passwords import MIN_PASSWORD_CHARS
from service.console.auth.permissions import SCOPES, Permission
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.resources.access.console_accounts import (
    AddAccount,
    delete_account,
    get_accounts,
    patch_account,
    post_account,
    post_account_link,
)
from service.console.resources.access.sessions_and_api_keys import (
    OWN_ACCESS,
    AddKey,
    delete_key,
    delete_session,
    get_keys,
    get_sessions,
    post_key,
)
from service.console.resources.people.invitations import Invitation, invite
from service.store.console.accounts import Role

_DONE: Final = {
    "password": "Your password has been changed. All your other sessions have been ended.",
    "session": "The session has been ended.",
    "zone": "Your time zone has been changed.",
    "key": "The API key has been revoked.",
    "role": "The role has been changed.",
    "removed": "The account, its sessions and its API keys have been removed.",
}
"""After a change, the response redirects to a URL whose query contains ``done``. This maps its values to messages."""

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]

operation = OPERATIONS = Operations()


class Me(msgspec.Struct, frozen=True):
    """The sender of the request: the account, its role, and the API key's name and scopes.

    The scopes are null if access is not restricted by scopes. ``zone`` is the time zone in which pages show times.
    """

    account: str
    role: Role
    key: str
    scopes: tuple[str, ...] | None
    zone: str


class SetZone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time zone, given by its name (``Europe/Berlin``) or by the name of a large city in it."""

    zone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class ChangePassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The current password (``present``) and the new one (``wanted``)."""

    present: _Text
    wanted: _Text


@operation("GET", "/me", Permission(Role.VIEWER))
async def get_me(request: web.Request) -> Me:
    """Get the account, role and scopes of the sender of this request."""
    principal = request[PRINCIPAL]
    scopes = None if principal.scopes is None else tuple(sorted(principal.scopes))
    return Me(principal.name, principal.role, principal.key, scopes, time_zone(request))


@operation("PUT", "/me/password", OWN_ACCESS, 429)
async def put_my_password(request: web.Request, body: ChangePassword) -> None:
    """Change your own password. All sessions end; API keys remain valid."""
    await change_password(request, body.present, body.wanted, body.wanted)


@operation("PUT", "/me/zone", OWN_ACCESS, 404)
async def put_my_zone(request: web.Request, body: SetZone) -> None:
    """Set the time zone for the times on your pages."""
    request[AUDIT_DETAIL] = await account_rules.set_zone(request.app[STORE], request[PRINCIPAL].name, body.zone)


async def page(
    request: web.Request, status: int = 200, *, error: str = "", secret: str = "", secret_description: str = ""
) -> web.Response:
    """Show the settings of the logged-in account and, to admins, all accounts.

    ``error`` is the message to show if a change failed. ``secret`` is a new secret, which is shown only once, and
    ``secret_description`` states its purpose.
    """
    principal = request[PRINCIPAL]
    return render(
        request,
        "settings.html",
        status,
        error=error,
        done=_DONE.get(request.query.get("done", ""), ""),
        secret=secret,
        secret_description=secret_description,
        role=principal.role,
        chosen_zone=principal.zone,
        roles=list(Role),
        scopes=SCOPES,
        min_chars=MIN_PASSWORD_CHARS,
        sessions=(await get_sessions(request)).items,
        keys=(await get_keys(request)).items,
        accounts=(await get_accounts(request)).items if principal.role is Role.ADMIN else (),
    )


@redisplay_on_error(page)
async def set_password(request: web.Request) -> web.Response:
    """Change your own password and end all your other sessions."""
    form = await request.post()
    present, new, repeated = (str(form.get(field, "")) for field in ("present", "wanted", "again"))
    account = await change_password(request, present, new, repeated)
    return await open_session(request, request[PRINCIPAL].name, account, "/settings?done=password")


set_zone = redirect_after(put_my_zone, "/settings?done=zone", page, "Enter a time zone like Europe/Berlin.")
set_role = redirect_after(patch_account, "/settings?done=role#accounts", page, f"Choose a role: {', '.join(Role)}.")
end_session = redirect_after(delete_session, "/settings?done=session", page)
revoke_key = redirect_after(delete_key, "/settings?done=key", page)
remove_account = redirect_after(delete_account, "/settings?done=removed#accounts", page)


@redisplay_on_error(page)
async def create_key(request: web.Request) -> web.Response:
    """Create an API key for your own account and show it once."""
    form = await request.post()
    fields = {"name": str(form.get("name", "")).strip(), "scopes": form.getall("scope", ())}
    problem = "Give the API key a name of 1 to 64 characters, and choose at least one scope."
    created = await post_key(request, convert_fields(fields, AddKey, problem))
    description = f"API key “{created.key.name}”. Send it as “Authorization: Bearer …”."
    return await page(request, secret=created.token, secret_description=description)


@redisplay_on_error(page)
async def create_invitation(request: web.Request) -> web.Response:
    """Create an invitation to the bot and show its code once."""
    problem = "Enter how many people can use the invitation, and for how many days it is valid."
    code = (await invite(request, convert_fields(await read_form(request), Invitation, problem))).code
    description = "Invitation. People who send this to the bot can use it."
    return await page(request, secret=f"invite {code}", secret_description=description)


@redisplay_on_error(page)
async def create_account(request: web.Request) -> web.Response:
    """Create an account and show the link for choosing its password."""
    account = convert_fields(await read_form(request), AddAccount, account_rules.INVALID_NAME)
    created = await post_account(request, account)
    return await page(request, secret=created.link, secret_description=_describe_link(account.name))


@redisplay_on_error(page)
async def create_password_link(request: web.Request) -> web.Response:
    """Create a link with which an account's holder chooses a new password."""
    created = await post_account_link(request)
    return await page(request, secret=created.link, secret_description=_describe_link(request.match_info["name"]))


def _describe_link(name: str) -> str:
    return (
        f"Send this link to {name} so that they can choose a password. It works once within a week; "
        "earlier links are no longer valid."
    )
