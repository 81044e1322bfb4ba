"""Login sessions of the console.

Session tokens are random, and only their SHA-256 is stored. The data in Redis therefore does not suffice to use a
session.
"""

import asyncio
import time
from typing import Final

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.store.console.accounts import Account, digest, new_token, unpack_account

SESSION_TTL_S: Final = 24 * 3600


class Session(msgspec.Struct, frozen=True):
    """A login session of an account in the console.

    - ``id``: identifies the session. It cannot be used to log in.
    - ``account``: the account's name.
    - ``opened_s``: when the session was opened (Unix s).
    - ``address``: the client's IP address.
    - ``browser``: the browser's User-Agent header.
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
    """Stores the login sessions of all accounts. Every method may raise :class:`StoreUnavailable`."""

    async def open(self, name: str, account: Account, address: str = "", browser: str = "") -> str:
        """Open a session for an account and return the session's token.

        - ``name``: the account's name.
        - ``address``: the client's IP address.
        - ``browser``: the browser's User-Agent header.

        The session ends after ``SESSION_TTL_S`` seconds, or earlier if the account's password changes.
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
        """Return (name, account) for the session with the token ``token``; None if ``token`` is invalid."""
        found = await self._read(digest(token))
        return None if found is None else (found[0].account, found[1])

    async def all(self) -> list[Session]:
        """Return all open sessions, newest first."""
        ids = [session.decode() for session in await self._redis.call("ZREVRANGE", keys.CONSOLE_SESSIONS, 0, -1)]
        return [found[0] for found in await asyncio.gather(*map(self._read, ids)) if found]

    async def _read(self, session: str) -> tuple[Session, Account] | None:
        """Return (session, account) for the session with the id ``session``; None if the session has ended."""
        packed = await self._redis.call("GET", keys.console_session(session))
        if packed is None:
            return None
        stored = msgspec.msgpack.decode(packed, type=_StoredSession)
        account = unpack_account(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, stored.account))
        if account is None or account.secret != stored.secret:
            return None
        return Session(session, stored.account, stored.opened_s, stored.address, stored.browser), account

    async def close(self, token: str) -> None:
        """End the session whose token is ``token``."""
        await self.end(digest(token))

    async def end(self, session: str) -> None:
        """End the session with the id ``session``."""
        await self._redis.call_many([("DEL", keys.console_session(session)), ("ZREM", keys.CONSOLE_SESSIONS, session)])
