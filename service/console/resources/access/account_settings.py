"""The page Settings and its API operations: own time zone, sessions, API keys, password, invitations and accounts."""

import time
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.audit_entries import AUDIT_DETAIL
from service.console.auth import accounts
from service.console.auth.accounts import MIN_PASSWORD_CHARS, AccountView
from service.console.auth.login import change_password, make_password_link, open_session
from service.console.auth.roles import SCOPES, Permission, admin_access, read_access
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.idempotent_requests import RESPONSE_IS_SECRET
from service.console.openapi import Operations
from service.console.rendering import PRINCIPAL, STORE, render, time_zone
from service.console.resources.people.people import Invitation, invite
from service.errors import PermissionDenied, UserError
from service.store.console.accounts import Role, Session

_MAX_KEYS: Final = 50
"""Maximum number of API keys per account."""
_OWN_ACCESS: Final = Permission(Role.VIEWER, "access:write")
_DONE: Final = {
    "password": "Your password has been changed. All your other sessions have been ended.",
    "session": "The session has been ended.",
    "zone": "Your time zone has been changed.",
    "key": "The API key has been revoked.",
    "role": "The role has been changed.",
    "removed": "The account, its sessions and its API keys have been removed.",
}
"""Messages after a redirect, by the value of ``done`` in the query."""

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]

operation = OPERATIONS = Operations()


class KeyView(msgspec.Struct, frozen=True):
    """An API key without its secret.

    Times are Unix seconds. ``used_s`` is the time of the last use, exact to the minute; null means never.
    """

    id: str
    name: str
    account: str
    scopes: tuple[str, ...]
    created_s: float
    used_s: float | None


class Me(msgspec.Struct, frozen=True):
    """The sender of the request: the account, its role, and the API key's name and scopes.

    The scopes are null if the access is unrestricted. ``zone`` is the time zone in which pages show times.
    """

    account: str
    role: Role
    key: str
    scopes: tuple[str, ...] | None
    zone: str


class SetZone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time zone, by its name (``Europe/Berlin``) or a large city in it."""

    zone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Accounts(msgspec.Struct, frozen=True):
    """All accounts by name."""

    items: tuple[AccountView, ...]


class AddAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name and role of a new account."""

    name: Annotated[str, msgspec.Meta(pattern=f"^{accounts.NAME_PATTERN}$")]
    role: Role


class SetRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new role for an account."""

    role: Role


class PasswordLink(msgspec.Struct, frozen=True):
    """The link with which an account's holder chooses a password.

    The link works once within a week and is shown only here. An account has only one link: it becomes invalid when a
    new link is made, when a password is chosen, or when the account is removed.
    """

    link: str


class ChangePassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The present password and the wanted new one."""

    present: _Text
    wanted: _Text


class OpenSessions(msgspec.Struct, frozen=True):
    """The open sessions, newest first. The ``id`` of a session is used to end it."""

    items: tuple[Session, ...]


class ApiKeys(msgspec.Struct, frozen=True):
    """API keys, newest first."""

    items: tuple[KeyView, ...]


class AddKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name and the scopes (like ``channels:read``) of a new API key."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    scopes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=20)]


class NewKey(msgspec.Struct, frozen=True):
    """A new API key. ``token`` is the secret to send with requests; it is shown only here."""

    key: KeyView
    token: str


@operation("GET", "/me", Permission(Role.VIEWER))
async def get_me(request: web.Request) -> Me:
    """Get the account, role and scopes of this request."""
    principal = request[PRINCIPAL]
    scopes = None if principal.scopes is None else tuple(sorted(principal.scopes))
    return Me(principal.name, principal.role, principal.key, scopes, time_zone(request))


@operation("PUT", "/me/password", _OWN_ACCESS, 429)
async def put_my_password(request: web.Request, body: ChangePassword) -> None:
    """Change your own password. All sessions end; API keys remain valid."""
    await change_password(request, body.present, body.wanted, body.wanted)


@operation("PUT", "/me/zone", _OWN_ACCESS, 404)
async def put_my_zone(request: web.Request, body: SetZone) -> None:
    """Set the time zone in which pages show times to you."""
    request[AUDIT_DETAIL] = await accounts.set_zone(request.app[STORE], request[PRINCIPAL].name, body.zone)


@operation("GET", "/accounts", admin_access("access", "read"))
async def get_accounts(request: web.Request) -> Accounts:
    """List accounts."""
    stored = await request.app[STORE].accounts.all()
    return Accounts(tuple(accounts.make_view(name, account) for name, account in stored.items()))


@operation("POST", "/accounts", admin_access("access"), status=201)
async def post_account(request: web.Request, body: AddAccount) -> PasswordLink:
    """Create an account, with a link for choosing its password.

    An API key cannot create admins, or accounts with more rights than its scopes.
    """
    request[AUDIT_DETAIL] = f"{body.name}: {body.role}"
    request[RESPONSE_IS_SECRET] = True
    token = await accounts.create_account(request.app[STORE], request[PRINCIPAL], body.name, body.role)
    return PasswordLink(make_password_link(request, token))


@operation("PATCH", "/accounts/{name}", admin_access("access"), 404)
async def patch_account(request: web.Request, body: SetRole) -> AccountView:
    """Change the role of an account, from its next request on.

    An API key can neither grant nor revoke admin rights, or rights beyond its scopes.
    """
    request[AUDIT_DETAIL] = body.role
    return await accounts.set_role(request.app[STORE], request[PRINCIPAL], request.match_info["name"], body.role)


