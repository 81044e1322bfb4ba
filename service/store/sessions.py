"""Sessions of the console: who is logged in, since when and from where. Of a session's token only a hash is stored."""

import time
from typing import Final

import msgspec

from service.store import console_keys
from service.store.accounts import Account, digest, new_token, unpacked
from service.store.link import Link

SESSION_TTL_S: Final = 24 * 3600


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


class Sessions:
    """The sessions of all accounts. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def open(self, name: str, account: Account, address: str = "", browser: str = "") -> str:
        """Return the token of a new session of this account; it lasts ``SESSION_TTL_S``, or as long as the password."""
        token = new_token()
        held = _Held(name, account.secret, time.time(), address, browser)
        own = [console_keys.SESSIONS, console_keys.session(digest(token))]
        await self._link.script("console_login", own, digest(token), SESSION_TTL_S, msgspec.msgpack.encode(held))
        return token

    async def find(self, token: str) -> tuple[str, Account] | None:
        """Return whose session this is, by name and account; None if it is over or never was."""
        packed = await self._link.call("GET", console_keys.session(digest(token)))
        if packed is None:
            return None
        held = msgspec.msgpack.decode(packed, type=_Held)
        account = unpacked(await self._link.call("HGET", console_keys.ACCOUNTS, held.account))
        return (held.account, account) if account is not None and account.secret == held.secret else None

    async def all(self) -> list[Session]:
        """Return the sessions that are open, newest first."""
        ids = [held.decode() for held in await self._link.call("ZREVRANGE", console_keys.SESSIONS, 0, -1)]
        found = await self._link.many([("GET", console_keys.session(each)) for each in ids])
        accounts = await self._link.call("HGETALL", console_keys.ACCOUNTS)
        opened = []
        for session, packed in zip(ids, found, strict=True):
            if packed is None:
                continue
            held = msgspec.msgpack.decode(packed, type=_Held)
            account = unpacked(accounts.get(held.account.encode()))
            if account is not None and account.secret == held.secret:
                opened.append(Session(session, held.account, held.opened_s, held.address, held.browser))
        return opened

    async def close(self, token: str) -> None:
        """End the session with this token."""
        await self.end(digest(token))

    async def end(self, session: str) -> None:
        """End a session by its id."""
        await self._link.many([("DEL", console_keys.session(session)), ("ZREM", console_keys.SESSIONS, session)])
