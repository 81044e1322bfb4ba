"""What this worker has of channels' contents, and where it looks for what it has not."""

import asyncio
from typing import Literal, Protocol

import msgspec

from service.clock import Clock
from service.location.cache import Cache
from service.location.contents import MOST_BYTES, Content, Digest, digest_of, newest, packed, unpacked
from service.metrics import CACHE_BYTES, CACHE_ENTRIES, CONTENT_BYTES, CONTENTS
from service.model import ChannelId, Delta, NodeId
from service.store.channels import Channels
from service.store.requests import Source

KEPT_S = 6 * 3600.0
"""A content that nobody asked for in so long is not kept: the channel may be polled by others by now."""

_FRAMING_BYTES = 16


class Located(msgspec.Struct, frozen=True):
    """A content, and where it was found: ``near`` by a walk of so many ``hops``, or as ``source`` says.

    ``publisher``: nobody has it any more; it is empty, and becomes what the publisher's document says next.
    ``worker`` is the process that handed it over, as peers name it; "" for this one, the store and publishers.
    """

    content: Content
    version: int
    source: Source
    hops: int = 0
    worker: NodeId = ""


class Handed(msgspec.Struct, frozen=True):
    """A content that another worker handed over: it has the digest that was asked for."""

    content: Content
    source: Literal["near", "owner"]
    hops: int
    worker: NodeId


class Others(Protocol):
    """The other workers. Nothing here raises: whoever does not answer has nothing."""

    async def find(self, cid: ChannelId, digest: Digest) -> Handed | None:
        """Return a content from near by, or else from the channel's owner."""
        ...

    def changed(self) -> None:
        """Know that what is in the cache has changed."""
        ...


class Alone:
    """No other workers."""

    async def find(self, cid: ChannelId, digest: Digest) -> Handed | None:  # noqa: ARG002 - nobody to be asked
        """Find nothing."""
        return None

    def changed(self) -> None:
        """Tell nobody."""


class Contents:
    """The contents that this worker has, within the cache's bounds, and the way to all others."""

    def __init__(self, channels: Channels, cache: Cache, clock: Clock, others: Others | None = None) -> None:
        """Ask ``others`` before the store."""
        self._channels = channels
        self._cache = cache
        self._clock = clock
        self._others = others or Alone()
        self._under_way: dict[Digest, asyncio.Future[Handed | None]] = {}

    async def locate(self, cid: ChannelId, version: int, digest: Digest) -> Located:
        """Return a channel's content at a version, or at a later one if only the store has it.

        ``digest`` names it; b"" if it is not known. Raises :class:`service.errors.StoreUnavailable`.
        """
        located = await self._located(cid, version, digest)
        source = f"hop{located.hops}" if located.source == "near" else located.source
        CONTENTS.labels(source).inc()
        CONTENT_BYTES.labels(source).inc(located.content.size_bytes)
        return located

    def last(self, cid: ChannelId) -> Content | None:
        """Return a channel's content as it was last known here."""
        return self._cache.last(cid)

    def put(self, cid: ChannelId, digest: Digest, content: Content) -> None:
        """Have this content of a channel, and no other; what is too large to be handed over is not kept."""
        if content.size_bytes + _FRAMING_BYTES > MOST_BYTES:
            self._cache.drop(cid)
            return
        self._cache.put(cid, digest, content, self._clock.monotonic_s())
        self._changed()

    def versioned(self, delta: Delta, memory: bytes, before: Digest, after: Digest) -> None:
        """Have the content ``after`` a delta that was found here, if the one ``before`` is here too."""
        known = self._cache.get(before, self._clock.monotonic_s())
        if known is None or not after:
            return
        content = Content(memory, packed(newest(delta.changes, unpacked(known.latest))))
        if digest_of(content) == after:
            self.put(delta.channel, after, content)

    def expire(self) -> None:
        """Be without what nobody uses any more."""
        before_bytes = self._cache.size_bytes
        self._cache.expire(self._clock.monotonic_s())
        if self._cache.size_bytes != before_bytes:
            self._changed()

    def _changed(self) -> None:
        CACHE_BYTES.set(self._cache.size_bytes)
        CACHE_ENTRIES.set(len(self._cache.digests))
        self._others.changed()

    async def _located(self, cid: ChannelId, version: int, digest: Digest) -> Located:
        if digest:
            content = self._cache.get(digest, self._clock.monotonic_s())
            if content is not None:
                return Located(content, version, "cache")
            handed = await self._handed(cid, digest)
            if handed is not None:
                self.put(cid, digest, handed.content)
                return Located(handed.content, version, handed.source, handed.hops, handed.worker)
        version, digest, content = await self._channels.content(cid)
        if digest and digest_of(content) == digest:
            self.put(cid, digest, content)
        return Located(content, version, "store" if content.memory else "publisher")

    async def _handed(self, cid: ChannelId, digest: Digest) -> Handed | None:
        """Have others asked, once for all who want it now."""
        asked = self._under_way.get(digest)
        if asked is None:
            asked = self._under_way[digest] = asyncio.ensure_future(self._others.find(cid, digest))
            asked.add_done_callback(lambda _: self._under_way.pop(digest, None))
        return await asyncio.shield(asked)
