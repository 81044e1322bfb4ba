"""Console accounts: the API operations that list, create, change and remove them, and create password links."""

from typing import Annotated

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import PRINCIPAL, STORE
from service.console.auth import account_rules
from service.console.auth.account_rules import AccountView
from service.console.auth.password_links import make_password_link
from service.console.auth.permissions import admin_access
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.middleware.idempotency_keys import RESPONSE_IS_SECRET
from service.store.console.accounts import Role

operation = OPERATIONS = Operations()


class Accounts(msgspec.Struct, frozen=True):
    """All accounts, sorted by name."""

    items: tuple[AccountView, ...]


class AddAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name and role of a new account."""

    name: Annotated[str, msgspec.Meta(pattern=f"^{account_rules.NAME_PATTERN}$")]
    role: Role


class SetRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new role of an account."""

    role: Role


class PasswordLink(msgspec.Struct, frozen=True):
    """The link with which the holder of an account chooses a password.

    The link is shown only in this response; it works once, within a week. An account has only one link: it becomes
    invalid when a new link is made, when a password is chosen, or when the account is removed.
    """

    link: str


@operation("GET", "/accounts", admin_access("access", "read"))
async def get_accounts(request: web.Request) -> Accounts:
    """List accounts."""
    stored = await request.app[STORE].accounts.all()
    return Accounts(tuple(account_rules.make_view(name, account) for name, account in stored.items()))


@operation("POST", "/accounts", admin_access("access"), status=201)
async def post_account(request: web.Request, body: AddAccount) -> PasswordLink:
    """Create an account, with a link for choosing its password.

    An API key cannot create admins, or accounts with more rights than its scopes.
    """
    request[AUDIT_DETAIL] = f"{body.name}: {body.role}"
    request[RESPONSE_IS_SECRET] = True
    token = await account_rules.create_account(request.app[STORE], request[PRINCIPAL], body.name, body.role)
    return PasswordLink(make_password_link(request, token))


@operation("PATCH", "/accounts/{name}", admin_access("access"), 404)
async def patch_account(request: web.Request, body: SetRole) -> AccountView:
    """Change the role of an account. The new role applies from the account's next request on.

    An API key cannot grant or revoke admin rights, or rights beyond its scopes.
    """
    request[AUDIT_DETAIL] = body.role
    return await account_rules.set_role(request.app[STORE], request[PRINCIPAL], request.match_info["name"], body.role)


@operation("DELETE", "/accounts/{name}", admin_access("access"), 404, 422)
async def delete_account(request: web.Request) -> None:
    """Remove an account with its sessions, API keys and password link.

    An API key cannot remove admins, or accounts with more rights than its scopes.
    """
    await account_rules.remove_account(request.app[STORE], request[PRINCIPAL], request.match_info["name"])


@operation("POST", "/accounts/{name}/link", admin_access("access"), 404)
async def post_account_link(request: web.Request) -> PasswordLink:
    """Create a link with which an account's holder chooses a new password. It replaces an earlier link.

    An API key cannot do this for admins, or for accounts with more rights than its scopes.
    """
    request[RESPONSE_IS_SECRET] = True
    token = await account_rules.create_invitation(request.app[STORE], request[PRINCIPAL], request.match_info["name"])
    return PasswordLink(make_password_link(request, token))
