"""Accounts of the console with their passwords, and the rules for changing them.

One admin who can log in always remains. Passwords are hashed with argon2id (RFC 9106) with the OWASP minimum, one at
a time and off the event loop: each hash takes 19 MiB and a core. When many wait already, further ones are refused.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeVar

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from service.console.auth.roles import Visitor
from service.errors import LimitReached, NotFound, OperationalError, PermissionDenied, UserError
from service.store import Store
from service.store.console.accounts import Account, Role
from service.users.quiet_hours import find_time_zones

NAME: Final = r"[a-z0-9][a-z0-9._-]{0,31}"
SHORTEST: Final = 10
LONGEST: Final = 1024

_TRIES = 5

_HASHER = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)
_DUMMY = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
_MOST_WAIT = 64
"""Two seconds' worth."""
_MOST_STRANGERS_WAIT = 48
"""A crowd that guesses leaves room for visitors with a link or a known browser's cookie."""

_Changed = TypeVar("_Changed", bound=Account | None)


class AccountView(msgspec.Struct, frozen=True):
    """An account; ``invited`` until its holder has chosen a password. ``created_s`` is Unix s."""

    name: str
    role: Role
    state: Literal["invited", "active"]
    created_s: float


def viewed(name: str, account: Account) -> AccountView:
    """Return an account as others may see it."""
    return AccountView(name, account.role, "active" if account.password_hash else "invited", account.created_s)


def check_name(name: str) -> None:
    """Raise :class:`UserError` if this cannot be an account's name."""
    if not re.fullmatch(NAME, name):
        raise UserError(
            "A name has 1 to 32 small letters, digits, dots, dashes or underscores, and starts with a letter or digit."
        )


def check_password(password: str, again: str) -> None:
    """Raise :class:`UserError` if this cannot be a password."""
    if len(password) < SHORTEST:
        raise UserError(f"The password needs at least {SHORTEST} characters.")
    if len(password) > LONGEST:
        raise UserError(f"The password can have at most {LONGEST} characters.")
    if password != again:
        raise UserError("The two passwords differ.")


async def add(store: Store, by: Visitor, name: str, role: Role, now_s: float) -> str:
    """Make an account without a password; return the token with which its holder chooses one."""
    check_name(name)
    _must_be_able_to_grant(by, role)

    def made(accounts: Mapping[str, Account]) -> Account:
        if name in accounts:
            raise UserError(f"There is an account “{name}” already. Choose another name.")
        return Account("", now_s, role)

    await _change(store, name, made)
    return await invite(store, by, name)


async def set_role(store: Store, by: Visitor, name: str, role: Role) -> AccountView:
    """Give an account another role, from its next request on."""

    def changed(accounts: Mapping[str, Account]) -> Account:
        present = _existing(accounts, name)
        _must_be_able_to_grant(by, present.role, role)
        account = msgspec.structs.replace(present, role=role)
        _must_leave_an_admin({**accounts, name: account})
        return account

    return viewed(name, await _change(store, name, changed))


async def remove(store: Store, by: Visitor, name: str) -> None:
    """Remove an account; its sessions and API keys are over."""

    def removed(accounts: Mapping[str, Account]) -> None:
        _must_be_able_to_grant(by, _existing(accounts, name).role)
        _must_leave_an_admin({each: account for each, account in accounts.items() if each != name})

    await _change(store, name, removed)


async def invite(store: Store, by: Visitor, name: str) -> str:
    """Return a token with which an account's holder chooses a new password; the old one is good until then.

    Tokens that were made before are over.
    """
    for _ in range(_TRIES):
        account = _existing(await store.accounts.all(), name)
        _must_be_able_to_grant(by, account.role)
        if token := await store.accounts.create_password_link(name, account):
            return token
    raise _contended()


async def set_password(store: Store, name: str, password_hash: str) -> Account:
    """Give an account another password; all its sessions are over."""
    return await _replace(store, name, password_hash=password_hash)


async def set_zone(store: Store, name: str, words: str) -> str:
    """Show an account's holder times by the clocks of the zone that is meant: by its name, or a large city in it.

    Returns the zone's name.
    """
    zones = find_time_zones(words)
    if len(zones) != 1:
        which = f"several: {', '.join(zones)}" if zones else "none"
        raise UserError(f"Of time zones called “{words[:50]}” there are {which}. Name it like Europe/Berlin.")
    await _replace(store, name, zone=zones[0])
    return zones[0]


async def _replace(store: Store, name: str, **fields: str) -> Account:
    return await _change(store, name, lambda all_: msgspec.structs.replace(_existing(all_, name), **fields))


async def _change(store: Store, name: str, edit: Callable[[Mapping[str, Account]], _Changed]) -> _Changed:
    """Write what ``edit`` makes of an account (None removes it); again if others changed accounts meanwhile."""
    for _ in range(_TRIES):
        accounts = await store.accounts.all()
        changed = edit(accounts)
        if await store.accounts.change(name, changed, accounts):
            return changed
    raise _contended()


def _existing(accounts: Mapping[str, Account], name: str) -> Account:
    if name not in accounts:
        raise NotFound(f"There is no account “{name}”. It may have been removed.")
    return accounts[name]


def _must_be_able_to_grant(visitor: Visitor, *roles: Role) -> None:
    if not all(visitor.can_grant(role) for role in roles):
        raise PermissionDenied(
            "An API key makes and changes only accounts that may do no more than the key itself, and no admins. "
            "Log in to do this, or use the token of the settings."
        )


def _must_leave_an_admin(accounts: Mapping[str, Account]) -> None:
    if not any(account.role is Role.ADMIN and account.password_hash for account in accounts.values()):
        raise UserError("No admin would be left who can log in. Make another account an admin first.")


def _contended() -> OperationalError:
    return OperationalError("Others are changing accounts at the same time. Try again.")


class Passwords:
    """Hashes and verifies; one value per application, for its turn-taking."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Return the argon2id string to be stored. Raises :class:`LimitReached`."""
        async with self._in_turn(_MOST_WAIT):
            return await asyncio.to_thread(_HASHER.hash, password)

    async def verify(self, password: str, stored: str, *, is_known: bool = False) -> bool:
        """Return whether it is the password; if none is stored (""), take as long and return False.

        ``is_known``: the request comes from a browser that the account is known by. Raises :class:`LimitReached`.
        """
        async with self._in_turn(_MOST_WAIT if is_known else _MOST_STRANGERS_WAIT):
            return await asyncio.to_thread(_matches, password, stored or _DUMMY) and bool(stored)

    @asynccontextmanager
    async def _in_turn(self, most_wait: int) -> AsyncIterator[None]:
        if self._waiting >= most_wait:
            raise LimitReached("Too many people are logging in right now. Please try again in a few seconds.")
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1


def _matches(password: str, stored: str) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
