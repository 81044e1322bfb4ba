"""Responses to requests with an Idempotency-Key. If a request is repeated, its stored response is sent again."""

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.store.console.accounts import digest

_RESPONSE_TTL_S = 24 * 3600


_IN_PROGRESS_TTL_S = 120
"""Maximum time in seconds that a request counts as in progress.

If the console crashes during a request, the request can be sent again after this time.
"""


class StoredResponse(msgspec.Struct, frozen=True):
    """A stored response of the console to a request with an Idempotency-Key.

    - ``request``: digest of the request.
    - ``status``: HTTP status; 0 while the request is in progress.
    - ``location``: Location header.
    """

    request: str
    status: int = 0
    media_type: str = ""
    location: str = ""
    body: bytes = b""


class IdempotencyStore(RedisRepository):
    """Responses by account and idempotency key. Every method may raise :class:`StoreUnavailable`."""

    async def begin(self, account: str, key: str, request: str) -> StoredResponse | None:
        """Record that a request is in progress, unless ``account`` has sent a request with this ``key`` before.

        ``key`` is the Idempotency-Key, and ``request`` is a digest of the request. Return the stored response to the
        earlier request; None if this request is the first.
        """
        response_key = keys.console_repeat(digest(f"{account} {key}"))
        packed = msgspec.msgpack.encode(StoredResponse(request))
        if await self._redis.call("SET", response_key, packed, "NX", "EX", _IN_PROGRESS_TTL_S):
            return None
        held = await self._redis.call("GET", response_key)
        return msgspec.msgpack.decode(held, type=StoredResponse) if held else StoredResponse(request)

    async def end(self, account: str, key: str, response: StoredResponse | None) -> None:
        """Store the response to the request of ``account`` with the idempotency key ``key``.

        If ``response`` is None, the record is deleted instead, so that the request can be sent again.
        """
        response_key = keys.console_repeat(digest(f"{account} {key}"))
        if response is None:
            await self._redis.call("DEL", response_key)
        else:
            await self._redis.call("SET", response_key, msgspec.msgpack.encode(response), "EX", _RESPONSE_TTL_S)
