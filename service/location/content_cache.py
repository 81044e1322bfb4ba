"""Contents of channels at one of their versions, named by their digests, and the cache of those that a worker has.

Who looks for a content knows its digest from the channel's owner or from the store, so a copy proves itself, whoever
hands it over. Versions that leave the content as it was (notices) are the same document.
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
"""16 bytes of BLAKE2b; b"" where it is not known."""

DIGEST_BYTES = 16
LATEST = 10
"""So many of the latest entries are part of a content."""
MOST_BYTES = 4 * 1024 * 1024
"""No content is handed over that is larger."""
_LENGTH_BYTES = 4
_MOST_LATEST_BYTES = 1024 * 1024


class Content(msgspec.Struct, frozen=True, gc=False):
    """``memory`` is the base that polls compare with (opaque here); ``latest`` the latest entries, packed."""

    memory: bytes
    latest: bytes

    @property
    def size_bytes(self) -> int:
        """How much it is to keep, and to hand over."""
        return len(self.memory) + len(self.latest)


def digest_of(content: Content) -> Digest:
    """Return the content's name, the same in every process."""
    digest = blake2b(len(content.memory).to_bytes(_LENGTH_BYTES, "big"), digest_size=DIGEST_BYTES)
    digest.update(content.memory)
    digest.update(content.latest)
    return digest.digest()


def encode(content: Content) -> tuple[bytes, bytes, bytes]:
    """Return the bytes that :func:`decode` understands, in pieces, of which none is a copy."""
    return len(content.memory).to_bytes(_LENGTH_BYTES, "big"), content.memory, content.latest


def decode(data: memoryview) -> Content:
    """Return the content of these bytes. Raises :class:`PeerProtocolError` if they are none."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    if not _LENGTH_BYTES <= end <= len(data):
        raise PeerProtocolError("A content says that it is longer than it is.", reason="malformed")
    return Content(bytes(data[_LENGTH_BYTES:end]), bytes(data[end:]))


def newest(changes: Sequence[Change], before: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return a channel's latest entries, newest first, after changes (oldest first) to what they were before."""
    found: dict[str, Entry] = {}
    told = (change.entry for change in reversed(changes) if change.kind != "omission")
    for entry in chain(told, before):
        found.setdefault(entry.key, entry)
    return tuple(found.values())[:LATEST]


def packed(latest: Sequence[Entry]) -> bytes:
    """Return entries as they are part of a content; b"" for none."""
    return zlib.compress(msgspec.msgpack.encode(tuple(latest))) if latest else b""


def unpacked(latest: bytes) -> tuple[Entry, ...]:
    """Return the entries of a content. Raises :class:`PeerProtocolError` if they cannot be read."""
    if not latest:
        return ()
    try:
        return msgspec.msgpack.decode(
            zlib.decompressobj().decompress(latest, _MOST_LATEST_BYTES), type=tuple[Entry, ...]
        )
    except (zlib.error, msgspec.MsgspecError) as error:
        raise PeerProtocolError(f"A content's entries cannot be read: {error}.", reason="malformed") from error


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
