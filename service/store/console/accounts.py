"""Accounts of the console, and the links with which users set their passwords.

The tokens in links are random, and only their SHA-256 is stored. The data in Redis therefore does not suffice to log
in. Every method may raise :class:`service.errors.StoreUnavailable`.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository

SETUP_TTL_S = 7 * 24 * 3600
"""How long a link for creating the first account or for setting an account's password is valid (s)."""
_TOKEN_BYTES = 32


class Role(StrEnum):
    """The role of an account, which determines what its user may do.

    Viewers can read. Operators can also change how channels are polled. Admins can do everything.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: "Role") -> bool:
        """Return whether this role includes all permissions of ``other``."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """An account of the console.

    - ``password_hash``: an argon2id string; "" until a password is set.
    - ``created_s``: when the account was created (Unix s). This distinguishes the account from an earlier, removed
      account with the same name.
    - ``role``: determines what the account's user may do.
    - ``zone``: time zone (tz database) in which times are shown; "" if none is set.
    """

    password_hash: str
    created_s: float
    role: Role = Role.ADMIN
    zone: str = ""

    @property
    def secret(self) -> str:
        """A digest of the password hash. Sessions depend on it, so that a new password ends all sessions."""
        return digest(self.password_hash)


def new_token() -> str:
    """Return a random token: 256 bits in URL-safe base64."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def digest(token: str) -> str:
    """Return the SHA-256 of a token in hexadecimal digits, which is stored instead of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def unpack_account(packed: bytes | None) -> Account | None:
    """Decode the stored account ``packed``; return None if ``packed`` is None."""
    return None if packed is None else msgspec.msgpack.decode(packed, type=Account)


class _PasswordLink(msgspec.Struct, frozen=True):
    """A link with which the password of an account can be set until ``until_s`` (Unix s).

    - ``token_hash``: SHA-256 of the link's token.
    - ``account_since_s``: when the account was created (Unix s). The link is not valid for a later account with the
      same name.
    - ``account_secret``: the account's :attr:`Account.secret` when the link was created. The link becomes invalid when
      the password changes.
    """

    token_hash: str
    account_since_s: float
    account_secret: str
    until_s: float

    def is_good_for(self, account: Account) -> bool:
        is_same = account.created_s == self.account_since_s and account.secret == self.account_secret
        return is_same and time.time() < self.until_s


class AccountStore(RedisRepository):
    """Stores the console's accounts under their names. Every method may raise :class:`StoreUnavailable`."""

    async def get(self, name: str) -> Account | None:
        """Return the account called ``name``; None if it does not exist."""
        return unpack_account(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, name))

    async def all(self) -> dict[str, Account]:
        """Return a mapping from the names of all accounts to the accounts."""
        found = await self._redis.call("HGETALL", keys.CONSOLE_ACCOUNTS)
        return {name.decode(): msgspec.msgpack.decode(packed, type=Account) for name, packed in sorted(found.items())}

    async def change(self, name: str, account: Account | None, expected: Mapping[str, Account]) -> bool:
        """Store ``account`` under ``name``, or remove the account called ``name`` if ``account`` is None.

        ``expected`` contains all accounts as the caller has read them, keyed by name. If any account has changed since
        then, nothing is done. Return whether the change was made.

        The account's password link becomes invalid if the account is removed, created anew, or gets another password.
        Links for creating the first account become invalid as soon as an account exists.
        """
        packed = b"" if account is None else msgspec.msgpack.encode(account)
        known = [part for each, held in expected.items() for part in (each, msgspec.msgpack.encode(held))]
        before = expected.get(name)
        identity = None if account is None else (account.created_s, account.secret)
        is_other = before is None or identity != (before.created_s, before.secret)
        script_keys = [keys.CONSOLE_ACCOUNTS, keys.CONSOLE_PASSWORD_LINKS, keys.CONSOLE_SETUP_TOKENS]
        arguments = (name, packed, int(is_other), *known)
        return bool(await self._redis.run_script("console_change_account", script_keys, *arguments))

    async def new_setup_token(self) -> str:
        """Create a token with which the first account can be created, and return the token.

        The token can be used once, within ``SETUP_TTL_S`` seconds. Earlier setup tokens stay valid.
        """
        # Two processes may each show a link at the first start.
        token = new_token()
        await self._redis.call_many(
            [
                ("SADD", keys.CONSOLE_SETUP_TOKENS, digest(token)),
                ("EXPIRE", keys.CONSOLE_SETUP_TOKENS, SETUP_TTL_S),
            ]
        )
        return token

    async def is_setup_token_valid(self, token: str) -> bool:
        """Return whether ``token`` can be used to create the first account."""
        accounts, is_known = await self._redis.call_many(
            [("HLEN", keys.CONSOLE_ACCOUNTS), ("SISMEMBER", keys.CONSOLE_SETUP_TOKENS, digest(token))]
        )
        return bool(is_known) and not accounts

    async def create_first(self, token: str, name: str, account: Account) -> bool:
        """Create the first account and delete all setup tokens; return whether this was done.

        The result is False if ``token`` is invalid, or an account was created in the meantime.
        """
        return await self.is_setup_token_valid(token) and await self.change(name, account, {})

    async def create_password_link(self, name: str, account: Account) -> str | None:
        """Create a token with which the password of an account can be set, and return the token.

        The token can be used once, within ``SETUP_TTL_S`` seconds. It replaces the account's earlier token. It becomes
        invalid when the account is removed or gets another password.

        Return None, without creating a token, if the stored account called ``name`` is no longer equal to ``account``.
        """
        token = new_token()
        link = _PasswordLink(digest(token), account.created_s, account.secret, time.time() + SETUP_TTL_S)
        script_keys = [keys.CONSOLE_ACCOUNTS, keys.CONSOLE_PASSWORD_LINKS]
        packed = (msgspec.msgpack.encode(each) for each in (account, link))
        return (
            token
            if await self._redis.run_script("console_create_password_link", script_keys, name, *packed, SETUP_TTL_S)
            else None
        )

    async def account_of_link(self, token: str) -> str | None:
        """Return the name of the account whose password ``token`` can set; None if ``token`` is invalid."""
        found = await self._find_link(token)
        return None if found is None else found[0]

    async def set_password(self, token: str, name: str, password_hash: str) -> bool:
        """Set an account's password and delete ``token``, in one atomic step; return whether this was done.

        The result is False if ``token`` is not valid for the account called ``name``.
        """
        while (found := await self._find_link(token)) is not None and found[0] == name:
            accounts = found[1]
            account = msgspec.structs.replace(accounts[name], password_hash=password_hash)
            if await self.change(name, account, accounts):
                return True
        return False

    async def _find_link(self, token: str) -> tuple[str, Mapping[str, Account]] | None:
        """Return (name, accounts): the name of the account whose password ``token`` can set, and all accounts by name.

        The result is None if ``token`` is invalid.
        """
        links, accounts = await asyncio.gather(self._redis.call("HGETALL", keys.CONSOLE_PASSWORD_LINKS), self.all())
        for name, packed in links.items():
            link, account = msgspec.msgpack.decode(packed, type=_PasswordLink), accounts.get(name.decode())
            if (
                hmac.compare_digest(link.token_hash, digest(token))
                and account is not None
                and link.is_good_for(account)
            ):
                return name.decode(), accounts
        return None
