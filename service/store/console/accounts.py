"""Accounts of the console with their password links, sessions and API keys, and limits of login attempts.

Tokens are random and stored only as SHA-256: who reads Redis cannot log in with what they find. Every method of the
classes here may raise :class:`service.errors.StoreUnavailable`.

A login attempt counts in the windows of its network (of which /64 an IPv6 address counts as), of its account from that
network, and of its account. So guesses from one network lock out nobody elsewhere, and guesses from many networks are
bounded all the same. A browser that has logged in to the account before proves so with a cookie, and counts in windows
of its own: no stranger can lock it out. What is refused is not counted. Of a browser's cookie only a hash is stored,
over the token and the password's hash: a new password makes all browsers unknown.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from service.net.client_address import network_of
from service.store.client import keys
from service.store.client.connection import RedisRepository

SETUP_TTL_S = 7 * 24 * 3600
"""How long a link lasts that makes the first account, or lets an account choose its password."""
_TOKEN_BYTES = 32
SESSION_TTL_S: Final = 24 * 3600
KEY_PREFIX: Final = "coronet_"
"""Begins every key, so that scanners of repositories know one when they see it."""

_USE_NOTED_EVERY_S = 60.0
_ID_DIGITS = 16
BROWSER_TTL_S: Final = 90 * 24 * 3600
MAX_KNOWN_BROWSERS: Final = 20
"""Of one account; the one that logged in longest ago goes first."""

_MINUTE: Final = ("minute", 60)
_HOUR: Final = ("hour", 3600)
_OF_NETWORK: Final = 20
_OF_ACCOUNT_AND_NETWORK: Final = {_MINUTE: 5, _HOUR: 20}
"""Also of a known browser."""
_OF_ACCOUNT: Final = 100
"""Per hour. Five networks have to use up theirs before an account is closed to browsers that it does not know."""


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


def _unpacked(packed: bytes | None) -> Account | None:
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


class AccountStore(RedisRepository):
    """The console's accounts, by name. Every method may raise :class:`StoreUnavailable`."""

    async def any_exist(self) -> bool:
        """Return whether there is any account."""
        return bool(await self._redis.call("HLEN", keys.CONSOLE_ACCOUNTS))

    async def get(self, name: str) -> Account | None:
        """Return an account by its name."""
        return _unpacked(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, name))

    async def all(self) -> dict[str, Account]:
        """Return all accounts by name."""
        found = await self._redis.call("HGETALL", keys.CONSOLE_ACCOUNTS)
        return {name.decode(): msgspec.msgpack.decode(packed, type=Account) for name, packed in sorted(found.items())}

    async def change(self, name: str, account: Account | None, expected: Mapping[str, Account]) -> bool:
        """Write one account, or remove it, if all accounts are as expected; False if others changed them meanwhile.

        Its link is over if it is removed, made anew, or gets another password; links for the first account are over.
        """
        packed = b"" if account is None else msgspec.msgpack.encode(account)
        known = [part for each, held in expected.items() for part in (each, msgspec.msgpack.encode(held))]
        before = expected.get(name)
        identity = None if account is None else (account.created_s, account.secret)
        is_other = before is None or identity != (before.created_s, before.secret)
        own = [keys.CONSOLE_ACCOUNTS, keys.CONSOLE_PASSWORD_LINKS, keys.CONSOLE_SETUP_TOKENS]
        return bool(await self._redis.run_script("console_accounts", own, name, packed, int(is_other), *known))

    async def new_setup_token(self) -> str:
        """Return a fresh token that makes the first account; it lasts ``SETUP_TTL_S`` unless used.

        Earlier ones stay good until then: two programs may each show a link at the first start.
        """
        token = new_token()
        await self._redis.call_many(
            [
                ("SADD", keys.CONSOLE_SETUP_TOKENS, digest(token)),
                ("EXPIRE", keys.CONSOLE_SETUP_TOKENS, SETUP_TTL_S),
            ]
        )
        return token

    async def is_setup_token_valid(self, token: str) -> bool:
        """Return whether the token would make the first account."""
        accounts, is_known = await self._redis.call_many(
            [("HLEN", keys.CONSOLE_ACCOUNTS), ("SISMEMBER", keys.CONSOLE_SETUP_TOKENS, digest(token))]
        )
        return bool(is_known) and not accounts

    async def create_first(self, token: str, name: str, account: Account) -> bool:
        """Make the first account and use up every setup token, at once; False if the token is not good."""
        packed = msgspec.msgpack.encode(account)
        setup = [keys.CONSOLE_ACCOUNTS, keys.CONSOLE_SETUP_TOKENS]
        return bool(await self._redis.run_script("console_first", setup, digest(token), name, packed))

    async def create_password_link(self, name: str, account: Account) -> str | None:
        """Return a token with which whoever has it chooses this account's password, once, within ``SETUP_TTL_S``.

        It is the account's only one: older ones are over, and this one is when the account is removed or gets another
        password. None if the account is not this one any more.
        """
        token = new_token()
        link = _PasswordLink(digest(token), account.created_s, account.secret, time.time() + SETUP_TTL_S)
        own = [keys.CONSOLE_ACCOUNTS, keys.CONSOLE_PASSWORD_LINKS]
        packed = (msgspec.msgpack.encode(each) for each in (account, link))
        return token if await self._redis.run_script("console_invite", own, name, *packed, SETUP_TTL_S) else None

    async def account_of_link(self, token: str) -> str | None:
        """Return the name of the account whose password the token would set, if it is good."""
        found = await self._find_link(token)
        return None if found is None else found[0]

    async def set_password(self, token: str, name: str, password_hash: str) -> bool:
        """Set the password of an account and use the token up, at once; False if the token is not good for it."""
        found = await self._find_link(token)
        if found is None or found[0] != name:
            return False
        _, account, link = found
        chosen = msgspec.structs.replace(account, password_hash=password_hash)
        own = [keys.CONSOLE_ACCOUNTS, keys.CONSOLE_PASSWORD_LINKS]
        packed = (msgspec.msgpack.encode(each) for each in (account, chosen, link))
        return bool(await self._redis.run_script("console_accept", own, name, *packed))

    async def _find_link(self, token: str) -> tuple[str, Account, "_PasswordLink"] | None:
        """Return the link with this token, and its account by name; None if it is over or never was."""
        links, accounts = await self._redis.call_many(
            [("HGETALL", keys.CONSOLE_PASSWORD_LINKS), ("HGETALL", keys.CONSOLE_ACCOUNTS)]
        )
        wanted = digest(token)
        for name, packed in links.items():
            link = msgspec.msgpack.decode(packed, type=_PasswordLink)
            account = _unpacked(accounts.get(name))
            if hmac.compare_digest(link.token_hash, wanted) and account is not None and link.is_good_for(account):
                return name.decode(), account, link
        return None


