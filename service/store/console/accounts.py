"""Accounts of the console with their password links, sessions and API keys, and limits on login attempts.

Tokens are random and only their SHA-256 is stored, so that nobody can log in with data from Redis. Every method may
raise :class:`service.errors.StoreUnavailable`.

A login attempt is counted three times: for its network (an IPv6 address counts as its /64), for the account and this
network, and for the account and any network. Each count has its own limit. Attempts from one network therefore do not
lock out users in other networks, and attempts from many networks are limited too. A refused attempt does not count.

A browser that has logged in to the account before has a cookie that proves this. Its attempts are counted separately,
so that strangers cannot lock it out. The stored hash covers the cookie's token and the password hash: after a change of
the password no browser is known any more.
"""

import asyncio
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
from service.store.client.redis_client import RedisRepository

SETUP_TTL_S = 7 * 24 * 3600
"""Validity of a link that creates the first account, or sets the password of an account."""
_TOKEN_BYTES = 32
SESSION_TTL_S: Final = 24 * 3600
KEY_PREFIX: Final = "coronet_"
"""Prefix of every API key, by which secret scanners recognize it."""

_LAST_USE_INTERVAL_S = 60.0
_ID_DIGITS = 16
BROWSER_TTL_S: Final = 90 * 24 * 3600
MAX_KNOWN_BROWSERS: Final = 20
"""Of one account; the browser with the oldest login is dropped first."""

_MINUTE: Final = ("minute", 60)
_HOUR: Final = ("hour", 3600)
_NETWORK_LIMIT: Final = 20
_ACCOUNT_AND_NETWORK_LIMITS: Final = {_MINUTE: 5, _HOUR: 20}
"""Also the limits of a known browser."""
_ACCOUNT_LIMIT: Final = 100
"""Per hour. Five networks have to use up their limits before the account is closed to unknown browsers."""


class Role(StrEnum):
    """The role of an account, which determines its permissions.

    Viewers can read, operators can also change how channels are polled, and admins can do everything.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: "Role") -> bool:
        """Return whether this role includes the permissions of ``other``."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """An account of the console. ``password_hash`` is an argon2id string; "" until a password is set.

    ``created_s`` (Unix s) distinguishes the account from an earlier account with the same name. ``zone`` is the time
    zone (tz database) in which times are shown; "" if none is set.
    """

    password_hash: str
    created_s: float
    role: Role = Role.ADMIN
    zone: str = ""

    @property
    def secret(self) -> str:
        """A digest that changes with the password, so that a new password ends the account's sessions."""
        return digest(self.password_hash)


def new_token() -> str:
    """Return 256 random bits in URL-safe base64."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def digest(token: str) -> str:
    """Return the SHA-256 of a token in hexadecimal digits, which is stored instead of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _unpack_account(packed: bytes | None) -> Account | None:
    """Return the account that ``packed`` contains; None if ``packed`` is None."""
    return None if packed is None else msgspec.msgpack.decode(packed, type=Account)


class _PasswordLink(msgspec.Struct, frozen=True):
    """A link that sets the password of an account until ``until_s`` (Unix s).

    It is valid only for the account that was created at ``account_since_s`` (Unix s), and only while that account's
    ``secret`` is ``account_secret``.
    """

    token_hash: str
    account_since_s: float
    account_secret: str
    until_s: float

    def is_good_for(self, account: Account) -> bool:
        is_same = account.created_s == self.account_since_s and account.secret == self.account_secret
        return is_same and time.time() < self.until_s


