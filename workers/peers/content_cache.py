"""The contents of channels that this worker has cached, and the order in which it looks for others.

A content is looked up in this worker's cache, at other workers, in the store, and at last at the publisher.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
from cachetools import LRUCache

from service.clock import Clock
from service.location.content_cache import (
    MAX_CONTENT_BYTES,
    Content,
    ContentCache,
    Digest,
    digest_of,
    merge_latest,
    pack_entries,
    unpack_entries,
)
from service.model import Channel, ChannelId, Delta, NodeId
from service.observability.metrics import CACHE_BYTES, CACHE_ENTRIES, CONTENT_BYTES, CONTENT_LOOKUPS
from service.store.channels.channels import Channels
from service.store.coordination.requests import ContentSource

EXPIRY_S = 6 * 3600.0
"""A content that was not used for so long is removed: other nodes may poll the channel by now."""

MAX_BASELINE_BYTES = 32 * 1024 * 1024
_FRAMING_BYTES = 16
_BASELINE_OVERHEAD_BYTES = 512


class LocatedContent(msgspec.Struct, frozen=True):
    """A content, and where it was found: ``near`` by a walk of so many ``hops``, or as ``source`` says.

    The source ``publisher`` means that no copy exists any more: the content is empty, and the publisher's next document
    replaces it. ``worker`` is the process that sent the content, by its peer id; "" for this one, the store and
    publishers.
    """

    content: Content
    version: int
    source: ContentSource
    hops: int = 0
    worker: NodeId = ""


Find = Callable[[ChannelId, int, Digest], Awaitable[LocatedContent | None]]
"""Requests the content of a channel's version from other workers. Returns None if no worker sends it; never raises."""


class ContentLocator:
    """The content cache of this worker, and the way to contents that are not in it."""

    def __init__(
        self,
        channels: Channels,
        cache: ContentCache,
        clock: Clock,
        find: Find | None = None,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Call ``find``, if there is one, before the store is read, and ``on_changed`` when the cache has changed."""
        self._channels = channels
        self._cache = cache
        self._clock = clock
        self._find = find
        self._on_changed = on_changed
        self._requests: dict[Digest, asyncio.Future[LocatedContent | None]] = {}

    async def locate(self, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent:
        """Return a channel's content at a version, or at a later one if only the store has it.

        ``digest`` names the content; b"" if it is not known. Raises :class:`service.errors.StoreUnavailable`.
        """
        located = await self._locate(channel_id, version, digest)
        source = f"hop{located.hops}" if located.source == "near" else located.source
        CONTENT_LOOKUPS.labels(source).inc()
        CONTENT_BYTES.labels(source).inc(located.content.size_bytes)
        return located

    def put(self, channel_id: ChannelId, digest: Digest, content: Content) -> None:
        """Cache a channel's content instead of its previous one, unless it is too large to be sent to other workers."""
        if content.size_bytes + _FRAMING_BYTES > MAX_CONTENT_BYTES:
            self._cache.remove(channel_id)
            return
        self._cache.put(channel_id, digest, content, self._clock.monotonic_s())
        self._report_change()

    def on_versioned(self, delta: Delta, baseline: bytes, before: Digest, after: Digest) -> None:
        """Cache the content ``after`` a delta that this worker detected, if the content ``before`` it is cached."""
        previous = self._cache.get(before, self._clock.monotonic_s())
        if previous is None or not after:
            return
        content = Content(baseline, pack_entries(merge_latest(delta.changes, unpack_entries(previous.latest))))
        if digest_of(content) == after:
            self.put(delta.channel, after, content)

    def expire(self) -> None:
        """Remove contents that were not used for ``EXPIRY_S``."""
        before_bytes = self._cache.size_bytes
        self._cache.expire(self._clock.monotonic_s())
        if self._cache.size_bytes != before_bytes:
            self._report_change()

    def _report_change(self) -> None:
        CACHE_BYTES.set(self._cache.size_bytes)
        CACHE_ENTRIES.set(len(self._cache.digests))
        self._on_changed()

    async def _locate(self, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent:
        if digest:
            content = self._cache.get(digest, self._clock.monotonic_s())
            if content is not None:
                return LocatedContent(content, version, "cache")
            received = await self._request(self._find, channel_id, version, digest) if self._find else None
            if received is not None:
                self.put(channel_id, digest, received.content)
                return msgspec.structs.replace(received, version=version)  # a shared request may have named another one
        version, digest, content = await self._channels.content(channel_id)
        if digest and digest_of(content) == digest:
            self.put(channel_id, digest, content)
        return LocatedContent(content, version, "store" if content.memory else "publisher")

    async def _request(self, find: Find, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent | None:
        """Request a content from other workers; concurrent callers share one request."""
        request = self._requests.get(digest)
        if request is None:
            request = self._requests[digest] = asyncio.ensure_future(find(channel_id, version, digest))
            request.add_done_callback(lambda _: self._requests.pop(digest, None))
        return await asyncio.shield(request)


class BaselineCache:
    """The baselines (opaque here) with which polls compare, by channel and version: the latest read or written here.

    A baseline may be newer than that of the version's content while a document changes without new entries. Losing it
    costs nothing: the version's baseline, which replaces it, contains all entries that were sent. A channel that was
    deleted and created again counts as another one.
    """

    def __init__(self, contents: ContentLocator) -> None:
        """Locate baselines that are not cached in ``contents``."""
        self._contents = contents
        self._baselines = LRUCache[ChannelId, tuple[Channel, bytes]](
            MAX_BASELINE_BYTES, lambda cached: len(cached[1]) + _BASELINE_OVERHEAD_BYTES
        )

    async def get(self, channel: Channel, digest: Digest) -> tuple[bytes, LocatedContent | None]:
        """Return the baseline of this version of a channel, whose content has this digest, and the located content.

        The second is None if the baseline was cached; otherwise it may be of a later version.
        Raises :class:`service.errors.StoreUnavailable`.
        """
        cached, baseline = self._baselines.get(channel.id, (None, b""))
        if cached is not None and (cached.created_s, cached.version) == (channel.created_s, channel.version):
            return baseline, None
        located = await self._contents.locate(channel.id, channel.version, digest)
        baseline = located.content.memory
        self.put(msgspec.structs.replace(channel, version=located.version), baseline)
        return baseline, located

    def put(self, channel: Channel, baseline: bytes) -> None:
        """Set the baseline of this version of a channel; the least recently used ones are removed."""
        self._baselines.pop(channel.id, None)
        with contextlib.suppress(ValueError):  # it is larger than the whole cache
            self._baselines[channel.id] = channel, baseline

    def on_versioned(self, channel: Channel, delta: Delta, baseline: bytes, before: Digest, after: Digest) -> None:
        """Set the baseline of a version that was made from a delta detected here, and cache its content."""
        self.put(channel, baseline)
        self._contents.on_versioned(delta, baseline, before, after)
