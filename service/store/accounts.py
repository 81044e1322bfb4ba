"""Who may use the console: accounts with roles, and links that set their passwords.

Tokens are random and stored only as SHA-256: who reads Redis cannot log in with what they find.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from service.store import console_keys
from service.store.link import Link

SETUP_TTL_S = 7 * 24 * 3600
"""How long a link lasts that makes the first account, or lets an account choose its password."""
_TOKEN_BYTES = 32


class Role(StrEnum):
    """What an account may do: a viewer looks, an operator also changes how channels are polled, an admin everything."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: "Role") -> bool:
        """Return whether who has this role may do what the other asks for."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person who may use the console. ``password_hash`` is an argon2id string; "" until they have chosen one.

    ``created_s`` (Unix s) tells an account from an earlier one of the same name. ``zone`` is the one, of the tz
    database, by whose clocks they are shown times; "" until they have chosen one.
    """

    password_hash: str
    created_s: float
    role: Role = Role.ADMIN
    zone: str = ""

    @property
    def secret(self) -> str:
        """What changes with every password: sessions that were opened with another one are over."""
        return digest(self.password_hash)


def new_token() -> str:
    """Return 256 random bits as text that fits into a URL."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def digest(token: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def unpacked(packed: bytes | None) -> Account | None:
    """Return an account as it is stored."""
    return None if packed is None else msgspec.msgpack.decode(packed, type=Account)


class _PasswordLink(msgspec.Struct, frozen=True):
    """A link that sets the password of the account as it was when the link was made. ``until_s`` is Unix s."""

    token_hash: str
    account_since_s: float
    account_secret: str
    until_s: float

    def is_good_for(self, account: Account) -> bool:
        is_same = account.created_s == self.account_since_s and account.secret == self.account_secret
        return is_same and time.time() < self.until_s


class Accounts:
    """The console's accounts, by name. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def exist(self) -> bool:
        """Return whether there is any account."""
        return bool(await self._link.call("HLEN", console_keys.ACCOUNTS))

    async def get(self, name: str) -> Account | None:
        """Return an account by its name."""
        return unpacked(await self._link.call("HGET", console_keys.ACCOUNTS, name))

    async def all(self) -> dict[str, Account]:
        """Return all accounts by name."""
        found = await self._link.call("HGETALL", console_keys.ACCOUNTS)
        return {name.decode(): msgspec.msgpack.decode(packed, type=Account) for name, packed in sorted(found.items())}

    async def change(self, name: str, account: Account | None, expected: Mapping[str, Account]) -> bool:
        """Write one account, or remove it, if all accounts are as expected; False if others changed them meanwhile.

        Its link is over if it is removed, made anew, or gets another password; links for the first account are over.
        """
        packed = b"" if account is None else msgspec.msgpack.encode(account)
        known = [part for each, held in expected.items() for part in (each, msgspec.msgpack.encode(held))]
        before = expected.get(name)
        is_other = (
            account is None
            or before is None
            or (before.created_s, before.secret)
            != (
                account.created_s,
                account.secret,
            )
        )
        own = [console_keys.ACCOUNTS, console_keys.LINKS, console_keys.SETUP]
        return bool(await self._link.script("console_accounts", own, name, packed, int(is_other), *known))

    async def new_setup_token(self) -> str:
        """Return a fresh token that makes the first account; it lasts ``SETUP_TTL_S`` unless used.

        Earlier ones stay good until then: two programs may each show a link at the first start.
        """
        token = new_token()
        await self._link.many(
            [
                ("SADD", console_keys.SETUP, digest(token)),
                ("EXPIRE", console_keys.SETUP, SETUP_TTL_S),
            ]
        )
        return token

    async def setup_token_valid(self, token: str) -> bool:
        """Return whether the token would make the first account."""
        accounts, is_known = await self._link.many(
            [("HLEN", console_keys.ACCOUNTS), ("SISMEMBER", console_keys.SETUP, digest(token))]
        )
        return bool(is_known) and not accounts

    async def create_first(self, token: str, name: str, account: Account) -> bool:
        """Make the first account and use up every setup token, at once; False if the token is not good."""
        packed = msgspec.msgpack.encode(account)
        setup = [console_keys.ACCOUNTS, console_keys.SETUP]
        return bool(await self._link.script("console_first", setup, digest(token), name, packed))

    async def invite(self, name: str, account: Account) -> str | None:
        """Return a token with which whoever has it chooses this account's password, once, within ``SETUP_TTL_S``.

        It is the account's only one: older ones are over, and this one is when the account is removed or gets another
        password. None if the account is not this one any more.
        """
        token = new_token()
        link = _PasswordLink(digest(token), account.created_s, account.secret, time.time() + SETUP_TTL_S)
        own = [console_keys.ACCOUNTS, console_keys.LINKS]
        packed = (msgspec.msgpack.encode(each) for each in (account, link))
        return token if await self._link.script("console_invite", own, name, *packed, SETUP_TTL_S) else None

    async def invited(self, token: str) -> str | None:
        """Return the name of the account whose password the token would set, if it is good."""
        found = await self._find_link(token)
        return None if found is None else found[0]

    async def accept(self, token: str, name: str, password_hash: str) -> bool:
        """Set the password of an account and use the token up, at once; False if the token is not good for it."""
        found = await self._find_link(token)
        if found is None or found[0] != name:
            return False
        _, account, link = found
        chosen = msgspec.structs.replace(account, password_hash=password_hash)
        own = [console_keys.ACCOUNTS, console_keys.LINKS]
        packed = (msgspec.msgpack.encode(each) for each in (account, chosen, link))
        return bool(await self._link.script("console_accept", own, name, *packed))

    async def _find_link(self, token: str) -> tuple[str, Account, "_PasswordLink"] | None:
        """Return the link with this token, and its account by name; None if it is over or never was."""
        links, accounts = await self._link.many([("HGETALL", console_keys.LINKS), ("HGETALL", console_keys.ACCOUNTS)])
        wanted = digest(token)
        for name, packed in links.items():
            link = msgspec.msgpack.decode(packed, type=_PasswordLink)
            account = unpacked(accounts.get(name))
            if hmac.compare_digest(link.token_hash, wanted) and account is not None and link.is_good_for(account):
                return name.decode(), account, link
        return None
