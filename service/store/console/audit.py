"""The audit log of the console, and answers to requests with an Idempotency-Key.

A change is noted before it is made, so that a crash can only hide how it ended.
"""

import time
from typing import Final

import msgspec

from service.store.client import keys
from service.store.client.connection import RedisRepository, script_command
from service.store.console.accounts import digest

MAX_ENTRIES: Final = 10_000
_ENDS_WITHIN_S = 300.0
_ANSWERS_KEPT_S = 24 * 3600
_UNDER_WAY_S = 120
"""A console that dies meanwhile leaves the request to be carried out again after that."""


class AuditedAction(msgspec.Struct, frozen=True):
    """Something that somebody set about to do.

    ``by`` is an account's name, "" for a stranger; ``key`` the API key's name if it was a program; ``action`` one
    sentence, ``on`` the path it was asked for at. ``status`` is the HTTP status it ended with, 0 where nobody knows,
    ``detail`` what else there is to say of it.
    """

    at_s: float
    by: str
    key: str
    address: str
    action: str
    on: str
    status: int = 0
    detail: str = ""


class AuditRecord(msgspec.Struct, frozen=True):
    """A deed with its place in the log."""

    id: str
    deed: AuditedAction


class AuditLog(RedisRepository):
    """The log of deeds, the newest ``MAX_ENTRIES``. Every method may raise :class:`StoreUnavailable`."""

    async def begin(self, note: str, deed: AuditedAction) -> None:
        """Note under a name of its own that this is about to be done."""
        await self._redis.call("HSET", keys.AUDIT_PENDING, note, msgspec.msgpack.encode(deed))

    async def end(self, note: str, deed: AuditedAction) -> None:
        """Note how it ended."""
        own = (keys.AUDIT_PENDING, keys.AUDIT_LOG)
        await self._redis.run_script("console_audit", own, note, msgspec.msgpack.encode(deed), MAX_ENTRIES)

    async def page(self, before: str = "", count: int = 50) -> tuple[list[AuditRecord], str]:
        """Return deeds, newest first, and the place to go on from; "" begins and ends."""
        await self._end_the_lost()
        newest = f"({before}" if before else "+"
        found = await self._redis.call("XREVRANGE", keys.AUDIT_LOG, newest, "-", "COUNT", count + 1)
        noted = [
            AuditRecord(place.decode(), msgspec.msgpack.decode(fields[b"d"], type=AuditedAction))
            for place, fields in found
        ]
        return noted[:count], noted[count - 1].id if len(noted) > count else ""

    async def _end_the_lost(self) -> None:
        """Log what a console began and did not live to end."""
        begun = await self._redis.call("HGETALL", keys.AUDIT_PENDING)
        own = (keys.AUDIT_PENDING, keys.AUDIT_LOG)
        long_ago_s = time.time() - _ENDS_WITHIN_S
        lost = [
            script_command("console_audit", own, note, packed, MAX_ENTRIES)
            for note, packed in begun.items()
            if msgspec.msgpack.decode(packed, type=AuditedAction).at_s < long_ago_s
        ]
        await self._redis.call_many(lost)


class StoredResponse(msgspec.Struct, frozen=True):
    """An answer. ``request`` is a digest of what it answers; ``status`` 0 while it is under way."""

    request: str
    status: int = 0
    media_type: str = ""
    location: str = ""
    body: bytes = b""


class IdempotencyStore(RedisRepository):
    """Answers by the keys that clients chose. Every method may raise :class:`StoreUnavailable`."""

    async def begin(self, who: str, key: str, request: str) -> StoredResponse | None:
        """Note that a request is under way; return what is known of an earlier one with this key of theirs, if any."""
        place = keys.console_repeat(digest(f"{who} {key}"))
        packed = msgspec.msgpack.encode(StoredResponse(request))
        if await self._redis.call("SET", place, packed, "NX", "EX", _UNDER_WAY_S):
            return None
        held = await self._redis.call("GET", place)
        return msgspec.msgpack.decode(held, type=StoredResponse) if held else StoredResponse(request)

    async def end(self, who: str, key: str, kept: StoredResponse | None) -> None:
        """Keep the answer; None if there is none that is worth it: then the request can be sent anew."""
        place = keys.console_repeat(digest(f"{who} {key}"))
        await self._redis.call(
            *(("DEL", place) if kept is None else ("SET", place, msgspec.msgpack.encode(kept), "EX", _ANSWERS_KEPT_S))
        )
