"""Looks up the contents of channels: in this worker's cache, at other workers, in the store, and at the publisher.

A channel is a feed or page. Its *content* consists of its latest entries and its *baseline*, the state with which the
next document is compared.
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
"""Time in seconds after which unused content is removed, because other nodes may poll the channel by now."""

MAX_BASELINE_BYTES = 8 * 1024 * 1024
_FRAMING_BYTES = 16
_BASELINE_OVERHEAD_BYTES = 512


class LocatedContent(msgspec.Struct, frozen=True):
    """A channel's content (its latest entries and its baseline), and where it was found.

    The baseline is the state with which the next poll compares the document.

    - ``source``: the kind of place where the content was found. ``near`` means another worker that was found through
      Bloom filters. ``publisher`` means that no copy exists: the content is empty, and the publisher's next document
      replaces it.
    - ``hops``: the length of the path to the worker that sent the content (1 for the owner); 0 if no other worker sent
      it.
    - ``worker``: the id of the process that sent the content; "" if no other process sent it.
    """

    content: Content
    version: int
    source: ContentSource
    hops: int = 0
    worker: NodeId = ""


Find = Callable[[ChannelId, int, Digest], Awaitable[LocatedContent | None]]
"""Requests the content of a channel's version from other workers. Returns None if no worker sends it; never raises."""


class BaselineLookup:
    """Caches the contents and baselines of channels for this worker, and looks up those that are not cached.

    - A channel's baseline is the state with which the next poll compares the document.
    - A channel's content belongs to a version of the channel. It consists of the latest entries and a baseline.
    - The baseline that this worker last used is also cached separately. It may be newer than the baseline in the
      content, because a document can change without new entries.
    - If the separate baseline is no longer cached, the baseline in the content is used. It covers all entries that
      were sent to subscribers, so that no entry is sent twice.
    """

    # A channel that was deleted and created again counts as another channel.

    def __init__(
        self,
        channels: Channels,
        cache: ContentCache,
        clock: Clock,
        find: Find,
        on_changed: Callable[[], None],
    ) -> None:
        """Create a lookup for channels' contents (their latest entries and baselines).

        - Contents are looked up in ``cache``, then at other workers, then in the store (``channels``).
        - ``find`` requests the content of a channel from other workers.
        - ``on_changed`` is called when the cache has changed.
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
        """Return the content of a channel (its latest entries and its baseline) at a version.

        ``digest`` is the hash of the content; b"" if unknown. If the content comes from the store, it may be of a later
        version. Raises :class:`service.errors.StoreUnavailable`.
        """
        located = await self._locate(channel_id, version, digest)
        source = f"hop{located.hops}" if located.source == "near" else located.source
        CONTENT_LOOKUPS.labels(source).inc()
        CONTENT_BYTES.labels(source).inc(located.content.size_bytes)
        return located

    def put(self, channel_id: ChannelId, digest: Digest, content: Content) -> None:
        """Cache the content of a channel (its latest entries and its baseline), replacing any older content.

        ``digest`` is the hash of the content. Content that is too large to be sent to other workers is not cached.
        """
        if content.size_bytes + _FRAMING_BYTES > MAX_CONTENT_BYTES:
            self._cache.remove(channel_id)
            return
        self._cache.put(channel_id, digest, content, self._clock.monotonic_s())
        self._report_change()

    async def baseline(self, channel: Channel, digest: Digest) -> tuple[bytes, LocatedContent | None]:
        """Return (baseline, content): a channel's baseline, and the content from which it was read.

        The baseline is the state with which the next poll compares the document. If the baseline is cached,
        ``content`` is None. Otherwise, the content is looked up; it may be of a later version than
        ``channel.version``.

        ``digest`` is the hash of the content at ``channel.version``. Raises :class:`service.errors.StoreUnavailable`.
        """
        cached, baseline = self._baselines.get(channel.id, (None, b""))
        if cached is not None and (cached.created_s, cached.version) == (channel.created_s, channel.version):
            return baseline, None
        located = await self.locate(channel.id, channel.version, digest)
        baseline = located.content.memory
        self.put_baseline(msgspec.structs.replace(channel, version=located.version), baseline)
        return baseline, located

    def put_baseline(self, channel: Channel, baseline: bytes) -> None:
        """Cache ``baseline``, the state with which the next poll of ``channel`` compares the document.

        This may evict the least recently used baselines.
        """
        self._baselines.pop(channel.id, None)
        with contextlib.suppress(ValueError):  # raised if the baseline is larger than the whole cache
            self._baselines[channel.id] = channel, baseline

    def on_versioned(self, channel: Channel, delta: Delta, baseline: bytes, before: Digest, after: Digest) -> None:
        """Cache the baseline and content of a new version whose changes this worker has detected.

        - ``channel`` is the channel at the new version, and ``delta`` contains the changes.
        - ``baseline`` is the state with which the next poll compares the document.
        - ``before`` and ``after`` are the hashes of the previous and the new content (baseline and latest entries).
        """
        # The new content is computed from the previous one, if that is cached.
        self.put_baseline(channel, baseline)
        previous = self._cache.get(before, self._clock.monotonic_s())
        if previous is None or not after:
            return
        content = Content(baseline, pack_entries(merge_latest(delta.changes, unpack_entries(previous.latest))))
        if digest_of(content) == after:
            self.put(channel.id, after, content)

    def expire(self) -> None:
        """Remove contents that have not been used for ``EXPIRY_S`` seconds."""
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
        """Request a channel's content at ``version`` from other workers; return None if no worker has it.

        ``digest`` is the hash of the content. Concurrent calls for the same content share one request.
        """
        request = self._requests.get(digest)
        if request is None:
            request = self._requests[digest] = asyncio.ensure_future(self._find(channel_id, version, digest))
            request.add_done_callback(lambda _: self._requests.pop(digest, None))
        return await asyncio.shield(request)