@operation("DELETE", "/accounts/{name}", admin_access("access"), 404, 422)
async def delete_account(request: web.Request) -> None:
    """Remove an account with its sessions, API keys and password link.

    An API key cannot remove admins, or accounts with more rights than its scopes.
    """
    await accounts.remove_account(request.app[STORE], request[PRINCIPAL], request.match_info["name"])


@operation("POST", "/accounts/{name}/link", admin_access("access"), 404)
async def post_account_link(request: web.Request) -> PasswordLink:
    """Create a link with which an account's holder chooses a new password. It replaces an earlier link.

    An API key cannot do this for admins, or for accounts with more rights than its scopes.
    """
    request[RESPONSE_IS_SECRET] = True
    token = await accounts.create_invitation(request.app[STORE], request[PRINCIPAL], request.match_info["name"])
    return PasswordLink(make_password_link(request, token))


@operation("GET", "/sessions", read_access("access"))
async def get_sessions(request: web.Request) -> OpenSessions:
    """List your open sessions; admins see those of all accounts."""
    sessions = await request.app[STORE].sessions.all()
    return OpenSessions(tuple(each for each in sessions if _can_see(request, each.account)))


@operation("DELETE", "/sessions/{session}", _OWN_ACCESS, 404)
async def delete_session(request: web.Request) -> None:
    """End a session.

    An API key cannot end sessions of other admins, or of other accounts with more rights than its scopes.
    """
    session_id, sessions = request.match_info["session"], (await get_sessions(request)).items
    await _check_can_end(request, session_id, sessions, "There is no such session. It may have expired.")
    await request.app[STORE].sessions.end(session_id)


@operation("GET", "/keys", read_access("access"))
async def get_keys(request: web.Request) -> ApiKeys:
    """List your API keys; admins see those of all accounts."""
    stored = await request.app[STORE].accounts.all()
    return ApiKeys(
        tuple(
            KeyView(key.id, key.name, key.account, key.scopes, key.created_s, used_s)
            for key, used_s in await request.app[STORE].api_keys.all()
            if _can_see(request, key.account)
            and (owner := stored.get(key.account))
            and owner.created_s == key.account_since_s
        )
    )


@operation("POST", "/keys", _OWN_ACCESS, status=201)
async def post_key(request: web.Request, body: AddKey) -> NewKey:
    """Create an API key for your own account."""
    request[AUDIT_DETAIL] = f"{body.name}: {' '.join(body.scopes)}"
    request[RESPONSE_IS_SECRET] = True
    store, principal = request.app[STORE], request[PRINCIPAL]
    if unknown := [scope for scope in body.scopes if scope not in SCOPES]:
        raise UserError(f"“{unknown[0]}” is not a scope. Choose from: {', '.join(SCOPES)}.")
    if not body.name.isprintable():
        raise UserError("The name of an API key consists of printable characters.")
    account = await store.accounts.get(principal.name) if principal.name else None
    if account is None:
        raise UserError("An API key belongs to an account. Log in to create one.")
    missing = [scope for scope in body.scopes if not principal.has_scope(scope)]
    if missing:
        raise UserError(f"Your API key lacks the scope {missing[0]}, so it cannot create a key with it.")
    if sum(key.account == principal.name for key in (await get_keys(request)).items) >= _MAX_KEYS:
        raise UserError(f"An account can have at most {_MAX_KEYS} API keys. Revoke one that is no longer used.")
    scopes = tuple(scope for scope in SCOPES if scope in body.scopes)
    key, token = await store.api_keys.create(body.name, (principal.name, account), scopes, time.time())
    return NewKey(KeyView(key.id, key.name, key.account, key.scopes, key.created_s, None), token)


@operation("DELETE", "/keys/{key}", _OWN_ACCESS, 404)
async def delete_key(request: web.Request) -> None:
    """Revoke an API key.

    An API key cannot revoke keys of other admins, or of other accounts with more rights than its scopes.
    """
    key_id, keys = request.match_info["key"], (await get_keys(request)).items
    await _check_can_end(request, key_id, keys, "There is no such API key. It may have been revoked.")
    await request.app[STORE].api_keys.revoke(key_id)


def _can_see(request: web.Request, account: str) -> bool:
    return request[PRINCIPAL].role is Role.ADMIN or request[PRINCIPAL].name == account


async def _check_can_end(request: web.Request, id_: str, items: Sequence[Session | KeyView], missing: str) -> None:
    """Check that the principal may end the session, or revoke the API key, with the id ``id_`` in ``items``.

    Raises HTTPNotFound with the text ``missing`` if there is no such item. Raises :class:`PermissionDenied` if the item
    belongs to another account, and the request was sent with an API key that has fewer rights than this account.
    """
    owner = next((each.account for each in items if each.id == id_), None)
    if owner is None:
        raise web.HTTPNotFound(text=missing)
    account, principal = await request.app[STORE].accounts.get(owner), request[PRINCIPAL]
    if account is not None and owner != principal.name and not principal.can_grant(account.role):
        raise PermissionDenied(
            "An API key cannot end sessions or revoke keys of accounts with more rights than the key itself."
        )


async def page(
    request: web.Request, status: int = 200, *, error: str = "", secret: str = "", secret_description: str = ""
) -> web.Response:
    """Show the principal's own settings, and to admins also all accounts.

    ``error`` is the message of a failed change. ``secret`` is a new secret to show once, and ``secret_description``
    states its purpose.
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
    account = convert_fields(await read_form(request), AddAccount, accounts.INVALID_NAME)
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
