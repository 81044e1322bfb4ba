"""Login sessions and API keys: the API operations that list them, create keys, and end or revoke them.

Accounts see their own sessions and API keys, and admins see all. Whoever sees a session or key may also end or revoke
it. There is one exception: a request sent with an API key cannot end or revoke the sessions and keys of another account
that has more rights than the API key.
"""

import time
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import PRINCIPAL, STORE
from service.console.auth.permissions import SCOPES, Permission, read_access
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.middleware.idempotency_keys import RESPONSE_IS_SECRET
from service.errors import PermissionDenied, UserError
from service.store.console.accounts import Role
from service.store.console.sessions import Session

operation = OPERATIONS = Operations()

OWN_ACCESS: Final = Permission(Role.VIEWER, "access:write")
"""The permission to change one's own account, sessions and API keys, which accounts of any role have."""


def can_see(request: web.Request, account: str) -> bool:
    """Return whether the request's sender may see the sessions and API keys of this account.

    Admins may see those of all accounts, other users only their own.
    """
    return request[PRINCIPAL].role is Role.ADMIN or request[PRINCIPAL].name == account


async def check_can_end(request: web.Request, owner: str | None, missing: str) -> None:
    """Raise an error unless the request's sender may end a session or revoke an API key of the account ``owner``.

    - ``owner``: the name of the account; None if the session or key does not exist, or the sender must not see it. In
      this case, HTTPNotFound is raised.
    - ``missing``: the text of this HTTPNotFound.

    Raises :class:`PermissionDenied` if ``owner`` is another account, and the request was sent with an API key that
    has fewer rights than ``owner``.
    """
    if owner is None:
        raise web.HTTPNotFound(text=missing)
    account, principal = await request.app[STORE].accounts.get(owner), request[PRINCIPAL]
    if account is not None and owner != principal.name and not principal.can_grant(account.role):
        raise PermissionDenied(
            "An API key cannot end sessions or revoke keys of accounts with more rights than the key itself."
        )


class OpenSessions(msgspec.Struct, frozen=True):
    """The open sessions, newest first. To end a session, send its ``id``."""

    items: tuple[Session, ...]


@operation("GET", "/sessions", read_access("access"))
async def get_sessions(request: web.Request) -> OpenSessions:
    """List your open sessions; admins see those of all accounts."""
    sessions = await request.app[STORE].sessions.all()
    return OpenSessions(tuple(each for each in sessions if can_see(request, each.account)))


@operation("DELETE", "/sessions/{session}", OWN_ACCESS, 404)
async def delete_session(request: web.Request) -> None:
    """End a session.

    An API key cannot end sessions of other admins, or of other accounts with more rights than its scopes.
    """
    session_id, sessions = request.match_info["session"], (await get_sessions(request)).items
    owner = next((each.account for each in sessions if each.id == session_id), None)
    await check_can_end(request, owner, "There is no such session. It may have expired.")
    await request.app[STORE].sessions.end(session_id)


_MAX_KEYS: Final = 50
"""Maximum number of API keys per account."""


class KeyView(msgspec.Struct, frozen=True):
    """An API key without its secret.

    Times are Unix seconds. ``used_s`` is the time of the last use, to the minute; null means never.
    """

    id: str
    name: str
    account: str
    scopes: tuple[str, ...]
    created_s: float
    used_s: float | None


class ApiKeys(msgspec.Struct, frozen=True):
    """API keys, newest first."""

    items: tuple[KeyView, ...]


class AddKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name and the scopes (such as ``channels:read``) of a new API key."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    scopes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=20)]


class NewKey(msgspec.Struct, frozen=True):
    """A new API key. ``token`` is the secret to send with requests; it is shown only in this response."""

    key: KeyView
    token: str


@operation("GET", "/keys", read_access("access"))
async def get_keys(request: web.Request) -> ApiKeys:
    """List your API keys; admins see those of all accounts."""
    stored = await request.app[STORE].accounts.all()
    return ApiKeys(
        tuple(
            KeyView(key.id, key.name, key.account, key.scopes, key.created_s, used_s)
            for key, used_s in await request.app[STORE].api_keys.all()
            if can_see(request, key.account)
            and (owner := stored.get(key.account))
            and owner.created_s == key.account_since_s
        )
    )


@operation("POST", "/keys", OWN_ACCESS, status=201)
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


@operation("DELETE", "/keys/{key}", OWN_ACCESS, 404)
async def delete_key(request: web.Request) -> None:
    """Revoke an API key.

    An API key cannot revoke keys of other admins, or of other accounts with more rights than its scopes.
    """
    key_id, keys = request.match_info["key"], (await get_keys(request)).items
    owner = next((each.account for each in keys if each.id == key_id), None)
    await check_can_end(request, owner, "There is no such API key. It may have been revoked.")
    await request.app[STORE].api_keys.revoke(key_id)