class Session(msgspec.Struct, frozen=True):
    """One login. ``id`` ends it and opens nothing; ``browser`` is what it said of itself; times are Unix s."""

    id: str
    account: str
    opened_s: float
    address: str
    browser: str


class _Held(msgspec.Struct, frozen=True):
    account: str
    secret: str
    opened_s: float
    address: str
    browser: str


class Sessions(RedisRepository):
    """The sessions of all accounts. Every method may raise :class:`StoreUnavailable`."""

    async def open(self, name: str, account: Account, address: str = "", browser: str = "") -> str:
        """Return the token of a new session of this account; it lasts ``SESSION_TTL_S``, or as long as the password."""
        token = new_token()
        held = _Held(name, account.secret, time.time(), address, browser)
        own = [keys.CONSOLE_SESSIONS, keys.console_session(digest(token))]
        await self._redis.run_script("console_login", own, digest(token), SESSION_TTL_S, msgspec.msgpack.encode(held))
        return token

    async def find(self, token: str) -> tuple[str, Account] | None:
        """Return whose session this is, by name and account; None if it is over or never was."""
        packed = await self._redis.call("GET", keys.console_session(digest(token)))
        if packed is None:
            return None
        held = msgspec.msgpack.decode(packed, type=_Held)
        account = _unpacked(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, held.account))
        return (held.account, account) if account is not None and account.secret == held.secret else None

    async def all(self) -> list[Session]:
        """Return the sessions that are open, newest first."""
        ids = [held.decode() for held in await self._redis.call("ZREVRANGE", keys.CONSOLE_SESSIONS, 0, -1)]
        found = await self._redis.call_many([("GET", keys.console_session(each)) for each in ids])
        accounts = await self._redis.call("HGETALL", keys.CONSOLE_ACCOUNTS)
        opened = []
        for session, packed in zip(ids, found, strict=True):
            if packed is None:
                continue
            held = msgspec.msgpack.decode(packed, type=_Held)
            account = _unpacked(accounts.get(held.account.encode()))
            if account is not None and account.secret == held.secret:
                opened.append(Session(session, held.account, held.opened_s, held.address, held.browser))
        return opened

    async def close(self, token: str) -> None:
        """End the session with this token."""
        await self.end(digest(token))

    async def end(self, session: str) -> None:
        """End a session by its id."""
        await self._redis.call_many([("DEL", keys.console_session(session)), ("ZREM", keys.CONSOLE_SESSIONS, session)])


