"""What was answered to requests that say they may be sent again, so that they are carried out once."""

import msgspec

from service.store import console_keys
from service.store.accounts import digest
from service.store.link import Link

KEPT_S = 24 * 3600
_UNDER_WAY_S = 120
"""A console that dies meanwhile leaves the request to be carried out again after that."""


class Kept(msgspec.Struct, frozen=True):
    """An answer. ``request`` is a digest of what it answers; ``status`` 0 while it is under way."""

    request: str
    status: int = 0
    media_type: str = ""
    location: str = ""
    body: bytes = b""


class Repeats:
    """Answers by the keys that clients chose. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def begin(self, who: str, key: str, request: str) -> Kept | None:
        """Note that a request is under way; return what is known of an earlier one with this key of theirs, if any."""
        place = console_keys.repeat(digest(f"{who} {key}"))
        packed = msgspec.msgpack.encode(Kept(request))
        if await self._link.call("SET", place, packed, "NX", "EX", _UNDER_WAY_S):
            return None
        held = await self._link.call("GET", place)
        return msgspec.msgpack.decode(held, type=Kept) if held else Kept(request)

    async def end(self, who: str, key: str, kept: Kept | None) -> None:
        """Keep the answer; None if there is none that is worth it: then the request can be sent anew."""
        place = console_keys.repeat(digest(f"{who} {key}"))
        await self._link.call(
            *(("DEL", place) if kept is None else ("SET", place, msgspec.msgpack.encode(kept), "EX", KEPT_S))
        )