class AccountStore(RedisRepository):
    """Accounts by name. Every method may raise :class:`StoreUnavailable`."""

    async def get(self, name: str) -> Account | None:
        """Return the account with this name; None if it does not exist."""
        return _unpack_account(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, name))

    async def all(self) -> dict[str, Account]:
        """Return all accounts by name."""
        found = await self._redis.call("HGETALL", keys.CONSOLE_ACCOUNTS)
        return {name.decode(): msgspec.msgpack.decode(packed, type=Account) for name, packed in sorted(found.items())}

    async def change(self, name: str, account: Account | None, expected: Mapping[str, Account]) -> bool:
        """Store an account under ``name``, or remove it if ``account`` is None.

        Nothing changes unless all accounts still equal ``expected``; return whether the account was written or removed.
        The account's password link becomes invalid if the account is removed, created anew, or gets another password.
        Setup links become invalid as soon as an account exists.
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
        """Return a new token that allows the creation of the first account, once and within ``SETUP_TTL_S``.

        Earlier tokens stay valid, because two processes may each show a link at the first start.
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
        """Return whether the token allows the creation of the first account."""
        accounts, is_known = await self._redis.call_many(
            [("HLEN", keys.CONSOLE_ACCOUNTS), ("SISMEMBER", keys.CONSOLE_SETUP_TOKENS, digest(token))]
        )
        return bool(is_known) and not accounts

    async def create_first(self, token: str, name: str, account: Account) -> bool:
        """Create the first account and delete all setup tokens; return False if ``token`` is invalid."""
        return await self.is_setup_token_valid(token) and await self.change(name, account, {})

    async def create_password_link(self, name: str, account: Account) -> str | None:
        """Return a token with which this account's password can be set once, within ``SETUP_TTL_S``.

        The token replaces an earlier one. It becomes invalid when the account is removed or gets another password.
        Returns None if ``account`` is no longer the stored account.
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
        """Return the name of the account whose password the token can set; None for an invalid token."""
        found = await self._find_link(token)
        return None if found is None else found[0]

    async def set_password(self, token: str, name: str, password_hash: str) -> bool:
        """Set the password of an account and delete the token, atomically.

        Returns False if the token is invalid for this account.
        """
        while (found := await self._find_link(token)) is not None and found[0] == name:
            accounts = found[1]
            account = msgspec.structs.replace(accounts[name], password_hash=password_hash)
            if await self.change(name, account, accounts):
                return True
        return False

    async def _find_link(self, token: str) -> tuple[str, Mapping[str, Account]] | None:
        """Return the name of the account whose password the token can set, and all accounts; None if it is invalid."""
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


class Session(msgspec.Struct, frozen=True):
    """One session of ``account``, opened at ``opened_s`` (Unix s) from the IP address ``address``.

    ``id`` identifies the session and cannot be used as a token. ``browser`` is the browser's User-Agent.
    """

    id: str
    account: str
    opened_s: float
    address: str
    browser: str


class _StoredSession(msgspec.Struct, frozen=True):
    account: str
    secret: str
    opened_s: float
    address: str
    browser: str


class Sessions(RedisRepository):
    """Sessions of all accounts. Every method may raise :class:`StoreUnavailable`."""

    async def open(self, name: str, account: Account, address: str = "", browser: str = "") -> str:
        """Open a session of ``account``, whose name is ``name``, and return the session's token.

        The session ends after ``SESSION_TTL_S``, or earlier when the account's password changes. ``address`` is the IP
        address, ``browser`` the User-Agent.
        """
        token = new_token()
        held = _StoredSession(name, account.secret, time.time(), address, browser)
        await self._redis.call_many(
            [
                ("ZREMRANGEBYSCORE", keys.CONSOLE_SESSIONS, "-inf", held.opened_s),
                ("ZADD", keys.CONSOLE_SESSIONS, held.opened_s + SESSION_TTL_S, digest(token)),
                ("EXPIRE", keys.CONSOLE_SESSIONS, SESSION_TTL_S),
                ("SET", keys.console_session(digest(token)), msgspec.msgpack.encode(held), "EX", SESSION_TTL_S),
            ]
        )
        return token

    async def find(self, token: str) -> tuple[str, Account] | None:
        """Return the name and the account of the session with this token; None for an invalid token."""
        found = await self._read(digest(token))
        return None if found is None else (found[0].account, found[1])

    async def all(self) -> list[Session]:
        """Return the open sessions, newest first."""
        ids = [session.decode() for session in await self._redis.call("ZREVRANGE", keys.CONSOLE_SESSIONS, 0, -1)]
        return [found[0] for found in await asyncio.gather(*map(self._read, ids)) if found]

    async def _read(self, session: str) -> tuple[Session, Account] | None:
        """Return the session with the id ``session``, and its account; None if the session has ended."""
        packed = await self._redis.call("GET", keys.console_session(session))
        if packed is None:
            return None
        stored = msgspec.msgpack.decode(packed, type=_StoredSession)
        account = _unpack_account(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, stored.account))
        if account is None or account.secret != stored.secret:
            return None
        return Session(session, stored.account, stored.opened_s, stored.address, stored.browser), account

    async def close(self, token: str) -> None:
        """End the session with this token."""
        await self.end(digest(token))

    async def end(self, session: str) -> None:
        """End the session with the id ``session``."""
        await self._redis.call_many([("DEL", keys.console_session(session)), ("ZREM", keys.CONSOLE_SESSIONS, session)])


class ApiKey(msgspec.Struct, frozen=True):
    """An API key named ``name``. Times are Unix s.

    It belongs to ``account``, which was created at ``account_since_s``. It grants the permissions in ``scopes`` that
    the present role of the account also grants.
    """

    id: str
    name: str
    account: str
    account_since_s: float
    scopes: tuple[str, ...]
    created_s: float


class ApiKeyStore(RedisRepository):
    """API keys of all accounts. Every method may raise :class:`StoreUnavailable`."""

    async def create(
        self, name: str, owner: tuple[str, Account], scopes: tuple[str, ...], now_s: float
    ) -> tuple[ApiKey, str]:
        """Create an API key called ``name``; return the key, and the token that authenticates requests.

        ``owner`` is the account's name and the account; ``now_s`` is the Unix time.
        """
        token = KEY_PREFIX + new_token()
        account_name, account = owner
        key = ApiKey(digest(token)[:_ID_DIGITS], name, account_name, account.created_s, scopes, now_s)
        await self._redis.call("HSET", keys.API_KEYS, digest(token), msgspec.msgpack.encode(key))
        return key, token

    async def find(self, token: str, now_s: float) -> tuple[ApiKey, Account] | None:
        """Return the key with this token, and its account; None for an invalid token or a removed account.

        The use is recorded with the time ``now_s`` (Unix s).
        """
        if not token.startswith(KEY_PREFIX):
            return None
        ident = digest(token)
        packed, used_s = await self._redis.call_many(
            [("HGET", keys.API_KEYS, ident), ("HGET", keys.API_KEYS_LAST_USE, ident)]
        )
        if packed is None:
            return None
        if now_s - float(used_s or 0) >= _LAST_USE_INTERVAL_S:
            await self._redis.call("HSET", keys.API_KEYS_LAST_USE, ident, now_s)
        key = msgspec.msgpack.decode(packed, type=ApiKey)
        account = _unpack_account(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, key.account))
        return (key, account) if account is not None and account.created_s == key.account_since_s else None

    async def all(self) -> list[tuple[ApiKey, float | None]]:
        """Return all keys, newest first, each with its last use (Unix s, to the minute); None if it was never used."""
        held, used = await self._redis.call_many([("HGETALL", keys.API_KEYS), ("HGETALL", keys.API_KEYS_LAST_USE)])
        found = [
            (msgspec.msgpack.decode(packed, type=ApiKey), float(used[token]) if token in used else None)
            for token, packed in held.items()
        ]
        return sorted(found, key=lambda pair: -pair[0].created_s)

    async def revoke(self, key: str) -> bool:
        """Delete the key with the id ``key``; return False if there is none."""
        held = await self._redis.call("HKEYS", keys.API_KEYS)
        tokens = [token for token in held if token.startswith(key.encode())] if len(key) == _ID_DIGITS else []
        for token in tokens:
            await self._redis.call_many([("HDEL", keys.API_KEYS, token), ("HDEL", keys.API_KEYS_LAST_USE, token)])
        return bool(tokens)


class LoginLimits(RedisRepository):
    """Counts of login attempts, and the browsers that have logged in.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    async def count_attempt(self, name: str, address: str, known_browser: str = "") -> float:
        """Count a login attempt before the password is verified.

        Return 0 if the attempt is allowed, else the number of seconds until another attempt is allowed. ``name`` is the
        account's name, and ``address`` the IP address. ``known_browser`` is the token of a browser for which
        :meth:`is_known_browser` is true; "" for other browsers.
        """
        if known_browser:
            counted = _counters(f"browser {known_browser}", _ACCOUNT_AND_NETWORK_LIMITS)
        else:
            network = network_of(address)
            counted = [
                *_counters(f"network {network}", {_MINUTE: _NETWORK_LIMIT}),
                *_counters(f"account {name} network {network}", _ACCOUNT_AND_NETWORK_LIMITS),
                *_counters(f"account {name}", {_HOUR: _ACCOUNT_LIMIT}),
            ]
        limits = [number for _, *limit in counted for number in limit]
        wait_ms: int = await self._redis.run_script("console_count_attempt", [key for key, *_ in counted], *limits)
        return wait_ms / 1000

    async def is_known_browser(self, name: str, account: Account, token: str) -> bool:
        """Return whether the browser with this token has logged in to the account with its present password."""
        until_s = await self._redis.call("ZSCORE", _browsers_of(name), _browser_hash(account, token)) if token else None
        return until_s is not None and float(until_s) > time.time()

    async def remember_browser(self, name: str, account: Account, token_before: str) -> str:
        """Record that a browser has logged in to the account; return the token by which the browser can prove this.

        The token replaces ``token_before``, the browser's earlier token.
        """
        token, key, now_s = new_token(), _browsers_of(name), time.time()
        await self._redis.call_many(
            [
                ("ZREM", key, _browser_hash(account, token_before)),
                ("ZREMRANGEBYSCORE", key, "-inf", now_s),
                ("ZADD", key, now_s + BROWSER_TTL_S, _browser_hash(account, token)),
                ("ZREMRANGEBYRANK", key, 0, -1 - MAX_KNOWN_BROWSERS),
                ("EXPIRE", key, BROWSER_TTL_S),
            ]
        )
        return token


def _counters(what: str, limits: dict[tuple[str, int], int]) -> list[tuple[str, int, int]]:
    return [
        (keys.login_attempts(window, digest(what)), limit, window_s * 1000)
        for (window, window_s), limit in limits.items()
    ]


def _browsers_of(name: str) -> str:
    return keys.known_browsers(digest(name))


def _browser_hash(account: Account, token: str) -> str:
    return digest(f"{token} {account.secret} {account.created_s!r}")
