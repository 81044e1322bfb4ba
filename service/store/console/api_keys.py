"""API keys of the console, which client programs send instead of a session cookie.

Keys are random, and only their SHA-256 is stored. The data in Redis therefore does not suffice to use the API.
"""

from typing import Final

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.store.console.accounts import Account, digest, new_token, unpack_account

KEY_PREFIX: Final = "coronet_"
"""Prefix of every API key, with which secret scanners can recognise it."""


_LAST_USE_INTERVAL_S = 60.0


_ID_DIGITS = 16


class ApiKey(msgspec.Struct, frozen=True):
    """An API key of an account.

    - ``id``: identifies the key. It cannot be used to authenticate requests.
    - ``name``: name of the key.
    - ``account``: name of the account.
    - ``account_since_s``: when the account was created (Unix s).
    - ``scopes``: permissions of the key. A permission is granted only if the account's present role also includes it.
    - ``created_s``: when the key was created (Unix s).
    """

    id: str
    name: str
    account: str
    account_since_s: float
    scopes: tuple[str, ...]
    created_s: float


class ApiKeyStore(RedisRepository):
    """Stores the API keys of all accounts. Every method may raise :class:`StoreUnavailable`."""

    async def create(
        self, name: str, owner: tuple[str, Account], scopes: tuple[str, ...], now_s: float
    ) -> tuple[ApiKey, str]:
        """Create an API key called ``name``.

        ``owner`` is a pair (account name, account). ``scopes`` contains the key's permissions. ``now_s`` is the Unix
        time.

        Return (key, token): the API key, and the token that authenticates requests.
        """
        token = KEY_PREFIX + new_token()
        account_name, account = owner
        key = ApiKey(digest(token)[:_ID_DIGITS], name, account_name, account.created_s, scopes, now_s)
        await self._redis.call("HSET", keys.API_KEYS, digest(token), msgspec.msgpack.encode(key))
        return key, token

    async def find(self, token: str, now_s: float) -> tuple[ApiKey, Account] | None:
        """Return the API key that belongs to ``token``, and the key's account.

        The result is None if ``token`` is invalid or the account was removed. ``now_s`` (Unix s) is recorded as the
        time of the key's last use, at most once a minute.
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
        account = unpack_account(await self._redis.call("HGET", keys.CONSOLE_ACCOUNTS, key.account))
        return (key, account) if account is not None and account.created_s == key.account_since_s else None

    async def all(self) -> list[tuple[ApiKey, float | None]]:
        """Return pairs (key, time of its last use) for all API keys, newest first.

        The time is accurate to a minute (Unix s). It is None for a key that was never used.
        """
        held, used = await self._redis.call_many([("HGETALL", keys.API_KEYS), ("HGETALL", keys.API_KEYS_LAST_USE)])
        found = [
            (msgspec.msgpack.decode(packed, type=ApiKey), float(used[token]) if token in used else None)
            for token, packed in held.items()
        ]
        return sorted(found, key=lambda pair: -pair[0].created_s)

    async def revoke(self, key: str) -> bool:
        """Delete the API key with the id ``key``; return False if it does not exist."""
        held = await self._redis.call("HKEYS", keys.API_KEYS)
        tokens = [token for token in held if token.startswith(key.encode())] if len(key) == _ID_DIGITS else []
        for token in tokens:
            await self._redis.call_many([("HDEL", keys.API_KEYS, token), ("HDEL", keys.API_KEYS_LAST_USE, token)])
        return bool(tokens)
