"""The tokens of users' Atom feeds: each is a part of the addresses of one user's feeds, and lets read them all."""

import secrets

from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

_TOKEN_BYTES = 24


class FeedLinks(RedisRepository):
    """Creates, finds and revokes the tokens of users' feeds."""

    async def token(self, uid: UserId) -> str:
        """Return the user's token; create it if there is none."""
        held: bytes | None = await self._redis.call("GET", keys.feed_token(uid))
        if held is not None:
            return held.decode()
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        # First: a token that the user does not know is harmless, but one without an owner makes links that fail.
        await self._redis.call("HSET", keys.FEED_OWNERS, token, uid)
        await self._redis.call("SET", keys.feed_token(uid), token)
        return token

    async def revoke(self, uid: UserId) -> None:
        """Delete the user's token, if there is one, so that all addresses of the user's feeds become invalid."""
        held: bytes | None = await self._redis.call("GET", keys.feed_token(uid))
        if held is not None:
            await self._redis.call("HDEL", keys.FEED_OWNERS, held)
            await self._redis.call("DEL", keys.feed_token(uid))

    async def owner(self, token: str) -> UserId | None:
        """Return the user whose token this is; None if it is nobody's."""
        uid: bytes | None = await self._redis.call("HGET", keys.FEED_OWNERS, token)
        return None if uid is None else uid.decode()
