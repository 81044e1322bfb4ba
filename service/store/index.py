"""The channel index: who has to be told of a channel's changes. A port, and its first filling.

The index may hold too much (a user who just left), never too little: the user index is the truth,
and the last step of fan-out asks it. Each entry carries the ``seq`` of the user's change of mind
that put it there, so that a late replay never undoes a later change.
"""

from collections.abc import Sequence
from typing import Protocol

from service.model import ChannelId, UserId
from service.store import keys
from service.store.link import Link, script

_CHANNEL_UNKNOWN = -1


class ChannelIndex(Protocol):
    """What fan-out and subscribing need of the place where a channel's subscribers are kept.

    Every method may raise :class:`service.errors.StoreUnavailable` and can be repeated.
    """

    async def add(self, cid: ChannelId, uid: UserId, seq: int) -> tuple[bool, int | None]:
        """Add a user; return whether this call added them, and the channel's version (None: no such channel)."""
        ...

    async def remove(self, cid: ChannelId, entries: Sequence[tuple[UserId, int]]) -> None:
        """Remove users whose entries are not newer than the given seq."""
        ...

    async def count(self, cids: Sequence[ChannelId]) -> list[int]:
        """Return how many entries each channel has."""
        ...

    async def page(self, cid: ChannelId, cursor: str, count: int) -> tuple[list[tuple[UserId, int]], str]:
        """Return about ``count`` entries and the next cursor; "" starts and ends.

        Nobody who is present from the first page to the last is missed.
        """
        ...


class HashIndex:
    """One Redis hash per channel, beside the channel itself."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def add(self, cid: ChannelId, uid: UserId, seq: int) -> tuple[bool, int | None]:
        """See :class:`ChannelIndex`."""
        added, version = await self._link.script("index_add", (keys.channel_index(cid), keys.channel(cid)), uid, seq)
        return bool(added), None if version == _CHANNEL_UNKNOWN else version

    async def remove(self, cid: ChannelId, entries: Sequence[tuple[UserId, int]]) -> None:
        """See :class:`ChannelIndex`."""
        await self._link.many([script("index_remove", (keys.channel_index(cid),), uid, seq) for uid, seq in entries])

    async def count(self, cids: Sequence[ChannelId]) -> list[int]:
        """See :class:`ChannelIndex`."""
        return await self._link.many([("HLEN", keys.channel_index(cid)) for cid in cids])

    async def page(self, cid: ChannelId, cursor: str, count: int) -> tuple[list[tuple[UserId, int]], str]:
        """See :class:`ChannelIndex`."""
        run, _, place = cursor.partition(":")
        now_run, entries, following = await self._scan(cid, place or "0", count)
        if run and run != now_run:
            # Another process of Redis walks a hash in another order: only from the start is nobody missed.
            now_run, entries, following = await self._scan(cid, "0", count)
        return entries, f"{now_run}:{following}" if following else ""

    async def _scan(self, cid: ChannelId, place: str, count: int) -> tuple[str, list[tuple[UserId, int]], int]:
        asked = [("INFO", "server"), ("HSCAN", keys.channel_index(cid), place, "COUNT", count)]
        server, (following, found) = await self._link.many(asked)
        return server["run_id"], [(uid.decode(), int(seq)) for uid, seq in found.items()], int(following)
