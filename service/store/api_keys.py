"""API keys: what a program may do in an account's name. Of a key only a hash is stored; it is shown once."""

from typing import Final

import msgspec

from service.store import console_keys
from service.store.accounts import Account, digest, new_token, unpacked
from service.store.link import Link

PREFIX: Final = "coronet_"
"""Begins every key, so that scanners of repositories know one when they see it."""

_USE_NOTED_EVERY_S = 60.0
_ID_DIGITS = 16


class ApiKey(msgspec.Struct, frozen=True):
    """A key. Its holder may do what its scopes and, at that time, the role of its account allow. Times are Unix s."""

    id: str
    name: str
    account: str
    account_since_s: float
    scopes: tuple[str, ...]
    created_s: float


class ApiKeys:
    """The keys of all accounts. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def make(
        self, name: str, owner: tuple[str, Account], scopes: tuple[str, ...], now_s: float
    ) -> tuple[ApiKey, str]:
        """Return a new key of an account, and the token that has to be sent with requests."""
        token = PREFIX + new_token()
        account_name, account = owner
        key = ApiKey(digest(token)[:_ID_DIGITS], name, account_name, account.created_s, scopes, now_s)
        await self._link.call("HSET", console_keys.KEYS, digest(token), msgspec.msgpack.encode(key))
        return key, token

    async def find(self, token: str, now_s: float) -> tuple[ApiKey, Account] | None:
        """Return the key with this token and its account; None if there is no such key, or no account any more."""
        if not token.startswith(PREFIX):
            return None
        own = (console_keys.KEYS, console_keys.KEYS_USED)
        packed = await self._link.script("console_key", own, digest(token), repr(now_s), _USE_NOTED_EVERY_S)
        if packed is None:
            return None
        key = msgspec.msgpack.decode(packed, type=ApiKey)
        account = unpacked(await self._link.call("HGET", console_keys.ACCOUNTS, key.account))
        return (key, account) if account is not None and account.created_s == key.account_since_s else None

    async def all(self) -> list[tuple[ApiKey, float | None]]:
        """Return all keys with the time of their last use (Unix s, to the minute), newest first."""
        held, used = await self._link.many([("HGETALL", console_keys.KEYS), ("HGETALL", console_keys.KEYS_USED)])
        found = [
            (msgspec.msgpack.decode(packed, type=ApiKey), float(used[token]) if token in used else None)
            for token, packed in held.items()
        ]
        return sorted(found, key=lambda pair: -pair[0].created_s)

    async def revoke(self, key: str) -> bool:
        """Have a key, by its id, open nothing any more; False if there is none."""
        held = await self._link.call("HKEYS", console_keys.KEYS)
        tokens = [token for token in held if token.startswith(key.encode())] if len(key) == _ID_DIGITS else []
        for token in tokens:
            await self._link.many([("HDEL", console_keys.KEYS, token), ("HDEL", console_keys.KEYS_USED, token)])
        return bool(tokens)