class ApiKey(msgspec.Struct, frozen=True):
    """A key. Its holder may do what its scopes and, at that time, the role of its account allow. Times are Unix s."""

    id: str
    name: str
    account: str
    account_since_s: float
    scopes: tuple[str, ...]
    created_s: float


class ApiKeyStore(RedisRepository):
    """The keys of all accounts. Every method may raise :class:`StoreUnavailable`."""

    async def make(
        self, name: str, owner: tuple[str, Account], scopes: tuple[str, ...], now_s: float
    ) -> tuple[ApiKey, str]:
        """Return a new key of an account, and the token that has to be sent with requests."""
        token = KEY_PREFIX + new_token()
        account_name, account = owner
        key = ApiKey(digest(token)[:_ID_DIGITS], name, account_name, account.created_s, scopes, now_s)
        await self._redis.call("HSET", keys.API_KEYS, digest(token), msgspec.msgpack.encode(key))
        return key, token

    async def find(self, token: str, now_s: float) -> tuple[ApiKey, Account] | None:
        """Return the key with this token and its account; None if there is no such key, or no account any more."""
        if not token.startswith(KEY_PREFIX):
            return None
        own = (keys.API_KEYS, keys.API_KEYS_LAST_USE)
        packed = await self._redis.run_script("console_key", own, digest(token), repr(now_s), _USE_NOTED_EVERY_S)
        if packed is None:
            return None
        key = msgspec.msgpack.decode(packed, type=ApiKey)
        account = _unpacked(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, key.account))
        return (key, account) if account is not None and account.created_s == key.account_since_s else None

    async def all(self) -> list[tuple[ApiKey, float | None]]:
        """Return all keys with the time of their last use (Unix s, to the minute), newest first."""
        held, used = await self._redis.call_many([("HGETALL", keys.API_KEYS), ("HGETALL", keys.API_KEYS_LAST_USE)])
        found = [
            (msgspec.msgpack.decode(packed, type=ApiKey), float(used[token]) if token in used else None)
            for token, packed in held.items()
        ]
        return sorted(found, key=lambda pair: -pair[0].created_s)

    async def revoke(self, key: str) -> bool:
        """Have a key, by its id, open nothing any more; False if there is none."""
        held = await self._redis.call("HKEYS", keys.API_KEYS)
        tokens = [token for token in held if token.startswith(key.encode())] if len(key) == _ID_DIGITS else []
        for token in tokens:
            await self._redis.call_many([("HDEL", keys.API_KEYS, token), ("HDEL", keys.API_KEYS_LAST_USE, token)])
        return bool(tokens)


class LoginLimits(RedisRepository):
    """Counts login attempts and knows browsers. Every method may raise :class:`StoreUnavailable`."""

    async def count_attempt(self, name: str, address: str, known_browser: str = "") -> float:
        """Count an attempt on an account, before the password is looked at.

        ``known_browser`` is the token of a browser for which :meth:`is_known` holds, "" for others. Returns 0 if the
        attempt is allowed, else for how many seconds no other one is.
        """
        if known_browser:
            counted = _pairs(f"browser {known_browser}", _OF_ACCOUNT_AND_NETWORK)
        else:
            network = network_of(address)
            counted = [
                *_pairs(f"network {network}", {_MINUTE: _OF_NETWORK}),
                *_pairs(f"account {name} network {network}", _OF_ACCOUNT_AND_NETWORK),
                *_pairs(f"account {name}", {_HOUR: _OF_ACCOUNT}),
            ]
        limits = [number for _, *limit in counted for number in limit]
        wait_ms: int = await self._redis.run_script("console_attempt", [key for key, *_ in counted], *limits)
        return wait_ms / 1000

    async def is_known_browser(self, name: str, account: Account, token: str) -> bool:
        """Return whether the browser that sent this token has logged in to the account, with its present password."""
        until_s = await self._redis.call("ZSCORE", _browsers_of(name), _member(account, token)) if token else None
        return until_s is not None and float(until_s) > time.time()

    async def remember_browser(self, name: str, account: Account, token_before: str) -> str:
        """Return a token by which a browser is known from now on; the one that it had before is known no more."""
        token = new_token()
        members = _member(account, token), _member(account, token_before)
        await self._redis.run_script(
            "console_browser", [_browsers_of(name)], *members, BROWSER_TTL_S, MAX_KNOWN_BROWSERS
        )
        return token


def _pairs(what: str, limits: dict[tuple[str, int], int]) -> list[tuple[str, int, int]]:
    return [
        (keys.login_attempts(window, digest(what)), limit, window_s * 1000)
        for (window, window_s), limit in limits.items()
    ]


def _browsers_of(name: str) -> str:
    return keys.known_browsers(digest(name))


def _member(account: Account, token: str) -> str:
    return digest(f"{token} {account.secret} {account.created_s!r}")
