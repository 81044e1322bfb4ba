"""Rules on sessions and API keys of other accounts: who sees them, and who may end or revoke them."""

from typing import Final

from aiohttp import web

from service.console.app_keys import PRINCIPAL, STORE
from service.console.auth.permissions import Permission
from service.errors import PermissionDenied
from service.store.console.accounts import Role

OWN_ACCESS: Final = Permission(Role.VIEWER, "access:write")
"""The permission to change one's own account, sessions and API keys, which accounts of any role have."""


def can_see(request: web.Request, account: str) -> bool:
    """Return whether the request's sender sees the sessions and API keys of the account ``account``."""
    return request[PRINCIPAL].role is Role.ADMIN or request[PRINCIPAL].name == account


async def check_can_end(request: web.Request, owner: str | None, missing: str) -> None:
    """Check that the request's sender may end a session, or revoke an API key, of the account ``owner``.

    Raises HTTPNotFound with the text ``missing`` if ``owner`` is None: there is no such session or key. Raises
    :class:`PermissionDenied` if the owner is another account, and the request was sent with an API key that has fewer
    rights than this account.
    """
    if owner is None:
        raise web.HTTPNotFound(text=missing)
    account, principal = await request.app[STORE].accounts.get(owner), request[PRINCIPAL]
    if account is not None and owner != principal.name and not principal.can_grant(account.role):
        raise PermissionDenied(
            "An API key cannot end sessions or revoke keys of accounts with more rights than the key itself."
        )
