"""The lookup of baselines: in this worker's cache, then at other workers, in the store, and last at the publisher.

A channel's *content* is the baseline with which polls compare a document, and the latest entries. Both are looked up
together.
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
from service.store.coordination.worker_requests import ContentSource

EXPIRY_S = 6 * 3600.0
"""Time after which an unused content is removed, because other nodes may poll the channel by now."""

MAX_BASELINE_BYTES = 32 * 1024 * 1024
_FRAMING_BYTES = 16
_BASELINE_OVERHEAD_BYTES = 512


class LocatedContent(msgspec.Struct, frozen=True):
    """A channel's content, and the place where it was found.

    ``source`` is the kind of place. For the source ``near`` (other workers, found by filters), ``hops`` is the number
    of workers visited on the way. The source ``publisher`` means that no copy exists: the content is empty, and the
    publisher's next document replaces it. ``worker`` is the peer id of the process that sent the content; "" if no
    other process did.
    """

    content: Content
    version: int
    source: ContentSource
    hops: int = 0
    worker: NodeId = ""


Find = Callable[[ChannelId, int, Digest], Awaitable[LocatedContent | None]]
"""Requests the content of a channel's version from other workers. Returns None if no worker sends it; never raises."""


class BaselineLookup:
    """Caches contents and baselines for this worker, and looks up those that are not cached.

    The cached baseline of a channel is the last one that this worker used. It may be newer than the baseline in the
    content of the channel's latest version, because a document can change without new entries. If the cached baseline
    is lost, the baseline in the content replaces it. That baseline contains all entries that were sent, so no entry is
    sent twice. A channel that was deleted and created again counts as another channel.
    """

    def __init__(
        self,
        channels: Channels,
        cache: ContentCache,
        clock: Clock,
        find: Find,
        on_changed: Callable[[], None],
    ) -> None:
        """Create a lookup.

        It reads contents from ``cache``, then from other workers, then from the store (``channels``). ``find`` requests
        a content from other workers. ``on_changed`` is called when the cache has changed.
        """
        self._channels = channels
        self._cache = cache
        self._clock = clock
        self._find = find
        self._on_changed = on_changed
        self._baselines = LRUCache[ChannelId, tuple[Channel, bytes]](
            MAX_BASELINE_BYTES, lambda cached: len(cached[1]) + _BASELINE_OVERHEAD_BYTES
        )
        self._requests: dict[Digest, asyncio.Future[LocatedContent | None]] = {}

    async def locate(self, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent:
        """Return a channel's content at a version; the store may return a later version.

        ``digest`` identifies the content; b"" means that it is unknown. Raises
        :class:`service.errors.StoreUnavailable`.
        """
        located = await self._locate(channel_id, version, digest)
        source = f"hop{located.hops}" if located.source == "near" else located.source
        CONTENT_LOOKUPS.labels(source).inc()
        CONTENT_BYTES.labels(source).inc(located.content.size_bytes)
        return located

    def put(self, channel_id: ChannelId, digest: Digest, content: Content) -> None:
        """Cache a channel's content in place of the previous one, unless it is too large to be sent to other workers.

        ``digest`` identifies the content.
        """
        if content.size_bytes + _FRAMING_BYTES > MAX_CONTENT_BYTES:
            self._cache.remove(channel_id)
            return
        self._cache.put(channel_id, digest, content, self._clock.monotonic_s())
        self._report_change()

    async def baseline(self, channel: Channel, digest: Digest) -> tuple[bytes, LocatedContent | None]:
        """Return the baseline for polls of a channel, and the content from which the baseline was read.

        ``digest`` identifies the content of the channel's version. The content is None if the baseline was cached;
        otherwise it may be of a later version. Raises :class:`service.errors.StoreUnavailable`.
        """
        cached, baseline = self._baselines.get(channel.id, (None, b""))
        if cached is not None and (cached.created_s, cached.version) == (channel.created_s, channel.version):
            return baseline, None
        located = await self.locate(channel.id, channel.version, digest)
        baseline = located.content.memory
        self.put_baseline(msgspec.structs.replace(channel, version=located.version), baseline)
        return baseline, located

    def put_baseline(self, channel: Channel, baseline: bytes) -> None:
        """Cache the baseline of ``channel`` at its version; the least recently used baselines may be removed."""
        self._baselines.pop(channel.id, None)
        with contextlib.suppress(ValueError):  # raised if the baseline is larger than the whole cache
            self._baselines[channel.id] = channel, baseline

    def on_versioned(self, channel: Channel, delta: Delta, baseline: bytes, before: Digest, after: Digest) -> None:
        """Cache the baseline and the content of a new version whose changes this worker has detected.

        ``delta`` has the changes, and ``channel`` is the channel at the new version. ``before`` and ``after`` are the
        digests of the previous and the new content. The new content is computed from the previous one, if that is
        cached.
        """
        self.put_baseline(channel, baseline)
        previous = self._cache.get(before, self._clock.monotonic_s())
        if previous is None or not after:
            return
        content = Content(baseline, pack_entries(merge_latest(delta.changes, unpack_entries(previous.latest))))
        if digest_of(content) == after:
            self.put(channel.id, after, content)

    def expire(self) -> None:
        """Remove contents that were not used for ``EXPIRY_S`` seconds."""
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
            received = await self._request(channel_id, version, digest)
            if received is not None:
                self.put(channel_id, digest, received.content)
                return msgspec.structs.replace(received, version=version)  # a shared request may name another
        version, digest, content = await self._channels.content(channel_id)
        if digest and digest_of(content) == digest:
            self.put(channel_id, digest, content)
        return LocatedContent(content, version, "store" if content.memory else "publisher")

    async def _request(self, channel_id: ChannelId, version: int, digest: Digest) -> LocatedContent | None:
        """Return a content that other workers have; None if no worker has it.

        ``digest`` identifies the content. Concurrent callers for the same content share a request.
        """
        request = self._requests.get(digest)
        if request is None:
            request = self._requests[digest] = asyncio.ensure_future(self._find(channel_id, version, digest))
            request.add_done_callback(lambda _: self._requests.pop(digest, None))
        return await asyncio.shield(request)
