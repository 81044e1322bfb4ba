"""The contents of channels, and a worker's cache of them.

Each content is identified by its *digest*, a hash. A client gets the digest from a trusted source: the channel's owner
or the store. Therefore it can verify a copy received from any other worker.

A notice is a message about the channel itself. If a new version only adds a notice, the content does not change.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, KeysView, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import TypeVar

import msgspec

from service.errors import PeerProtocolError
from service.model import Change, ChannelId, Entry

Digest = bytes
"""A digest: a BLAKE2b hash of 16 bytes that identifies a channel's content; empty if unknown."""

DIGEST_BYTES = 16
MAX_LATEST_ENTRIES = 10
"""Maximum number of entries in ``Content.latest``."""
MAX_CONTENT_BYTES = 4 * 1024 * 1024
"""Maximum size of a channel's content that workers send to each other."""
_LENGTH_BYTES = 4
_MAX_LATEST_BYTES = 1024 * 1024


class Content(msgspec.Struct, frozen=True, gc=False):
    """The content of one version of a channel. Workers send such contents to each other.

    - ``memory``: the encoded state of the channel after a poll. The next poll needs it to detect changes.
    - ``latest``: the channel's latest entries, encoded by :func:`pack_entries`.
    """

    memory: bytes
    latest: bytes

    @property
    def size_bytes(self) -> int:
        """The size of the content in bytes."""
        return len(self.memory) + len(self.latest)


def digest_of(content: Content) -> Digest:
    """Return the digest that identifies ``content`` (BLAKE2b, 16 bytes).

    Equal contents have the same digest in every process.
    """
    digest = blake2b(len(content.memory).to_bytes(_LENGTH_BYTES, "big"), digest_size=DIGEST_BYTES)
    digest.update(content.memory)
    digest.update(content.latest)
    return digest.digest()


def encode(content: Content) -> tuple[bytes, bytes, bytes]:
    """Encode ``content`` as three buffers: the length of ``memory``, ``memory`` itself, and ``latest``.

    The bytes of ``content`` are not copied.
    """
    return len(content.memory).to_bytes(_LENGTH_BYTES, "big"), content.memory, content.latest


def decode(data: memoryview) -> Content:
    """Decode ``data``, the concatenation of the buffers that :func:`encode` returned.

    Raises :class:`PeerProtocolError` for malformed data.
    """
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    if not _LENGTH_BYTES <= end <= len(data):
        raise PeerProtocolError("A content says that it is longer than it is.", reason="malformed")
    return Content(bytes(data[_LENGTH_BYTES:end]), bytes(data[end:]))


def merge_latest(changes: Sequence[Change], before: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return excerpts of a channel's latest entries after ``changes``, newest first; at most ``MAX_LATEST_ENTRIES``.

    - ``changes``: the changes, oldest first.
    - ``before``: the channel's latest entries before these changes, newest first.
    """
    found: dict[str, Entry] = {}
    changed = (change.entry for change in reversed(changes) if change.kind != "omission")
    for entry in chain(changed, before):
        found.setdefault(entry.key, entry)
    return tuple(entry.excerpt() for entry in islice(found.values(), MAX_LATEST_ENTRIES))


def pack_entries(latest: Sequence[Entry]) -> bytes:
    """Encode entries in the format of ``Content.latest``. The result is empty if there are no entries."""
    return zlib.compress(msgspec.msgpack.encode(tuple(latest))) if latest else b""


def unpack_entries(latest: bytes) -> tuple[Entry, ...]:
    """Decode the entries in ``latest``, which must be in the format of ``Content.latest``.

    Raises :class:`PeerProtocolError` for malformed data.
    """
    return _unpack(latest, _decode_entries) if latest else ()


def unpack_titles(latest: bytes) -> list[str]:
    """Return the titles of the entries in ``latest``, which must be in the format of ``Content.latest``.

    This is faster than decoding the entries. Raises :class:`PeerProtocolError` for malformed data.
    """
    return [entry.title for entry in _unpack(latest, _decode_titles)] if latest else []


class _Title(msgspec.Struct, gc=False):
    """The title of an entry; the other fields are not decoded."""

    title: str = ""


_T = TypeVar("_T")
_decode_entries = msgspec.msgpack.Decoder(tuple[Entry, ...]).decode
_decode_titles = msgspec.msgpack.Decoder(tuple[_Title, ...]).decode


def _unpack(latest: bytes, decode: Callable[[bytes], _T]) -> _T:
    try:
        return decode(zlib.decompressobj().decompress(latest, _MAX_LATEST_BYTES))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise PeerProtocolError(f"A content's entries cannot be read: {error}.", reason="malformed") from error


_OVERHEAD_BYTES = 400
"""How much memory the Python objects of one cached content need in addition to its bytes."""


class _CachedContent(msgspec.Struct, gc=False):
    digest: Digest
    content: Content
    used_s: float


class ContentCache:
    """An in-memory cache of channel contents, which are looked up by digest (hash).

    The cache holds at most one content per channel. If it is full, the least recently used contents are removed first.
    In all methods, ``now_s`` is the current monotonic time in seconds.
    """

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        """Create an empty cache of at most ``max_bytes`` bytes.

        A cached content expires ``ttl_s`` seconds after its last use.
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
        """The digests (hashes) of all contents in the cache."""
        return self._channels.keys()

    def get(self, digest: Digest, now_s: float) -> Content | None:
        """Return the content with this digest (hash), and record that it was used; None if it is absent or expired."""
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
        """Store the content of the channel ``cid``, so that it can be looked up by its ``digest`` (hash).

        The channel's previous content is removed. If another channel has content with the same digest, the other
        channel's content is also removed. If the cache then exceeds its maximum size, the least recently used
        contents are removed.
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
