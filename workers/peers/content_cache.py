"""The contents of channels that this worker has, and where it looks for those that it has not."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
from cachetools import LRUCache

from service.clock import Clock
from service.location.content_cache import MOST_BYTES, Cache, Content, Digest, digest_of, newest, packed, unpacked
from service.model import Channel, ChannelId, Delta, NodeId
from service.observability.metrics import CACHE_BYTES, CACHE_ENTRIES, CONTENT_BYTES, CONTENT_LOOKUPS
from service.store.channels.channels import Channels
from service.store.coordination.requests import ContentSource

KEPT_S = 6 * 3600.0
"""A content that nobody asked for in so long is not kept: the channel may be polled by others by now."""

MOST_MEMORY_BYTES = 32 * 1024 * 1024
_FRAMING_BYTES = 16
_KEPT_WITH_MEMORY_BYTES = 512


class LocatedContent(msgspec.Struct, frozen=True):
    """A content, and where it was found: ``near`` by a walk of so many ``hops``, or as ``source`` says.

    ``publisher``: nobody has it any more; it is empty, and becomes what the publisher's document says next.
    ``worker`` is the process that handed it over, as peers name it; "" for this one, the store and publishers.
    """

    content: Content
    version: int
    source: ContentSource
    hops: int = 0
    worker: NodeId = ""


Find = Callable[[ChannelId, int, Digest], Awaitable[LocatedContent | None]]
"""Asks other workers for a content of this version. Does not raise: whoever does not answer has nothing."""


class ContentLocator:
    """The contents that this worker has, within the cache's bounds, and the way to all others."""

    def __init__(
        self,
        channels: Channels,
        cache: Cache,
        clock: Clock,
        find: Find | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask others by ``find`` before the store; ``changed`` is called when the cache has changed."""
        self._channels = channels
        self._cache = cache
        self._clock = clock
        self._find = find
        self._tell_change = changed
        self._under_way: dict[Digest, asyncio.Future[LocatedContent | None]] = {}

    async def locate(self, cid: ChannelId, version: int, digest: Digest) -> LocatedContent:
        """Return a channel's content at a version, or at a later one if only the store has it.

        ``digest`` names it; b"" if it is not known. Raises :class:`service.errors.StoreUnavailable`.
        """
        located = await self._located(cid, version, digest)
        source = f"hop{located.hops}" if located.source == "near" else located.source
        CONTENT_LOOKUPS.labels(source).inc()
        CONTENT_BYTES.labels(source).inc(located.content.size_bytes)
        return located

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
        self._tell_change()

    async def _located(self, cid: ChannelId, version: int, digest: Digest) -> LocatedContent:
        if digest:
            content = self._cache.get(digest, self._clock.monotonic_s())
            if content is not None:
                return LocatedContent(content, version, "cache")
            handed = await self._handed(self._find, cid, version, digest) if self._find else None
            if handed is not None:
                self.put(cid, digest, handed.content)
                return msgspec.structs.replace(handed, version=version)  # who asked first may know another one
        version, digest, content = await self._channels.content(cid)
        if digest and digest_of(content) == digest:
            self.put(cid, digest, content)
        return LocatedContent(content, version, "store" if content.memory else "publisher")

    async def _handed(self, find: Find, cid: ChannelId, version: int, digest: Digest) -> LocatedContent | None:
        """Have others asked, once for all who want it now."""
        asked = self._under_way.get(digest)
        if asked is None:
            asked = self._under_way[digest] = asyncio.ensure_future(find(cid, version, digest))
            asked.add_done_callback(lambda _: self._under_way.pop(digest, None))
        return await asyncio.shield(asked)


class BaselineCache:
    """What polls remember of contents (opaque here), by channel and version: the latest read or written here.

    They may run ahead of the version's content while a document changes without saying anything new. To lose
    such a one costs nothing: the version's, which is compared with instead, knows all that was told.
    A channel that was made again is another one.
    """

    def __init__(self, contents: ContentLocator) -> None:
        """Locate in ``contents`` what is not kept here."""
        self._contents = contents
        self._kept = LRUCache[ChannelId, tuple[Channel, bytes]](
            MOST_MEMORY_BYTES, lambda kept: len(kept[1]) + _KEPT_WITH_MEMORY_BYTES
        )

    async def of(self, channel: Channel, digest: Digest) -> tuple[bytes, LocatedContent | None]:
        """Return what is remembered of this version of a channel, whose content has this digest.

        And how it was located, if it had to be: then it may be of a later version.
        Raises :class:`service.errors.StoreUnavailable`.
        """
        kept, memory = self._kept.get(channel.id, (None, b""))
        if kept is not None and (kept.created_s, kept.version) == (channel.created_s, channel.version):
            return memory, None
        located = await self._contents.locate(channel.id, channel.version, digest)
        memory = located.content.memory
        self.keep(msgspec.structs.replace(channel, version=located.version), memory)
        return memory, located

    def keep(self, channel: Channel, memory: bytes) -> None:
        """Compare this version of a channel with this from now on; what was not used for longest is forgotten."""
        self._kept.pop(channel.id, None)
        with contextlib.suppress(ValueError):  # it is larger than all that may be kept
            self._kept[channel.id] = channel, memory

    def versioned(self, channel: Channel, delta: Delta, memory: bytes, before: Digest, after: Digest) -> None:
        """Compare this version of a channel, which a delta found here has made, with this from now on."""
        self.keep(channel, memory)
        self._contents.versioned(delta, memory, before, after)
