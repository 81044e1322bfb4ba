"""The contents that a worker has: within a bound of bytes, the last used, each at its latest version here."""

from collections import OrderedDict
from collections.abc import KeysView

import msgspec

from service.location.contents import Content, Digest
from service.model import ChannelId

_BESIDES_BYTES = 400
"""What Python needs for one content besides it."""


class _Kept(msgspec.Struct, gc=False):
    digest: Digest
    content: Content
    used_s: float


class Cache:
    """Contents by channel, found by digest too. Times are of one monotonic clock."""

    def __init__(self, most_bytes: int, kept_s: float) -> None:
        """Keep at most so many bytes, and nothing that was not used for so long."""
        self._most_bytes = most_bytes
        self._kept_s = kept_s
        self._bytes = 0
        self._kept: OrderedDict[ChannelId, _Kept] = OrderedDict()
        self._channels: dict[Digest, ChannelId] = {}

    @property
    def size_bytes(self) -> int:
        """What all of it takes."""
        return self._bytes

    @property
    def digests(self) -> KeysView[Digest]:
        """What is here."""
        return self._channels.keys()

    def get(self, digest: Digest, now_s: float) -> Content | None:
        """Return the content of this digest, which is used by that; None if it is not here."""
        cid = self._channels.get(digest)
        if cid is None:
            return None
        kept = self._kept[cid]
        if now_s - kept.used_s > self._kept_s:
            self.drop(cid)
            return None
        kept.used_s = now_s
        self._kept.move_to_end(cid)
        return kept.content

    def last(self, cid: ChannelId) -> Content | None:
        """Return a channel's content as it was last known here, which may be outdated."""
        kept = self._kept.get(cid)
        return kept.content if kept else None

    def put(self, cid: ChannelId, digest: Digest, content: Content, now_s: float) -> None:
        """Have this content of a channel instead of another one."""
        self.drop(cid)
        if (same := self._channels.get(digest)) is not None:
            self.drop(same)
        self._kept[cid] = _Kept(digest, content, now_s)
        self._channels[digest] = cid
        self._bytes += content.size_bytes + _BESIDES_BYTES
        while self._bytes > self._most_bytes:
            self.drop(next(iter(self._kept)))

    def drop(self, cid: ChannelId) -> None:
        """Be without a channel's content."""
        kept = self._kept.pop(cid, None)
        if kept is not None:
            del self._channels[kept.digest]
            self._bytes -= kept.content.size_bytes + _BESIDES_BYTES

    def expire(self, now_s: float) -> None:
        """Be without what was not used for too long."""
        while self._kept and now_s - next(iter(self._kept.values())).used_s > self._kept_s:
            self.drop(next(iter(self._kept)))
