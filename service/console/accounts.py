"""Who may use the console, changed by admins: always one of them is left who can come in."""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from service.console.access import Visitor
from service.console.passwords import LONGEST, SHORTEST
from service.errors import NoSuchThing, NotAllowed, OperationalError, UserError
from service.habits import zone_named
from service.store import Store
from service.store.accounts import Account, Role

NAME: Final = r"[a-z0-9][a-z0-9._-]{0,31}"
_TRIES = 5


class AccountView(msgspec.Struct, frozen=True):
    """An account; ``invited`` until its holder has chosen a password. ``created_s`` is Unix s."""

    name: str
    role: Role
    state: Literal["invited", "active"]
    created_s: float


def viewed(name: str, account: Account) -> AccountView:
    """Return an account as others may see it."""
    return AccountView(name, account.role, "active" if account.password_hash else "invited", account.created_s)


def unfit_name(name: str) -> str:
    """Return why this cannot be an account's name, or ''."""
    if re.fullmatch(NAME, name):
        return ""
    return "A name has 1 to 32 small letters, digits, dots, dashes or underscores, and starts with a letter or digit."


def unfit_password(password: str, again: str) -> str:
    """Return why this cannot be a password, or ''."""
    if len(password) < SHORTEST:
        return f"The password needs at least {SHORTEST} characters."
    if len(password) > LONGEST:
        return f"The password can have at most {LONGEST} characters."
    return "" if password == again else "The two passwords differ."


async def add(store: Store, by: Visitor, name: str, role: Role, now_s: float) -> str:
    """Make an account without a password; return the token with which its holder chooses one."""
    if unfit := unfit_name(name):
        raise UserError(unfit)
    _must_be_able_to_grant(by, role)
    for _ in range(_TRIES):
        accounts = await store.accounts.all()
        if name in accounts:
            raise UserError(f"There is an account “{name}” already. Choose another name.")
        made = Account("", now_s, role)
        if await store.accounts.change(name, made, accounts) and (token := await store.accounts.invite(name, made)):
            return token
    raise _contended()


async def set_role(store: Store, by: Visitor, name: str, role: Role) -> AccountView:
    """Give an account another role, from its next request on."""
    for _ in range(_TRIES):
        accounts = await store.accounts.all()
        present = _existing(accounts, name)
        _must_be_able_to_grant(by, present.role, role)
        changed = msgspec.structs.replace(present, role=role)
        _must_leave_an_admin({**accounts, name: changed})
        if await store.accounts.change(name, changed, accounts):
            return viewed(name, changed)
    raise _contended()


async def remove(store: Store, by: Visitor, name: str) -> None:
    """Remove an account; its sessions and API keys are over."""
    for _ in range(_TRIES):
        accounts = await store.accounts.all()
        _must_be_able_to_grant(by, _existing(accounts, name).role)
        _must_leave_an_admin({each: account for each, account in accounts.items() if each != name})
        if await store.accounts.change(name, None, accounts):
            return
    raise _contended()


async def invite(store: Store, by: Visitor, name: str) -> str:
    """Return a token with which an account's holder chooses a new password; the old one is good until then.

    Tokens that were made before are over.
    """
    for _ in range(_TRIES):
        account = _existing(await store.accounts.all(), name)
        _must_be_able_to_grant(by, account.role)
        if token := await store.accounts.invite(name, account):
            return token
    raise _contended()


async def set_password(store: Store, name: str, password_hash: str) -> Account:
    """Give an account another password; all its sessions are over."""
    for _ in range(_TRIES):
        accounts = await store.accounts.all()
        changed = msgspec.structs.replace(_existing(accounts, name), password_hash=password_hash)
        if await store.accounts.change(name, changed, accounts):
            return changed
    raise _contended()


async def set_zone(store: Store, name: str, words: str) -> str:
    """Show an account's holder times by the clocks of the zone that is meant: by its name, or a large city in it.

    Returns the zone's name.
    """
    zones = zone_named(words)
    if len(zones) != 1:
        which = f"several: {', '.join(zones)}" if zones else "none"
        raise UserError(f"Of time zones called “{words[:50]}” there are {which}. Name it like Europe/Berlin.")
    for _ in range(_TRIES):
        accounts = await store.accounts.all()
        changed = msgspec.structs.replace(_existing(accounts, name), zone=zones[0])
        if await store.accounts.change(name, changed, accounts):
            return zones[0]
    raise _contended()


def _existing(accounts: Mapping[str, Account], name: str) -> Account:
    if name not in accounts:
        raise NoSuchThing(f"There is no account “{name}”. It may have been removed.")
    return accounts[name]


def _must_be_able_to_grant(visitor: Visitor, *roles: Role) -> None:
    if not all(visitor.can_grant(role) for role in roles):
        raise NotAllowed(
            "An API key makes and changes only accounts that may do no more than the key itself, and no admins. "
            "Log in to do this, or use the token of the settings."
        )


def _must_leave_an_admin(accounts: Mapping[str, Account]) -> None:
    if not any(account.role is Role.ADMIN and account.password_hash for account in accounts.values()):
        raise UserError("No admin would be left who can log in. Make another account an admin first.")


def _contended() -> OperationalError:
    return OperationalError("Others are changing accounts at the same time. Try again.")
