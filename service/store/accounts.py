"""Who may use the console: accounts, sessions, setup tokens, and how often somebody tried to log in.

Tokens are random and stored only as SHA-256: who reads Redis cannot log in with what they find.
"""

import hashlib
import secrets

import msgspec

from service.store import keys
from service.store.link import Link

SESSION_TTL_S = 24 * 3600
SETUP_TTL_S = 7 * 24 * 3600
ATTEMPTS_PER_WINDOW = 5
ATTEMPTS_WINDOW_S = 60
_TOKEN_BYTES = 32


class Account(msgspec.Struct, frozen=True):
    """An admin of the console. ``password_hash`` is an argon2id string."""

    password_hash: str
    created_s: float


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Accounts:
    """The console's own state. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def exist(self) -> bool:
        """Return whether there is any account."""
        return bool(await self._link.call("HLEN", keys.CONSOLE_ACCOUNTS))

    async def get(self, name: str) -> Account | None:
        """Return an account by its name."""
        packed = await self._link.call("HGET", keys.CONSOLE_ACCOUNTS, name)
        return None if packed is None else msgspec.msgpack.decode(packed, type=Account)

    async def new_setup_token(self) -> str:
        """Return a fresh token that makes the first account; it lasts ``SETUP_TTL_S`` unless used.

        Earlier ones stay good until then: two programs may each show a link at the first start.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        await self._link.many(
            [
                ("SADD", keys.CONSOLE_SETUP, _digest(token)),
                ("EXPIRE", keys.CONSOLE_SETUP, SETUP_TTL_S),
            ]
        )
        return token

    async def setup_token_valid(self, token: str) -> bool:
        """Return whether the token would make the first account."""
        return bool(await self._link.call("SISMEMBER", keys.CONSOLE_SETUP, _digest(token)))

    async def create_first(self, token: str, name: str, account: Account) -> bool:
        """Make the first account and use up every setup token, at once; False if the token is not good."""
        packed = msgspec.msgpack.encode(account)
        setup = [keys.CONSOLE_ACCOUNTS, keys.CONSOLE_SETUP]
        return bool(await self._link.script("console_first", setup, _digest(token), name, packed))

    async def open_session(self, name: str) -> str:
        """Return the token of a new session of this account; it lasts ``SESSION_TTL_S``."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        await self._link.call("SET", keys.console_session(_digest(token)), name, "EX", SESSION_TTL_S)
        return token

    async def session(self, token: str) -> str | None:
        """Return the name of the account whose session this is, or None if it is over or never was."""
        name = await self._link.call("GET", keys.console_session(_digest(token)))
        return None if name is None else name.decode()

    async def close_session(self, token: str) -> None:
        """End a session."""
        await self._link.call("DEL", keys.console_session(_digest(token)))

    async def attempt(self, what: str) -> bool:
        """Count a login attempt on ``what`` (an address or an account's name); return whether it is allowed."""
        key = keys.console_attempts(_digest(what))
        return bool(await self._link.script("rate_take", [key], ATTEMPTS_PER_WINDOW, ATTEMPTS_WINDOW_S * 1000))
