"""Rules for console accounts: names, creation, roles, invitations and removal.

At least one admin who can log in always remains. An API key cannot grant more rights than it has.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

import msgspec

from service.console.auth.permissions import Principal
from service.errors import NotFound, OperationalError, PermissionDenied, UserError
from service.store import Store
from service.store.console.accounts import Account, Role
from service.users.time_zones import find_time_zones

NAME_PATTERN: Final = r"[a-z0-9][a-z0-9._-]{0,31}"
INVALID_NAME: Final = (
    "An account name has 1 to 32 characters: lowercase letters, digits, dots, hyphens and underscores. "
    "It starts with a letter or a digit."
)

_CONCURRENT_CHANGES = "Accounts are being changed by someone else at the same time. Try again."
_MAX_ATTEMPTS = 5
"""Maximum number of tries to change an account; a try fails if another request changes the accounts at the same
time."""


_Changed = TypeVar("_Changed", bound=Account | None)


class AccountView(msgspec.Struct, frozen=True):
    """An account as the API shows it.

    ``state`` is ``invited`` until the account's holder has chosen a password. ``created_s`` is the Unix time of
    creation.
    """

    name: str
    role: Role
    state: Literal["invited", "active"]
    created_s: float


def make_view(name: str, account: Account) -> AccountView:
    """Return the public fields of an account."""
    return AccountView(name, account.role, "active" if account.password_hash else "invited", account.created_s)


def check_name(name: str) -> None:
    """Raise :class:`UserError` if ``name`` is not a valid account name."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(INVALID_NAME)


async def create_account(store: Store, by: Principal, name: str, role: Role) -> str:
    """Create an account without a password; return the token with which its holder sets a password.

    ``name`` must have been checked by :func:`check_name`. ``by`` is the sender of the request. Raises
    :class:`UserError` if the account exists, and :class:`PermissionDenied` if ``by`` may not grant ``role``.
    """
    _check_can_grant(by, role)

    def make(accounts: Mapping[str, Account]) -> Account:
        if name in accounts:
            raise UserError(f"There is already an account “{name}”. Choose another name.")
        return Account("", time.time(), role)

    await _replace_account(store, name, make)
    return await create_invitation(store, by, name)


async def set_role(store: Store, by: Principal, name: str, role: Role) -> AccountView:
    """Set the role of the account called ``name``; return the changed account.

    The new role takes effect with the account's next request. ``by`` is the sender of the request. Raises
    :class:`NotFound` if there is no such account, :class:`PermissionDenied` if ``by`` may not grant the old or the new
    role, and :class:`UserError` if no admin would remain.
    """

    def edit(accounts: Mapping[str, Account]) -> Account:
        present = _require(accounts, name)
        _check_can_grant(by, present.role, role)
        account = msgspec.structs.replace(present, role=role)
        _check_admin_remains({**accounts, name: account})
        return account

    return make_view(name, await _replace_account(store, name, edit))


async def remove_account(store: Store, by: Principal, name: str) -> None:
    """Remove the account called ``name``, including its sessions and API keys.

    ``by`` is the sender of the request. Raises :class:`NotFound` if there is no such account, :class:`PermissionDenied`
    if ``by`` may not grant the account's role, and :class:`UserError` if no admin would remain.
    """

    def edit(accounts: Mapping[str, Account]) -> None:
        _check_can_grant(by, _require(accounts, name).role)
        _check_admin_remains({each: account for each, account in accounts.items() if each != name})

    await _replace_account(store, name, edit)


async def create_invitation(store: Store, by: Principal, name: str) -> str:
    """Return a token with which the holder of the account called ``name`` can set a new password.

    The old password stays valid until a new one is set. Earlier tokens of the account become invalid. ``by`` is the
    sender of the request.
    """
    for _ in range(_MAX_ATTEMPTS):
        account = _require(await store.accounts.all(), name)
        _check_can_grant(by, account.role)
        if token := await store.accounts.create_password_link(name, account):
            return token
    raise OperationalError(_CONCURRENT_CHANGES)


async def set_password(store: Store, name: str, password_hash: str) -> Account:
    """Set the password hash of the account called ``name`` and end all its sessions; return the changed account."""
    return await _replace(store, name, password_hash=password_hash)


async def set_zone(store: Store, name: str, query: str) -> str:
    """Set the time zone for the times that the account called ``name`` sees on pages; return the zone's name.

    ``query`` is the name of the zone or of a large city in it. Raises :class:`UserError` unless ``query`` matches
    exactly one zone.
    """
    zones = find_time_zones(query)
    if len(zones) != 1:
        which = f"matches several time zones: {', '.join(zones)}" if zones else "is not a time zone"
        raise UserError(f"“{query[:50]}” {which}. Use a name like Europe/Berlin.")
    await _replace(store, name, zone=zones[0])
    return zones[0]


async def _replace(store: Store, name: str, **fields: str) -> Account:
    return await _replace_account(store, name, lambda all_: msgspec.structs.replace(_require(all_, name), **fields))


async def _replace_account(store: Store, name: str, edit: Callable[[Mapping[str, Account]], _Changed]) -> _Changed:
    """Replace the account called ``name`` with the result of ``edit``, and return this result.

    ``edit`` is called with a mapping from name to account that contains all accounts. The account is removed if
    ``edit`` returns None. If another request changes the accounts in the meantime, ``edit`` is called again.
    """
    for _ in range(_MAX_ATTEMPTS):
        accounts = await store.accounts.all()
        changed = edit(accounts)
        if await store.accounts.change(name, changed, accounts):
            return changed
    raise OperationalError(_CONCURRENT_CHANGES)


def _require(accounts: Mapping[str, Account], name: str) -> Account:
    if name not in accounts:
        raise NotFound(f"There is no account “{name}”. It may have been removed.")
    return accounts[name]


def _check_can_grant(principal: Principal, *roles: Role) -> None:
    if not all(principal.can_grant(role) for role in roles):
        raise PermissionDenied(
            "An API key cannot manage admins, or accounts with more rights than the key itself. "
            "Log in to do this, or use the console's admin token."
        )


def _check_admin_remains(accounts: Mapping[str, Account]) -> None:
    if not any(account.role is Role.ADMIN and account.password_hash for account in accounts.values()):
        raise UserError("At least one admin who can log in must remain. Make another account an admin first.")
