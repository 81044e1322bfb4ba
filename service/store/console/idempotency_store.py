"""Stored responses to console requests that have an Idempotency-Key.

If a client repeats such a request, the console sends the stored response again.
"""

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
    """The console's response to a request that had an Idempotency-Key.

    - ``request``: digest of the request.
    - ``status``: HTTP status; 0 while the request is in progress.
    - ``media_type``, ``location``: the headers Content-Type and Location.
    - ``body``: body of the response.
    """

    request: str
    status: int = 0
    media_type: str = ""
    location: str = ""
    body: bytes = b""


class IdempotencyStore(RedisRepository):
    """Stores the console's responses to requests that have an Idempotency-Key.

    If a client repeats a request, it gets the stored response. Each account has its own keys. Every method may
    raise :class:`StoreUnavailable`.
    """

    async def begin(self, account: str, key: str, request: str) -> StoredResponse | None:
        """Record that a request is in progress, unless ``account`` already sent one with the Idempotency-Key ``key``.

        ``request`` is a digest of the request. Return the stored response to the earlier request, or None if there was
        no earlier request.
        """
        response_key = keys.console_repeat(digest(f"{account} {key}"))
        packed = msgspec.msgpack.encode(StoredResponse(request))
        if await self._redis.call("SET", response_key, packed, "NX", "EX", _IN_PROGRESS_TTL_S):
            return None
        held = await self._redis.call("GET", response_key)
        return msgspec.msgpack.decode(held, type=StoredResponse) if held else StoredResponse(request)

    async def end(self, account: str, key: str, response: StoredResponse | None) -> None:
        """Store the response to the request that ``account`` sent with the Idempotency-Key ``key``.

        If ``response`` is None, the record of the request is deleted instead, so that the client can send the request
        again.
        """
        response_key = keys.console_repeat(digest(f"{account} {key}"))
        if response is None:
            await self._redis.call("DEL", response_key)
        else:
            await self._redis.call("SET", response_key, msgspec.msgpack.encode(response), "EX", _RESPONSE_TTL_S)
