"""Contents of channels, and a worker's cache of them.

Each content is identified by its *digest*, a hash. A client gets the digest from a trusted place (the channel's owner
or the store), so that it can verify a copy from any other worker. A version of a channel that only adds a notice (a
message about the channel itself) has the same content as the version before.
"""

import zlib
from collections import OrderedDict
from collections.abc import KeysView, Sequence
from hashlib import blake2b
from itertools import chain

import msgspec

from service.errors import PeerProtocolError
from service.model import Change, ChannelId, Entry

Digest = bytes
"""A digest: a BLAKE2b hash of 16 bytes that identifies a content; empty if unknown."""

DIGEST_BYTES = 16
MAX_LATEST_ENTRIES = 10
"""Maximum number of latest entries in a content."""
MAX_CONTENT_BYTES = 4 * 1024 * 1024
"""Maximum size of a content that is exchanged."""
_LENGTH_BYTES = 4
_MAX_LATEST_BYTES = 1024 * 1024


class Content(msgspec.Struct, frozen=True, gc=False):
    """The content of one version of a channel.

    - ``memory``: encoded state with which the next poll finds the changes of the channel's document.
    - ``latest``: the channel's latest entries in the format of :func:`pack_entries`.
    """

    memory: bytes
    latest: bytes

    @property
    def size_bytes(self) -> int:
        """The size of the content in bytes."""
        return len(self.memory) + len(self.latest)


def digest_of(content: Content) -> Digest:
    """Return the hash that identifies a content (BLAKE2b, 16 bytes). It is the same in every process."""
    digest = blake2b(len(content.memory).to_bytes(_LENGTH_BYTES, "big"), digest_size=DIGEST_BYTES)
    digest.update(content.memory)
    digest.update(content.latest)
    return digest.digest()


def encode(content: Content) -> tuple[bytes, bytes, bytes]:
    """Return a content as three buffers: the length of ``memory``, ``memory``, and ``latest``.

    The content is not copied.
    """
    return len(content.memory).to_bytes(_LENGTH_BYTES, "big"), content.memory, content.latest


def decode(data: memoryview) -> Content:
    """Return the decoded content. Raises :class:`PeerProtocolError` for malformed data."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    if not _LENGTH_BYTES <= end <= len(data):
        raise PeerProtocolError("A content says that it is longer than it is.", reason="malformed")
    return Content(bytes(data[_LENGTH_BYTES:end]), bytes(data[end:]))


def merge_latest(changes: Sequence[Change], before: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return a channel's latest entries after ``changes``: the newest first, at most ``MAX_LATEST_ENTRIES``.

    - ``changes``: the changes in order of time, the oldest first.
    - ``before``: the channel's latest entries before these changes, the newest first.
    """
    found: dict[str, Entry] = {}
    changed = (change.entry for change in reversed(changes) if change.kind != "omission")
    for entry in chain(changed, before):
        found.setdefault(entry.key, entry)
    return tuple(found.values())[:MAX_LATEST_ENTRIES]


def pack_entries(latest: Sequence[Entry]) -> bytes:
    """Encode entries in the format of ``Content.latest``; the result is empty if there are no entries."""
    return zlib.compress(msgspec.msgpack.encode(tuple(latest))) if latest else b""


def unpack_entries(latest: bytes) -> tuple[Entry, ...]:
    """Return the entries in ``Content.latest``. Raises :class:`PeerProtocolError` for malformed data."""
    if not latest:
        return ()
    try:
        return msgspec.msgpack.decode(
            zlib.decompressobj().decompress(latest, _MAX_LATEST_BYTES), type=tuple[Entry, ...]
        )
    except (zlib.error, msgspec.MsgspecError) as error:
        raise PeerProtocolError(f"A content's entries cannot be read: {error}.", reason="malformed") from error


_OVERHEAD_BYTES = 400
"""Memory that Python objects need for one content besides its bytes."""


class _CachedContent(msgspec.Struct, gc=False):
    digest: Digest
    content: Content
    used_s: float


class ContentCache:
    """An in-memory cache of contents by digest (hash), with at most one content for each channel.

    The least recently used contents are removed first. ``now_s`` is monotonic time in seconds.
    """

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        """Create an empty cache for at most ``max_bytes`` bytes.

        A content expires ``ttl_s`` seconds after its last use.
        """
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._bytes = 0
        self._contents: OrderedDict[ChannelId, _CachedContent] = OrderedDict()
        self._channels: dict[Digest, ChannelId] = {}

    @property
    def size_bytes(self) -> int:
        """The size of all contents in bytes, including the memory that Python needs for them."""
        return self._bytes

    @property
    def digests(self) -> KeysView[Digest]:
        """The digests (hashes) of all contents."""
        return self._channels.keys()

    def get(self, digest: Digest, now_s: float) -> Content | None:
        """Return the content with this digest (hash) and mark it as used; None if it is absent or expired."""
        cid = self._channels.get(digest)
        if cid is None:
            return None
        cached = self._contents[cid]
        if now_s - cached.used_s > self._ttl_s:
            self.remove(cid)
            return None
        cached.used_s = now_s
        self._contents.move_to_end(cid)
        return cached.content

    def put(self, cid: ChannelId, digest: Digest, content: Content, now_s: float) -> None:
        """Store the content of the channel ``cid`` under its digest (hash), in place of the channel's previous content.

        If another channel has a content with the same digest, that content is removed. If the cache exceeds its size,
        the least recently used contents are removed.
        """
        self.remove(cid)
        if (same := self._channels.get(digest)) is not None:
            self.remove(same)
        self._contents[cid] = _CachedContent(digest, content, now_s)
        self._channels[digest] = cid
        self._bytes += content.size_bytes + _OVERHEAD_BYTES
        while self._bytes > self._max_bytes:
            self.remove(next(iter(self._contents)))

    def remove(self, cid: ChannelId) -> None:
        """Remove the content of the channel ``cid``, if present."""
        cached = self._contents.pop(cid, None)
        if cached is not None:
            del self._channels[cached.digest]
            self._bytes -= cached.content.size_bytes + _OVERHEAD_BYTES

    def expire(self, now_s: float) -> None:
        """Remove the contents that have expired by ``now_s``."""
        while self._contents and now_s - next(iter(self._contents.values())).used_s > self._ttl_s:
            self.remove(next(iter(self._contents)))
